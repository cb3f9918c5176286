"""
Queues that need no lane of their own in a pass: what they want is known, and what they get depends on one number.

In a wide tree a little becomes free, all queues would like to have it, and one of them gets it. Where a tree has one
level, and all that waits in a queue waits for one cell, a ``Front`` says for each in line how much must be free at the
root before asking is worth it, and before it fits. It holds until something happens in its own queue. A ``Sleeper``
goes through the turns of a pass on paper; the pass wakes those who would win, and those who have to be looked at.

Called by: passes.py. Agrees with: quota.py and reach.py, whose answers it anticipates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import NamedTuple

from kyu.engine import plan, quota, reach
from kyu.engine.bids import Bid, Front, Rank
from kyu.engine.plan import Sketch
from kyu.engine.quota import BOUNDLESS, Cell
from kyu.engine.tree import Queue

# In a line of more than so many different ones, those that matter are found by the line's own index.
MOST = 16
NEVER = 1 << 62
# Bids come in the order of their ranks, and no two have the same.
_BID = itemgetter(0)


def find(queue: Queue, rank: Callable[[Sketch], Rank]) -> Front | None:
    """The front of a queue that was woken and in which nothing has happened since; None if it needs a lane."""
    line = queue.line
    if line.passed is not None or line.parked_ahead or line.again or line.unknown:
        return None
    if line.sticky is not None or line.preemptor is not None:
        return None
    front = queue.front
    if front is None or front.line_changes != line.changes or front.queue_changes != queue.changes:
        front = queue.front = _make(queue, rank)
    return front if front.root is not None else None


def _make(queue: Queue, rank: Callable[[Sketch], Rank]) -> Front:
    line = queue.line
    front = Front(line.changes, queue.changes)
    policies = queue.policies
    if policies.reclaim != "Any" or not policies.borrow_forbidden or not 0 < len(line.places) <= MOST:
        return front
    own = reach.own_usage(policies)
    found: Cell | None = None
    for _, _, _, peers in line.places:
        ask, watches = peers.first(), peers.watches
        if ask is None or watches is None or len(watches) != 1 or not plan.is_simple(queue, ask):
            return front
        ((amount, _, cell),) = watches
        if found is None:
            found = cell
        if cell is not found or cell.parent is None or cell.parent.parent is not None or amount <= 0:
            return front
        level = quota.borrowing_level(cell, amount).height
        front.bids.append(_bid(cell, amount, rank(Sketch(queue, ask, cell, amount, level, -1))))
        front.asked_from.append(_asked_from(cell, amount - own(cell, ask.priority)))
    front.least = [min(front.asked_from[index:]) for index in range(len(front.asked_from))]
    assert found is not None
    front.root = found.parent
    return front


def _bid(cell: Cell, amount: int, rank: Rank) -> Bid:
    private, room = _room(cell)
    return Bid(rank, amount - private if amount <= room else NEVER, max(0, amount - private))


def _asked_from(cell: Cell, short: int) -> int:
    """How much must be free for so much to be within reach, which is left after all that could be preempted."""
    private, room = _room(cell)
    if short <= cell.subtree - cell.usage:
        return -BOUNDLESS
    return short - private if short <= room else NEVER


def _room(cell: Cell) -> tuple[int, int]:
    """What the cell has for itself beside what is free at the root, and how much it may use more, both together."""
    over = cell.usage - cell.local
    private, over = max(0, -over), max(0, over)
    return private, BOUNDLESS if cell.cap is None else cell.cap - over + private


class Sleeper(NamedTuple):
    """A queue in a pass that was not woken so far."""

    front: Front
    queue: Queue


class Sleepers:
    """All of a pass."""

    def __init__(self) -> None:
        self.by_root: dict[Cell, list[Sleeper]] = {}
        self._free: dict[Cell, int] = {}
        """What was free at each root when its sleepers were last looked at."""
        self._least: dict[Cell, int] = {}
        """The least that must be free there for anybody to be worth asking."""

    def add(self, queue: Queue, front: Front) -> None:
        root, least = front.root, front.least[0]
        assert root is not None
        if root not in self.by_root:
            self.by_root[root] = []
            self._least[root] = least
        elif least < self._least[root]:
            self._least[root] = least
        front.begin()
        self.by_root[root].append(Sleeper(front, queue))

    def nearest(self, turn: int) -> int:
        """The next turn in which one of them is worth asking; those for whom there is no hope sleep on."""
        nearest = NEVER
        for root, sleepers in list(self.by_root.items()):
            free = root.subtree - root.usage
            if self._free.get(root) != free:
                self._free[root] = free
                sleepers = self.by_root[root] = self._look_ahead(sleepers, turn, free, self._least[root])
            if sleepers:
                nearest = min(nearest, min([front.due for front, _ in sleepers]))
            else:
                del self.by_root[root]
        return nearest

    @staticmethod
    def _look_ahead(sleepers: list[Sleeper], turn: int, free: int, least: int) -> list[Sleeper]:
        left: list[Sleeper] = []
        for sleeper in sleepers:
            front, queue = sleeper
            if least <= free and front.look_ahead(turn, free):
                left.append(sleeper)
            else:
                queue.line.sleep_on()
        return left

    def all(self) -> list[Sleeper]:
        return [sleeper for sleepers in self.by_root.values() for sleeper in sleepers]

    def due(self, turn: int) -> list[Sleeper]:
        return [sleeper for sleepers in self.by_root.values() for sleeper in sleepers if sleeper.front.due <= turn]

    def looks(self, turn: int) -> Iterator[object]:
        """All that their next turns depend on, while nothing changes."""
        return ((queue.name, max(0, front.due - turn)) for front, queue in self.all())

    def remove(self, sleeper: Sleeper) -> None:
        assert sleeper.front.root is not None
        self.by_root[sleeper.front.root].remove(sleeper)


def winners(due: list[Sleeper], awake: Iterable[Sketch], rank: Callable[[Sketch], Rank]) -> list[Sleeper] | None:
    """Who of those that are due gets what it wants in a turn, beside others who fit; None if that cannot be told."""
    contenders: dict[Cell, list[tuple[Bid, Sleeper | None]]] = {}
    for sleeper in due:
        front = sleeper.front
        assert front.root is not None
        contenders.setdefault(front.root, []).append((front.bids[front.ahead], sleeper))
    for sketch in awake:
        root = sketch.cell.parent
        if root is None or root.parent is not None:
            return None
        if root in contenders:
            contenders[root].append((_bid(sketch.cell, sketch.amount, rank(sketch)), None))
    found: list[Sleeper] = []
    for root, fitting in contenders.items():
        free = root.subtree - root.usage
        if max([bid.fits_from for bid, _ in fitting]) > free:
            # Somebody would have to preempt others.
            return None
        while fitting:
            bid, winner = min(fitting, key=_BID)
            free -= bid.takes
            if winner is not None:
                found.append(winner)
            fitting = [other for other in fitting if other[0].fits_from <= free and other[0] is not bid]
    return found
