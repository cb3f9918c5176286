"""
Who waits for how much of what: found without looking at those for whom there is still too little.

Peers know what they wait for; the index has that of all peers of a queue, the smallest amount first.

Called by: queues.py.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Protocol

from kyu.engine.asks import Peers, Watch, Watches
from kyu.engine.quota import BOUNDLESS, Cell, FlavorResource


class Reach(Protocol):
    """How much of a cell a workload of a queue could get at the most, preempting whom it may."""

    def __call__(self, cell: Cell, priority: int) -> int: ...


_amount = attrgetter("amount")
_holds = attrgetter("holds")


class WatchIndex:
    """Who waits for how much of what, the least first, by flavor and resource and by priority.

    Watches that do not hold any more are dropped when they come up.
    """

    __slots__ = ("_watches",)

    def __init__(self) -> None:
        self._watches: dict[FlavorResource, dict[int, list[Watch]]] = {}

    def add(self, watches: Watches) -> None:
        for watch in watches:
            waiting = self._watches.setdefault(watch.cell.key, {}).setdefault(watch.peers.priority, [])
            if len(waiting) > 32 and len(waiting) & (len(waiting) - 1) == 0:
                waiting[:] = filter(_holds, waiting)
            insort(waiting, watch, key=_amount)

    def within_reach(self, grown: Iterable[FlavorResource], reach: Reach) -> Iterator[list[Peers]]:
        """Those for whom there may be enough now, of all that wait for something that has grown, by priority."""
        for key in grown:
            for priority, waiting in self._watches.get(key, {}).items():
                while waiting and not waiting[0].holds:
                    del waiting[0]
                if waiting and waiting[0].amount <= (limit := reach(waiting[0].cell, priority)):
                    within = waiting[: bisect_right(waiting, limit, key=_amount)]
                    yield [watch.peers for watch in within if watch.holds]

    def most_within_reach(self, priority: int, reach: Reach) -> int:
        """How much those of this priority could get at the most, of anything that one of them waits for."""
        most = -BOUNDLESS
        for by_priority in self._watches.values():
            if waiting := by_priority.get(priority):
                limit = reach(waiting[0].cell, priority)
                if limit > most:
                    most = limit
        return most
