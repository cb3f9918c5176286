"""
The whole embedded stack in real time: server, store, controllers, engine; only the pods are pretended.

*Burst*: all workloads of Kueue's baseline load are submitted at once with no run time, and admissions per second are
counted through the stack: durable status, events, queue statuses. *Baseline*: the load as it is, in real time; its
makespan against that of the engine alone in virtual time, and the time from a finish to the admission it allows.

Called by: cli/bench.py. Calls: app.py, loads.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from kyu import app
from kyu.api.core import Namespace
from kyu.api.kueue import ClusterQueue, LocalQueue, ResourceFlavor, Workload
from kyu.api.meta import Json, Key, is_true
from kyu.bench import loads
from kyu.bench.engine import Row
from kyu.bench.loads import Load, WorkloadSet
from kyu.engine import cycle
from kyu.kube import errors
from kyu.kube.cache import Cache, Reflector
from kyu.kube.client import Client

SUBMITTERS = 64
QUICK_SHARE = 10


def run(*, quick: bool) -> Iterator[Row]:
    load = smaller(loads.BASELINE) if quick else loads.BASELINE
    burst = uvloop.run(play(load, at_once=True))
    yield Row(
        f"burst: {load.total} at once, admissions/s",
        f"{burst.admissions / burst.seconds:.0f}/s wall, {burst.admissions / burst.cpu_seconds:.0f}/s cpu",
        burst.admissions / burst.seconds,
        ">= 1000",
        ">= 2500",
    )
    virtual = loads.run(load, cycle.schedule).makespan
    real = uvloop.run(play(load, at_once=False))
    yield Row(
        "baseline in real time: makespan / virtual",
        f"{real.seconds:.1f} s against {virtual:.1f} s, {real.cpu_seconds:.1f} s cpu",
        real.seconds / virtual,
        "<= 1.05",
        "<= 1.02",
    )
    latencies = sorted(real.latencies)
    if latencies:
        p99 = latencies[int(len(latencies) * 0.99)] * 1000
        median = statistics.median(latencies) * 1000
        yield Row("a finish to the admission it allows, p99 ms", f"median {median:.1f} ms", p99, "<= 50", "<= 10")


def smaller(load: Load) -> Load:
    sets = tuple(
        WorkloadSet(s.name, max(1, s.count // QUICK_SHARE), s.interval, s.runtime, s.priority, s.cpu) for s in load.sets
    )
    return Load(load.name, load.cohorts, load.queues, sets, load.nominal, load.borrowing)


@dataclass(slots=True)
class Result:
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    admissions: int = 0
    latencies: list[float] = field(default_factory=list)


async def play(load: Load, *, at_once: bool) -> Result:
    with tempfile.TemporaryDirectory(prefix="kyu-bench-") as folder:
        async with app.embedded(app.Settings(Path(folder), bare=True)) as running:
            client = running.client("kyu-bench")
            await make_queues(client, load)
            async with pretended_pods(client, load, at_once=at_once) as pods:
                gc.collect()
                gc.freeze()
                started, cpu = time.perf_counter(), time.process_time()
                await submit(client, load, at_once=at_once)
                await pods.done.wait()
                result = Result(
                    time.perf_counter() - started, time.process_time() - cpu, pods.admissions, pods.latencies
                )
                gc.unfreeze()
                return result


async def make_queues(client: Client, load: Load) -> None:
    await client.create(ResourceFlavor.KIND, {"metadata": {"name": "rf"}})
    for cohort in range(load.cohorts):
        for index in range(load.queues):
            name = f"queue-{cohort}-{index}"
            await client.create(Namespace.KIND, {"metadata": {"name": name}})
            quota = {"name": "cpu", "nominalQuota": load.nominal, "borrowingLimit": load.borrowing}
            spec: Json = {
                "cohortName": f"cohort-{cohort}",
                "namespaceSelector": {},
                "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
                "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "rf", "resources": [quota]}]}],
            }
            await client.create(ClusterQueue.KIND, {"metadata": {"name": name}, "spec": spec})
            queue = {"metadata": {"name": name, "namespace": name}, "spec": {"clusterQueue": name}}
            await client.create(LocalQueue.KIND, queue)


async def submit(client: Client, load: Load, *, at_once: bool) -> None:
    """An open loop: each queue submits at its own pace, whatever the answers are."""
    slots = asyncio.Semaphore(SUBMITTERS)
    started = asyncio.get_running_loop().time()

    async def create(workload: Workload) -> None:
        async with slots:
            await client.create(Workload.KIND, body(workload))

    async with asyncio.TaskGroup() as group:
        for when, workload, _ in loads.arrivals(load):
            if not at_once:
                delay = started + when / 1000 - asyncio.get_running_loop().time()
                if delay > 0:
                    await asyncio.sleep(delay)
            group.create_task(create(workload))


def body(workload: Workload) -> Json:
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu_of(workload)}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec: Json = {
        "queueName": workload.spec.queue_name,
        "priority": workload.spec.priority,
        "podSets": [{"name": "main", "count": 1, "template": template}],
    }
    return {"metadata": {"name": workload.metadata.name, "namespace": workload.metadata.namespace}, "spec": spec}


def cpu_of(workload: Workload) -> str:
    requests = workload.spec.pod_sets[0].template.spec.containers[0].resources.requests
    return str(requests["cpu"])


class PretendedPods:
    """Finishes each workload its run time after its admission; an evicted one starts again."""

    def __init__(self, client: Client, runtimes: dict[Key, int], *, at_once: bool) -> None:
        self._client = client
        self._runtimes = runtimes
        self._at_once = at_once
        self._left = len(runtimes)
        self._running: dict[Key, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._finished_at: dict[str, float] = {}
        self.admissions = 0
        self.latencies: list[float] = []
        self.done = asyncio.Event()
        self.cache = Cache()
        self.cache.subscribe(self._changed)

    def _changed(self, kind: object, old: Json | None, new: Json | None) -> None:
        if new is None:
            return
        key = Key(new["metadata"]["namespace"], new["metadata"]["name"])
        workload = self.cache.get(Workload, key)
        assert workload is not None
        conditions = workload.status.conditions
        runs = is_true(conditions, "Admitted") and not is_true(conditions, "Evicted")
        if runs and key not in self._running and not is_true(conditions, "Finished"):
            self._start(key)
        elif not runs and key in self._running:
            self._running.pop(key).cancel()

    def _start(self, key: Key) -> None:
        loop = asyncio.get_running_loop()
        self.admissions += 1
        freed = self._finished_at.pop(key.namespace, None)
        if freed is not None:
            self.latencies.append(loop.time() - freed)
        delay = 0.0 if self._at_once else self._runtimes[key] / 1000
        self._running[key] = loop.call_later(delay, self._finish_soon, key)

    def _finish_soon(self, key: Key) -> None:
        task = asyncio.create_task(self._finish(key))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, key: Key) -> None:
        raw = self.cache.find_json(Workload.KIND, key)
        assert raw is not None
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        finished = {
            "type": "Finished",
            "status": "True",
            "reason": "Succeeded",
            "message": "done",
            "lastTransitionTime": now,
        }
        patch = {
            "metadata": {"resourceVersion": raw["metadata"]["resourceVersion"]},
            "status": {"conditions": [*raw["status"]["conditions"], finished]},
        }
        try:
            answer = await self._client.patch(Workload.KIND, key, patch, subresource="status")
        except errors.Conflict:
            # It was evicted, or another condition came in between: look again.
            if key in self._running:
                self._running[key] = asyncio.get_running_loop().call_later(0.005, self._finish_soon, key)
            return
        self.cache.observe(Workload.KIND, answer)
        self._finished_at[key.namespace] = asyncio.get_running_loop().time()
        self._left -= 1
        if not self._left:
            self.done.set()


@contextlib.asynccontextmanager
async def pretended_pods(client: Client, load: Load, *, at_once: bool) -> AsyncIterator[PretendedPods]:
    runtimes = {workload.key: runtime for _, workload, runtime in loads.arrivals(load)}
    pods = PretendedPods(client, runtimes, at_once=at_once)
    reflector = asyncio.create_task(Reflector(client, pods.cache, Workload.KIND).run())
    await pods.cache.synced()
    try:
        yield pods
    finally:
        reflector.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reflector
