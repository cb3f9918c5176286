"""
The control plane's end of a pool: pods on virtual nodes are sent to the runners of their pools.

It is a pod runtime of the agent. The toleration that admission wrote names the pool of a pod. A pod without a runner
waits with reason NoRunner and is offered again. A runner answers a repeated offer with the status of its pod.

The site's end: pools/runner.py.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field

from kyu import log
from kyu.api.actions import View
from kyu.api.core import Node
from kyu.api.meta import Json, Key
from kyu.api.pools import POOL_TOLERATION, MasterQueue, NatsFlavor, PoolReport
from kyu.bus import envelopes, signing
from kyu.bus.connector import Bus, Unanswered
from kyu.bus.envelopes import NotOpened
from kyu.controllers.pools.subscriptions import PoolListener
from kyu.plans.pools.nodes import VIRTUAL_LABEL
from kyu.runtime import environment
from kyu.runtime.background import Background
from kyu.runtime.environment import SettingsSource
from kyu.runtime.identity.service_account import NO_ACCESS, ServerAccess
from kyu.server.verbs.pod_subresources import PodLogOptions

OVER = ("Succeeded", "Failed")
ASK_SECONDS = 5.0
# The period of status requests.
POLL_SECONDS = 1.0
FOLLOW_SECONDS = 0.5


class NoRunner(Exception):
    """No runner takes pods of this pool; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Route:
    """The connection and subject of a pool, and the key of its runner if an administrator has listed it."""

    connection: Bus
    subject: str
    pool: str
    key: str


@dataclass(slots=True)
class RemotePod:
    pod: Json
    objects: dict[str, Json]
    status: Json = field(default_factory=dict)
    # The runner has confirmed that it has the pod.
    accepted: bool = False
    busy: bool = False


class PoolRuntime:
    """The PodRuntime of all pods on virtual nodes."""

    def __init__(
        self, view: View, listener: PoolListener, signer: signing.Signer, on_status: Callable[[Json, Json], None]
    ) -> None:
        self._view = view
        self._listener = listener
        self._signer = signer
        self._on_status = on_status
        self._entries: dict[str, RemotePod] = {}
        self._background = Background("pool runtime")

    async def open(self) -> None:
        """Start polling. There is nothing to adopt: the runners know their pods."""
        self._background.start(self._poll())

    async def close(self) -> None:
        await self._background.cancel()

    def uids(self) -> list[str]:
        return list(self._entries)

    def find_status(self, uid: str) -> Json | None:
        entry = self._entries.get(uid)
        return entry.status if entry else None

    async def prepare(self, pod: Json) -> None:
        """Do nothing: the runner of the pool gets what the pod needs."""

    def start(self, pod: Json, objects: SettingsSource, access: ServerAccess = NO_ACCESS) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._entries:
            return
        namespace = pod["metadata"].get("namespace", "")
        found: dict[str, Json] = {}
        for kind, name in environment.references(pod):
            read = objects.config_map if kind == "ConfigMap" else objects.secret
            if (obj := read(namespace, name)) is not None:
                found[f"{kind}/{name}"] = obj
        self._entries[uid] = RemotePod(pod, found, dict(pod.get("status") or {}))
        self._background.start(self._offer(uid))

    def stop(self, uid: str, grace_seconds: float, reason: str = "", message: str = "") -> None:
        entry = self._entries[uid]
        if entry.accepted:
            self._background.start(self._tell(uid, "stop", {"uid": uid, "grace": grace_seconds}))
        else:
            # The pod was never started.
            self._set(uid, {**entry.status, "phase": "Failed", "reason": reason or "Deleted", "message": message})

    async def keep_output(self, uid: str) -> bool:
        """Return False: the runner of a pool removes the output with the pod."""
        return False

    async def remove(self, uid: str) -> None:
        entry = self._entries[uid]
        if entry.accepted:
            await self._tell(uid, "remove", {"uid": uid})
        self._entries.pop(uid, None)

    async def _offer(self, uid: str) -> None:
        entry = self._entries.get(uid)
        if entry is None or entry.busy or entry.status.get("phase") in OVER:
            return
        entry.busy = True
        try:
            route = find_route(self._view, self._listener, entry.pod)
            refuse_open_secrets(route, entry.objects)
            answer = await self._ask(route, "create", {"pod": entry.pod, "objects": entry.objects})
        except (NoRunner, Unanswered, NotOpened) as error:
            # A pod from before the start of this process runs on, even if its runner cannot be asked.
            if entry.status.get("phase") in (None, "Pending"):
                message = f"no runner takes this pod: {error}"
                self._set(uid, {**entry.status, "phase": "Pending", "reason": "NoRunner", "message": message})
            return
        finally:
            entry.busy = False
        entry.accepted = True
        cleared = {"reason": None, "message": None} if entry.status.get("reason") == "NoRunner" else {}
        self._set(uid, {**cleared, **(answer.get("status") or {"phase": "Pending"})})

    async def _poll(self) -> None:
        """Ask the runners for the status of their pods, and offer pods without a runner again."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            by_route: dict[Route, list[str]] = {}
            for uid, entry in list(self._entries.items()):
                if entry.status.get("phase") in OVER:
                    continue
                if not entry.accepted:
                    self._background.start(self._offer(uid))
                    continue
                with contextlib.suppress(NoRunner):
                    by_route.setdefault(find_route(self._view, self._listener, entry.pod), []).append(uid)
            await asyncio.gather(*(self._ask_news(route, uids) for route, uids in by_route.items()))

    async def _ask_news(self, route: Route, uids: list[str]) -> None:
        try:
            answer = await self._ask(route, "status", {"uids": uids})
        except (Unanswered, NotOpened) as error:
            log.warning("no news of pods", pool=route.pool, pods=len(uids), error=error)
            return
        statuses = answer["statuses"]
        for uid in uids:
            if uid not in statuses:
                # The runner has lost the pod; the answer to a new offer decides.
                self._entries[uid].accepted = False
            else:
                self._set(uid, statuses[uid])

    def _set(self, uid: str, status: Json) -> None:
        entry = self._entries.get(uid)
        if entry is not None and entry.status != status:
            entry.status = status
            self._on_status(entry.pod, status)

    async def _tell(self, uid: str, verb: envelopes.Verb, content: Json) -> None:
        entry = self._entries[uid]
        try:
            await self._ask(find_route(self._view, self._listener, entry.pod), verb, content)
        except (NoRunner, Unanswered, NotOpened) as error:
            log.warning("runner not told", verb=verb, pod=entry.pod["metadata"]["name"], error=error)

    async def _ask(self, route: Route, verb: envelopes.Verb, content: Json) -> Json:
        letter = envelopes.new_letter(verb, content, time.time())
        payload = envelopes.seal(letter, route.pool, self._signer, to=route.key)
        answer = await route.connection.request(route.subject, payload, ASK_SECONDS)
        opened, _ = envelopes.unseal(answer, route.pool, (route.key,) if route.key else None, self._signer)
        if opened.nonce != letter.nonce:
            raise NotOpened("it answers another request")
        if opened.error:
            raise NotOpened(opened.error)
        return opened.content

    def owns(self, pod: Json) -> bool:
        node = self._view.find_json(Node.KIND, Key("", pod["spec"].get("nodeName", "")))
        return node is not None and VIRTUAL_LABEL in (node["metadata"].get("labels") or {})

    async def read_logs(self, pod: Json, wanted: PodLogOptions) -> PoolLog:
        return PoolLog(self, pod, wanted)

    async def read_log_piece(self, pod: Json, content: Json) -> Json:
        return await self._ask(find_route(self._view, self._listener, pod), "logs", content)


class PoolLog:
    """The log of a container, read in pieces from the runner, as an answer of the server."""

    def __init__(self, runtime: PoolRuntime, pod: Json, wanted: PodLogOptions) -> None:
        self._runtime = runtime
        self._pod = pod
        self._wanted = wanted
        self._closed = asyncio.Event()

    async def parts(self) -> AsyncGenerator[bytes, None]:
        meta, wanted = self._pod["metadata"], self._wanted
        content: Json = {
            "uid": meta["uid"],
            "pod": meta["name"],
            "container": wanted.container,
            "previous": wanted.previous,
            "timestamps": wanted.timestamps,
            "offset": 0,
            "tail": wanted.tail_lines,
        }
        left = wanted.limit_bytes
        while not self._closed.is_set():
            try:
                answer = await self._runtime.read_log_piece(self._pod, content)
            except (NoRunner, Unanswered, NotOpened) as error:
                yield f"no logs of this pod can be had: {error}\n".encode()
                return
            piece = base64.b64decode(answer.get("text", ""))[:left]
            left = None if left is None else left - len(piece)
            if piece:
                yield piece
            if answer.get("ended") or left == 0 or (not piece and not wanted.follow):
                return
            if "next" in answer:
                content = {**content, "offset": answer["next"], "tail": None}
            if not piece:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FOLLOW_SECONDS):
                        await self._closed.wait()

    def close(self) -> None:
        self._closed.set()


def find_route(view: View, listener: PoolListener, pod: Json) -> Route:
    """Return the route by the pod's node and toleration. Raise NoRunner."""
    pool, node = pool_of(pod), pod["spec"].get("nodeName", "")
    if not pool:
        raise NoRunner(f"it has no {POOL_TOLERATION} toleration, or several")
    for queue in view.list(MasterQueue):
        for group in queue.spec.flavors:
            nats = group.nats_flavor
            if nats is not None and nats.virtual_node == node and takes_pods(view, queue, group.name, pool):
                return route_to(listener, queue.metadata.name, group.name, nats, pool)
    raise NoRunner(f"pool {pool} does not say that it runs pods")


def takes_pods(view: View, queue: MasterQueue, flavor: str, pool: str) -> bool:
    return any(
        report.runs
        for report in view.list(PoolReport, queue.metadata.name)
        if report.flavor == flavor and report.pool == pool
    )


def route_to(listener: PoolListener, queue: str, flavor: str, nats: NatsFlavor, pool: str) -> Route:
    connection = listener.find_connection(queue, flavor)
    if connection is None or not connection.state.connected:
        raise NoRunner("NATS is not connected")
    if not connection.is_private:
        raise NoRunner("pods are sent over TLS or within this machine only")
    return Route(connection, envelopes.subject_of(nats.nats_subject, pool), pool, nats.public_keys.get(pool, ""))


def refuse_open_secrets(route: Route, objects: Mapping[str, Json]) -> None:
    """Raise NoRunner if Secrets would be sent without encryption."""
    if not route.key and any(name.startswith("Secret/") for name in objects):
        raise NoRunner(f"it needs Secrets, and publicKeys of the MasterQueue has no key for pool {route.pool}")


def pool_of(pod: Json) -> str:
    """Return the pool of the pod's toleration, or an empty text if there is not exactly one."""
    found = {
        str(toleration.get("value", ""))
        for toleration in pod["spec"].get("tolerations") or ()
        if toleration.get("key") == POOL_TOLERATION
    }
    return found.pop() if len(found) == 1 else ""


def with_simulated_mark(status: Json) -> Json:
    """Return the status with a message that the run is simulated."""
    return {**status, "message": "simulated: nothing runs on this virtual node"}
