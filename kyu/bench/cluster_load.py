"""
A load on a cluster: its queues, its Workloads, and their ends. The same for every scheduler.

Workloads have no jobs. One finishes its run time after its admission; an evicted one gives its quota back at once and
starts again, as in Kueue's own performance runner.

Called by: bench/cluster.py. Calls: the client, loads.py. Kueue: test/performance/scheduler/runner
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import msgspec

from kyu.api.config.config import Configuration
from kyu.api.core import Namespace
from kyu.api.kueue import ClusterQueue, LocalQueue, Workload
from kyu.api.meta import Json, Key, Kind, key_of
from kyu.bench import loads
from kyu.bench.loads import Load
from kyu.kinds import conditions
from kyu.kube import errors
from kyu.kube.cache import Cache, Reflector
from kyu.kube.client import Client
from kyu.plans.status import StatusEdit
from kyu.plans.workload.eviction import release

SUBMITTERS = 64
AGAIN_SECONDS = 0.02
# Queues in use are looked for this often, and so many times.
LOOK_SECONDS, MOST_LOOKS = 0.2, 600


class ClusterLoad:
    """The Workloads of one run. ``prefix`` keeps the names of different runs apart."""

    def __init__(self, client: Client, load: Load, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._planned = [(when, workload, runtime) for when, workload, runtime in loads.arrivals(load)]
        self._runtime = {self._key(workload): runtime for _, workload, runtime in self._planned}
        self._created: dict[Key, float] = {}
        self._running: dict[Key, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._finished: set[Key] = set()
        self.cache = Cache()
        self.cache.subscribe(self._changed)
        self.done = asyncio.Event()
        self.evictions = 0
        # Seconds from creation to the first admission, by the class of the Workload.
        self.waits: dict[str, list[float]] = defaultdict(list)
        # The writes of the load itself, by verb and resource.
        self.writes: Counter[tuple[str, str]] = Counter()

    def _key(self, workload: Workload) -> Key:
        return Key(self._prefix + workload.key.namespace, workload.key.name)

    async def make_queues(self, load: Load) -> None:
        for obj in loads.objects(load):
            body = msgspec.json.decode(msgspec.json.encode(obj))
            meta = {name: body["metadata"][name] for name in ("name", "namespace") if body["metadata"].get(name)}
            spec = {name: value for name, value in body.get("spec", {}).items() if value is not None}
            if isinstance(obj, Namespace | ClusterQueue | LocalQueue):
                meta = {name: self._prefix + value for name, value in meta.items()}
            if isinstance(obj, ClusterQueue):
                spec["cohortName"] = self._prefix + spec["cohortName"]
            if isinstance(obj, LocalQueue):
                spec["clusterQueue"] = self._prefix + spec["clusterQueue"]
            try:
                await self._client.create(obj.KIND, {"metadata": meta, **({"spec": spec} if spec else {})})
            except errors.AlreadyExists:
                continue

    async def remove(self) -> None:
        """Delete the namespaces and queues of this run, so that the next one finds the cluster as it was.

        The scheduler lets go of queues in use, so this waits for them.
        """
        for kind in (Namespace.KIND, ClusterQueue.KIND):
            for name in await self._own(kind):
                await self._client.delete(kind, Key("", name))
        for _ in range(MOST_LOOKS):
            if not await self._own(ClusterQueue.KIND):
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def _own(self, kind: Kind) -> list[str]:
        """Return the names of the objects of this run."""
        found = (await self._client.list(kind))[0]
        return [one["metadata"]["name"] for one in found if one["metadata"]["name"].startswith(self._prefix)]

    async def submit(self) -> None:
        """Create each Workload at its time, with a limit of open requests."""
        slots, clock = asyncio.Semaphore(SUBMITTERS), asyncio.get_running_loop().time
        started = clock()
        async with asyncio.TaskGroup() as group:
            for when, workload, _ in self._planned:
                delay = started + when / 1000 - clock()
                if delay > 0:
                    await asyncio.sleep(delay)
                await slots.acquire()
                task = group.create_task(self._create(workload))
                task.add_done_callback(lambda _: slots.release())

    async def _create(self, workload: Workload) -> None:
        key, (pod_set,) = self._key(workload), workload.spec.pod_sets
        requests = dict(pod_set.template.spec.containers[0].resources.requests)
        container = {"name": "c", "image": "none", "resources": {"requests": requests}}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        spec: Json = {
            "queueName": key.namespace,
            "priority": workload.spec.priority,
            "podSets": [{"name": "main", "count": 1, "template": template}],
        }
        self._created[key] = asyncio.get_running_loop().time()
        self.writes["POST", "workloads"] += 1
        await self._client.create(
            Workload.KIND, {"metadata": {"name": key.name, "namespace": key.namespace}, "spec": spec}
        )

    def _changed(self, kind: object, old: Json | None, new: Json | None) -> None:
        if new is None or (key := key_of(new)) not in self._runtime or key in self._finished:
            return
        runs = conditions.is_true(new, "Admitted") and not conditions.is_true(new, "Evicted")
        if runs and key not in self._running:
            self._note_admission(key)
            loop = asyncio.get_running_loop()
            self._running[key] = loop.call_later(self._runtime[key] / 1000, self._soon, key)
        elif not runs and key in self._running:
            self._running.pop(key).cancel()
            self.evictions += 1
        if conditions.is_true(new, "Evicted") and (new.get("status") or {}).get("admission"):
            self._spawn(self._release(key))

    def _note_admission(self, key: Key) -> None:
        created = self._created.pop(key, None)
        if created is not None:
            self.waits[key.name.partition("-")[0]].append(asyncio.get_running_loop().time() - created)

    def _soon(self, key: Key) -> None:
        self._spawn(self._finish(key, self._running[key]))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, key: Key, run: asyncio.TimerHandle) -> None:
        raw = self.cache.find_json(Workload.KIND, key)
        if raw is None or self._running.get(key) is not run:
            return
        edit = StatusEdit(raw, datetime.now(UTC))
        edit.set_condition("Finished", "True", "Succeeded", "done")
        if not await self._write(edit):
            self._running[key] = asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._soon, key)
            return
        del self._running[key]
        self._finished.add(key)
        if len(self._finished) == len(self._runtime):
            self.done.set()

    async def _release(self, key: Key) -> None:
        """Give back the quota of an evicted Workload, which has no pods to stop."""
        while True:
            raw, workload = self.cache.find_json(Workload.KIND, key), self.cache.get(Workload, key)
            if raw is None or workload is None or workload.status.admission is None:
                return
            edit = StatusEdit(raw, datetime.now(UTC))
            release(edit, workload, Configuration().gates)
            if await self._write(edit):
                return
            await asyncio.sleep(AGAIN_SECONDS)

    async def _write(self, edit: StatusEdit) -> bool:
        """Write a status; return False if the Workload has changed meanwhile."""
        patch = edit.patch(Workload.KIND)
        if patch is None:
            return True
        body = {**patch.patch, "metadata": {"resourceVersion": patch.resource_version}}
        self.writes["PATCH", "workloads/status"] += 1
        try:
            answer = await self._client.merge(Workload.KIND, patch.ref.key, body, subresource="status")
        except errors.Conflict:
            return False
        self.cache.observe(Workload.KIND, answer)
        return True

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow the Workloads while the context is open."""
        reflector = asyncio.create_task(Reflector(self._client, self.cache, Workload.KIND).run())
        await self.cache.synced()
        try:
            yield
        finally:
            reflector.cancel()
            await asyncio.gather(reflector, return_exceptions=True)
            for timer in self._running.values():
                timer.cancel()
