"""
Connects the API with a runtime: starts, ends and forgets the pods bound to its nodes, and writes their status.

Each change of a Pod says what to do: run it, end it, or nothing. Statuses of the runtime are written to the Pod; if
they come faster than they can be written, only the newest is. A pod is gone from the API only after its processes are.
An array may have thousands of tasks, so the pod of a task that has succeeded is deleted when its output is kept.

Called by: embedded.py. Calls: processes.py, simulate.py or pools/pods.py, through PodRuntime; kube.
Kubernetes: the kubelet's sync loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kyu import log
from kyu.api.actions import Action, Delete, Event, Patch
from kyu.api.core import CONFIG_MAP, SECRET, Pod
from kyu.api.labels import TASK
from kyu.api.meta import Json, Key, Kind, Ref, key_of
from kyu.kube import errors
from kyu.kube.cache import Cache
from kyu.kube.client import Client
from kyu.runtime import environment, podplan
from kyu.runtime.background import Background
from kyu.runtime.environment import NotYet, PodRefused, SettingsSource
from kyu.runtime.identity import service_account
from kyu.runtime.identity.account_access import AccountAccess
from kyu.runtime.identity.service_account import NO_ACCESS, ServerAccess

OVER = ("Succeeded", "Failed")
# The delays before a pod that waits for a ConfigMap is tried again, or a write that failed.
FIRST_DELAY_SECONDS = 1.0
LONGEST_DELAY_SECONDS = 30.0
DEFAULT_GRACE_SECONDS = 30
WRITES_AT_ONCE = 64

# Reasons of a pod that waits whose event has another name than Failed.
EVENTS = {"ContainerCreating": "Pulling", "ImagePullBackOff": "BackOff"}

Write = Callable[[Sequence[Action]], Awaitable[None]]


class PodRuntime(Protocol):
    """A runtime of pods, real or simulated."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def uids(self) -> list[str]: ...

    def find_status(self, uid: str) -> Json | None: ...

    async def prepare(self, pod: Json) -> NotYet | None:
        """Get what the pod needs before it can start; return what is missing."""
        ...

    def start(self, pod: Json, objects: SettingsSource, access: ServerAccess) -> podplan.Outcome | None: ...

    def stop(self, uid: str, grace_seconds: float, reason: str = "", message: str = "") -> None: ...

    async def keep_output(self, uid: str) -> bool:
        """Keep the output of a pod that is over beyond its deletion; return whether that is possible."""
        ...

    async def remove(self, uid: str) -> None: ...


@dataclass(slots=True)
class Fetched:
    """The objects that one pod reads, as they are when it starts."""

    found: dict[tuple[str, str], Json | None] = field(default_factory=dict)

    def config_map(self, namespace: str, name: str) -> Json | None:
        return self.found.get(("ConfigMap", name))

    def secret(self, namespace: str, name: str) -> Json | None:
        return self.found.get(("Secret", name))


class Agent:
    """
    The agent of the nodes that ``owns`` accepts by name. Give ``on_status`` to the runtime, then ``run`` with it.

    ``accounts`` gives pods access to the server, if they may have it. The cache must follow Pods; it is read when its
    first list has come.
    """

    def __init__(
        self,
        client: Client,
        cache: Cache,
        write: Write,
        owns: Callable[[str], bool],
        accounts: AccountAccess | None = None,
    ) -> None:
        self._client = client
        self._cache = cache
        self._write = write
        self._owns = owns
        self._accounts = accounts
        self._pods: dict[str, Json] = {}
        self._due: dict[str, None] = {}
        self._wakeup = asyncio.Event()
        self._starting: set[str] = set()
        self._attempts: dict[str, int] = {}
        self._statuses: dict[str, tuple[Json, Json]] = {}
        self._writing: set[str] = set()
        self._slots = asyncio.Semaphore(WRITES_AT_ONCE)
        self._background = Background("agent")

    async def run(self, runtime: PodRuntime) -> None:
        """Run until cancelled; the pods run on."""
        await self._cache.synced()
        self._cache.subscribe(self._changed, Pod.KIND)
        for pod in self._cache.list_json(Pod.KIND):
            self._changed(Pod.KIND, None, pod)
        await runtime.open()
        try:
            for uid in runtime.uids():
                self._again(uid)
            while True:
                await self._wakeup.wait()
                self._wakeup.clear()
                while self._due:
                    uid = next(iter(self._due))
                    del self._due[uid]
                    self._look_safely(runtime, uid)
        finally:
            await self._background.cancel()
            await runtime.close()

    # The API's side

    def _changed(self, kind: Kind, old: Json | None, new: Json | None) -> None:
        pod = new if new is not None else old
        if pod is None or not self._owns(pod["spec"].get("nodeName", "")):
            return
        uid = pod["metadata"]["uid"]
        if new is not None:
            self._pods[uid] = new
        else:
            self._pods.pop(uid, None)
        if old is not None and old["metadata"]["uid"] != uid:
            # Another pod took its name before its deletion was seen.
            self._pods.pop(old["metadata"]["uid"], None)
            self._again(old["metadata"]["uid"])
        self._again(uid)

    def _again(self, uid: str) -> None:
        self._due[uid] = None
        self._wakeup.set()

    def _look_safely(self, runtime: PodRuntime, uid: str) -> None:
        try:
            self._look(runtime, uid)
        except OSError as error:
            # A full disk takes no stop request. A pod that cannot be ended must not delay the others.
            log.warning("pod not looked after", uid=uid, error=error)
            self._later(uid)

    def _look(self, runtime: PodRuntime, uid: str) -> None:
        """Compare the wanted state of the pod with the present one, and take the next step."""
        pod, status = self._pods.get(uid), runtime.find_status(uid)
        is_known, is_over = status is not None, status is not None and status.get("phase") in OVER
        if pod is None:
            if is_known:
                self._forget(runtime, uid, is_over=is_over)
        elif pod["metadata"].get("deletionTimestamp"):
            self._end(runtime, pod, is_known=is_known, is_over=is_over)
        elif not is_known and pod.get("status", {}).get("phase") not in OVER:
            self._start(runtime, pod)
        elif status and pod.get("status", {}).get("phase") != status.get("phase"):
            # The status was not written: Kyu was down, or the write failed.
            self.on_status(pod, status)
        elif is_over and is_done_task(pod) and uid not in self._writing:
            self._writing.add(uid)
            self._background.start(self._delete_task(runtime, pod))

    def _forget(self, runtime: PodRuntime, uid: str, *, is_over: bool) -> None:
        if is_over:
            self._background.start(runtime.remove(uid))
            self._attempts.pop(uid, None)
        else:
            runtime.stop(uid, 0)

    def _end(self, runtime: PodRuntime, pod: Json, *, is_known: bool, is_over: bool) -> None:
        uid = pod["metadata"]["uid"]
        if is_known and not is_over:
            runtime.stop(uid, pod["metadata"].get("deletionGracePeriodSeconds", DEFAULT_GRACE_SECONDS))
        elif uid not in self._writing and uid not in self._starting:
            self._writing.add(uid)
            self._background.start(self._delete(pod))

    async def _delete_task(self, runtime: PodRuntime, pod: Json) -> None:
        """Delete the pod of a task that has succeeded and is counted, once its output is kept."""
        uid = pod["metadata"]["uid"]
        try:
            if await runtime.keep_output(uid):
                await self._try([Delete(pod_ref(pod), uid, grace_seconds=0)], uid)
        finally:
            self._writing.discard(uid)

    async def _delete(self, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        try:
            await self._try([Delete(pod_ref(pod), uid, grace_seconds=0)], uid)
        finally:
            self._writing.discard(uid)

    # Starting

    def _start(self, runtime: PodRuntime, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        if uid not in self._starting:
            self._starting.add(uid)
            self._background.start(self._fetch_and_start(runtime, pod))

    async def _fetch_and_start(self, runtime: PodRuntime, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        try:
            access = await self._accounts.find(pod) if self._accounts is not None else NO_ACCESS
            objects = await self._fetch(service_account.with_volume(pod, access))
            outcome: podplan.Outcome | None = await runtime.prepare(pod)
            # The pod may have been deleted meanwhile.
            if uid in self._pods and not self._pods[uid]["metadata"].get("deletionTimestamp"):
                outcome = outcome or runtime.start(pod, objects, access)
                if isinstance(outcome, NotYet):
                    self._later(uid)
                await self._tell(pod, outcome)
        except (errors.ApiError, OSError) as error:
            log.warning("pod not started", pod=pod_ref(pod).key, error=error)
            self._later(uid)
        finally:
            self._starting.discard(uid)
        if self._pods.get(uid, {}).get("metadata", {}).get("deletionTimestamp"):
            self._again(uid)

    async def _fetch(self, pod: Json) -> Fetched:
        fetched = Fetched()
        for kind, name in environment.references(pod):
            key = Key(pod["metadata"].get("namespace", ""), name)
            fetched.found[kind, name] = await self._client.find(CONFIG_MAP if kind == "ConfigMap" else SECRET, key)
        return fetched

    async def _tell(self, pod: Json, outcome: podplan.Outcome | None) -> None:
        """Write events about how the pod was started."""
        events = []
        if isinstance(outcome, PodRefused | NotYet):
            events.append((EVENTS.get(outcome.reason, "Failed"), outcome.message))
        elif isinstance(outcome, podplan.Plan) and outcome.no_effect:
            events.append(("NotSupported", f"no effect on this node: {', '.join(outcome.no_effect)}"))
        uid = pod["metadata"]["uid"]
        if events:
            await self._write([Event(pod_ref(pod), "Warning", reason, text, uid) for reason, text in events])

    def _later(self, uid: str) -> None:
        attempt = self._attempts.get(uid, 0)
        self._attempts[uid] = attempt + 1
        delay = min(FIRST_DELAY_SECONDS * 2 ** min(attempt, 10), LONGEST_DELAY_SECONDS)
        asyncio.get_running_loop().call_later(delay, self._again, uid)

    # The runtime's side

    def on_status(self, pod: Json, status: Json) -> None:
        """Write a status that the runtime reports."""
        uid = pod["metadata"]["uid"]
        self._statuses[uid] = (pod, status)
        if uid not in self._writing:
            self._writing.add(uid)
            self._background.start(self._write_status(uid))

    def on_event(self, pod: Json, reason: str, message: str) -> None:
        """Write a warning of the runtime as an event of the pod."""
        self._background.start(self._write_event(pod, reason, message))

    async def _write_event(self, pod: Json, reason: str, message: str) -> None:
        uid = pod["metadata"]["uid"]
        await self._try([Event(pod_ref(pod), "Warning", reason, message, uid)], uid)

    async def _write_status(self, uid: str) -> None:
        """Write the newest status until there is none newer."""
        try:
            while uid in self._statuses:
                pod, status = self._statuses.pop(uid)
                # With the uid: another pod of the same name must not get it.
                patch = {"metadata": {"uid": uid}, "status": status}
                if not await self._try([Patch(pod_ref(pod), patch, "status")], uid):
                    return
        finally:
            self._writing.discard(uid)
        self._again(uid)

    async def _try(self, actions: Sequence[Action], uid: str) -> bool:
        """Write, and return whether that was possible. A write worth another try is repeated later."""
        async with self._slots:
            try:
                await self._write(actions)
            except (errors.NotFound, errors.Conflict) as error:
                # It is gone, or another one has its name. The cache tells soon.
                log.debug("pod has changed", uid=uid, error=error)
                return False
            except errors.ApiError as error:
                log.warning("pod not written", uid=uid, error=error)
                self._later(uid)
                return False
        return True


def is_done_task(pod: Json) -> bool:
    """Return whether the pod is a task of an array that has succeeded, and no finalizer holds it."""
    meta = pod["metadata"]
    is_task = TASK in (meta.get("annotations") or {})
    return is_task and pod.get("status", {}).get("phase") == "Succeeded" and not meta.get("finalizers")


def pod_ref(pod: Json) -> Ref:
    return Ref(Pod.KIND, key_of(pod))
