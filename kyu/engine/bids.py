"""
What the workloads of one queue want, as far as it depends on nothing but how much is free at the root of their tree.

Called by: fronts.py, which makes them; tree.py keeps one with each queue.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kyu.engine.asks import Peers
from kyu.engine.quota import Cell

if TYPE_CHECKING:
    from kyu.engine.tree import Queue

Rank: TypeAlias = tuple[object, ...]


class Bid(NamedTuple):
    """What those who stand at one place of a line would take part in a turn with."""

    rank: Rank
    fits_from: int
    """How much must be free for it to fit."""
    takes: int
    """How much of what is free it takes."""


@dataclass(slots=True, eq=False)
class Front:
    """What a queue wants, in order, and where in its line it is in a pass that it sleeps through."""

    queue: Queue
    line_changes: int
    queue_changes: int
    cell: Cell | None = None
    """Of which all want something; None if that is not so."""
    root: Cell | None = None
    """Its parent, where what they want has to be free."""
    peers: list[Peers] = field(default_factory=list)
    """Who has not had their turn, in order."""
    amounts: list[int] = field(default_factory=list)
    """How much each of them wants; without a bound if that is not all there is to say."""
    asked_from: list[int] = field(default_factory=list)
    """How much must be free at the root for each of them to be worth asking."""
    least: list[int] = field(default_factory=list)
    """The least that must be free for somebody from there on to be worth asking."""
    bids: list[Bid | None] = field(default_factory=list)
    """What each of them would take part in a turn with, as far as that was needed."""
    index: int = 0
    """Who of the line is next, in the turn ``at``."""
    at: int = 0
    ahead: int = 0
    """Who is worth asking next, if nothing changes before."""
    due: int = 0
    """The turn in which that is."""

    def begin(self, turn: int) -> None:
        """From this turn on it goes through its line, from the first."""
        self.index = self.ahead = 0
        self.at = self.due = turn

    def index_in(self, turn: int) -> int:
        """Who of the line is next in a turn: one after another had theirs, until one stays who is worth asking."""
        return self.index + (turn if turn < self.due else self.due) - self.at

    def look_ahead(self, turn: int, free: int) -> bool:
        """Find who is worth asking next, and when; False if there is nobody."""
        index = ahead = self.index + (turn if turn < self.due else self.due) - self.at
        if index >= len(self.least) or self.least[index] > free:
            return False
        while self.asked_from[ahead] > free:
            ahead += 1
        self.index, self.at = index, turn
        self.ahead, self.due = ahead, turn + ahead - index
        return True
