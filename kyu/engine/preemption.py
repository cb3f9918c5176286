"""
Whom to preempt so that a workload fits: the smallest set that a greedy search finds, or nobody.

Candidates are taken out of the tree one by one, least valuable first, until the workload fits; then each of them is put
back to see whether it was needed at all. Workloads of other queues may only be taken while their queue, and every
cohort between it and the preemptor, uses more than its own quota. One search serves both the question about a single
flavor during assignment and the final choice of victims.

Called by: flavors.py (would preemption help, and who goes?), through the state; plan.py, fair_preemption.py.
Calls: quota.py.
Kueue: pkg/scheduler/preemption/preemption.go, classical/
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, auto
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple, Protocol

from kyu.api.meta import Key
from kyu.engine import quota
from kyu.engine.asks import Ask
from kyu.engine.options import Options
from kyu.engine.quota import Cell, FlavorResource
from kyu.engine.reasons import PreemptionReason
from kyu.engine.tree import CohortNode, Queue
from kyu.engine.workload import CandidateOrder, Holding


class Stage(Protocol):
    """Where what-ifs are played: workloads can be taken out of the state and put back."""

    options: Options

    def take_out(self, holding: Holding) -> None: ...

    def put_back(self, holding: Holding) -> None: ...

    def past_usage(self, cluster_queue: Queue, local_queue: Key) -> float: ...


@dataclass(slots=True)
class Demand:
    """What must fit, and for which flavors and resources others may have to go."""

    queue: Queue
    ask: Ask
    amounts: dict[Cell, int]
    needed: tuple[FlavorResource, ...]
    has_place: Callable[[], bool] | None = None
    """Whether the pods could be placed as things stand in the what-if; None where topology does not matter."""
    head_start: float = 0.0
    """By more than so many seconds it must be older than those of its own priority whom it preempts."""

    def fits(self, *, borrowing: bool) -> bool:
        for cell, amount in self.amounts.items():
            if amount <= 0:
                continue
            if amount > quota.available(cell) or (not borrowing and cell.usage + amount > cell.nominal):
                return False
        return self.has_place is None or self.has_place()

    def is_out_of_reach(self) -> bool:
        """Even without everybody whom it may preempt it would not fit."""
        reach, priority = self.queue.line.reach, self.ask.priority
        for cell, amount in self.amounts.items():  # noqa: SIM110 - a generator costs as much again
            if amount > reach(cell, priority):
                return True
        return False

    def may_take(self, policy: str, candidate: Holding) -> bool:
        """The policy of the preemptor's queue, applied to one workload."""
        match policy:
            case "Any":
                return True
            case "LowerPriority":
                return candidate.priority < self.ask.priority
            case "LowerOrNewerEqualPriority":
                if candidate.priority != self.ask.priority:
                    return candidate.priority < self.ask.priority
                return self.ask.time + self.head_start < candidate.time
            case _:
                return False

    def uses_needed(self, candidate: Holding) -> bool:
        for cell, _ in candidate.charges:  # noqa: SIM110 - a generator costs as much again
            if cell.key in self.needed:
                return True
        return False


class Target(NamedTuple):
    """A workload to preempt."""

    holding: Holding
    queue: Queue
    reason: PreemptionReason


class Variant(IntEnum):
    """By what right a candidate may be taken."""

    WITHIN = auto()
    HIERARCHICAL = auto()
    WITHOUT_BORROWING = auto()
    """Only if the preemptor ends up within its own quota."""
    WHILE_BORROWING = auto()


REASON_BY_VARIANT: Mapping[Variant, PreemptionReason] = {
    Variant.WITHIN: "InClusterQueue",
    Variant.HIERARCHICAL: "InCohortReclamation",
    Variant.WITHOUT_BORROWING: "InCohortReclamation",
    Variant.WHILE_BORROWING: "InCohortReclaimWhileBorrowing",
}


class Source(NamedTuple):
    """A queue, some of whose workloads might be preempted."""

    queue: Queue
    meeting: CohortNode | None = None
    """The lowest cohort that it and the preemptor's queue share; None for the preemptor's own."""
    advantage: bool = False
    """The preemptor claims back what is its own, or its cohort's."""

    def is_protected(self, needed: Sequence[FlavorResource]) -> bool:
        """The queue, or a cohort below the shared one, is back within its own quota by now."""
        if self.meeting is None:
            return False
        if self.queue.is_within(needed):
            return True
        for cohort in self.queue.ancestors():
            if cohort is self.meeting:
                return False
            if cohort.is_within(needed):
                return True
        return False

    def variant(self, demand: Demand, holding: Holding) -> Variant:
        """By what right the preemptor takes a workload of this queue."""
        policies = demand.queue.policies
        if self.meeting is None:
            return Variant.WITHIN
        if self.advantage:
            return Variant.HIERARCHICAL
        if (
            policies.borrow_forbidden
            or holding.priority >= demand.ask.priority
            or (policies.threshold is not None and holding.priority > policies.threshold)
        ):
            return Variant.WITHOUT_BORROWING
        return Variant.WHILE_BORROWING


@dataclass(slots=True)
class Candidates:
    """The three lists of classical preemption. Who is in them is found when their turn comes: few are ever needed."""

    stage: Stage
    demand: Demand
    hierarchical: list[Source] = field(default_factory=list)
    priority: list[Source] = field(default_factory=list)
    own: list[Source] = field(default_factory=list)

    def add(self, part: list[Source], source: Source) -> None:
        """Only if there is anybody to take."""
        policies = self.demand.queue.policies
        if has_takable(source.queue, self.demand, policies.within if source.meeting is None else policies.reclaim):
            part.append(source)

    def in_order(self) -> Iterator[tuple[Holding, Source]]:
        """Those that are evicted already cost nothing; after that, others' workloads before the own."""
        parts = [part for part in (self.hierarchical, self.priority, self.own) if part]
        for part in parts:
            leaving = [source for source in part if source.queue.has_evicted]
            if leaving:
                yield from self._merged(leaving, evicted=True)
        for part in parts:
            yield from self._merged(part, evicted=False)

    def _merged(self, sources: list[Source], *, evicted: bool) -> Iterator[tuple[Holding, Source]]:
        """Workloads of several queues in one order."""
        waiting: list[tuple[CandidateOrder, int, Holding, Source, Iterator[Holding]]] = []
        for number, source in enumerate(sources):
            others = self._takable(source, evicted=evicted)
            for first in others:
                waiting.append((first.order, number, first, source, others))
                break
        heapify(waiting)
        while waiting:
            _, number, holding, source, others = waiting[0]
            yield holding, source
            for following in others:
                heapreplace(waiting, (following.order, number, following, source, others))
                break
            else:
                heappop(waiting)

    def _takable(self, source: Source, *, evicted: bool) -> Iterator[Holding]:
        """Workloads of one queue: the evicted ones, or the others."""
        queue, policies = source.queue, self.demand.queue.policies
        if source.meeting is not None:
            return takable(queue, self.demand, policies.reclaim, evicted=evicted)
        if queue.by_usage:
            return (holding for holding in own_candidates(self.stage, self.demand) if holding.evicted == evicted)
        return takable(queue, self.demand, policies.within, evicted=evicted)


def find_targets(stage: Stage, demand: Demand) -> list[Target]:
    """Whom to preempt under the classical rules; empty if that would not help."""
    return [] if demand.is_out_of_reach() else search(stage, demand)


def search(stage: Stage, demand: Demand) -> list[Target]:
    """The same for what is known to be within reach."""
    return choose(Candidates(stage, demand))


def choose(candidates: Candidates) -> list[Target]:
    """Collect candidates, and take who is needed of them."""
    collect(candidates)
    for borrowing in attempts(candidates.demand, candidates):
        targets = attempt(candidates.stage, candidates.demand, candidates, borrowing=borrowing)
        if targets:
            return targets
    return []


def collect(found: Candidates) -> None:
    demand, queue = found.demand, found.demand.queue
    found.add(found.own, Source(queue))
    if queue.policies.reclaim not in ("Any", "LowerPriority"):
        return
    advantage = are_within(demand.amounts)
    rest = beyond_private(demand.amounts)
    visited: CohortNode | Queue = queue
    for cohort in queue.ancestors():
        part = found.hierarchical if advantage else found.priority
        for other in borrowing_queues(cohort, visited, demand.needed):
            found.add(part, Source(other, cohort, advantage))
        advantage = advantage or are_within(rest)
        rest = beyond_private(rest)
        visited = cohort


def are_within(amounts: Mapping[Cell, int]) -> bool:
    """Whether the nodes would use no more than they and their children have."""
    for cell, amount in amounts.items():  # noqa: SIM110 - a generator costs as much again
        if cell.usage + amount > cell.subtree:
            return False
    return True


def beyond_private(amounts: Mapping[Cell, int]) -> dict[Cell, int]:
    """What the parents would have to give."""
    rest: dict[Cell, int] = {}
    for cell, amount in amounts.items():
        if cell.parent is not None:
            rest[cell.parent] = max(0, amount - quota.local_available(cell))
    return rest


def own_candidates(stage: Stage, demand: Demand) -> list[Holding]:
    """Workloads of the preemptor's own queue that its policy lets it take, in order."""
    queue = demand.queue
    found = queue_candidates(queue, demand, queue.policies.within)
    if queue.by_usage and len({holding.local_queue.name for holding in found}) > 1:
        # Of equal names in several namespaces the order is that of the names alone. Kueue: candidatesOrdering.
        usage = {h.key: stage.past_usage(queue, h.local_queue) for h in found}
        found.sort(key=lambda h: (not h.evicted, -usage[h.key], *h.order))
    return found


def queue_candidates(queue: Queue, demand: Demand, policy: str) -> list[Holding]:
    """Workloads of one queue that the policy lets the preemptor take, in order."""
    return [h for evicted in (True, False) for h in takable(queue, demand, policy, evicted=evicted)]


def takable(queue: Queue, demand: Demand, policy: str, *, evicted: bool) -> Iterator[Holding]:
    """Evicted workloads of the queue, or the others, that the policy lets the preemptor take, one by one in order."""
    if policy in ("", "Never"):
        return
    priority, anybody = demand.ask.priority, policy == "Any"
    for _, holding in queue.held(evicted=evicted):
        if not anybody and holding.priority > priority:
            return
        if holding.present and (anybody or demand.may_take(policy, holding)) and demand.uses_needed(holding):
            yield holding


def has_takable(queue: Queue, demand: Demand, policy: str) -> bool:
    """Whether the policy lets the preemptor take anybody of the queue."""
    if policy in ("", "Never"):
        return False
    priority, anybody = demand.ask.priority, policy == "Any"
    for _, holding in queue.holdings:
        if not (anybody or holding.evicted) and holding.priority > priority:
            return False
        if holding.present and (anybody or demand.may_take(policy, holding)) and demand.uses_needed(holding):
            return True
    return False


def borrowing_queues(cohort: CohortNode, visited: object, needed: Sequence[FlavorResource]) -> Iterator[Queue]:
    """Queues below the cohort that use more than their own quota, along a path of cohorts that do too."""
    for queue in cohort.queues:
        if queue is not visited and queue.active and not queue.is_within(needed):
            yield queue
    for child in cohort.children:
        if child is not visited and not child.is_within(needed):
            yield from borrowing_queues(child, visited, needed)


def attempts(demand: Demand, candidates: Candidates) -> tuple[bool, ...]:
    """In which order to try with and without borrowing."""
    queue = demand.queue
    if not (candidates.hierarchical or candidates.priority):
        return (True,) if candidates.own else ()
    if queue.policies.borrow_forbidden:
        cells = [queue.cells[key] for key in demand.needed]
        if not all(cell.usage < cell.nominal for cell in cells):
            return (True,)
        if not candidates.hierarchical:
            return (False, True)
    return (True, False)


def attempt(stage: Stage, demand: Demand, candidates: Candidates, *, borrowing: bool) -> list[Target]:
    targets: list[Target] = []
    for holding, source in candidates.in_order():
        variant = source.variant(demand, holding)
        if borrowing and variant is Variant.WITHOUT_BORROWING:
            continue
        if source.is_protected(demand.needed):
            continue
        stage.take_out(holding)
        targets.append(Target(holding, source.queue, REASON_BY_VARIANT[variant]))
        if demand.fits(borrowing=borrowing):
            minimise(stage, demand, targets, borrowing=borrowing)
            put_back_all(stage, targets)
            return targets
    put_back_all(stage, targets)
    return []


def minimise(stage: Stage, demand: Demand, targets: list[Target], *, borrowing: bool) -> None:
    """Put back whom we do not need, the last found first. The very last made it fit, so it is not asked about."""
    for index in range(len(targets) - 2, -1, -1):
        stage.put_back(targets[index].holding)
        if demand.fits(borrowing=borrowing):
            targets[index] = targets[-1]
            targets.pop()
        else:
            stage.take_out(targets[index].holding)


def put_back_all(stage: Stage, targets: Sequence[Target]) -> None:
    for target in targets:
        stage.put_back(target.holding)
