"""
Who waits for how much of what: found without looking at those for whom there is still too little.

Peers know what they wait for; the index has that of all peers of a queue, the smallest amount first.

Called by: queues.py.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Any, Protocol

from kyu.engine.asks import Peers, Watch, Watches
from kyu.engine.quota import BOUNDLESS, Cell, FlavorResource


class Reach(Protocol):
    """How much of a cell a workload of a queue could get at the most, preempting whom it may."""

    def __call__(self, cell: Cell, priority: int) -> int: ...


class WatchIndex:
    """Who waits for how much of what, the least first, by flavor and resource and by priority."""

    __slots__ = ("_watches",)

    def __init__(self) -> None:
        self._watches: dict[FlavorResource, dict[int, list[Watch]]] = {}

    def add(self, watches: Watches) -> None:
        for watch in watches:
            waiting = self._watches.setdefault(watch.cell.key, {}).setdefault(watch.peers.priority, [])
            if len(waiting) > 32 and len(waiting) & (len(waiting) - 1) == 0:
                waiting[:] = filter(_holds, waiting)
            insort(waiting, watch)

    def within_reach(self, grown: Iterable[FlavorResource], reach: Reach) -> list[Peers]:
        """Those for whom there may be enough now, of all that wait for something that has grown; once for each."""
        found: list[Peers] = []
        for key in grown:
            for priority, waiting in self._watches.get(key, {}).items():
                while waiting and not _holds(waiting[0]):
                    del waiting[0]
                if not waiting or waiting[0].amount > (limit := reach(waiting[0].cell, priority)):
                    continue
                above: Any = (limit + 1,)
                for watch in waiting[: bisect_left(waiting, above)]:
                    watches = watch.peers.watches
                    # Most have one flavor to wait for.
                    if watches and (watches[0] is watch or _holds(watch)):
                        found.append(watch.peers)
        return found

    def most_within_reach(self, priority: int, reach: Reach) -> int:
        """How much those of this priority could get at the most, of anything that one of them waits for."""
        most = -BOUNDLESS
        for by_priority in self._watches.values():
            if waiting := by_priority.get(priority):
                limit = reach(waiting[0].cell, priority)
                if limit > most:
                    most = limit
        return most


def _holds(watch: Watch) -> bool:
    """Watches of peers that have gone, or wait for something else by now, are dropped when they come up."""
    watches = watch.peers.watches
    if watches is not None:
        for other in watches:
            if other is watch:
                return True
    return False
