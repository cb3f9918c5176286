"""
Backfill: later workloads of a ClusterQueue start early, if that cannot delay its first workload.

A ClusterQueue with this strategy is StrictFIFO, and has one further phase. When the cycles of its tree are done and its
first workload is blocked, that workload gets a reservation: the earliest time at which it fits, if the workloads of the
tree end at their declared maximum execution times. Then later workloads are tried in the order of the queue. One of
them starts if it fits now without preemption, and either ends by that time or leaves enough quota for the reservation.
This is EASY backfilling (Lifka, 1995), on a tree of quotas instead of one number of processors.

Where times are not known, the answer is conservative. A workload without a limit never ends. If the first workload
cannot be given a time, later workloads may only take quota of which enough for it stays free.

Called by: engine/schedule.py (the phase), engine/explain.py (shows the reservation). Calls: engine/cycle.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import product
from math import inf, prod
from typing import Final

from kyu.engine.cycle import CycleRunner
from kyu.engine.flavors.compiled import MOST_WAYS, Charge, CompiledAssignment, find_compiled
from kyu.engine.nominate import Nomination, why_not_nominated
from kyu.engine.queueing.pending_workload import EquivalenceClass, PendingWorkload
from kyu.engine.quota.amounts import BOUNDLESS, QuotaNode
from kyu.engine.state import State
from kyu.engine.tree import ExpectedEnd, Queue
from kyu.engine.workloads import ReservedWorkload

NOTHING: Final[Sequence[tuple[Charge, ...]]] = ()


@dataclass(slots=True)
class QuotaReservation:
    """The reservation of a blocked workload: a time, and the quota that later workloads may use beyond that time."""

    workload: PendingWorkload
    start: float
    """The time at which the workload fits at the latest; infinite if that is not known."""
    spare: dict[QuotaNode, int]
    """By quota node: the amount that is free at the start beside the workload."""
    placed: bool
    """The workloads need nodes. Spare quota does not tell whether nodes stay free, so all must end by the start."""

    def permits(self, workload: PendingWorkload, usage: Iterable[Charge], now: float) -> bool:
        """Return whether a workload with such usage cannot delay the reservation, and count what it takes."""
        if workload.limit is not None and now + workload.limit <= self.start < inf:
            return True
        if self.placed:
            return False
        taken = [(quota, amount) for quota, amount in usage if amount > 0]
        if any(amount > self.spare.get(quota, BOUNDLESS) for quota, amount in taken):
            return False
        for quota, amount in taken:
            if quota in self.spare:
                self.spare[quota] -= amount
        return True


def backfill(runner: CycleRunner, queue: Queue) -> None:
    """Start workloads of a ClusterQueue behind its blocked first workload, as far as its reservation permits."""
    state, pending, now = runner.state, queue.pending, runner.now
    if pending.size < 2 or not queue.active or queue.by_usage or pending.pending_preemptor is not None:
        return
    head = pending.head()
    reservation: QuotaReservation | None = None
    tried: set[EquivalenceClass | None] = set()
    for workload in _in_order(queue):
        if reservation is None:
            if not _can_ever_start(state, queue, workload):
                continue
            if workload is not head and _start(runner, queue, workload, None):
                continue
            reservation = reserve(state, queue, workload, now)
            if reservation is None:
                return
            tried = pending.backfill.recall(workload, _released(queue))
            continue
        equivalents = workload.equivalents
        # If the workload starts, the next workload of its class is tried in its turn.
        if equivalents not in tried and not (
            _fits_now(state, queue, workload) and _start(runner, queue, workload, reservation)
        ):
            tried.add(equivalents)


def _released(queue: Queue) -> int:
    """Return a number that grows when quota is released in the tree of a ClusterQueue."""
    return sum([root.released for root in {quota.root() for quota in queue.quotas.values()}])


def _in_order(queue: Queue) -> Iterator[PendingWorkload]:
    """Yield the first workload of each class in the order of the queue. Classes may change places meanwhile."""
    places, index = queue.pending.places, 0
    while index < len(places):
        place = places[index]
        if (first := place[3].first) is not None:
            yield first
        index = bisect_right(places, place)


def _start(runner: CycleRunner, queue: Queue, workload: PendingWorkload, held: QuotaReservation | None) -> bool:
    """Admit a workload if it fits without preemption and the reservation permits it; return whether it was admitted."""

    def permits(entry: Nomination) -> bool:
        return held is None or held.permits(workload, entry.assignment.usage.items(), runner.now)

    return runner.admit_alone(queue, workload, permits)


def _can_ever_start(state: State, queue: Queue, workload: PendingWorkload) -> bool:
    """Return whether the end of other workloads could let a workload start. If not, it holds up no others."""
    if why_not_nominated(state, queue, workload) is not None:
        return False
    ways = ways_to_start(find_compiled(state, queue, workload.shape, None, workload.rare.allowed_flavor))
    return ways is None or bool(ways)


def _fits_now(state: State, queue: Queue, workload: PendingWorkload) -> bool:
    ways = find_compiled(state, queue, workload.shape, None, workload.rare.allowed_flavor).ways
    return ways is None or any(_fits(way) for way in ways)


def _fits(way: Iterable[Charge]) -> bool:
    return all(quota.fits(amount) for quota, amount in way)


def ways_to_start(compiled: CompiledAssignment) -> Sequence[tuple[Charge, ...]] | None:
    """Return the charges of each combination of flavors that could fit one day; None if there are too many."""
    if any(sets.uncovered is not None for sets in compiled.together):
        return NOTHING
    options = [group.options for sets in compiled.together for group in sets.groups]
    if prod(map(len, options)) > MOST_WAYS:
        return None
    found: list[tuple[Charge, ...]] = []
    for chosen in product(*options):
        total: dict[QuotaNode, int] = {}
        for option in chosen:
            for quota, amount in option.charges:
                total[quota] = total.get(quota, 0) + amount
        if all(amount <= quota.potential for quota, amount in total.items()):
            found.append(tuple(total.items()))
    return found


def reserve(state: State, queue: Queue, workload: PendingWorkload, now: float) -> QuotaReservation | None:
    """Return the reservation of a blocked workload; None if its flavors are too many to tell."""
    ways = ways_to_start(find_compiled(state, queue, workload.shape, None, workload.rare.allowed_flavor))
    if ways is None or workload.rare.replaces is not None:
        return None
    gone: list[ReservedWorkload] = []
    try:
        for time in _departures(state, queue, now, gone):
            for way in ways:
                if _fits(way):
                    return QuotaReservation(workload, time, _spare_beside(queue, way), queue.placed)
    finally:
        for reserved in gone:
            for quota, amount in reserved.charges:
                quota.charge(amount)
    return QuotaReservation(workload, inf, _spare_without_time(ways), queue.placed)


def find_reservation(state: State, queue: Queue, now: float) -> QuotaReservation | None:
    """Return the reservation of the first workload of a ClusterQueue that could start one day; None without one."""
    if not queue.backfills or not queue.active or queue.by_usage or queue.pending.pending_preemptor is not None:
        return None
    for workload in _in_order(queue):
        if _can_ever_start(state, queue, workload):
            return reserve(state, queue, workload, now)
    return None


def _departures(state: State, queue: Queue, now: float, gone: list[ReservedWorkload]) -> Iterator[float]:
    """
    Take the workloads of the tree out in the order of their expected ends, and yield each time at which some have gone.

    A workload that is evicted, or should have ended by now, counts as gone now.
    """
    members = state.hierarchy.members(state.hierarchy.find_root(queue))
    for member in members:
        if member.has_evicted:
            _take_out([reserved for _, reserved in member.held(evicted=True)], gone)
    ends: Iterator[ExpectedEnd] = iter(members[0].expected_ends() if len(members) == 1 else _merged(members))
    last = now
    for time, _, reserved in ends:
        if time > last:
            yield last
            last = time
        if time == inf:
            return
        if not reserved.evicted:
            _take_out((reserved,), gone)
    yield last


def _merged(members: Sequence[Queue]) -> Iterable[ExpectedEnd]:
    return merge(*(member.expected_ends() for member in members))


def _take_out(leaving: Iterable[ReservedWorkload], gone: list[ReservedWorkload]) -> None:
    for reserved in leaving:
        gone.append(reserved)
        for quota, amount in reserved.charges:
            quota.charge(-amount)


def _spare_beside(queue: Queue, way: Iterable[Charge]) -> dict[QuotaNode, int]:
    """Return the free quota of a ClusterQueue beside the charges of a workload."""
    spare = {quota: quota.available() for quota in queue.quotas.values()}
    for quota, amount in way:
        spare[quota] -= amount
    return spare


def _spare_without_time(ways: Sequence[tuple[Charge, ...]]) -> dict[QuotaNode, int]:
    """Return what may be taken of each quota that a workload could need, so that enough for it stays free."""
    most: dict[QuotaNode, int] = {}
    for way in ways:
        for quota, amount in way:
            if amount > 0:
                most[quota] = max(amount, most.get(quota, 0))
    return {quota: quota.available() - amount for quota, amount in most.items()}
