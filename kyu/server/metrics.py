"""The metrics of the server, with the names that dashboards for Kubernetes know."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from kyu.server import options
from kyu.server.exchange import Handler, Request, Response
from kyu.server.storage.store import Store
from kyu.server.verbs.watch import Hub

VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Durations(Collector):
    """How long requests took, by verb. Plain numbers, which become a histogram only when they are collected."""

    def __init__(self) -> None:
        verbs = (*dict.fromkeys(VERBS.values()), "watch", "other")
        self._counts = {verb: [0] * (len(BUCKETS) + 1) for verb in verbs}
        self._seconds = dict.fromkeys(verbs, 0.0)

    def note(self, verb: str, seconds: float) -> None:
        self._counts[verb][bisect_left(BUCKETS, seconds)] += 1
        self._seconds[verb] += seconds

    def collect(self) -> Iterator[HistogramMetricFamily]:
        text = "Time from a request to its answer; of a watch, to its first byte."
        family = HistogramMetricFamily("apiserver_request_duration_seconds", text, labels=["verb"])
        for verb, counts in self._counts.items():
            limits = (*map(str, BUCKETS), "+Inf")
            buckets = list(zip(limits, map(float, accumulate(counts)), strict=True))
            family.add_metric([verb], buckets=buckets, sum_value=self._seconds[verb])
        yield family


class Metrics:
    def __init__(self, store: Store, hub: Hub) -> None:
        self._store = store
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._durations = Durations()
        self.registry.register(self._durations)
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
        """Return the answer of the handler, and count the time that it took."""
        verb = "watch" if options.is_watch(request.query) else VERBS.get(request.method, "other")
        self._in_flight += 1
        start = time.perf_counter()
        try:
            return await handler(request)
        finally:
            self._in_flight -= 1
            self._durations.note(verb, time.perf_counter() - start)

    def render(self) -> bytes:
        self._objects.clear()
        for resource in self._store.resources():
            self._objects.labels(resource).set(self._store.count(resource))
        return generate_latest(self.registry)
