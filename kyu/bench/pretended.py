"""
A load for the whole stack: its queues, who submits what when, and pods that are only pretended.

*Probes* are queues of their own in which one workload runs and all others wait: each finish allows exactly one
admission, so the time between the two is what the stack needs, whatever else is going on.

Called by: bench/embedded.py, bench/soak.py. Calls: the client, loads.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass

from kyu.api.core import Namespace
from kyu.api.kueue import ClusterQueue, LocalQueue, ResourceFlavor, Workload
from kyu.api.meta import Json, Key, key_of
from kyu.bench import loads
from kyu.bench.loads import Load
from kyu.kube import errors
from kyu.kube.cache import Cache, Reflector
from kyu.kube.client import Client

SUBMITTERS = 64
PROBES = 8
PROBE_MILLISECONDS = 500


@dataclass(frozen=True, slots=True)
class Submission:
    """A workload, when it comes (milliseconds after the start), and how long it runs once it is admitted."""

    key: Key
    body: Json
    when: int
    runtime: int
    is_probe: bool = False


def submissions(load: Load, *, at_once: bool = False, suffix: str = "") -> list[Submission]:
    found = []
    for when, workload, runtime in loads.arrivals(load):
        key = Key(workload.key.namespace, workload.key.name + suffix)
        requests = workload.spec.pod_sets[0].template.spec.containers[0].resources.requests
        body = workload_body(key, str(requests["cpu"]), workload.spec.priority or 0)
        found.append(Submission(key, body, 0 if at_once else when, 0 if at_once else runtime))
    return found


def probes(seconds: float) -> list[Submission]:
    """For each probe as many workloads as fit in the time; each comes when the one before can begin at the earliest."""
    found = []
    for number in range(int(seconds * 1000 / PROBE_MILLISECONDS)):
        for probe in range(PROBES):
            key = Key(probe_name(probe), f"turn-{number:05d}")
            # They start one after the other, so that their finishes do not share their writes.
            when = probe * PROBE_MILLISECONDS // PROBES + max(0, number - 1) * PROBE_MILLISECONDS
            found.append(Submission(key, workload_body(key, "1", 0), when, PROBE_MILLISECONDS, is_probe=True))
    return found


def probe_name(probe: int) -> str:
    return f"probe-{probe}"


def workload_body(key: Key, cpu: str, priority: int) -> Json:
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    pod_sets = [{"name": "main", "count": 1, "template": template}]
    spec: Json = {"queueName": key.namespace, "priority": priority, "podSets": pod_sets}
    return {"metadata": {"name": key.name, "namespace": key.namespace}, "spec": spec}


async def make_queues(client: Client, load: Load) -> None:
    """Those of the load in their cohorts, and those of the probes on their own."""
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
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "rf", "resources": [quota]}]}],
        **more,
    }
    await client.create(ClusterQueue.KIND, {"metadata": {"name": name}, "spec": spec})
    queue = {"metadata": {"name": name, "namespace": name}, "spec": {"clusterQueue": name}}
    await client.create(LocalQueue.KIND, queue)


async def submit(client: Client, submitted: Sequence[Submission]) -> None:
    """An open loop: each comes at its time, whatever the answers are, while not too many wait for theirs."""
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
            # Before it is a task: thousands that only wait would be the client's load, not the stack's.
            await slots.acquire()
            group.create_task(create(one.body))


class PretendedPods:
    """Finishes each workload its run time after its admission; an evicted one starts again."""

    def __init__(self, client: Client, submitted: Iterable[Submission]) -> None:
        self._client = client
        self._submissions = {one.key: one for one in submitted}
        self._left = sum(not one.is_probe for one in self._submissions.values())
        self._running: dict[Key, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._freed_at: dict[str, float] = {}
        self.admissions = 0
        # Seconds from each finish of a probe to the admission that it allowed.
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

    def _start(self, one: Submission) -> None:
        loop = asyncio.get_running_loop()
        if one.is_probe:
            if (freed := self._freed_at.pop(one.key.namespace, None)) is not None:
                self.latencies.append(loop.time() - freed)
        else:
            self.admissions += 1
        self._running[one.key] = loop.call_later(one.runtime / 1000, self._finish_soon, one)

    def stop(self) -> None:
        """Probes may still be running."""
        for timer in self._running.values():
            timer.cancel()

    def _finish_soon(self, one: Submission) -> None:
        task = asyncio.create_task(self._finish(one, self._running[one.key]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, one: Submission, run: asyncio.TimerHandle) -> None:
        raw = self.cache.find_json(Workload.KIND, one.key)
        if raw is None or self._running.get(one.key) is not run:
            # Evicted a moment ago.
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
            # It was evicted, or another condition came in between: look again, unless it runs anew by now.
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
async def pretended_pods(client: Client, submitted: Iterable[Submission]) -> AsyncIterator[PretendedPods]:
    pods = PretendedPods(client, submitted)
    reflector = asyncio.create_task(Reflector(client, pods.cache, Workload.KIND).run())
    await pods.cache.synced()
    try:
        yield pods
    finally:
        reflector.cancel()
        await asyncio.gather(reflector, return_exceptions=True)
        pods.stop()
        # The cache tells the pods and the pods hold the cache: apart, both are freed at once.
        pods.cache = Cache()
