"""
The CPU cost of a scheduling decision: its growth with the size of the state, and its ratio to the textbook scheduler.

Growth: ClusterQueues compete for quota, with preemption on and a thousand request shapes. In each step one workload
finishes and another arrives. The benchmark compares the cost of a finish and its admissions between a small and a large
state. Textbook: the engine and the textbook scheduler run the same load in alternating parts. The benchmark compares
the decisions of each part before the times.

Called by: cli/admin/bench.py. Calls: bench/loads.py, bench/realistic.py, and the textbook scheduler by module name.
"""

from __future__ import annotations

import gc
import multiprocessing
import resource
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from types import ModuleType

from kyu.api import codec
from kyu.api.kueue import Cohort, Workload
from kyu.bench import loads, realistic
from kyu.bench.loads import Load
from kyu.engine.options import Options
from kyu.engine.schedule import schedule as our_schedule
from kyu.engine.state import State

KUEUE_BASELINE_CPU_SECONDS = 96.0
"""The CPU of Kueue's process for the whole baseline, measured with an API server without request limits."""

KUEUE_BASELINE_WALL_SECONDS = 351.1
"""The duration of the baseline in Kueue's published measurement, which limits requests to the API server."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measured figure, and its ratio."""

    name: str
    value: str
    ratio: float | None = None
    must: str = ""
    goal: str = ""


@dataclass(frozen=True, slots=True)
class Scale:
    """The size of a state."""

    queues: int
    pending: int
    admitted: int
    depth: int = 1
    flavors: int = 1


SMALL = Scale(30, 1_000, 100)
LARGE = Scale(10_000, 1_000_000, 100_000)
QUICK = Scale(1_000, 100_000, 10_000)
QUEUES_PER_COHORT = 6
# With the policy "Any", ClusterQueues with mixed workload sizes can preempt each other for ever. The benchmark would
# then measure that cycle.
RECLAIM = "LowerPriority"
MOST_ROUNDS = 5
# The number of decisions that are timed together, and the number of such blocks.
BLOCK, BLOCKS = 50, 15
# A shorter part is too noisy for a ratio.
LEAST_SECONDS = 0.01
# The number of arrivals between two calls of settle while a state is built.
SETTLE_EVERY = 50_000
# The points in time of each part, and the CPU seconds of the textbook scheduler after which a load stops.
PART = 250
TEXTBOOK_SECONDS, QUICK_SECONDS = 60.0, 10.0


def run(*, quick: bool, textbook: ModuleType | None = None) -> Iterator[Row]:
    """Yield each figure as soon as it is measured."""
    budget = QUICK_SECONDS if quick else TEXTBOOK_SECONDS
    for is_realistic in (True, False):
        yield from growth(QUICK if quick else LARGE, is_realistic=is_realistic)
    if textbook is None:
        yield Row("beside the textbook scheduler", "not measured: give --textbook tests.support.textbook in a checkout")
    else:
        yield against_textbook(loads.REALISTIC, textbook, budget, ">= 10", ">= 30")
        yield against_textbook(loads.BASELINE, textbook, budget, ">= 7", ">= 10")
        yield against_textbook(loads.LARGE_SCALE, textbook, budget, ">= 7", ">= 10")
    yield from whole_baselines()


# Growth


def growth(large: Scale, *, is_realistic: bool) -> Iterator[Row]:
    """Yield the growth of the cost of a decision, with one resource or with cpu, memory and pods."""
    kind = "cpu, memory, pods" if is_realistic else "one resource"

    def ground(scale: Scale, seed: int = 0) -> Ground:
        return Ground(scale, seed, is_realistic=is_realistic)

    small_cost = statistics.median(ground(SMALL, seed).cost() for seed in range(BLOCKS))
    yield Row(f"{kind}: {describe(SMALL)}", f"{small_cost * 1e6:.0f} us per decision")
    for name, other, must, goal in (
        ("depth 8", Scale(30, 1_000, 100, depth=8), "3", "2.5"),
        ("16 flavors", Scale(30, 1_600, 1_600, flavors=16), "4", "3"),
        (describe(large), large, "2", "1.5"),
    ):
        one = ground(other)
        pairs = []
        for seed in range(BLOCKS):
            # Each block gets a new small state: a block admits the high priorities, which changes the load of the next.
            theirs = one if other is large else ground(other, seed)
            pairs.append((ground(SMALL, seed).cost(), theirs.cost()))
        ratios = [there / here for here, there in pairs]
        cost = statistics.median(there for _, there in pairs)
        text = f"{cost * 1e6:.0f} us per decision, {min(ratios):.2f}-{max(ratios):.2f}"
        yield Row(f"{kind}: {name}", text, statistics.median(ratios), f"<= {must}", f"<= {goal}")
    each = memory_each(large, is_realistic=is_realistic)
    yield Row(f"{kind}: memory per workload", f"{each:.0f} bytes", each / 1000, "<= 1.5", "<= 1")


def memory_each(scale: Scale, *, is_realistic: bool) -> float:
    """Return the bytes per workload of a state, in a new process: this one uses the memory of earlier states again."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(_memory_each, scale, is_realistic).result()


def _memory_each(scale: Scale, is_realistic: bool) -> float:
    return Ground(scale, is_realistic=is_realistic).bytes_each


def describe(scale: Scale) -> str:
    return f"{scale.queues:,} queues, {scale.pending:,} pending, {scale.admitted:,} admitted"


class Ground:
    """A settled state of some scale whose workloads compete for quota, for timing decisions."""

    def __init__(self, scale: Scale, seed: int = 0, *, is_realistic: bool) -> None:
        self._random = Random(seed)
        self._clock = loads.START
        gc.disable()
        self._state = populated(scale, is_realistic=is_realistic)
        before = memory_bytes()
        self._arriving = Arrivals(scale, self._random, is_realistic=is_realistic)
        for number in range(scale.pending + scale.admitted):
            self._state.put(self._arriving.next())
            if number % SETTLE_EVERY == 0:
                settle(self._state, self._clock)
        settle(self._state, self._clock)
        self.bytes_each = (memory_bytes() - before) / (scale.pending + scale.admitted)
        gc.enable()

    def cost(self) -> float:
        """Return the mean CPU seconds of a finish and the admissions that it allows, over a block of decisions."""
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            return statistics.mean(self._decide() for _ in range(BLOCK))
        finally:
            gc.enable()
            gc.unfreeze()

    def _decide(self) -> float:
        self._clock += timedelta(seconds=1)
        return one_decision(self._state, self._arriving, self._random, self._clock)


def one_decision(state: State, arriving: Arrivals, random: Random, now: datetime) -> float:
    """Return the CPU seconds of the scheduling after one reserved workload is deleted and another arrives."""
    while not (reserved := state.reserved_in(random.choice(arriving.queues))):
        continue
    ending = random.choice(reserved)
    fresh = arriving.next()
    started = time.process_time()
    state.delete(Workload.KIND, ending.key)
    state.put(fresh)
    settle(state, now)
    return time.process_time() - started


def settle(state: State, now: datetime) -> None:
    """Schedule and release preempted workloads, in few rounds: ClusterQueues can preempt each other for ever."""
    for _ in range(MOST_ROUNDS):
        leaving = [preempt.victim for preempt in our_schedule(state, now).preempted()]
        if not leaving:
            return
        for key in leaving:
            state.release(key)


def populated(scale: Scale, *, is_realistic: bool) -> State:
    """Return a state without workloads, with ClusterQueues in cohorts that each have a chain of parents."""
    state = State(Options())
    names = loads.cpu_flavor_names(scale.flavors)
    for name in names:
        state.put(loads.flavor(name, {}))
    if is_realistic:
        groups = realistic.resource_groups(20, None, names)
    else:
        groups = loads.cpu_groups(20, None, scale.flavors)
    for number in range(scale.queues):
        group, name = number // QUEUES_PER_COHORT, f"queue-{number}"
        if number % QUEUES_PER_COHORT == 0:
            for level in range(1, scale.depth):
                state.put(cohort(f"cohort-{group}-{level - 1}", f"cohort-{group}-{level}"))
        state.put(loads.namespace(name))
        state.put(loads.cluster_queue(name, f"cohort-{group}-0", groups, RECLAIM))
        state.put(loads.local_queue(name))
    return state


def cohort(name: str, parent: str) -> Cohort:
    body = {"apiVersion": loads.API, "kind": "Cohort", "metadata": {"name": name}, "spec": {"parentName": parent}}
    return codec.decode_as(Cohort, body)


class Arrivals:
    """A source of workloads with a thousand sizes and three priorities, for each ClusterQueue in turn."""

    def __init__(self, scale: Scale, random: Random, *, is_realistic: bool) -> None:
        self._is_realistic = is_realistic
        self.queues = [f"queue-{number}" for number in range(scale.queues)]
        self._mean_milli = 20_000 * scale.flavors * scale.queues // scale.admitted
        self._random = random
        self._count = 0
        self._models: dict[tuple[int, int], Workload] = {}

    def next(self) -> Workload:
        queue = self.queues[self._count % len(self.queues)]
        step = max(1, self._mean_milli // 1000)
        size = self._mean_milli // 2 + step * self._random.randrange(1000)
        priority = self._random.choice((50, 100, 200))
        self._count += 1
        model = self._models.get((size, priority))
        if model is None:
            pod_sets = realistic.one_pod_set(size, size // step) if self._is_realistic else loads.one_pod(size)
            model = self._models[size, priority] = loads.template("queue", priority, pod_sets)
        return loads.sent_to(model, queue, f"w-{self._count:07d}", self._count)


def memory_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


# Comparison with the textbook scheduler


def against_textbook(load: Load, textbook: ModuleType, seconds: float, must: str, goal: str) -> Row:
    """Run a load on both schedulers in alternating parts, until it ends or the textbook has used its CPU seconds."""
    ours = loads.driver(load, State(Options()), our_schedule, record=True)
    theirs = loads.driver(load, textbook.Textbook(Options()), textbook.schedule, record=True)
    own = other = 0.0
    admissions = events = 0
    ratios: list[float] = []
    while other < seconds:
        mine, reference = timed(ours, PART), timed(theirs, PART)
        if not mine.events:
            break
        if sorted(map(str, mine.decisions)) != sorted(map(str, reference.decisions)):
            return Row(f"{load.name}: decisions differ", f"after {mine.makespan:.1f} s of virtual time, no comparison")
        own, other = own + mine.cpu_seconds, other + reference.cpu_seconds
        admissions, events = admissions + mine.admissions, events + mine.events
        if mine.cpu_seconds > LEAST_SECONDS:
            ratios.append(reference.cpu_seconds / mine.cpu_seconds)
    text = f"{own:.2f} s for {admissions:,} admissions, textbook {other:.1f} s; {spread(ratios)} in single parts"
    return Row(f"{load.name}, the first {events:,} points in time", text, other / own, must, goal)


def spread(ratios: list[float]) -> str:
    return f"{min(ratios):.1f}-{max(ratios):.1f}" if ratios else "too short to tell"


def timed(driver: loads.Driver, events: int | None) -> loads.Run:
    """Run the next part of a load, without garbage of earlier parts."""
    gc.collect()
    gc.freeze()
    try:
        return driver.play(events)
    finally:
        gc.unfreeze()


def whole_baselines() -> Iterator[Row]:
    """Yield the CPU of the whole realistic load and of Kueue's baseline with one resource."""
    pairs = []
    for _ in range(3):
        one, real = (
            timed(loads.driver(load, State(Options()), our_schedule), None)
            for load in (loads.BASELINE, loads.REALISTIC)
        )
        pairs.append((one, real))
    ratio = statistics.median(real.cpu_seconds / one.cpu_seconds for one, real in pairs)
    one, real = pairs[-1]
    text = f"{real.cpu_seconds:.1f} s CPU for {real.admissions:,} admissions, one resource {one.cpu_seconds:.1f} s"
    yield Row("whole realistic load, the baseline as 1", text, ratio, "<= 2", "<= 1.3")
    share = KUEUE_BASELINE_CPU_SECONDS / one.cpu_seconds
    text = f"{one.cpu_seconds:.1f} s CPU for {one.admissions:,} admissions, {one.makespan:.1f} s of virtual time"
    yield Row("whole baseline, Kueue's 96 s as a multiple", text, share, ">= 20", ">= 100")
    yield Row(
        "virtual time of the baseline, Kueue's 351 s as a multiple",
        f"{KUEUE_BASELINE_WALL_SECONDS:.0f} s in {one.simulation_seconds:.1f} s",
        KUEUE_BASELINE_WALL_SECONDS / one.simulation_seconds,
        ">= 100",
        ">= 500",
    )
