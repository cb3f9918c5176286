"""
Queues that need no lane of their own in a pass: what they want is known, and what they get depends on one number.

In a wide tree a little becomes free, all queues would like to have it, and one of them gets it. Where a tree has one
level, and all that waits in a queue waits for one cell, a ``Front`` says for each in line how much must be free at the
root before asking is worth it, and before it fits. It holds until something happens in its own queue. Such a queue
sleeps through a pass: its front goes through the turns on paper, and the pass wakes those who would win, and those who
have to be looked at, for one turn.

Called by: passes.py. Agrees with: quota.py and reach.py, whose answers it anticipates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from kyu.api.meta import Key
from kyu.engine import plan, quota, reach
from kyu.engine.asks import Peers, Place
from kyu.engine.plan import Claim, Sketch
from kyu.engine.quota import BOUNDLESS, Cell
from kyu.engine.tree import Queue

# In a line of more than so many different ones, those that matter are found by the line's own index.
MOST = 16
NEVER = 1 << 62
# Bids come in the order of their ranks, and no two have the same.
_BID = itemgetter(0)
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


def find(queue: Queue) -> Front | None:
    """The front of all who have not had their turn in a queue; None if it needs a lane."""
    line = queue.line
    if line.preemptor is not None or (line.sticky is not None and line.has_sticky):
        return None
    if len(line.unknown) == len(line.places):
        # Nobody is known to wait for anything.
        return None
    if line.passed is not None or line.parked_ahead or line.again:
        front = _make(queue, [place for place in line.places if not line.is_parked(place[3])])
    else:
        known = queue.front
        if isinstance(known, Front) and (known.line_changes, known.queue_changes) == (line.changes, queue.changes):
            front = known
        else:
            front = queue.front = _make(queue, line.places)
    return None if front.cell is None else front


def _make(queue: Queue, places: list[Place]) -> Front:
    front = Front(queue, queue.line.changes, queue.changes)
    policies = queue.policies
    if policies.reclaim != "Any" or not policies.borrow_forbidden or not 0 < len(places) <= MOST:
        return front
    own = reach.own_usage(policies)
    found: Cell | None = None
    unused = private = room = 0
    for _, _, _, peers in places:
        ask, watches = peers.first(), peers.watches
        front.peers.append(peers)
        if watches is None or ask is None or ask.memory is not None:
            front.amounts.append(NEVER)
            front.asked_from.append(-BOUNDLESS)
            continue
        if len(watches) != 1:
            return front
        ((amount, _, cell),) = watches
        if cell is not found:
            if found is not None or cell.parent is None or cell.parent.parent is not None:
                return front
            found = cell
            unused = cell.subtree - cell.usage
            private, room = _room(cell)
        front.amounts.append(amount if amount > 0 and plan.is_simple(queue, ask) else NEVER)
        # What is left after all that it could preempt in its own queue must be free, or its own to claim.
        short = amount - own(cell, ask.priority)
        front.asked_from.append(-BOUNDLESS if short <= unused else short - private if short <= room else NEVER)
    least = NEVER
    for needed in reversed(front.asked_from):
        if needed < least:
            least = needed
        front.least.append(least)
    front.least.reverse()
    if found is not None:
        front.cell, front.root = found, found.parent
        front.bids = [None] * len(places)
    return front


def _room(cell: Cell) -> tuple[int, int]:
    """What the cell has for itself beside what is free at the root, and how much it may use more, both together."""
    over = cell.usage - cell.local
    private, over = max(0, -over), max(0, over)
    return private, BOUNDLESS if cell.cap is None else cell.cap - over + private


def _bid(cell: Cell, amount: int, rank: Rank) -> Bid:
    private, room = _room(cell)
    return Bid(rank, amount - private if amount <= room else NEVER, max(0, amount - private))


def _bid_of(front: Front, rank: Callable[[Sketch | Claim], Rank]) -> Bid:
    """Of the next who is worth asking."""
    queue, cell, amount, ask = front.queue, front.cell, front.amounts[front.ahead], front.peers[front.ahead].first()
    if amount == NEVER or cell is None or ask is None:
        return Bid((), NEVER, 0)
    level = quota.borrowing_level(cell, amount).height
    found = front.bids[front.ahead] = _bid(cell, amount, rank(Sketch(queue, ask, cell, amount, level, -1)))
    return found


def _bid_of_claim(claim: Claim, rank: Callable[[Sketch | Claim], Rank], victims: set[Key]) -> Bid | None:
    """Others get less by what its victims do not return. None if they might get more, or if others have chosen them."""
    takes, root = claim.amount, claim.cell.parent
    for target in claim.targets:
        if target.holding.key in victims:
            return None
        victims.add(target.holding.key)
        for cell, amount in target.holding.charges:
            if cell.parent is not root or cell.local:
                return None
            takes -= amount
    return Bid(rank(claim), takes, takes) if claim.targets and takes >= 0 and not claim.cell.local else None


class Sleepers:
    """All of a pass."""

    def __init__(self) -> None:
        self.by_root: dict[Cell, list[Front]] = {}
        self._free: dict[Cell, int] = {}
        """What was free at each root when its sleepers were last looked at."""

    def add(self, front: Front, turn: int) -> None:
        """Let a queue sleep from this turn on; if there is no hope for anybody in it, until it is woken again."""
        root = front.root
        assert root is not None
        free = root.subtree - root.usage
        front.begin(turn)
        if not front.look_ahead(turn, free):
            front.queue.line.skip_all()
        elif root in self.by_root:
            self.by_root[root].append(front)
        else:
            self.by_root[root] = [front]
            self._free[root] = free

    def nearest(self, turn: int) -> int:
        """The next turn in which one of them is worth asking; those for whom there is no hope sleep on."""
        nearest = NEVER
        for root, sleeping in list(self.by_root.items()):
            free = root.subtree - root.usage
            if self._free[root] != free:
                self._free[root] = free
                sleeping = self.by_root[root] = self._look_ahead(sleeping, turn, free)
            if sleeping:
                nearest = min(nearest, min([front.due for front in sleeping]))
            else:
                del self.by_root[root]
        return nearest

    @staticmethod
    def _look_ahead(sleeping: list[Front], turn: int, free: int) -> list[Front]:
        left: list[Front] = []
        for front in sleeping:
            if front.look_ahead(turn, free):
                left.append(front)
            else:
                front.queue.line.skip_all()
        return left

    def all(self) -> list[Front]:
        return [front for sleeping in self.by_root.values() for front in sleeping]

    def due(self, turn: int) -> list[Front]:
        return [front for sleeping in self.by_root.values() for front in sleeping if front.due <= turn]

    def close(self, turn: int) -> None:
        """The pass is over: those who still wait for their turn keep it."""
        for front in self.all():
            front.queue.line.skip(front.index_in(turn))

    def looks(self, turn: int) -> Iterator[object]:
        """All that their next turns depend on, while nothing changes."""
        return ((front.queue.name, max(0, front.due - turn)) for front in self.all())

    def remove(self, front: Front) -> None:
        assert front.root is not None
        self.by_root[front.root].remove(front)


def winners(
    due: list[Front], awake: Iterable[Sketch | Claim], rank: Callable[[Sketch | Claim], Rank]
) -> list[Front] | None:
    """Who of those that are due gets what it wants in a turn, beside others; None if that cannot be told."""
    contenders: dict[Cell, list[tuple[Bid, Front | None]]] = {}
    for front in due:
        root, bid = front.root, front.bids[front.ahead] or _bid_of(front, rank)
        assert root is not None
        if bid.fits_from > root.subtree - root.usage:
            # It would have to preempt others.
            return None
        if root in contenders:
            contenders[root].append((bid, front))
        else:
            contenders[root] = [(bid, front)]
    victims: set[Key] = set()
    for entry in awake:
        parent = entry.cell.parent
        if parent is None or parent.parent is not None:
            return None
        if isinstance(entry, Claim):
            other = _bid_of_claim(entry, rank, victims)
            if other is None:
                return None
        else:
            other = _bid(entry.cell, entry.amount, rank(entry))
        if parent in contenders:
            contenders[parent].append((other, None))
    found: list[Front] = []
    for root, fitting in contenders.items():
        free = root.subtree - root.usage
        while fitting:
            bid, winner = min(fitting, key=_BID)
            free -= bid.takes
            if winner is not None:
                found.append(winner)
            fitting = [other for other in fitting if other[0].fits_from <= free and other[0] is not bid]
    return found
