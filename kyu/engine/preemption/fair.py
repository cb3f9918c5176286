"""
Preemption under fair sharing: targets come from the ClusterQueue with the largest share, as long as that is fair.

Shares are compared with the demand counted as usage. Each step descends the tree towards the largest share. A workload
of that ClusterQueue becomes a target if the fair sharing strategy accepts the shares of both sides. Refused workloads
are tried again with the second strategy, one per ClusterQueue.

Called by: engine/flavors/assignment.py and engine/nominate.py, through the state, with fair sharing. Calls:
engine/shares.py, engine/preemption/candidates.py.
Kueue: pkg/scheduler/preemption/classical.go (fair part), fairsharing/
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from kyu.engine import shares
from kyu.engine.preemption import candidates as common
from kyu.engine.preemption.candidates import Demand, PreemptionTarget
from kyu.engine.quota import amounts
from kyu.engine.reasons import PreemptionReason
from kyu.engine.reserved_workloads import ReservedWorkloads
from kyu.engine.shares import Share
from kyu.engine.tree import CohortNode, Queue, TreeNode
from kyu.engine.workloads import ReservedWorkload


def search(reserved_workloads: ReservedWorkloads, demand: Demand) -> list[PreemptionTarget]:
    """Return the workloads to preempt under fair sharing; empty if preemption would not help or would not be fair."""
    candidates = collect(reserved_workloads, demand)
    if not candidates:
        return []
    steps = _Search(reserved_workloads, demand)
    amounts.charge_all(demand.amounts.items())
    try:
        has_second = len(reserved_workloads.options.fair_strategies) > 1
        fits = steps.first_strategy(candidates) or (has_second and steps.second_strategy())
    finally:
        amounts.refund_all(demand.amounts.items())
    if fits:
        common.minimise(reserved_workloads, demand, steps.targets, borrowing=True)
    common.put_back_all(reserved_workloads, steps.targets)
    return steps.targets if fits else []


def collect(reserved_workloads: ReservedWorkloads, demand: Demand) -> dict[Queue, deque[ReservedWorkload]]:
    """Return the candidates of the preemptor's ClusterQueue and of each that borrows a needed resource, in order."""
    own = demand.queue
    found = {own: deque(common.own_candidates(reserved_workloads, demand))}
    root = own.root
    if isinstance(root, CohortNode):
        for queue in root.all_queues():
            if queue is own or not queue.active:
                continue
            quotas = (queue.quotas.get(key) for key in demand.needed)
            if any(quota is not None and quota.usage > quota.nominal for quota in quotas):
                found[queue] = deque(common.queue_candidates(queue, demand, own.policies.reclaim))
    return {queue: reserved_workloads for queue, reserved_workloads in found.items() if reserved_workloads}


@dataclass(slots=True)
class _Search:
    reserved_workloads: ReservedWorkloads
    demand: Demand
    targets: list[PreemptionTarget] = field(default_factory=list)
    refused: dict[Queue, deque[ReservedWorkload]] = field(default_factory=dict)
    path: frozenset[TreeNode] = frozenset()

    def __post_init__(self) -> None:
        self.path = frozenset((self.demand.queue, *self.demand.queue.ancestors()))

    def first_strategy(self, candidates: dict[Queue, deque[ReservedWorkload]]) -> bool:
        own = self.demand.queue
        within = self.reserved_workloads.options.fair_sharing_preempt_within_nominal and all(
            own.quotas[key].usage <= own.quotas[key].nominal for key in self.demand.needed
        )
        while (queue := self.next_queue(candidates)) is not None:
            waiting = candidates[queue]
            if queue is own:
                taken = self.take(waiting.popleft(), queue, "InClusterQueue")
            elif within:
                taken = self.take(waiting.popleft(), queue, "InCohortReclamation")
            else:
                taken = self.take_if_fair(queue, waiting)
            if taken and self.fits():
                return True
        return False

    def take_if_fair(self, queue: Queue, waiting: deque[ReservedWorkload]) -> bool:
        """Take the first candidate that the strategy accepts. Keep the refused candidates for the second strategy."""
        mine, theirs = self.sides(queue)
        preemptor, initial = shares.share(mine), shares.share(theirs)
        refused = self.refused.setdefault(queue, deque())
        if preemptor.infinite and not initial.infinite:
            refused.extend(waiting)
            waiting.clear()
            return False
        by_final = self.reserved_workloads.options.fair_strategies[0] == "LessThanOrEqualToFinalShare"
        while waiting:
            reserved = waiting.popleft()
            self.reserved_workloads.take_out(reserved)
            final = shares.share(theirs)
            self.reserved_workloads.put_back(reserved)
            if preemptor <= final if by_final else preemptor < initial:
                return self.take(reserved, queue, "InCohortFairSharing")
            refused.append(reserved)
        return False

    def second_strategy(self) -> bool:
        candidates = {
            queue: reserved_workloads for queue, reserved_workloads in self.refused.items() if reserved_workloads
        }
        while (queue := self.next_queue(candidates)) is not None:
            mine, theirs = self.sides(queue)
            reserved = candidates.pop(queue)[0]
            if shares.share(mine) < shares.share(theirs):
                self.take(reserved, queue, "InCohortFairSharing")
                if self.fits():
                    return True
        return False

    def take(self, reserved: ReservedWorkload, queue: Queue, reason: PreemptionReason) -> bool:
        self.reserved_workloads.take_out(reserved)
        self.targets.append(PreemptionTarget(reserved, queue, reason))
        return True

    def fits(self) -> bool:
        with amounts.without(self.demand.amounts.items()):
            return self.demand.fits(borrowing=True)

    def sides(self, queue: Queue) -> tuple[TreeNode, TreeNode]:
        """Return the children of the lowest shared cohort that lead to the preemptor and to the ClusterQueue."""
        theirs: TreeNode = queue
        while theirs.parent is not None and theirs.parent not in self.path:
            theirs = theirs.parent
        mine: TreeNode = self.demand.queue
        while mine.parent is not theirs.parent and mine.parent is not None:
            mine = mine.parent
        return mine, theirs

    def next_queue(self, candidates: dict[Queue, deque[ReservedWorkload]]) -> Queue | None:
        """Return the ClusterQueue found by descending towards the largest share. Return None without candidates."""
        root = self.demand.queue.root
        if not isinstance(root, CohortNode):
            return self.demand.queue if candidates.get(self.demand.queue) else None
        pruned: set[CohortNode] = set()
        while root not in pruned:
            cohort = root
            while cohort not in pruned:
                child, queue = self.largest_cohort(cohort, pruned), self.largest_queue(cohort, candidates)
                if child is None and queue is None:
                    pruned.add(cohort)
                elif queue is None or (child is not None and shares.share(child) >= shares.share(queue)):
                    assert child is not None
                    cohort = child
                else:
                    return queue
        return None

    def largest_cohort(self, cohort: CohortNode, pruned: set[CohortNode]) -> CohortNode | None:
        best: tuple[Share, CohortNode] | None = None
        for child in cohort.children:
            if child in pruned or not (child in self.path or shares.is_borrowing(child)):
                continue
            value = shares.share(child)
            if best is None or value >= best[0]:
                best = value, child
        return best[1] if best else None

    def largest_queue(self, cohort: CohortNode, candidates: dict[Queue, deque[ReservedWorkload]]) -> Queue | None:
        best: tuple[Share, Queue] | None = None
        for queue in cohort.queues:
            if not candidates.get(queue):
                continue
            if queue is not self.demand.queue and not shares.is_borrowing(queue):
                continue
            value = shares.share(queue)
            if best is None or value > best[0] or (value == best[0] and self._comes_first(queue, best[1], candidates)):
                best = value, queue
        return best[1] if best else None

    def _comes_first(self, queue: Queue, other: Queue, candidates: dict[Queue, deque[ReservedWorkload]]) -> bool:
        """Return whether the next candidate of a ClusterQueue precedes that of another, to break ties of shares."""
        own = self.demand.queue
        mine, theirs = candidates[queue][0], candidates[other][0]
        return (not mine.evicted, queue is own, *mine.order) < (not theirs.evicted, other is own, *theirs.order)
