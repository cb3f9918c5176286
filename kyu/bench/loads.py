"""
Loads in virtual time: who submits what when, how long it runs, and a clock that jumps from one event to the next.

The loads are those that Kueue measures itself with: queues in flat cohorts, each with three sets of one-pod workloads
that arrive at fixed intervals, run for a fixed time after their admission, and start again when they were evicted. The
driver is the same for every scheduler; only the calls into the scheduler are timed.

Called by: bench/engine.py, bench/embedded.py, bench/pretended.py, bench/soak.py. Kueue: test/performance/scheduler
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import msgspec

from kyu.api import codec
from kyu.api.core import Namespace
from kyu.api.kueue import ClusterQueue, LocalQueue, ResourceFlavor, Workload
from kyu.api.meta import Json, Key, Object
from kyu.engine.decisions import Admit, Cycle, Preempt
from kyu.engine.options import Options
from kyu.engine.state import State

API = "kueue.x-k8s.io/v1beta2"
START = datetime(2026, 1, 1, tzinfo=UTC)
# Milliseconds over which the beginnings of the queues' arrivals are spread.
PHASES = 97
Scheduler = Callable[[State, datetime], Cycle]


@dataclass(frozen=True, slots=True)
class WorkloadSet:
    """``count`` workloads per queue, one every ``interval``, each running for ``runtime`` (milliseconds)."""

    name: str
    count: int
    interval: int
    runtime: int
    priority: int
    cpu: int


@dataclass(frozen=True, slots=True)
class Load:
    name: str
    cohorts: int
    queues: int
    sets: tuple[WorkloadSet, ...]
    nominal: int = 20
    borrowing: int = 100

    @property
    def total(self) -> int:
        return self.cohorts * self.queues * sum(workloads.count for workloads in self.sets)


BASELINE = Load(
    "baseline",
    cohorts=5,
    queues=6,
    sets=(
        WorkloadSet("small", 350, 100, 200, 50, 1),
        WorkloadSet("medium", 100, 500, 500, 100, 5),
        WorkloadSet("large", 50, 1200, 1000, 200, 20),
    ),
)
LARGE_SCALE = Load(
    "large-scale",
    cohorts=10,
    queues=100,
    sets=(
        WorkloadSet("small", 35, 60, 150, 50, 1),
        WorkloadSet("medium", 11, 300, 350, 100, 5),
        WorkloadSet("large", 4, 700, 700, 200, 20),
    ),
)


def cluster_queue(
    name: str, cohort: str, nominal: int, borrowing: int | None, flavors: int = 1, reclaim: str = "Any"
) -> ClusterQueue:
    quota = {"name": "cpu", "nominalQuota": nominal, **({} if borrowing is None else {"borrowingLimit": borrowing})}
    names = ["rf", *(f"rf-{i}" for i in range(1, flavors))]
    spec = {
        "cohortName": cohort,
        "namespaceSelector": {},
        "resourceGroups": [
            {"coveredResources": ["cpu"], "flavors": [{"name": flavor, "resources": [quota]} for flavor in names]}
        ],
        "preemption": {"reclaimWithinCohort": reclaim, "withinClusterQueue": "LowerPriority"},
    }
    return codec.decode_as(ClusterQueue, _json("ClusterQueue", {"name": name}, spec))


def local_queue(name: str) -> LocalQueue:
    return codec.decode_as(LocalQueue, _json("LocalQueue", {"name": name, "namespace": name}, {"clusterQueue": name}))


def flavors(count: int = 1) -> list[ResourceFlavor]:
    names = ["rf", *(f"rf-{i}" for i in range(1, count))]
    return [codec.decode_as(ResourceFlavor, _json("ResourceFlavor", {"name": name}, {})) for name in names]


def namespace(name: str) -> Namespace:
    return codec.decode_as(Namespace, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


def _json(kind: str, metadata: Json, spec: Json) -> Json:
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}


def template(queue: str, priority: int, milli_cpu: int) -> Workload:
    """A one-pod workload; copies of it get a name and a time."""
    container = {"name": "c", "resources": {"requests": {"cpu": f"{milli_cpu}m"}}}
    spec = {
        "queueName": queue,
        "priority": priority,
        "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}],
    }
    return codec.decode_as(Workload, _json("Workload", {"name": "template", "namespace": queue}, spec))


def named(workload: Workload, name: str, milliseconds: int) -> Workload:
    created = (START + timedelta(milliseconds=milliseconds)).isoformat()
    metadata = msgspec.structs.replace(
        workload.metadata, name=name, uid=f"{workload.metadata.namespace}/{name}", creation_timestamp=created
    )
    return msgspec.structs.replace(workload, metadata=metadata)


def sent_to(workload: Workload, queue: str, name: str, milliseconds: int) -> Workload:
    """A copy for another queue, in the namespace of that queue."""
    spec = msgspec.structs.replace(workload.spec, queue_name=queue)
    metadata = msgspec.structs.replace(workload.metadata, namespace=queue)
    return named(msgspec.structs.replace(workload, spec=spec, metadata=metadata), name, milliseconds)


def set_up(load: Load) -> State:
    """A state with the queues of the load and nothing in them."""
    state = State(Options())
    objects: list[Object] = [*flavors()]
    for cohort in range(load.cohorts):
        for index in range(load.queues):
            name = f"queue-{cohort}-{index}"
            objects += [
                namespace(name),
                cluster_queue(name, f"cohort-{cohort}", load.nominal, load.borrowing),
                local_queue(name),
            ]
    for obj in objects:
        state.put(obj)
    return state


def arrivals(load: Load) -> Iterator[tuple[int, Workload, int]]:
    """When each workload arrives, the workload, and how long it runs; in order of arrival."""
    found: list[tuple[int, str, Workload, int]] = []
    for cohort in range(load.cohorts):
        for index in range(load.queues):
            queue = f"queue-{cohort}-{index}"
            # Nobody's submissions tick in step with everybody else's.
            phase = (cohort * load.queues + index) * 7919 % PHASES
            for workloads in load.sets:
                model = template(queue, workloads.priority, workloads.cpu * 1000)
                for number in range(1, workloads.count + 1):
                    when = number * workloads.interval + phase
                    name = f"{workloads.name}-{number:05d}"
                    found.append((when, queue + name, named(model, name, when), workloads.runtime))
    found.sort(key=lambda row: row[:2])
    return ((when, workload, runtime) for when, _, workload, runtime in found)


@dataclass(slots=True)
class Run:
    """What came of a load, or of its first part."""

    cpu_seconds: float = 0.0
    """Of the calls into the scheduler."""
    simulation_seconds: float = 0.0
    """CPU of everything, with the clock, the load and the record."""
    makespan: float = 0.0
    """Virtual seconds until the last workload has finished."""
    admissions: int = 0
    preemptions: int = 0
    events: int = 0
    decisions: list[tuple[object, ...]] = field(default_factory=list)
    """Who was admitted, who preempted for whom, with the time: to compare before anything else is."""


def run(load: Load, schedule: Scheduler, *, events: int | None = None, record: bool = False) -> Run:
    """Play a load from its beginning, to the end or until so many points in time were played."""
    return driver(load, schedule, record=record).play(events)


def driver(load: Load, schedule: Scheduler, *, record: bool = False) -> Driver:
    """A load before its beginning."""
    return Driver(set_up(load), list(reversed(list(arrivals(load)))), schedule, record)


@dataclass(slots=True)
class Driver:
    state: State
    arriving: list[tuple[int, Workload, int]]
    """The last first."""
    schedule: Scheduler
    record: bool
    runtime_by_key: dict[Key, int] = field(default_factory=dict)
    attempts: dict[Key, int] = field(default_factory=dict)
    ends: list[tuple[int, Key, int]] = field(default_factory=list)
    admissions: int = 0
    result: Run = field(default_factory=Run)

    def play(self, events: int | None) -> Run:
        """Go on to the end, or for so many points in time more; what has come of that part."""
        self.result = Run()
        started = time.process_time()
        while (self.arriving or self.ends) and (events is None or self.result.events < events):
            now = min(
                self.arriving[-1][0] if self.arriving else self.ends[0][0],
                self.ends[0][0] if self.ends else self.arriving[-1][0],
            )
            self._advance(now)
            self.result.events += 1
            self.result.makespan = now / 1000
        self.result.simulation_seconds = time.process_time() - started
        return self.result

    def _advance(self, now: int) -> None:
        ending, arriving, leaving = self._ending(now), self._arriving(now), list[Key]()
        moment = START + timedelta(milliseconds=now)
        clock, state = time.process_time, self.state
        while True:
            started = clock()
            for key in ending:
                state.delete(Workload.KIND, key)
            for workload in arriving:
                state.put(workload)
            for key in leaving:
                state.release(key)
            cycle = self.schedule(state, moment)
            self.result.cpu_seconds += clock() - started
            ending, arriving, leaving = [], [], self._carry_out(cycle, now)
            if not leaving:
                return

    def _ending(self, now: int) -> list[Key]:
        found: list[Key] = []
        while self.ends and self.ends[0][0] == now:
            _, key, attempt = heapq.heappop(self.ends)
            if self.attempts.get(key) == attempt:
                del self.attempts[key]
                found.append(key)
        return found

    def _arriving(self, now: int) -> list[Workload]:
        found: list[Workload] = []
        while self.arriving and self.arriving[-1][0] == now:
            _, workload, runtime = self.arriving.pop()
            self.runtime_by_key[workload.key] = runtime
            found.append(workload)
        return found

    def _carry_out(self, cycle: Cycle, now: int) -> list[Key]:
        leaving: list[Key] = []
        for decision in cycle.decisions:
            if isinstance(decision, Admit):
                self.result.admissions += 1
                key = decision.key
                self.admissions += 1
                attempt = self.attempts[key] = self.admissions
                heapq.heappush(self.ends, (now + self.runtime_by_key[key], key, attempt))
                if self.record:
                    self.result.decisions.append((now, "admit", key))
            elif isinstance(decision, Preempt):
                self.result.preemptions += 1
                self.attempts.pop(decision.victim, None)
                leaving.append(decision.victim)
                if self.record:
                    self.result.decisions.append((now, "preempt", decision.victim, decision.preemptor))
        return leaving
