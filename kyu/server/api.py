"""
The API server as one value, without sockets: a Request in, a Response out.

This is where the parts are put together; nothing is decided here. START HERE to find who answers what.

Called by: app.py, tests. Calls: everything else in server/.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from kyu.server import auth, builtin, pods, rbac, reviews, routes, scale, writes
from kyu.server.admission import Admission
from kyu.server.database import Database
from kyu.server.definitions import Definitions
from kyu.server.deletion import Deletion
from kyu.server.exchange import Request, Response, User
from kyu.server.expiry import Expiry
from kyu.server.gc import GarbageCollector
from kyu.server.inside import Inside
from kyu.server.metrics import Metrics
from kyu.server.namespaces import Cleaner, Lifecycle
from kyu.server.objects import Objects
from kyu.server.pages import Pages
from kyu.server.reads import Reads
from kyu.server.registry import Registry
from kyu.server.store import Store
from kyu.server.watch import Hub, Tell, Watcher

# The user of everything that runs in the same process.
INTERNAL = User("system:kyu", (auth.MASTERS, auth.AUTHENTICATED))


class Api:
    def __init__(self, path: Path, clock: Callable[[], datetime], logs: pods.Logs | None = None) -> None:
        """Reads the database; must be called in a running event loop."""
        self.store = Store(Database(path))
        self.registry = Registry()
        self.registry.add(builtin.resources())
        self.hub = Hub(self.store)
        self.objects = Objects(self.store)
        self.tokens = auth.Tokens(self.store)
        self.authorizer = rbac.Authorizer(self.store)
        self.metrics = Metrics(self.store, self.hub)
        lifecycle = Lifecycle(self.store)
        self.admission = Admission(self.store, self.authorizer, lifecycle)
        self.writes = writes.Writes(self.objects, clock, self.admission.admit)
        inside = Inside(self.registry, self.objects, self.writes, INTERNAL)
        self.add, self.merge = inside.add, inside.merge
        self.reads = Reads(self.store, self.hub)
        self.deletion = Deletion(self.objects, self.reads, clock, lifecycle.objection)
        self.definitions = Definitions(self.store, self.registry, self.hub, self.objects, self.deletion, clock)
        self.collector = GarbageCollector(self.store, self.registry, self.objects, self.deletion)
        self.cleaner = Cleaner(self.store, self.registry, self.objects, self.deletion)
        self.expiry = Expiry(self.objects, clock)
        self._routes = self._make_routes(clock, logs)

    def handle(self, request: Request) -> Coroutine[Any, Any, Response]:
        return self.metrics.measured(self._routes, request)

    async def serve(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes | AsyncGenerator[bytes, None]]:
        """The same for clients in this process, in the form that kube/direct.py calls."""
        response = await self._routes(Request(method, path, query, headers, body, INTERNAL))
        answer = response.body if isinstance(response.body, bytes) else response.body.parts()
        return response.status, response.headers, answer

    async def follow(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str], tell: Tell
    ) -> tuple[int, Mapping[str, str], bytes] | None:
        """A watch for clients in this process, which are told of its events until it ends; or why there is none."""
        response = await self._routes(Request("GET", path, query, headers, b"", INTERNAL))
        if isinstance(response.body, Watcher):
            await response.body.deliver(tell)
            return None
        assert isinstance(response.body, bytes), "only watches are followed"
        return response.status, response.headers, response.body

    async def close(self) -> None:
        await self.store.close()

    def _make_routes(self, clock: Callable[[], datetime], logs: pods.Logs | None) -> routes.Routes:
        reads, changes, deletion = self.reads, self.writes, self.deletion
        scales = scale.Scale(self.objects, changes, clock)
        pod = pods.Pods(self.objects, deletion, clock, logs)
        verbs: dict[str, routes.Verb] = {
            "get": reads.get,
            "list": reads.collection,
            "create": changes.create,
            "update": changes.update,
            "patch": changes.patch,
            "delete": deletion.delete,
            "deletecollection": deletion.delete_collection,
        }
        review = routes.review(self.authorizer, clock)
        subresources: dict[str, Mapping[str, routes.Verb]] = {
            "": {"GET": reads.get, "HEAD": reads.get, "PUT": changes.update, "PATCH": changes.patch},
            "scale": {"GET": scales.get, "PUT": scales.update, "PATCH": scales.patch},
            "binding": {"POST": pod.bind},
            "eviction": {"POST": pod.evict},
            "log": {"GET": pod.log},
            "ephemeralcontainers": {"GET": reads.get, "PUT": pod.refuse, "PATCH": pod.refuse},
            "resize": {"GET": reads.get, "PUT": pod.refuse, "PATCH": pod.refuse},
        }
        special = {f"{kind.plural}.{kind.group}": review for kind in reviews.KINDS}
        pages = Pages(self.registry, self.metrics)
        return routes.Routes(self.registry, self.authorizer, verbs, special, subresources, pages.table())
