"""
What the server tells about itself at /metrics, with the names that dashboards for Kubernetes know.

Called by: server/api.py for each request, server/pages.py to show it.
"""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest

from kyu.server import options
from kyu.server.exchange import Handler, Request, Response
from kyu.server.store import Store
from kyu.server.watch import Hub

VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    def __init__(self, store: Store, hub: Hub) -> None:
        self._store = store
        self.registry = CollectorRegistry()
        seconds = Histogram(
            "apiserver_request_duration_seconds",
            "Time from a request to its answer; of a watch, to its first byte.",
            ["verb"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._seconds = {verb: seconds.labels(verb) for verb in (*set(VERBS.values()), "watch", "other")}
        self._in_flight = 0
        waiting = Gauge(
            "apiserver_current_inflight_requests", "Requests that wait for their answer.", registry=self.registry
        )
        waiting.set_function(lambda: float(self._in_flight))
        watchers = Gauge("apiserver_longrunning_requests", "Open watches.", registry=self.registry)
        watchers.set_function(hub.count)
        version = Gauge("kyu_store_version", "The version of the last change.", registry=self.registry)
        version.set_function(lambda: float(store.version))
        self._objects = Gauge("apiserver_resource_objects", "Stored objects.", ["resource"], registry=self.registry)

    async def measured(self, handler: Handler, request: Request) -> Response:
        """The answer of the handler, and a note of how long it took."""
        verb = "watch" if options.is_watch(request.query) else VERBS.get(request.method, "other")
        self._in_flight += 1
        start = time.perf_counter()
        try:
            return await handler(request)
        finally:
            self._in_flight -= 1
            self._seconds[verb].observe(time.perf_counter() - start)

    def render(self) -> bytes:
        self._objects.clear()
        for resource in self._store.resources():
            self._objects.labels(resource).set(self._store.count(resource))
        return generate_latest(self.registry)
