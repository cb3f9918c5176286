"""
Who of a line is worth asking in a pass.

A wake-up brings dozens within reach, and the first who is admitted puts most of them out of it again. So they are put
in order only as far as somebody is asked (a heap), and where nobody is left with hope, all are dropped at once.

Called by: passes.py. Calls: queues.py, whose line it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from operator import attrgetter

from kyu.engine.asks import Peers, Place
from kyu.engine.queues import Line
from kyu.engine.quota import BOUNDLESS

_least = attrgetter("least")


class Todo:
    """Peers of one line; the first in line is the first here."""

    __slots__ = ("_least_by_priority", "_line", "_places")

    def __init__(self, line: Line) -> None:
        self._line = line
        # Where they stand. One that stands elsewhere by now stays until it comes up.
        self._places: list[Place] = []
        # Nobody of the priority waits for less.
        self._least_by_priority: dict[int, int] = {}

    def collect(self) -> None:
        """All for whom the answer may have changed."""
        line, some_parked = self._line, self._line.some_had_turns
        for group in line.within_reach():
            self._note(group[0].priority, min(map(_least, group)))
            self._places += [peers.place for peers in group if peers.place is not None]
        for peers in line.unknown:
            if peers.place is not None:
                self._note(peers.priority, -BOUNDLESS)
                self._places.append(peers.place)
        if some_parked:
            self._places = [place for place in self._places if not line.is_parked(place[3])]
        heapify(self._places)

    def add(self, peers: Peers) -> None:
        """They may be worth asking again."""
        if peers.place is not None:
            self._note(peers.priority, -BOUNDLESS if peers.watches is None else peers.least)
            heappush(self._places, peers.place)

    def _note(self, priority: int, amount: int) -> None:
        least = self._least_by_priority.get(priority)
        if least is None or amount < least:
            self._least_by_priority[priority] = amount

    def first(self) -> Peers | None:
        places = self._places
        while places:
            peers = places[0][3]
            place = peers.place
            if place is places[0]:
                return peers
            if place is None:
                heappop(places)
            else:
                heapreplace(places, place)
        return None

    def first_with_hope(self, most_by_priority: dict[int, int]) -> Peers | None:
        """
        Drop those who had their turn, or who are known to wait for what is not within reach, until one is neither.

        ``most_by_priority`` keeps what was found out for the next time, if nothing has changed until then.
        """
        line = self._line
        if self._is_hopeless(most_by_priority):
            self._places.clear()
            self._least_by_priority.clear()
            return None
        while (peers := self.first()) is not None:
            if not line.is_hopeless(peers, most_by_priority) and not line.is_parked(peers):
                return peers
            heappop(self._places)
        return None

    def _is_hopeless(self, most_by_priority: dict[int, int]) -> bool:
        """Whether that can be told of all of them; who goes on with a scan of flavors is asked, whatever it wants."""
        line = self._line
        for priority, least in self._least_by_priority.items():
            if least <= line.most_within_reach(priority, most_by_priority):
                return False
        for place in self._places if line.scans else ():
            first = place[3].first
            if first is not None and first.memory is not None:
                return False
        return True

    def pop(self) -> Peers:
        """The first, of whom there is one."""
        return heappop(self._places)[3]

    def __iter__(self) -> Iterator[Peers]:
        """In no order; some may be twice in it."""
        return (place[3] for place in self._places)

    def __bool__(self) -> bool:
        return bool(self._places)
