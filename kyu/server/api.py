"""
The API server as one value, without sockets: a Request in, a Response out.

This is where the parts are put together; nothing is decided here. START HERE to find the part that answers a request.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, cast

from kyu.server import errors
from kyu.server.admission.admission import AdmissionChain
from kyu.server.admission.namespaces import NamespaceLifecycle
from kyu.server.auth import auth, rbac
from kyu.server.auth.account_tokens import ISSUER, AccountTokens
from kyu.server.auth.signing import TokenSigner
from kyu.server.auth.unix_tokens import UnixTokens
from kyu.server.background.definitions import Definitions
from kyu.server.background.expiry import Expiry
from kyu.server.background.gc import GarbageCollector
from kyu.server.background.namespaces import Cleaner
from kyu.server.builtin import reviews as builtin_reviews
from kyu.server.builtin import table
from kyu.server.exchange import Request, Response, ResponseStream, User
from kyu.server.metrics import Metrics
from kyu.server.registry import Registry, Resource
from kyu.server.routing import routes
from kyu.server.routing.pages import Pages
from kyu.server.storage.database import Database
from kyu.server.storage.store import Store
from kyu.server.streams.pods import PodStreams, StreamVerbs
from kyu.server.verbs import pod_subresources, scale, service_accounts, write
from kyu.server.verbs.delete import Deletion
from kyu.server.verbs.get_list import Reads
from kyu.server.verbs.in_process import InProcessWrites
from kyu.server.verbs.objects import Objects
from kyu.server.verbs.watch import Hub, Tell, Watcher

# The user of everything that runs in the same process.
INTERNAL = User("system:kyu", (auth.MASTERS, auth.AUTHENTICATED))


class PodAccess(pod_subresources.PodLogs, PodStreams, Protocol):
    """Everything that the runtime gives the server."""


class Api:
    def __init__(self, path: Path, clock: Callable[[], datetime], pods: PodAccess | None = None) -> None:
        """Reads the database; must be called in a running event loop."""
        self.store = Store(Database(path))
        self.registry = Registry()
        self.registry.add(table.resources())
        self.hub = Hub(self.store)
        self.objects = Objects(self.store)
        signer = TokenSigner(path.parent)
        self.account_tokens = AccountTokens(signer, self.store, clock)
        self.unix_tokens = UnixTokens(signer, clock)
        self.tokens = auth.Tokens(self.store, clock, self._authenticate_signed)
        self.authorizer = rbac.Authorizer(self.store)
        self.metrics = Metrics(self.store, self.hub)
        lifecycle = NamespaceLifecycle(self.store)
        self.admission = AdmissionChain(self.store, self.authorizer, lifecycle, INTERNAL)
        self.writes = write.Writes(self.objects, clock, self.admission.admit)
        in_process = InProcessWrites(self.registry, self.objects, self.writes, INTERNAL)
        self.add, self.merge = in_process.add, in_process.merge
        self.reads = Reads(self.store, self.hub)
        self.deletion = Deletion(self.objects, self.reads, clock, lifecycle.check_delete)
        self.definitions = Definitions(self.store, self.registry, self.hub, self.objects, self.deletion, clock)
        self.collector = GarbageCollector(self.store, self.registry, self.objects, self.deletion)
        self.cleaner = Cleaner(self.store, self.registry, self.objects, self.deletion)
        self.expiry = Expiry(self.objects, clock)
        self._routes = self._make_routes(clock, pods)

    def _authenticate_signed(self, token: str) -> User:
        """Return the user of a signed token, or raise a 401."""
        account = self.account_tokens.find(token)
        user = account.user if account is not None and ISSUER in account.audiences else self.unix_tokens.find(token)
        if user is None:
            raise errors.unauthorized()
        return user

    def handle(self, request: Request) -> Coroutine[Any, Any, Response]:
        return self.metrics.measured(self._routes, request)

    def add_subresource(self, name: str, verbs: Mapping[str, routes.Verb], resources: Iterable[Resource]) -> None:
        """Serve resources with a subresource that another part of the process answers."""
        self._subresources[name] = verbs
        self.registry.add(resources)

    def add_collection(self, resource: Resource, verb: routes.Verb) -> None:
        """Serve a resource whose requests another part of the process answers. Nothing of it is stored."""
        self._special[resource.storage] = verb
        self.registry.add([resource])

    def check_guest(self, request: Request) -> None:
        """Raise if a caller without a token may not make this request, whatever its body."""
        self._routes.check(request)

    async def serve(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes | AsyncGenerator[bytes, None]]:
        """Answer a client in this process, in the form that kube/direct.py calls."""
        response = await self._routes(Request(method, path, query, headers, body, INTERNAL))
        # Streams into pods need a connection, so no client in this process asks for one.
        answer = response.body if isinstance(response.body, bytes) else cast(ResponseStream, response.body).parts()
        return response.status, response.headers, answer

    async def follow(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str], tell: Tell
    ) -> tuple[int, Mapping[str, str], bytes] | None:
        """Deliver the events of a watch to a client in this process until it ends, or return why there is none."""
        response = await self._routes(Request("GET", path, query, headers, b"", INTERNAL))
        if isinstance(response.body, Watcher):
            await response.body.deliver(tell)
            return None
        assert isinstance(response.body, bytes), "only watches are followed"
        return response.status, response.headers, response.body

    async def close(self) -> None:
        await self.store.close()

    def _make_routes(self, clock: Callable[[], datetime], pods: PodAccess | None) -> routes.Routes:
        reads, changes, deletion = self.reads, self.writes, self.deletion
        scales = scale.ScaleSubresource(self.objects, changes, clock)
        pod = pod_subresources.Pods(self.objects, deletion, clock, pods)
        streams = StreamVerbs(self.objects, self.authorizer, pods)
        verbs: dict[str, routes.Verb] = {
            "get": reads.get,
            "list": reads.collection,
            "create": changes.create,
            "update": changes.update,
            "patch": changes.patch,
            "delete": deletion.delete,
            "deletecollection": deletion.delete_collection,
        }
        accounts = service_accounts.ServiceAccounts(self.objects, self.account_tokens, self.tokens)
        review = routes.review(self.authorizer, accounts.review, clock)
        self._subresources: dict[str, Mapping[str, routes.Verb]] = {
            "": {"GET": reads.get, "HEAD": reads.get, "PUT": changes.update, "PATCH": changes.patch},
            "scale": {"GET": scales.get, "PUT": scales.update, "PATCH": scales.patch},
            "token": {"POST": accounts.issue},
            "binding": {"POST": pod.bind},
            "eviction": {"POST": pod.evict},
            "log": {"GET": pod.log},
            "attach": {"GET": streams.attach, "POST": streams.attach},
            "exec": {"GET": streams.exec, "POST": streams.exec},
            "portforward": {"GET": streams.forward, "POST": streams.forward},
            "ephemeralcontainers": {"GET": reads.get, "PUT": pod.refuse, "PATCH": pod.refuse},
            "resize": {"GET": reads.get, "PUT": pod.refuse, "PATCH": pod.refuse},
        }
        self._special: dict[str, routes.Verb] = {
            f"{kind.plural}.{kind.group}": review for kind in builtin_reviews.KINDS
        }
        pages = Pages(self.registry, self.metrics, self.store.find_fault)
        return routes.Routes(self.registry, self.authorizer, verbs, self._special, self._subresources, pages.table())
