"""
Whom to preempt under fair sharing: from whoever has the largest share, as long as that is fair.

The demand counts as used while shares are compared. Again and again the tree is descended towards the largest share,
and one workload of the queue found there is taken if the preemptor's share stays small enough next to what remains of
the victim's. What was refused gets a second chance under a weaker rule, once per queue.

Called by: flavors.py, through the state, when fair sharing is on. Calls: fairshare.py, preemption.py.
Kueue: pkg/scheduler/preemption/preemption.go (fair part), fairsharing/
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from kyu.engine import fairshare, preemption, quota
from kyu.engine.fairshare import Share
from kyu.engine.preemption import Demand, Stage, Target
from kyu.engine.reasons import PreemptionReason
from kyu.engine.tree import CohortNode, Queue, TreeNode
from kyu.engine.workload import Holding


def find_targets(stage: Stage, demand: Demand) -> list[Target]:
    """Whom to preempt under fair sharing; empty if that would not help or not be fair."""
    candidates = collect(stage, demand)
    if not candidates:
        return []
    search = _Search(stage, demand)
    quota.charge_all(demand.amounts.items())
    try:
        fits = search.first_strategy(candidates) or (
            len(stage.options.fair_strategies) > 1 and search.second_strategy()
        )
    finally:
        quota.refund_all(demand.amounts.items())
    if fits:
        preemption.minimise(stage, demand, search.targets, borrowing=True)
    preemption.put_back_all(stage, search.targets)
    return search.targets if fits else []


def collect(stage: Stage, demand: Demand) -> dict[Queue, deque[Holding]]:
    """Candidates of the own queue and of every queue that borrows something needed, by queue and in order."""
    own = demand.queue
    found = {own: deque(preemption.own_candidates(stage, demand))}
    root = own.root
    if isinstance(root, CohortNode):
        for queue in root.all_queues():
            if queue is own or not queue.active:
                continue
            cells = (queue.cells.get(key) for key in demand.needed)
            if any(cell is not None and cell.usage > cell.nominal for cell in cells):
                found[queue] = deque(preemption.queue_candidates(queue, demand, own.policies.reclaim))
    return {queue: holdings for queue, holdings in found.items() if holdings}


@dataclass(slots=True)
class _Search:
    stage: Stage
    demand: Demand
    targets: list[Target] = field(default_factory=list)
    refused: dict[Queue, deque[Holding]] = field(default_factory=dict)
    path: frozenset[TreeNode] = frozenset()

    def __post_init__(self) -> None:
        self.path = frozenset((self.demand.queue, *self.demand.queue.ancestors()))

    def first_strategy(self, candidates: dict[Queue, deque[Holding]]) -> bool:
        own = self.demand.queue
        within = self.stage.options.fair_sharing_preempt_within_nominal and all(
            own.cells[key].usage <= own.cells[key].nominal for key in self.demand.needed
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

    def take_if_fair(self, queue: Queue, waiting: deque[Holding]) -> bool:
        """The first candidate that passes; those before it are refused for now."""
        mine, theirs = self.sides(queue)
        preemptor, initial = fairshare.share(mine), fairshare.share(theirs)
        refused = self.refused.setdefault(queue, deque())
        if preemptor.infinite and not initial.infinite:
            refused.extend(waiting)
            waiting.clear()
            return False
        by_final = self.stage.options.fair_strategies[0] == "LessThanOrEqualToFinalShare"
        while waiting:
            holding = waiting.popleft()
            self.stage.take_out(holding)
            final = fairshare.share(theirs)
            self.stage.put_back(holding)
            if preemptor <= final if by_final else preemptor < initial:
                return self.take(holding, queue, "InCohortFairSharing")
            refused.append(holding)
        return False

    def second_strategy(self) -> bool:
        candidates = {queue: holdings for queue, holdings in self.refused.items() if holdings}
        while (queue := self.next_queue(candidates)) is not None:
            mine, theirs = self.sides(queue)
            holding = candidates.pop(queue)[0]
            if fairshare.share(mine) < fairshare.share(theirs):
                self.take(holding, queue, "InCohortFairSharing")
                if self.fits():
                    return True
        return False

    def take(self, holding: Holding, queue: Queue, reason: PreemptionReason) -> bool:
        self.stage.take_out(holding)
        self.targets.append(Target(holding, queue, reason))
        return True

    def fits(self) -> bool:
        with quota.without(self.demand.amounts.items()):
            return self.demand.fits(borrowing=True)

    def sides(self, queue: Queue) -> tuple[TreeNode, TreeNode]:
        """The two children of the lowest shared cohort: the preemptor's side and the other."""
        theirs: TreeNode = queue
        while theirs.parent is not None and theirs.parent not in self.path:
            theirs = theirs.parent
        mine: TreeNode = self.demand.queue
        while mine.parent is not theirs.parent and mine.parent is not None:
            mine = mine.parent
        return mine, theirs

    def next_queue(self, candidates: dict[Queue, deque[Holding]]) -> Queue | None:
        """Down from the root, always towards the largest share; None when nobody is left to take from."""
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
                elif queue is None or (child is not None and fairshare.share(child) >= fairshare.share(queue)):
                    assert child is not None
                    cohort = child
                else:
                    return queue
        return None

    def largest_cohort(self, cohort: CohortNode, pruned: set[CohortNode]) -> CohortNode | None:
        best: tuple[Share, CohortNode] | None = None
        for child in cohort.children:
            if child in pruned or not (child in self.path or fairshare.is_borrowing(child)):
                continue
            value = fairshare.share(child)
            if best is None or value >= best[0]:
                best = value, child
        return best[1] if best else None

    def largest_queue(self, cohort: CohortNode, candidates: dict[Queue, deque[Holding]]) -> Queue | None:
        best: tuple[Share, Queue] | None = None
        for queue in cohort.queues:
            if not candidates.get(queue):
                continue
            if queue is not self.demand.queue and not fairshare.is_borrowing(queue):
                continue
            value = fairshare.share(queue)
            if best is None or value > best[0] or (value == best[0] and self._comes_first(queue, best[1], candidates)):
                best = value, queue
        return best[1] if best else None

    def _comes_first(self, queue: Queue, other: Queue, candidates: dict[Queue, deque[Holding]]) -> bool:
        """Of two queues with equal shares, the one whose next candidate would be preempted first."""
        own = self.demand.queue
        mine, theirs = candidates[queue][0], candidates[other][0]
        return (not mine.evicted, queue is own, *mine.order) < (not theirs.evicted, other is own, *theirs.order)
