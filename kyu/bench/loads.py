"""
Loads in virtual time: workloads with arrival times and run times, and a clock that jumps from event to event.

The loads are those of Kueue's own performance test: ClusterQueues in flat cohorts, each with three sets of one-pod
workloads. Workloads arrive at fixed intervals, run for a fixed time after admission, and start again after an eviction.
The driver is the same for every scheduler, and times only the calls into the scheduler.

Called by: bench/engine.py, bench/embedded.py, bench/pretended.py, bench/soak.py. Kueue: test/performance/scheduler
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Protocol

import msgspec

from kyu.api import codec
from kyu.api.core import Namespace
from kyu.api.kueue import ClusterQueue, LocalQueue, ResourceFlavor, Workload
from kyu.api.meta import Json, Key, Kind, Object
from kyu.bench import realistic
from kyu.engine.decisions import Admit, Cycle, Preempt
from kyu.engine.options import Options
from kyu.engine.state import State

API = "kueue.x-k8s.io/v1beta2"
START = datetime(2026, 1, 1, tzinfo=UTC)
# The milliseconds over which the first arrivals of the queues are spread.
PHASES = 97
NEVER = 1 << 62
# The most rounds at one point in time, because ClusterQueues can preempt each other for ever.
MOST_ROUNDS = 20
# A scheduler takes its state and the time.
Scheduler = Callable[[Any, datetime], Cycle]


@dataclass(frozen=True, slots=True)
class WorkloadSet:
    """A set of ``count`` workloads per queue, one every ``interval``, that run for ``runtime`` (milliseconds)."""

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
    realistic: bool = False
    """Whether workloads request cpu and memory in many shapes, with two tainted flavors, instead of one resource."""

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
REALISTIC = Load(
    "realistic",
    cohorts=5,
    queues=3,
    sets=(
        WorkloadSet("small", 700, 50, 200, 50, 1),
        WorkloadSet("medium", 200, 250, 500, 100, 5),
        WorkloadSet("large", 100, 600, 1000, 200, 20),
    ),
    realistic=True,
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


def cluster_queue(name: str, cohort: str, resource_groups: list[Json], reclaim: str = "Any") -> ClusterQueue:
    spec = {
        "cohortName": cohort,
        "namespaceSelector": {},
        "resourceGroups": resource_groups,
        "preemption": {"reclaimWithinCohort": reclaim, "withinClusterQueue": "LowerPriority"},
    }
    return codec.decode_as(ClusterQueue, _json("ClusterQueue", {"name": name}, spec))


def cpu_groups(nominal: int, borrowing: int | None, flavors: int = 1) -> list[Json]:
    quota = {"name": "cpu", "nominalQuota": nominal, **({} if borrowing is None else {"borrowingLimit": borrowing})}
    listed = [{"name": flavor, "resources": [quota]} for flavor in cpu_flavor_names(flavors)]
    return [{"coveredResources": ["cpu"], "flavors": listed}]


def cpu_flavor_names(flavors: int) -> list[str]:
    return ["rf", *(f"rf-{i}" for i in range(1, flavors))]


def local_queue(name: str) -> LocalQueue:
    return codec.decode_as(LocalQueue, _json("LocalQueue", {"name": name, "namespace": name}, {"clusterQueue": name}))


def flavor(name: str, spec: Json) -> ResourceFlavor:
    return codec.decode_as(ResourceFlavor, _json("ResourceFlavor", {"name": name}, spec))


def namespace(name: str) -> Namespace:
    return codec.decode_as(Namespace, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


def _json(kind: str, metadata: Json, spec: Json) -> Json:
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}


def one_pod(milli_cpu: int) -> list[Json]:
    container = {"name": "c", "resources": {"requests": {"cpu": f"{milli_cpu}m"}}}
    return [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}]


def template(queue: str, priority: int, pod_sets: list[Json]) -> Workload:
    """Return a workload that is copied with a name and a creation time."""
    spec = {"queueName": queue, "priority": priority, "podSets": pod_sets}
    return codec.decode_as(Workload, _json("Workload", {"name": "template", "namespace": queue}, spec))


def named(workload: Workload, name: str, milliseconds: int) -> Workload:
    created = (START + timedelta(milliseconds=milliseconds)).isoformat()
    metadata = msgspec.structs.replace(
        workload.metadata, name=name, uid=f"{workload.metadata.namespace}/{name}", creation_timestamp=created
    )
    return msgspec.structs.replace(workload, metadata=metadata)


def sent_to(workload: Workload, queue: str, name: str, milliseconds: int) -> Workload:
    """Return a copy for another queue, in the namespace of that queue."""
    spec = msgspec.structs.replace(workload.spec, queue_name=queue)
    metadata = msgspec.structs.replace(workload.metadata, namespace=queue)
    return named(msgspec.structs.replace(workload, spec=spec, metadata=metadata), name, milliseconds)


class Simulated(Protocol):
    """The state of a scheduler that a driver feeds with a load."""

    def put(self, obj: Object) -> None:
        """Create or change an object."""

    def delete(self, kind: Kind, key: Key) -> None:
        """Delete an object."""

    def release(self, key: Key) -> None:
        """Queue a preempted workload again."""


def objects(load: Load) -> list[Object]:
    """Return the flavors and queues of a load."""
    found: list[Object] = []
    if load.realistic:
        found += [flavor(name, realistic.flavor_spec(name)) for name in realistic.FLAVORS]
        groups = realistic.resource_groups(load.nominal, load.borrowing, realistic.FLAVORS)
    else:
        found += [flavor(name, {}) for name in cpu_flavor_names(1)]
        groups = cpu_groups(load.nominal, load.borrowing)
    for cohort in range(load.cohorts):
        for index in range(load.queues):
            name = f"queue-{cohort}-{index}"
            found += [namespace(name), cluster_queue(name, f"cohort-{cohort}", groups), local_queue(name)]
    return found


def arrivals(load: Load) -> Iterator[tuple[int, Workload, int]]:
    """Return the arrival time, workload and run time of each workload, in order of arrival."""
    found: list[tuple[int, str, Workload, int]] = []
    random = Random(0)
    for cohort in range(load.cohorts):
        for index in range(load.queues):
            queue = f"queue-{cohort}-{index}"
            # A phase per queue keeps the arrivals of different queues from coinciding.
            phase = (cohort * load.queues + index) * 7919 % PHASES
            for workloads in load.sets:
                models: dict[int, Workload] = {}
                for number in range(1, workloads.count + 1):
                    rank = realistic.draw_rank(random) if load.realistic else 0
                    if (model := models.get(rank)) is None:
                        milli_cpu = workloads.cpu * 1000
                        pod_sets = realistic.pod_sets(milli_cpu, rank) if load.realistic else one_pod(milli_cpu)
                        model = models[rank] = template(queue, workloads.priority, pod_sets)
                    when = number * workloads.interval + phase
                    name = f"{workloads.name}-{number:05d}"
                    found.append((when, queue + name, named(model, name, when), workloads.runtime))
    found.sort(key=lambda row: row[:2])
    return ((when, workload, runtime) for when, _, workload, runtime in found)


@dataclass(slots=True)
class Run:
    """The result of a load, or of a part of it."""

    cpu_seconds: float = 0.0
    """The CPU of the calls into the scheduler."""
    simulation_seconds: float = 0.0
    """The CPU of the whole simulation, including the clock, the load and the record."""
    makespan: float = 0.0
    """The virtual seconds until the last event."""
    admissions: int = 0
    preemptions: int = 0
    events: int = 0
    decisions: list[tuple[object, ...]] = field(default_factory=list)
    """The admissions and preemptions with their times, to compare the decisions of two schedulers."""


def run(load: Load, schedule: Scheduler, *, events: int | None = None, record: bool = False) -> Run:
    """Run a load on the engine, to the end or for a number of points in time."""
    return driver(load, State(Options()), schedule, record=record).play(events)


def driver(load: Load, state: Simulated, schedule: Scheduler, *, record: bool = False) -> Driver:
    """Return a driver of a load at its beginning."""
    for obj in objects(load):
        state.put(obj)
    return Driver(state, list(reversed(list(arrivals(load)))), schedule, record)


@dataclass(slots=True)
class Driver:
    """A driver that runs a load on a scheduler."""

    state: Simulated
    arriving: list[tuple[int, Workload, int]]
    """The arrivals in reverse order, so that the next one is popped from the end."""
    schedule: Scheduler
    record: bool
    runtime_by_key: dict[Key, int] = field(default_factory=dict)
    attempts: dict[Key, int] = field(default_factory=dict)
    ends: list[tuple[int, Key, int]] = field(default_factory=list)
    leaving: list[Key] = field(default_factory=list)
    """The preempted workloads that are released at the next point in time."""
    admissions: int = 0
    result: Run = field(default_factory=Run)

    def play(self, events: int | None) -> Run:
        """Run to the end, or for a number of further points in time. Return the result of that part."""
        self.result = Run()
        started = time.process_time()
        while (self.arriving or self.ends) and (events is None or self.result.events < events):
            now = min(
                self.arriving[-1][0] if self.arriving else NEVER,
                self.ends[0][0] if self.ends else NEVER,
            )
            self._advance(now)
            self.result.events += 1
            self.result.makespan = now / 1000
        self.result.simulation_seconds = time.process_time() - started
        return self.result

    def _advance(self, now: int) -> None:
        ending, arriving, leaving = self._ending(now), self._arriving(now), self.leaving
        moment = START + timedelta(milliseconds=now)
        clock, state = time.process_time, self.state
        for _ in range(MOST_ROUNDS):
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
                break
        self.leaving = leaving

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
