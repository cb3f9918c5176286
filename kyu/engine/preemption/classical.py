"""
Classical preemption: the smallest set of targets that a greedy search finds.

The search removes candidates from the tree one by one, the least valuable first, until the demand fits. Then it
restores each target that was not needed. A workload of another ClusterQueue is a candidate only while that ClusterQueue
borrows, and every cohort between it and the preemptor borrows too. Flavor assignment runs the same search for a single
flavor.

Called by: engine/flavors/assignment.py and engine/nominate.py, through the state. Calls:
engine/preemption/candidates.py. Kueue: pkg/scheduler/preemption/preemption.go, classical/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum, auto
from heapq import heapify, heappop, heapreplace

from kyu.engine.preemption.candidates import (
    Demand,
    PreemptionTarget,
    are_within_subtree,
    minimise,
    own_candidates,
    put_back_all,
    quotas_of,
    takable,
)
from kyu.engine.quota.amounts import QuotaNode
from kyu.engine.reasons import PreemptionReason
from kyu.engine.reserved_workloads import ReservedWorkloads
from kyu.engine.tree import CohortNode, Queue
from kyu.engine.workloads import CandidateOrder, ReservedWorkload


class Variant(IntEnum):
    """The rule that allows to preempt a candidate."""

    WITHIN = auto()
    HIERARCHICAL = auto()
    WITHOUT_BORROWING = auto()
    """Applies only if the preemptor does not borrow after the preemption."""
    WHILE_BORROWING = auto()


REASON_BY_VARIANT: Mapping[Variant, PreemptionReason] = {
    Variant.WITHIN: "InClusterQueue",
    Variant.HIERARCHICAL: "InCohortReclamation",
    Variant.WITHOUT_BORROWING: "InCohortReclamation",
    Variant.WHILE_BORROWING: "InCohortReclaimWhileBorrowing",
}


class Source:
    """A ClusterQueue that has candidates."""

    __slots__ = ("advantage", "between", "is_own", "queue", "quotas")

    def __init__(self, queue: Queue, demand: Demand, *, advantage: bool = False) -> None:
        self.queue = queue
        self.is_own = queue is demand.queue
        self.advantage = advantage
        """Whether the preemptor reclaims its own quota, or that of its cohort."""
        self.quotas = quotas_of(queue, demand.needed)
        self.between: list[list[QuotaNode]] = []
        """The needed quota nodes of each cohort below the lowest cohort that is shared with the preemptor."""

    def is_protected(self) -> bool:
        """Return whether the ClusterQueue, or a cohort below the shared one, no longer borrows."""
        if self.is_own:
            return False
        return are_within_subtree(self.quotas) or any(are_within_subtree(quotas) for quotas in self.between)

    def variant(self, demand: Demand, reserved: ReservedWorkload) -> Variant:
        """Return the rule that allows to preempt a workload of this ClusterQueue."""
        if self.is_own:
            return Variant.WITHIN
        if self.advantage:
            return Variant.HIERARCHICAL
        policies = demand.queue.policies
        if (
            policies.borrow_forbidden
            or reserved.priority >= demand.workload.priority
            or (policies.threshold is not None and reserved.priority > policies.threshold)
        ):
            return Variant.WITHOUT_BORROWING
        return Variant.WHILE_BORROWING


class Candidates:
    """The three candidate lists of classical preemption, merged lazily because few candidates are ever taken."""

    __slots__ = ("demand", "hierarchical", "own", "priority", "reserved_workloads")

    def __init__(self, reserved_workloads: ReservedWorkloads, demand: Demand) -> None:
        self.reserved_workloads = reserved_workloads
        self.demand = demand
        self.hierarchical: list[Source] = []
        self.priority: list[Source] = []
        self.own: list[Source] = []
        self._collect()

    def _collect(self) -> None:
        demand, queue = self.demand, self.demand.queue
        self._add(self.own, Source(queue, demand))
        if not queue.policies.reclaims or queue.parent is None:
            return
        advantage = _are_within(demand.amounts)
        rest = _beyond_private(demand.amounts)
        visited: CohortNode | Queue = queue
        for cohort in queue.ancestors():
            part = self.hierarchical if advantage else self.priority
            for source in self._borrowing(cohort, visited, advantage):
                self._add(part, source)
            if cohort.parent is not None:
                advantage = advantage or _are_within(rest)
                rest = _beyond_private(rest)
            visited = cohort

    def _borrowing(self, cohort: CohortNode, visited: CohortNode | Queue, advantage: bool) -> Iterator[Source]:
        """Yield the borrowing ClusterQueues below a cohort. Every cohort in between must borrow too."""
        demand = self.demand
        for queue in cohort.queues:
            if queue is not visited and queue.active and queue.reserved_workloads:
                source = Source(queue, demand, advantage=advantage)
                if not are_within_subtree(source.quotas):
                    yield source
        for child in cohort.children:
            if child is not visited:
                quotas = quotas_of(child, demand.needed)
                if not are_within_subtree(quotas):
                    for source in self._borrowing(child, visited, advantage):
                        source.between.append(quotas)
                        yield source

    def _add(self, part: list[Source], source: Source) -> None:
        """Add a ClusterQueue if it has any candidate."""
        for evicted in (True, False):
            for _ in self._takable(source, evicted=evicted):
                part.append(source)
                return

    def in_order(self) -> Iterator[tuple[ReservedWorkload, Source]]:
        """Yield evicted workloads first, then workloads of other ClusterQueues, then those of the preemptor's own."""
        parts = [part for part in (self.hierarchical, self.priority, self.own) if part]
        for part in parts:
            leaving = [source for source in part if source.queue.has_evicted]
            if leaving:
                yield from self._merged(leaving, evicted=True)
        for part in parts:
            yield from self._merged(part, evicted=False)

    def _merged(self, sources: list[Source], *, evicted: bool) -> Iterator[tuple[ReservedWorkload, Source]]:
        """Yield the workloads of several ClusterQueues in one order."""
        if len(sources) == 1:
            for reserved in self._takable(sources[0], evicted=evicted):
                yield reserved, sources[0]
            return
        waiting: list[tuple[CandidateOrder, int, ReservedWorkload, Source, Iterator[ReservedWorkload]]] = []
        for number, source in enumerate(sources):
            others = self._takable(source, evicted=evicted)
            for first in others:
                waiting.append((first.order, number, first, source, others))
                break
        heapify(waiting)
        while waiting:
            _, number, reserved, source, others = waiting[0]
            yield reserved, source
            for following in others:
                heapreplace(waiting, (following.order, number, following, source, others))
                break
            else:
                heappop(waiting)

    def _takable(self, source: Source, *, evicted: bool) -> Iterator[ReservedWorkload]:
        """Return the candidates of one ClusterQueue: the evicted ones or the others."""
        queue, policies = source.queue, self.demand.queue.policies
        if source.is_own and queue.by_usage:
            own = own_candidates(self.reserved_workloads, self.demand)
            return (reserved for reserved in own if reserved.evicted == evicted)
        policy = policies.within if source.is_own else policies.reclaim
        return takable(queue, self.demand, policy, source.quotas, evicted=evicted)


def search(reserved_workloads: ReservedWorkloads, demand: Demand) -> list[PreemptionTarget]:
    """Return the workloads to preempt under the classical rules; empty if preemption would not help."""
    candidates = Candidates(reserved_workloads, demand)
    for borrowing in _attempts(demand, candidates):
        targets = _attempt(reserved_workloads, demand, candidates, borrowing=borrowing)
        if targets:
            return targets
    return []


def _are_within(amounts: Mapping[QuotaNode, int]) -> bool:
    """Return whether each quota node stays within the quota of its subtree with the amount added."""
    for quota, amount in amounts.items():  # noqa: SIM110 - a generator costs as much again
        if quota.usage + amount > quota.subtree:
            return False
    return True


def _beyond_private(amounts: Mapping[QuotaNode, int]) -> dict[QuotaNode, int]:
    """Return the amounts that the parents would have to lend."""
    rest: dict[QuotaNode, int] = {}
    for quota, amount in amounts.items():
        if quota.parent is not None:
            rest[quota.parent] = max(0, amount - quota.local_available())
    return rest


def _attempts(demand: Demand, candidates: Candidates) -> tuple[bool, ...]:
    """Return whether to search with borrowing, without it, or both, in order."""
    queue = demand.queue
    if not (candidates.hierarchical or candidates.priority):
        return (True,) if candidates.own else ()
    if queue.policies.borrow_forbidden:
        if not all(quota.usage < quota.nominal for quota in quotas_of(queue, demand.needed)):
            return (True,)
        if not candidates.hierarchical:
            return (False, True)
    return (True, False)


def _attempt(
    reserved_workloads: ReservedWorkloads, demand: Demand, candidates: Candidates, *, borrowing: bool
) -> list[PreemptionTarget]:
    targets: list[PreemptionTarget] = []
    found = False
    for reserved, source in candidates.in_order():
        variant = source.variant(demand, reserved)
        if (borrowing and variant is Variant.WITHOUT_BORROWING) or source.is_protected():
            continue
        reserved_workloads.take_out(reserved)
        targets.append(PreemptionTarget(reserved, source.queue, REASON_BY_VARIANT[variant]))
        if demand.fits(borrowing=borrowing):
            minimise(reserved_workloads, demand, targets, borrowing=borrowing)
            found = True
            break
    put_back_all(reserved_workloads, targets)
    return targets if found else []
