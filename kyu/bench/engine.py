"""
What a decision costs: how it grows with everything that is there, and next to the textbook scheduler.

Growth: a tree in contention, with preemption on and a thousand shapes; one workload after another finishes and another
arrives, and the cost of a finish and the admission that it allows is compared between a small and a large state. Rival:
a load, played by the engine and by the textbook scheduler, part by part in turn; the decisions of a part are compared
before its times are.

Called by: cli/bench.py. Calls: loads.py, rival.py.
"""

from __future__ import annotations

import gc
import resource
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from kyu.api import codec
from kyu.api.kueue import Cohort, Workload
from kyu.bench import loads, rival
from kyu.bench.loads import Load
from kyu.engine import cycle
from kyu.engine.options import Options
from kyu.engine.state import State

KUEUE_BASELINE_CPU_SECONDS = 96.0
"""CPU of Kueue's own process for the whole baseline, measured beside an API server without request limits."""

KUEUE_BASELINE_WALL_SECONDS = 351.1
"""How long the baseline takes in Kueue's own published measurement, where requests to the API server are limited."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measured figure, and the ratio that it is for."""

    name: str
    value: str
    ratio: float | None = None
    must: str = ""
    goal: str = ""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much there is of everything."""

    queues: int
    pending: int
    admitted: int
    depth: int = 1
    flavors: int = 1


SMALL = Scale(30, 1_000, 100)
LARGE = Scale(10_000, 1_000_000, 100_000)
QUICK = Scale(1_000, 100_000, 10_000)
QUEUES_PER_COHORT = 6
# Workloads preempt lower priorities, in their own queue and where others have borrowed. With "Any", queues of mixed
# sizes can take the same quota from each other for ever, and that would be measured.
RECLAIM = "LowerPriority"
MOST_ROUNDS = 5
# Decisions that are timed together, and how many such blocks are compared.
BLOCK, BLOCKS = 50, 15
# A part that takes less says nothing by itself.
LEAST_SECONDS = 0.01
# Arrivals between two settlings while a state is built.
SETTLE_EVERY = 50_000


def run(*, quick: bool) -> Iterator[Row]:
    """All figures, one by one as they are measured."""
    yield from growth(QUICK if quick else LARGE)
    yield against_rival(loads.BASELINE, part=250, every=1000 if quick else 250)
    yield against_rival(loads.LARGE_SCALE, part=1, every=100 if quick else 25)
    yield from whole_baseline()


# Growth


def growth(large: Scale) -> Iterator[Row]:
    small_cost = statistics.median(Ground(SMALL, seed).cost() for seed in range(BLOCKS))
    yield Row(describe(SMALL), f"{small_cost * 1e6:.0f} us per decision")
    for name, other, must, goal in (
        ("depth 8", Scale(30, 1_000, 100, depth=8), "3", "2.5"),
        ("16 flavors", Scale(30, 1_600, 1_600, flavors=16), "4", "3"),
        (describe(large), large, "2", "1.5"),
    ):
        ground = Ground(other)
        pairs = []
        for seed in range(BLOCKS):
            # A small state changes its nature with every block, as its high priorities are served: each has a new one.
            theirs = ground if other is large else Ground(other, seed)
            pairs.append((Ground(SMALL, seed).cost(), theirs.cost()))
        ratios = [there / here for here, there in pairs]
        cost = statistics.median(there for _, there in pairs)
        text = f"{cost * 1e6:.0f} us per decision, {min(ratios):.2f}-{max(ratios):.2f}"
        yield Row(name, text, statistics.median(ratios), f"<= {must}", f"<= {goal}")
        if other is large:
            each = ground.bytes_each
            yield Row("memory per pending workload", f"{each:.0f} bytes", each / 1000, "<= 1.5", "<= 1")


def describe(scale: Scale) -> str:
    return f"{scale.queues:,} queues, {scale.pending:,} pending, {scale.admitted:,} admitted"


class Ground:
    """A state of some scale in contention, settled, on which decisions are timed."""

    def __init__(self, scale: Scale, seed: int = 0) -> None:
        self._random = Random(seed)
        self._clock = loads.START
        gc.disable()
        self._state = populated(scale)
        before = memory_bytes()
        self._arriving = Arrivals(scale, self._random)
        for number in range(scale.pending + scale.admitted):
            self._state.put(self._arriving.next())
            if number % SETTLE_EVERY == 0:
                settle(self._state, self._clock)
        settle(self._state, self._clock)
        self.bytes_each = (memory_bytes() - before) / (scale.pending + scale.admitted)
        gc.enable()

    def cost(self) -> float:
        """CPU seconds for a finish and the admissions that it allows: the mean of a block of decisions."""
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
    """A running workload ends, another arrives; all that follows from that."""
    queue = state.queues[random.choice(arriving.queues)]
    while not queue.holdings:
        queue = state.queues[random.choice(arriving.queues)]
    _, ending = queue.holdings[random.randrange(len(queue.holdings))]
    fresh = arriving.next()
    started = time.process_time()
    state.delete(Workload.KIND, ending.key)
    state.put(fresh)
    settle(state, now)
    return time.process_time() - started


def settle(state: State, now: datetime) -> None:
    """Decide, and let the preempted go; bounded, as queues can take the same quota from each other for ever."""
    for _ in range(MOST_ROUNDS):
        leaving = [preempt.victim for preempt in cycle.schedule(state, now).preempted()]
        if not leaving:
            return
        for key in leaving:
            state.release(key)


def populated(scale: Scale) -> State:
    """Queues in cohorts, each cohort under a chain of others, and nothing in them."""
    state = State(Options())
    for flavor in loads.flavors(scale.flavors):
        state.put(flavor)
    for number in range(scale.queues):
        group, name = number // QUEUES_PER_COHORT, f"queue-{number}"
        if number % QUEUES_PER_COHORT == 0:
            for level in range(1, scale.depth):
                state.put(cohort(f"cohort-{group}-{level - 1}", f"cohort-{group}-{level}"))
        state.put(loads.namespace(name))
        state.put(loads.cluster_queue(name, f"cohort-{group}-0", 20, None, scale.flavors, RECLAIM))
        state.put(loads.local_queue(name))
    return state


def cohort(name: str, parent: str) -> Cohort:
    body = {"apiVersion": loads.API, "kind": "Cohort", "metadata": {"name": name}, "spec": {"parentName": parent}}
    return codec.decode_as(Cohort, body)


class Arrivals:
    """Workloads of a thousand sizes and three priorities, to queues in turn."""

    def __init__(self, scale: Scale, random: Random) -> None:
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
            model = self._models[size, priority] = loads.template("queue", priority, size)
        return loads.sent_to(model, queue, f"w-{self._count:07d}", self._count)


def memory_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


# Rival


def against_rival(load: Load, part: int, every: int) -> Row:
    """
    Parts of a load, so many points in time each, spread evenly over all of it; on both sides, in turn.

    What is between them is the engine's work on both sides, and not counted.
    """
    ours, theirs = (loads.driver(load, cycle.schedule, record=True) for _ in range(2))
    own = rivals = 0.0
    admissions = parts = 0
    ratios: list[float] = []
    while True:
        mine = timed(ours, cycle.schedule, part)
        other = timed(theirs, rival.schedule, part)
        if not mine.events:
            break
        if sorted(map(str, mine.decisions)) != sorted(map(str, other.decisions)):
            return Row(f"{load.name}: decisions differ", f"after {mine.makespan:.1f} s of virtual time, no comparison")
        own, rivals = own + mine.cpu_seconds, rivals + other.cpu_seconds
        admissions, parts = admissions + mine.admissions, parts + 1
        if mine.cpu_seconds > LEAST_SECONDS:
            ratios.append(other.cpu_seconds / mine.cpu_seconds)
        for driver in (ours, theirs):
            driver.play(every - part)
    text = f"{own:.2f} s for {admissions:,} admissions, rival {rivals:.1f} s; {spread(ratios)} in single parts"
    return Row(f"{load.name}, {parts} parts spread over it", text, rivals / own, ">= 10", ">= 50")


def spread(ratios: list[float]) -> str:
    return f"{min(ratios):.1f}-{max(ratios):.1f}" if ratios else "too short to tell"


def timed(driver: loads.Driver, schedule: loads.Scheduler, events: int | None) -> loads.Run:
    """The next part of a load, by one side."""
    gc.collect()
    gc.freeze()
    driver.schedule = schedule
    try:
        return driver.play(events)
    finally:
        driver.schedule = cycle.schedule
        gc.unfreeze()


def whole_baseline() -> Iterator[Row]:
    done = timed(loads.driver(loads.BASELINE, cycle.schedule), cycle.schedule, None)
    share = KUEUE_BASELINE_CPU_SECONDS / done.cpu_seconds
    text = f"{done.cpu_seconds:.1f} s CPU for {done.admissions:,} admissions, {done.makespan:.1f} s of virtual time"
    yield Row("whole baseline, Kueue's 96 s as a multiple", text, share, ">= 20", ">= 100")
    yield Row(
        "virtual time of the baseline, Kueue's 351 s as a multiple",
        f"{KUEUE_BASELINE_WALL_SECONDS:.0f} s in {done.simulation_seconds:.1f} s",
        KUEUE_BASELINE_WALL_SECONDS / done.simulation_seconds,
        ">= 100",
        ">= 500",
    )
