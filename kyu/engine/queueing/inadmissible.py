"""
Inadmissible until: the quota that must become obtainable before an equivalence class is worth a retry.

A workload that was found inadmissible stays so as long as every combination of its flavors asks some quota node for
more than is obtainable. One such quota node per combination is remembered as a wake condition. Obtainable quota grows
by no more than what is released in the tree, so that a list of wake conditions sleeps until enough was released.

``WakeIndex`` finds the equivalence classes of a ClusterQueue that may be worth a retry. ``RetryHeap`` hands them out in
the order of the queue, and drops those for which others have taken the quota since.

Called by: engine/queueing/pending_queue.py, engine/run_until_stable.py, engine/cycle.py.
Calls: engine/quota/obtainable.py, through the pending queue.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from operator import attrgetter
from typing import Protocol, TypeAlias

from kyu.engine.queueing.pending_workload import (
    EquivalenceClass,
    PendingWorkload,
    Place,
    WakeCondition,
    WakeConditions,
    resumes,
)
from kyu.engine.quota.amounts import FlavorResource, QuotaNode
from kyu.engine.quota.obtainable import ObtainableQuota

# The total charges of each combination of flavors; None if a retry may always help.
Ways: TypeAlias = "tuple[tuple[tuple[QuotaNode, int], ...], ...] | None"
_amount = attrgetter("amount")
_amount_and_place = attrgetter("amount", "place")
_holds = attrgetter("holds")


def find_wake_conditions(ways: Ways, obtainable: ObtainableQuota, priority: int) -> list[tuple[QuotaNode, int]] | None:
    """Return a quota node that lacks an amount, for each combination of flavors; None if one of them lacks none."""
    if ways is None:
        return None
    found: dict[tuple[QuotaNode, int], None] = {}
    for way in ways:
        for charge in way:
            if charge in found or charge[1] > obtainable(charge[0], priority):
                found[charge] = None
                break
        else:
            return None
    return list(found)


class WaitingList:
    """The wake conditions of one quota node and priority: the smallest amount first, then in the order of the queue."""

    __slots__ = ("conditions", "priority", "quota", "root", "until")

    def __init__(self, quota: QuotaNode, priority: int) -> None:
        self.quota = quota
        self.priority = priority
        self.root = quota.root()
        self.conditions: list[WakeCondition] = []
        self.until = 0
        """No amount is obtainable before so much was released in the tree."""

    def add(self, condition: WakeCondition) -> None:
        """Insert a wake condition in order. A new smallest amount makes the list due at once."""
        insort(self.conditions, condition, key=_amount_and_place)
        if self.conditions[0] is condition:
            self.until = 0

    def purge(self) -> None:
        """Drop conditions that do not hold any more, if they are many."""
        conditions = self.conditions
        if len(conditions) > 8 and not (conditions[0].holds and conditions[len(conditions) // 2].holds):
            conditions[:] = filter(_holds, conditions)
        while conditions and not conditions[0].holds:
            del conditions[0]

    def group_starts(self, limit: int) -> list[int]:
        """Return where the conditions of each amount begin, for the amounts within a limit."""
        conditions, index = self.conditions, 0
        found: list[int] = []
        while index < len(conditions) and (amount := conditions[index].amount) <= limit:
            found.append(index)
            index = bisect_right(conditions, amount, lo=index, key=_amount)
        if found:
            self.until = 0
        else:
            self.until = self.root.released + conditions[0].amount - limit if conditions else 1 << 62
        return found


class WakeIndex:
    """The wake conditions of a ClusterQueue. Conditions that do not hold any more are dropped when they come up."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[FlavorResource, dict[int, WaitingList]] = {}

    def add(self, wake_conditions: WakeConditions) -> None:
        """Add the wake conditions of an equivalence class."""
        for condition in wake_conditions:
            by_priority = self._waiting.setdefault(condition.quota.key, {})
            priority = condition.equivalents.priority
            waiting = by_priority.get(priority)
            if waiting is None:
                waiting = by_priority[priority] = WaitingList(condition.quota, priority)
            waiting.add(condition)

    def grown_lists(self, grown: Iterable[FlavorResource]) -> list[WaitingList]:
        """Return the lists of which enough quota may have been released."""
        return [
            waiting
            for key in grown
            for waiting in self._waiting.get(key, {}).values()
            if waiting.root.released >= waiting.until
        ]


class RetryQueue(Protocol):
    """The queue whose equivalence classes are tried again."""

    obtainable: ObtainableQuota
    retries: set[EquivalenceClass]
    grown: set[FlavorResource]

    def is_inadmissible(self, equivalents: EquivalenceClass) -> bool:
        """Return whether a class is inadmissible until the next wake-up."""

    def take_grown(self) -> list[WaitingList]:
        """Return the lists of which enough quota may have been released since the last call."""

    def wait_for(self, equivalents: EquivalenceClass, amounts: list[tuple[QuotaNode, int]] | None) -> None:
        """Remember the quota that an inadmissible class waits for."""


class RetryHeap:
    """
    The equivalence classes of a ClusterQueue that are worth a retry, in the order of the queue.

    Of all classes that wait for the same amount, only the first is in the heap. The next one follows when the first was
    tried, unless the amount is not obtainable any more.
    """

    __slots__ = ("_count", "_known", "_pending", "_places", "_ways_of")

    def __init__(self, pending: RetryQueue, ways_of: Callable[[PendingWorkload], Ways]) -> None:
        self._pending = pending
        self._ways_of = ways_of
        # The place of a class, a number that tells equal places apart, and for what the class waits.
        self._places: list[tuple[Place, int, WaitingList | None, int]] = []
        # The obtainable quota, as long as nothing is decided.
        self._known: dict[tuple[QuotaNode, int], int] = {}
        self._count = 0

    def collect(self) -> None:
        """Collect all classes for which the answer may have changed."""
        pending = self._pending
        for waiting in pending.take_grown():
            waiting.purge()
            for start in waiting.group_starts(self._obtainable(waiting.quota, waiting.priority)):
                self._push(waiting, waiting.conditions[start].amount, start)
        for equivalents in pending.retries:
            self.add(equivalents)

    def add(self, equivalents: EquivalenceClass) -> None:
        """Add a class that may be worth a retry."""
        if equivalents.place is not None and not self._pending.is_inadmissible(equivalents):
            self._count += 1
            heappush(self._places, (equivalents.place, self._count, None, 0))

    def _push(self, waiting: WaitingList, amount: int, index: int) -> None:
        """Add the next class of a list that waits for the amount."""
        conditions, pending = waiting.conditions, self._pending
        while index < len(conditions) and conditions[index].amount == amount:
            condition = conditions[index]
            if condition.holds and not pending.is_inadmissible(condition.equivalents):
                self._count += 1
                heappush(self._places, (condition.place, self._count, waiting, amount))
                return
            index += 1

    def forget_known(self) -> None:
        """Forget the obtainable quota, after a decision."""
        self._known.clear()

    def first(self) -> EquivalenceClass | None:
        """Return the first class that is worth a retry; drop those before it that are not."""
        while self._places:
            place, _, waiting, amount = self._places[0]
            equivalents = place[3]
            if waiting is not None and amount > self._obtainable(waiting.quota, waiting.priority):
                # No other class that waits for the amount is worth a retry either.
                heappop(self._places)
            elif equivalents.place != place or self._pending.is_inadmissible(equivalents):
                self._drop_first()
                if waiting is None and equivalents.place is not None:
                    self.add(equivalents)
            elif self._is_hopeless(equivalents):
                self._drop_first()
            else:
                return equivalents
        return None

    def _drop_first(self) -> EquivalenceClass:
        place, _, waiting, amount = heappop(self._places)
        if waiting is not None:
            # Others may have been added to the list since, or have left it.
            self._push(waiting, amount, bisect_right(waiting.conditions, (amount, place), key=_amount_and_place))
        return place[3]

    def _is_hopeless(self, equivalents: EquivalenceClass) -> bool:
        """Return whether a class is known to wait for quota that is not obtainable."""
        first, conditions, priority = equivalents.first, equivalents.wake_conditions, equivalents.priority
        if conditions is None or first is None or resumes(first):
            return False
        for condition in conditions:
            if condition.amount <= self._obtainable(condition.quota, priority):
                break
        else:
            self._pending.retries.discard(equivalents)
            return True
        # The quota that was lacking is obtainable now. Some other resource may still be lacking.
        amounts = find_wake_conditions(self._ways_of(first), self._obtainable, priority)
        if amounts is None:
            return False
        self._pending.wait_for(equivalents, amounts)
        return True

    def _obtainable(self, quota: QuotaNode, priority: int) -> int:
        limit = self._known.get((quota, priority))
        if limit is None:
            limit = self._known[quota, priority] = self._pending.obtainable(quota, priority)
        return limit

    def pop(self) -> EquivalenceClass:
        """Remove and return the first class, which exists."""
        return self._drop_first()

    def close(self) -> None:
        """Leave the classes that were not tried for the next run."""
        pending = self._pending
        for place, _, waiting, _ in self._places:
            equivalents = place[3]
            if waiting is not None:
                waiting.until = 0
                pending.grown.add(waiting.quota.key)
            elif equivalents.place is not None and not pending.is_inadmissible(equivalents):
                pending.retries.add(equivalents)

    def __bool__(self) -> bool:
        return bool(self._places)
