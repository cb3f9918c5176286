"""
Whom to preempt so that a workload fits: the smallest set that a greedy search finds, or nobody.

Candidates are taken out of the tree one by one, least valuable first, until the workload fits; then each of them is put
back to see whether it was needed at all. Workloads of other queues may only be taken while their queue, and every
cohort between it and the preemptor, uses more than its own quota. One search serves both the question about a single
flavor during assignment and the final choice of victims.

Called by: flavors.py (would preemption help?), cycle.py (who goes?). Calls: quota.py, fair_preemption.py.
Kueue: pkg/scheduler/preemption/preemption.go, classical/
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, Protocol

from kyu.engine import quota
from kyu.engine.options import Options
from kyu.engine.quota import Cell, FlavorResource
from kyu.engine.reach import reach
from kyu.engine.reasons import PreemptionReason
from kyu.engine.tree import CohortNode, Queue
from kyu.engine.workload import Ask, Holding


class Stage(Protocol):
    """Where what-ifs are played: workloads can be taken out of the state and put back."""

    options: Options

    def take_out(self, holding: Holding) -> None: ...

    def put_back(self, holding: Holding) -> None: ...

    def past_usage(self, cluster_queue: Queue, namespace: str, local_queue: str) -> float: ...


@dataclass(frozen=True, slots=True)
class Demand:
    """What must fit, and for which flavors and resources others may have to go."""

    queue: Queue
    ask: Ask
    amounts: dict[Cell, int]
    needed: tuple[FlavorResource, ...]
    has_place: Callable[[], bool] | None = None
    """Whether the pods could be placed as things stand in the what-if; None where topology does not matter."""

    def fits(self, *, borrowing: bool) -> bool:
        for cell, amount in self.amounts.items():
            if amount <= 0:
                continue
            if amount > quota.available(cell) or (not borrowing and cell.usage + amount > cell.nominal):
                return False
        return self.has_place is None or self.has_place()

    def is_out_of_reach(self) -> bool:
        """Even without everybody whom it may preempt it would not fit."""
        queue, priority = self.queue, self.ask.priority
        for cell, amount in self.amounts.items():  # noqa: SIM110 - a generator costs as much again
            if amount > reach(queue, cell, priority, fair_sharing=False):
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
                return self.ask.time < candidate.time
            case _:
                return False

    def uses_needed(self, candidate: Holding) -> bool:
        for cell, _ in candidate.charges:  # noqa: SIM110 - a generator costs as much again
            if cell.key in self.needed:
                return True
        return False


@dataclass(frozen=True, slots=True)
class Target:
    """A workload to preempt."""

    holding: Holding
    queue: Queue
    reason: PreemptionReason


class Variant(Enum):
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


class Candidate(NamedTuple):
    """A workload that might be preempted."""

    holding: Holding
    queue: Queue
    variant: Variant
    meeting: CohortNode | None = None
    """The lowest cohort that the candidate and the preemptor share; None within one queue."""

    def is_protected(self, needed: Sequence[FlavorResource]) -> bool:
        """Its queue, or a cohort below the shared one, is back within its own quota by now."""
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


@dataclass(slots=True)
class Candidates:
    """The three lists of classical preemption, each in order."""

    hierarchical: list[Candidate]
    priority: list[Candidate]
    own: list[Candidate]

    def in_order(self) -> list[Candidate]:
        """Those that are evicted already cost nothing; after that, others' workloads before the own."""
        found = [*self.hierarchical, *self.priority, *self.own]
        # Each list begins with its evicted.
        if any(part[0].holding.evicted for part in (self.hierarchical, self.priority, self.own) if part):
            found.sort(key=_is_spared)
        return found


def find_targets(stage: Stage, demand: Demand) -> list[Target]:
    """Whom to preempt under the classical rules; empty if that would not help."""
    if demand.is_out_of_reach():
        return []
    candidates = collect(stage, demand)
    for borrowing in attempts(demand, candidates):
        targets = attempt(stage, demand, candidates, borrowing=borrowing)
        if targets:
            return targets
    return []


def collect(stage: Stage, demand: Demand) -> Candidates:
    own = [Candidate(h, demand.queue, Variant.WITHIN) for h in own_candidates(stage, demand)]
    found = Candidates([], [], own)
    if demand.queue.policies.reclaim not in ("Any", "LowerPriority"):
        return found
    advantage = all(cell.usage + amount <= cell.subtree for cell, amount in demand.amounts.items())
    rest: dict[Cell, int] = {}
    for cell, amount in demand.amounts.items():
        if cell.parent is not None:
            rest[cell.parent] = max(0, amount - quota.local_available(cell))
    visited: CohortNode | Queue = demand.queue
    for cohort in demand.queue.ancestors():
        members = [
            candidate_in(demand, holding, queue, cohort, advantage)
            for queue in borrowing_queues(cohort, visited, demand.needed)
            for holding in queue_candidates(queue, demand, demand.queue.policies.reclaim)
        ]
        (found.hierarchical if advantage else found.priority).extend(members)
        advantage = advantage or all(cell.usage + amount <= cell.subtree for cell, amount in rest.items())
        rest = {c.parent: max(0, v - quota.local_available(c)) for c, v in rest.items() if c.parent is not None}
        visited = cohort
    found.hierarchical.sort(key=_order)
    found.priority.sort(key=_order)
    return found


def _is_spared(candidate: Candidate) -> bool:
    return not candidate.holding.evicted


def _order(candidate: Candidate) -> tuple[bool, int, float, str]:
    return candidate.holding.order


def own_candidates(stage: Stage, demand: Demand) -> list[Holding]:
    """Workloads of the preemptor's own queue that its policy lets it take, in order."""
    queue = demand.queue
    found = queue_candidates(queue, demand, queue.policies.within)
    if queue.by_usage and len({holding.local_queue for holding in found}) > 1:
        # Of equal names in several namespaces the order is that of the names alone. Kueue: candidatesOrdering.
        usage = {h.key: stage.past_usage(queue, h.key.namespace, h.local_queue) for h in found}
        found.sort(key=lambda h: (not h.evicted, -usage[h.key], *h.order))
    return found


def queue_candidates(queue: Queue, demand: Demand, policy: str) -> list[Holding]:
    """Workloads of one queue that the policy lets the preemptor take, in order."""
    if policy in ("", "Never"):
        return []
    found = []
    priority, anybody = demand.ask.priority, policy == "Any"
    for _, holding in queue.holdings:
        if not anybody and holding.priority > priority:
            if not holding.evicted:
                break
            continue
        if holding.present and (anybody or demand.may_take(policy, holding)) and demand.uses_needed(holding):
            found.append(holding)
    return found


def borrowing_queues(cohort: CohortNode, visited: object, needed: Sequence[FlavorResource]) -> Iterator[Queue]:
    """Queues below the cohort that use more than their own quota, along a path of cohorts that do too."""
    for queue in cohort.queues:
        if queue is not visited and queue.active and not queue.is_within(needed):
            yield queue
    for child in cohort.children:
        if child is not visited and not child.is_within(needed):
            yield from borrowing_queues(child, visited, needed)


def candidate_in(demand: Demand, holding: Holding, queue: Queue, meeting: CohortNode, advantage: bool) -> Candidate:
    policies = demand.queue.policies
    if advantage:
        variant = Variant.HIERARCHICAL
    elif (
        policies.borrow_forbidden
        or holding.priority >= demand.ask.priority
        or (policies.threshold is not None and holding.priority > policies.threshold)
    ):
        variant = Variant.WITHOUT_BORROWING
    else:
        variant = Variant.WHILE_BORROWING
    return Candidate(holding, queue, variant, meeting)


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
    for candidate in candidates.in_order():
        if borrowing and candidate.variant is Variant.WITHOUT_BORROWING:
            continue
        if candidate.is_protected(demand.needed):
            continue
        stage.take_out(candidate.holding)
        targets.append(Target(candidate.holding, candidate.queue, REASON_BY_VARIANT[candidate.variant]))
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
