"""The victim search of the textbook scheduler: classical preemption and fair sharing."""

from __future__ import annotations

from dataclasses import dataclass

from kyu.api.queues import ClusterQueuePreemption
from kyu.engine.options import Options
from kyu.engine.queueing.pending_workload import PendingWorkload
from tests.support.textbook.quota import Node, Pair
from tests.support.textbook.world import Reserved, Snapshot


@dataclass
class Victim:
    """A workload to preempt, and why."""

    reserved: Reserved
    reason: str


@dataclass
class Search:
    """One search: for a workload of a queue, amounts that must fit, and the pairs for which others may go."""

    snapshot: Snapshot
    options: Options
    queue: Node
    workload: PendingWorkload
    demand: dict[Pair, int]
    needed: set[Pair]

    def __post_init__(self) -> None:
        assert self.queue.spec is not None
        found = self.queue.spec.spec.preemption or ClusterQueuePreemption()
        self.within = found.within_cluster_queue or "Never"
        self.reclaim = found.reclaim_within_cohort or "Never"
        borrow = found.borrow_within_cohort
        self.borrows = borrow is not None and (borrow.policy or "Never") != "Never"
        self.threshold = borrow.max_priority_threshold if borrow else None

    def find(self) -> list[Victim]:
        """Return the victims; empty if preemption does not help."""
        return self._fair() if self.options.fair_sharing else self._classical()

    # Candidates

    def _allows(self, policy: str, other: PendingWorkload) -> bool:
        mine = self.workload
        if policy == "Any":
            return True
        if policy == "LowerOrNewerEqualPriority" and other.priority == mine.priority:
            return mine.time < other.time
        return policy != "Never" and other.priority < mine.priority

    def _candidates(self, queue: Node) -> list[Reserved]:
        policy = self.within if queue is self.queue else self.reclaim
        found = [
            reserved
            for reserved in self.snapshot.by_queue.get(queue, [])
            if self._allows(policy, reserved.workload) and any(pair in self.needed for pair in reserved.usage)
        ]
        return sorted(found, key=Reserved.order)

    def _over(self, node: Node) -> bool:
        """Return whether a node uses more than its subtree quota of a needed pair."""
        return any(self.snapshot.usage.of(node, pair) > node.subtree(pair) for pair in self.needed)

    def _fits(self, *, borrowing: bool) -> bool:
        usage = self.snapshot.usage
        for pair, amount in self.demand.items():
            if amount > max(0, usage.available(self.queue, pair)):
                return False
            if not borrowing and usage.of(self.queue, pair) + amount > self.queue.nominal.get(pair, 0):
                return False
        return True

    # Classical

    def _classical(self) -> list[Victim]:
        hierarchical, priority = self._other_queues()
        own = [(r, None) for r in self._candidates(self.queue)]
        lists = [
            sorted(((r, shared) for queue, shared in part for r in self._candidates(queue)), key=lambda c: c[0].order())
            for part in (hierarchical, priority)
        ]
        lists.append(own)
        labels = ("hierarchical", "priority", "own")
        sequence = [
            (reserved, shared, label)
            for evicted in (True, False)
            for part, label in zip(lists, labels, strict=True)
            for reserved, shared in part
            if reserved.evicted == evicted
        ]
        for borrowing in self._attempts(has_hierarchical=bool(lists[0]), has_priority=bool(lists[1])):
            if victims := self._attempt(sequence, borrowing=borrowing):
                return victims
        return []

    def _other_queues(self) -> tuple[list[tuple[Node, Node]], list[tuple[Node, Node]]]:
        """Return the borrowing queues of the tree with the lowest shared cohort: with and without advantage."""
        hierarchical: list[tuple[Node, Node]] = []
        priority: list[tuple[Node, Node]] = []
        if self.queue.parent is None or self.reclaim == "Never":
            return hierarchical, priority
        usage = self.snapshot.usage
        rest, advantage, visited = dict(self.demand), False, self.queue
        for node in self.queue.path():
            if node is not self.queue:
                part = hierarchical if advantage else priority
                part += [(queue, node) for queue in self._borrowing_below(node, visited)]
            within = all(usage.of(node, pair) + amount <= node.subtree(pair) for pair, amount in rest.items())
            advantage = advantage or within
            rest = {p: max(0, v - max(0, node.local(p) - usage.of(node, p))) for p, v in rest.items()}
            visited = node
        return hierarchical, priority

    def _borrowing_below(self, cohort: Node, visited: Node) -> list[Node]:
        found: list[Node] = []
        for child in cohort.children:
            if child is not visited and self._over(child):
                found += [child] if child.spec is not None else self._borrowing_below(child, visited)
        return found

    def _attempts(self, *, has_hierarchical: bool, has_priority: bool) -> list[bool]:
        if not (has_hierarchical or has_priority):
            return [True]
        if not self.borrows:
            used = self.snapshot.usage
            if any(used.of(self.queue, pair) >= self.queue.nominal.get(pair, 0) for pair in self.needed):
                return [True]
            if not has_hierarchical:
                return [False, True]
        return [True, False]

    def _attempt(self, sequence: list[tuple[Reserved, Node | None, str]], *, borrowing: bool) -> list[Victim]:
        victims: list[Victim] = []
        found = False
        for reserved, shared, label in sequence:
            reason = self._reason(reserved, label)
            if borrowing and reason == "WithoutBorrowing":
                continue
            if shared is not None and self._is_protected(reserved.queue, shared):
                continue
            self.snapshot.take_out(reserved)
            victims.append(Victim(reserved, "InCohortReclamation" if reason == "WithoutBorrowing" else reason))
            if self._fits(borrowing=borrowing):
                found = True
                break
        return self._finish(victims, found=found, borrowing=borrowing)

    def _reason(self, reserved: Reserved, label: str) -> str:
        if label == "own":
            return "InClusterQueue"
        if label == "hierarchical":
            return "InCohortReclamation"
        other = reserved.workload.priority
        above = self.threshold is not None and other > self.threshold
        if not self.borrows or other >= self.workload.priority or above:
            return "WithoutBorrowing"
        return "InCohortReclaimWhileBorrowing"

    def _is_protected(self, queue: Node, shared: Node) -> bool:
        for node in queue.path():
            if node is shared:
                return False
            if not self._over(node):
                return True
        return False

    def _finish(self, victims: list[Victim], *, found: bool, borrowing: bool) -> list[Victim]:
        """Put back the victims that are not needed, then restore the snapshot."""
        if found:
            for index in range(len(victims) - 2, -1, -1):
                self.snapshot.put_back(victims[index].reserved)
                if self._fits(borrowing=borrowing):
                    victims[index] = victims[-1]
                    victims.pop()
                else:
                    self.snapshot.take_out(victims[index].reserved)
        for victim in victims:
            self.snapshot.put_back(victim.reserved)
        return victims if found else []

    # Fair sharing

    def _fair(self) -> list[Victim]:
        usage = self.snapshot.usage
        candidates = {self.queue: self._candidates(self.queue)}
        if self.queue.parent is not None:
            for queue in self.queue.root.queues():
                over = any(usage.of(queue, pair) > queue.nominal.get(pair, 0) for pair in self.needed)
                if queue is not self.queue and over:
                    candidates[queue] = self._candidates(queue)
        if not any(candidates.values()):
            return []
        for pair, amount in self.demand.items():
            usage.add(self.queue, pair, amount)
        victims: list[Victim] = []
        refused: dict[Node, list[Reserved]] = {}
        found = self._first_strategy(candidates, victims, refused)
        if not found and len(self.options.fair_strategies) > 1:
            found = self._second_strategy(refused, victims)
        for pair, amount in self.demand.items():
            usage.remove(self.queue, pair, amount)
        return self._finish(victims, found=found, borrowing=True)

    def _first_strategy(
        self, candidates: dict[Node, list[Reserved]], victims: list[Victim], refused: dict[Node, list[Reserved]]
    ) -> bool:
        usage = self.snapshot.usage
        within = self.options.fair_sharing_preempt_within_nominal and all(
            usage.of(self.queue, pair) <= self.queue.nominal.get(pair, 0) for pair in self.needed
        )
        while (queue := self._next_queue(candidates)) is not None:
            if queue is self.queue or within:
                reason = "InClusterQueue" if queue is self.queue else "InCohortReclamation"
                chosen: Victim | None = Victim(candidates[queue].pop(0), reason)
            else:
                chosen = self._fair_victim(queue, candidates[queue], refused.setdefault(queue, []))
            if chosen is not None:
                self.snapshot.take_out(chosen.reserved)
                victims.append(chosen)
                if self._fits_without_demand():
                    return True
        return False

    def _fair_victim(self, queue: Node, waiting: list[Reserved], refused: list[Reserved]) -> Victim | None:
        usage = self.snapshot.usage
        mine, theirs = self._sides(queue)
        own, before = usage.share(mine), usage.share(theirs)
        if own[0] and not before[0]:
            refused += waiting
            waiting.clear()
            return None
        by_final = self.options.fair_strategies[0] == "LessThanOrEqualToFinalShare"
        while waiting:
            reserved = waiting.pop(0)
            self.snapshot.take_out(reserved)
            after = usage.share(theirs)
            self.snapshot.put_back(reserved)
            if own <= after if by_final else own < before:
                return Victim(reserved, "InCohortFairSharing")
            refused.append(reserved)
        return None

    def _second_strategy(self, refused: dict[Node, list[Reserved]], victims: list[Victim]) -> bool:
        usage = self.snapshot.usage
        candidates = {queue: waiting for queue, waiting in refused.items() if waiting}
        while (queue := self._next_queue(candidates)) is not None:
            reserved = candidates.pop(queue)[0]
            mine, theirs = self._sides(queue)
            if usage.share(mine) < usage.share(theirs):
                self.snapshot.take_out(reserved)
                victims.append(Victim(reserved, "InCohortFairSharing"))
                if self._fits_without_demand():
                    return True
        return False

    def _fits_without_demand(self) -> bool:
        usage = self.snapshot.usage
        for pair, amount in self.demand.items():
            usage.remove(self.queue, pair, amount)
        fits = self._fits(borrowing=True)
        for pair, amount in self.demand.items():
            usage.add(self.queue, pair, amount)
        return fits

    def _sides(self, queue: Node) -> tuple[Node, Node]:
        """Return the children of the lowest shared cohort, on the preemptor's side and on the other."""
        mine, theirs = list(self.queue.path()), list(queue.path())
        while len(mine) > 1 and len(theirs) > 1 and mine[-2] is theirs[-2]:
            mine.pop()
            theirs.pop()
        return mine[-2], theirs[-2]

    def _next_queue(self, candidates: dict[Node, list[Reserved]]) -> Node | None:
        if self.queue.parent is None:
            return self.queue if candidates.get(self.queue) else None
        pruned: set[Node] = set()
        root = self.queue.root
        while root not in pruned:
            cohort = root
            while True:
                best_queue, best_cohort = self._best_queue(cohort, candidates), self._best_cohort(cohort, pruned)
                if best_queue is None and best_cohort is None:
                    pruned.add(cohort)
                    break
                share = self.snapshot.usage.share
                if best_cohort is not None and (best_queue is None or share(best_cohort) >= share(best_queue)):
                    cohort = best_cohort
                    continue
                return best_queue
        return None

    def _best_queue(self, cohort: Node, candidates: dict[Node, list[Reserved]]) -> Node | None:
        usage, best = self.snapshot.usage, None
        for queue in sorted((c for c in cohort.children if c.spec is not None), key=lambda node: node.name):
            if not candidates.get(queue) or (queue is not self.queue and not usage.is_borrowing(queue)):
                continue
            if best is None or usage.share(queue) > usage.share(best):
                best = queue
            elif usage.share(queue) == usage.share(best):
                best = min(best, queue, key=lambda node: self._rank(node, candidates))
        return best

    def _rank(self, queue: Node, candidates: dict[Node, list[Reserved]]) -> tuple[object, ...]:
        first = candidates[queue][0]
        return not first.evicted, queue is self.queue, *first.order()

    def _best_cohort(self, cohort: Node, pruned: set[Node]) -> Node | None:
        usage, best = self.snapshot.usage, None
        mine = set(self.queue.path())
        for child in sorted((c for c in cohort.children if c.spec is None), key=lambda node: node.name):
            if child in pruned or not (child in mine or usage.is_borrowing(child)):
                continue
            if best is None or usage.share(child) >= usage.share(best):
                best = child
        return best
