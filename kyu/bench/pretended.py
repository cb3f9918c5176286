"""
A load for the whole stack: its queues, its submissions, and simulated pods.

*Probes* are separate queues in which one workload runs and all others wait. Each finish allows exactly one admission,
so the time between the two is the latency of the stack.

Called by: bench/embedded.py, bench/soak.py. Calls: the client, loads.py, objects.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kyu.api.core import Namespace
from kyu.api.kueue import ClusterQueue, LocalQueue, ResourceFlavor, Workload
from kyu.api.meta import Json, Key, key_of
from kyu.bench import loads, objects
from kyu.bench.loads import Load
from kyu.kube import errors
from kyu.kube.cache import Cache, Reflector
from kyu.kube.client import Client

SUBMITTERS = 64
PROBES = 8
PROBE_MILLISECONDS = 500
# The cpu decides which Workloads are admitted, as in the same load without a server.
AMPLE_MEMORY: Final = {"name": "memory", "nominalQuota": "1Pi"}


@dataclass(frozen=True, slots=True)
class PlannedWorkload:
    """A workload, the time of its submission (milliseconds after the start), and its run time after admission."""

    key: Key
    body: Json
    when: int
    runtime: int
    is_probe: bool = False


def submissions(load: Load, *, at_once: bool = False, suffix: str = "") -> list[PlannedWorkload]:
    found = []
    for when, workload, runtime in loads.arrivals(load):
        key = Key(workload.key.namespace, workload.key.name + suffix)
        requests = workload.spec.pod_sets[0].template.spec.containers[0].resources.requests
        body = objects.workload(key, key.namespace, cpu=str(requests["cpu"]), priority=workload.spec.priority or 0)
        found.append(PlannedWorkload(key, body, 0 if at_once else when, 0 if at_once else runtime))
    return found


def probes(seconds: float) -> list[PlannedWorkload]:
    """Return the workloads of the probes. Each is submitted when the one before it can begin at the earliest."""
    found = []
    for number in range(int(seconds * 1000 / PROBE_MILLISECONDS)):
        for probe in range(PROBES):
            key = Key(probe_name(probe), f"turn-{number:05d}")
            # Probes start one after another, so that their finishes are separate writes.
            when = probe * PROBE_MILLISECONDS // PROBES + max(0, number - 1) * PROBE_MILLISECONDS
            body = objects.workload(key, key.namespace, cpu="1", priority=0)
            found.append(PlannedWorkload(key, body, when, PROBE_MILLISECONDS, is_probe=True))
    return found


def probe_name(probe: int) -> str:
    return f"probe-{probe}"


async def make_queues(client: Client, load: Load) -> None:
    """Create the queues of the load in their cohorts, and those of the probes without a cohort."""
    await client.create(ResourceFlavor.KIND, {"metadata": {"name": "rf"}})
    for cohort in range(load.cohorts):
        for index in range(load.queues):
            quota = {"name": "cpu", "nominalQuota": load.nominal, "borrowingLimit": load.borrowing}
            await make_queue(client, f"queue-{cohort}-{index}", quota, {"cohortName": f"cohort-{cohort}"})
    for probe in range(PROBES):
        await make_queue(client, probe_name(probe), {"name": "cpu", "nominalQuota": 1}, {})


async def make_queue(client: Client, name: str, quota: Json, more: Json) -> None:
    await client.create(Namespace.KIND, {"metadata": {"name": name}})
    spec: Json = {
        "namespaceSelector": {},
        "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
        "resourceGroups": [
            {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "rf", "resources": [quota, AMPLE_MEMORY]}]}
        ],
        **more,
    }
    await client.create(ClusterQueue.KIND, {"metadata": {"name": name}, "spec": spec})
    queue = {"metadata": {"name": name, "namespace": name}, "spec": {"clusterQueue": name}}
    await client.create(LocalQueue.KIND, queue)


async def submit(client: Client, submitted: Sequence[PlannedWorkload]) -> None:
    """Submit each workload at its time, whatever the answers are, with a limit of open requests."""
    slots = asyncio.Semaphore(SUBMITTERS)
    clock = asyncio.get_running_loop().time
    started = clock()

    async def create(body: Json) -> None:
        try:
            await client.add(Workload.KIND, body)
        finally:
            slots.release()

    async with asyncio.TaskGroup() as group:
        for one in sorted(submitted, key=lambda one: one.when):
            delay = started + one.when / 1000 - clock()
            if delay > 0:
                await asyncio.sleep(delay)
            # Waiting tasks would be a load of the client, not of the stack.
            await slots.acquire()
            group.create_task(create(one.body))


class PretendedPods:
    """Simulated pods: each workload finishes its run time after its admission. An evicted one starts again."""

    def __init__(self, client: Client, submitted: Iterable[PlannedWorkload]) -> None:
        self._client = client
        self._submissions = {one.key: one for one in submitted}
        self._left = sum(not one.is_probe for one in self._submissions.values())
        self._running: dict[Key, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._freed_at: dict[str, float] = {}
        self.admissions = 0
        # Seconds from each finish of a probe to the admission that it allows.
        self.latencies: list[float] = []
        # Set when all but the probes have finished.
        self.done = asyncio.Event()
        self.cache = Cache()
        self.cache.subscribe(self._changed)

    def _changed(self, kind: object, old: Json | None, new: Json | None) -> None:
        if new is None:
            return
        key = key_of(new)
        one = self._submissions.get(key)
        if one is None:
            return
        conditions = (new.get("status") or {}).get("conditions") or ()
        holds = {condition["type"] for condition in conditions if condition["status"] == "True"}
        runs = "Admitted" in holds and "Evicted" not in holds
        if runs and key not in self._running and "Finished" not in holds:
            self._start(one)
        elif not runs and key in self._running:
            self._running.pop(key).cancel()

    def _start(self, one: PlannedWorkload) -> None:
        loop = asyncio.get_running_loop()
        if one.is_probe:
            if (freed := self._freed_at.pop(one.key.namespace, None)) is not None:
                self.latencies.append(loop.time() - freed)
        else:
            self.admissions += 1
        self._running[one.key] = loop.call_later(one.runtime / 1000, self._finish_soon, one)

    def stop(self) -> None:
        """Cancel the timers of probes that still run."""
        for timer in self._running.values():
            timer.cancel()

    def _finish_soon(self, one: PlannedWorkload) -> None:
        task = asyncio.create_task(self._finish(one, self._running[one.key]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, one: PlannedWorkload, run: asyncio.TimerHandle) -> None:
        raw = self.cache.find_json(Workload.KIND, one.key)
        if raw is None or self._running.get(one.key) is not run:
            # The workload was evicted meanwhile.
            return
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        finished = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "done"}
        patch = {
            "metadata": {"resourceVersion": raw["metadata"]["resourceVersion"]},
            "status": {"conditions": [*raw["status"]["conditions"], {**finished, "lastTransitionTime": now}]},
        }
        try:
            answer = await self._client.merge(Workload.KIND, one.key, patch, subresource="status")
        except errors.Conflict:
            # It was evicted, or another condition was written first. Try again, unless it was admitted again.
            if self._running.get(one.key) is run:
                self._running[one.key] = asyncio.get_running_loop().call_later(0.02, self._finish_soon, one)
            return
        self.cache.observe(Workload.KIND, answer)
        if one.is_probe:
            self._freed_at[one.key.namespace] = asyncio.get_running_loop().time()
            return
        self._left -= 1
        if not self._left:
            self.done.set()


@contextlib.asynccontextmanager
async def pretended_pods(client: Client, submitted: Iterable[PlannedWorkload]) -> AsyncIterator[PretendedPods]:
    pods = PretendedPods(client, submitted)
    reflector = asyncio.create_task(Reflector(client, pods.cache, Workload.KIND).run())
    await pods.cache.synced()
    try:
        yield pods
    finally:
        reflector.cancel()
        await asyncio.gather(reflector, return_exceptions=True)
        pods.stop()
        # Breaks the reference cycle, so that both are freed at once.
        pods.cache = Cache()
