"""
The pass over a flat tree: queues directly under one cohort, where what a queue gets depends on one number.

In such a tree a little becomes free, all queues would like to have it, and one of them gets it. Where all that waits in
a queue waits for one flavor and resource, a ``Front`` says for each in line how much must be free at the cohort before
it is worth looking at (``passes.py``), and before it fits. It holds until something happens in its own queue. So most
of a pass is done on paper: queues without hope are passed over, and of those who take part in a turn only the winners
are looked at. Where a queue turns out to be not as simple as that, the pass ends early and ``passes.py`` goes on.

Called by: cycle.py. Calls: turn.py. Agrees with: passes.py, which decides the same for any tree, quota.py and reach.py,
whose answers fronts anticipate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from kyu.api.meta import Key
from kyu.engine import quota, reach
from kyu.engine.asks import ORDINARY, Ask, Peers, Place, resumes
from kyu.engine.plan import LAST_FLAVOR, SHORT, Claim, Sketch
from kyu.engine.quota import BOUNDLESS, Cell
from kyu.engine.tree import Queue
from kyu.engine.turn import Head, Turn, why_not_nominated

# In a line of more than so many different ones, those that matter are found by the line's own index.
MOST = 16
NEVER = 1 << 62
# More than any queue may use.
HOPELESS = BOUNDLESS << 1
NOT_FLAT = object()
Rank: TypeAlias = tuple[object, ...]
Ranking: TypeAlias = Callable[[Queue, Ask, int], Rank]


class Bid(NamedTuple):
    """What somebody would take part in a turn with."""

    rank: Rank
    """Its place in the order of the turn; no two have the same."""
    fits_from: int
    """How much must be free for it to fit."""
    takes: int
    """How much of what is free it takes."""
    sketch: Sketch | None = None
    """What it gets if it wins; None if that is known already."""


@dataclass(slots=True, eq=False)
class Front:
    """What a queue wants, in order, and where in its line it is in a pass."""

    queue: Queue
    keeper: Ask | None = None
    """Who keeps the head of the line until it gets what it wants; nobody else of the queue has a turn before."""
    cell: Cell | None = None
    """Of which all want something; None as long as nothing is known about any of them."""
    root: Cell | None = None
    """Its parent, where what they want has to be free."""
    peers: Sequence[Peers] = ()
    """Who has not had their turn, in order."""
    amounts: Sequence[int] = ()
    """How much each of them wants; without a bound if that is not all there is to say."""
    wants: Sequence[tuple[int, int]] = ()
    """The same with their priorities, from the last to the first; nothing if it is always worth asking them."""
    asked_from: Sequence[int] = ()
    """How much must be free at the root for each of them to be worth asking."""
    least: Sequence[int] = ()
    """The least that must be free for somebody from there on to be worth asking."""
    index: int = 0
    """Who of the line is next, in the turn ``at``."""
    at: int = 0
    ahead: int = 0
    """Who is worth asking next, if nothing changes before."""
    due: int = 0
    """The turn in which that is."""
    bid: Bid | None = None
    """What that one takes part in a turn with, if that was needed."""
    room: int = 0
    """How much more the queue may use, of its own and of what is free at the root."""
    private: int = 0
    """The part of it that is its own."""

    def weigh(self) -> None:
        """Find out what must be free for whom, after those in line or what the queue uses have changed."""
        self.bid = None
        cell, own, unused = self.cell, reach.own_usage(self.queue.policies), 0
        if cell is not None:
            unused = cell.subtree - cell.usage
            self.private, self.room = _room(cell)
        private, room = self.private, self.room
        asked_from: list[int] = []
        least: list[int] = []
        lowest = NEVER
        for amount, priority in self.wants:
            # What is left after all that it could preempt in its own queue must be free, or its own to claim.
            short = amount if cell is None else amount - own(cell, priority)
            free = -BOUNDLESS if short <= unused else short - private if short <= room else NEVER
            if free < lowest:
                lowest = free
            asked_from.append(free)
            least.append(lowest)
        asked_from.reverse()
        least.reverse()
        self.asked_from, self.least = asked_from, least

    def index_in(self, turn: int) -> int:
        """Who of the line is next in a turn: one after another had theirs, until one stays who is worth asking."""
        return self.index + (turn if turn < self.due else self.due) - self.at

    def look_ahead(self, index: int, turn: int) -> bool:
        """Find who is worth asking next, and when, if it is there in line in this turn; False if there is nobody."""
        root, least, asked_from = self.root, self.least, self.asked_from
        free = 0 if root is None else root.subtree - root.usage
        if index >= len(least) or least[index] > free:
            return False
        ahead = index
        while asked_from[ahead] > free:
            ahead += 1
        if ahead != self.ahead:
            self.ahead, self.bid = ahead, None
        self.index, self.at, self.due = index, turn, turn + ahead - index
        return True

    def has_hope(self) -> bool:
        """Whether somebody may be worth asking; whoever had a turn meanwhile is counted, too."""
        root = self.root
        return root is None or self.least[self.index] <= root.subtree - root.usage

    def head(self, turn: int) -> Ask | None:
        """Who has the turn; those before it in line have had theirs."""
        if self.keeper is not None:
            return self.keeper
        if passed := self.index_in(turn):
            self.queue.line.skip(passed)
        return self.peers[self.ahead].first

    def looks(self, turn: int) -> object:
        """All that the next turns of the queue depend on, while nothing changes."""
        head = self.keeper or self.peers[self.ahead].first
        memory = head.memory.last_tried if head is not None and head.memory is not None else ()
        due = None if self.due == NEVER else max(0, self.due - turn)
        return (self.queue.name, head and head.uid, repr(memory), due)


def find(queue: Queue) -> Front | None:
    """The front of all who have not had their turn in a queue; None if it has to be looked at closely."""
    if not queue.flat:
        return None
    line = queue.line
    if line.sticky is not None and line.has_sticky:
        return Front(queue, line.sticky)
    if line.passed is not None or line.parked_ahead or line.again:
        return _make(queue, [place for place in line.places if not line.is_parked(place[3])])
    front = line.front
    if front is None:
        front = line.front = _make(queue, line.places) or NOT_FLAT
        line.weighed = True
    if not isinstance(front, Front):
        return None
    if not line.weighed:
        front.weigh()
        line.weighed = True
    return front


def _make(queue: Queue, places: list[Place]) -> Front | None:
    """Of these in line, as far as they are known."""
    if len(places) > MOST:
        return None
    front = Front(queue)
    front.peers = [place[3] for place in places]
    amounts: list[int] = []
    wants: list[tuple[int, int]] = []
    for peers in front.peers:
        ask, watches = peers.first, peers.watches
        if not watches or ask is None or ask.memory is not None:
            # Nothing is known about them, or that they can never get anything.
            hopeless = watches == () and ask is not None and ask.memory is None
            amounts.append(NEVER)
            wants.append((HOPELESS if hopeless else -BOUNDLESS, peers.priority))
            continue
        if len(watches) != 1:
            return None
        cell, amount = watches[0].cell, watches[0].amount
        if cell is not front.cell:
            if front.cell is not None or cell.parent is None:
                return None
            front.cell, front.root = cell, cell.parent
        amounts.append(amount if watches[0].simple and ask.special is ORDINARY else NEVER)
        wants.append((amount, peers.priority))
    wants.reverse()
    front.amounts, front.wants = amounts, wants
    front.weigh()
    return front


def _room(cell: Cell) -> tuple[int, int]:
    """What the cell has for itself beside what is free at the root, and how much it may use more, both together."""
    over, cap = cell.usage - cell.local, cell.cap
    private = 0 if over > 0 else -over
    # Within its private part it uses nothing of what is common; beyond, nothing is left of the private part.
    return private, BOUNDLESS if cap is None else cap + private if over <= 0 else cap - over


def _bid_of(front: Front, ranking: Ranking) -> Bid | None:
    """Of the next who is worth asking; None if that has to be looked at closely."""
    queue, cell, amount, ask = front.queue, front.cell, front.amounts[front.ahead], front.peers[front.ahead].first
    if amount == NEVER or cell is None or ask is None:
        return None
    sketch = Sketch(queue, ask, cell, amount, quota.borrowing_level(cell, amount).height, LAST_FLAVOR)
    rank = ranking(queue, ask, sketch.level)
    fits_from = amount - front.private if amount <= front.room else NEVER
    front.bid = Bid(rank, fits_from, amount - front.private if amount > front.private else 0, sketch)
    return front.bid


def _bid_of_claim(claim: Claim, rank: Rank, victims: set[Key]) -> Bid | None:
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
    return Bid(rank, takes, takes) if claim.targets and takes >= 0 and not claim.cell.local else None


def winners(due: list[Front], awake: Iterable[Sketch | Claim], ranking: Ranking) -> list[Front] | None:
    """Who of those that are due gets what it wants in a turn, beside others; None if that cannot be told."""
    contenders: dict[Cell, list[tuple[Bid, Front | None]]] = {}
    root, free = None, 0
    fitting: list[tuple[Bid, Front | None]] = []
    for front in due:
        bid = front.bid or _bid_of(front, ranking)
        if bid is None or front.root is None:
            return None
        if front.root is not root:
            root = front.root
            free = root.subtree - root.usage
            fitting = contenders.setdefault(root, [])
        if bid.fits_from > free:
            # It would have to preempt others.
            return None
        fitting.append((bid, front))
    victims: set[Key] = set()
    for entry in awake:
        parent = entry.cell.parent
        if parent is None or parent.parent is not None:
            return None
        rank = ranking(entry.queue, entry.ask, entry.level)
        if isinstance(entry, Claim):
            other = _bid_of_claim(entry, rank, victims)
            if other is None:
                return None
        else:
            private, room = _room(entry.cell)
            fits_from = entry.amount - private if entry.amount <= room else NEVER
            other = Bid(rank, fits_from, entry.amount - private if entry.amount > private else 0)
        if parent in contenders:
            contenders[parent].append((other, None))
    found: list[Front] = []
    for root, fitting in contenders.items():
        free = root.subtree - root.usage
        while fitting:
            bid, winner = min(fitting)
            free -= bid.takes
            if winner is not None:
                found.append(winner)
            fitting = [other for other in fitting if other[0].fits_from <= free and other[0] is not bid]
    return found


def run(turn: Turn, queues: list[Queue]) -> bool:
    """All turns of the queues of a tree; False if it is not flat, or not any more, and the rest is left to do."""
    state = turn.state
    if not turn.short_ways or state.second_passes or not state.options.scheduling_equivalence_hashing:
        return False
    flat = FlatPass(turn, queues)
    return flat.begin() and flat.run()


@dataclass(slots=True)
class FlatPass:
    """All turns of the queues of one tree."""

    turn: Turn
    queues: list[Queue]
    fronts: list[Front] = field(default_factory=list)
    """Of queues in which somebody is worth asking, or keeps the head of the line."""
    number: int = 0
    """Of the turn, skipped ones counted."""
    seen: set[frozenset[object]] = field(default_factory=set)
    """What turns that changed nothing looked like, since the last that did."""

    def begin(self) -> bool:
        """Look at all queues; False if one of them has to be looked at closely."""
        for queue in self.queues:
            line = queue.line
            if line.size and queue.active and (line.passed is None or not line.had_turns):
                front = find(queue)
                if front is None:
                    return False
                self._add(front)
        return True

    def run(self) -> bool:
        """All turns; False if one of the queues has to be looked at closely, from there on."""
        flat, going_on = True, True
        while flat and going_on and (nearest := self._nearest()) < NEVER:
            if nearest > self.number:
                # Cycles in which nothing would have happened.
                self.turn.state.cycles += nearest - self.number
                self.number = nearest
            heads = self._heads()
            self.turn.take([head for _, head in heads])
            self.number += 1
            flat = self._renew(heads)
            going_on = self._changes_something()
        for front in self.fronts:
            if front.keeper is None:
                front.queue.line.skip(front.index_in(self.number))
        return flat

    def _nearest(self) -> int:
        """The next turn in which somebody is to be asked."""
        nearest = NEVER
        for front in self.fronts:
            if front.due < nearest:
                nearest = front.due
        return nearest

    def _add(self, front: Front) -> None:
        """From now on it goes through its line, from the first."""
        number = self.number
        if front.keeper is not None:
            front.due = number
        elif not front.look_ahead(0, number):
            front.queue.line.skip_all()
            return
        self.fronts.append(front)

    def _heads(self) -> list[tuple[Front, Head]]:
        """Who matters in this turn: keepers, and of the others those who win it, or all, if that cannot be told."""
        number = self.number
        heads: list[tuple[Front, Head]] = []
        due: list[Front] = []
        for front in self.fronts:
            if front.keeper is not None:
                # Who keeps the head of a line also keeps others from taking what it waits for.
                heads.append((front, self._head(front)))
            elif front.due <= number:
                due.append(front)
        if not due:
            return heads
        if heads or len(due) > 1:
            awake = _entries(heads)
            found = None if awake is None else winners(due, awake, self.turn.rank)
            if found is not None:
                served = True
                for front in found:
                    head = self._winner(front)
                    heads.append((front, head))
                    served = served and head.entry is not None
                # One is not served any more if its namespace has changed: then others may win.
                due = [] if served else [front for front in due if front not in found]
        return heads + [(front, self._head(front)) for front in due] if due else heads

    def _head(self, front: Front) -> Head:
        ask = front.head(self.number)
        if ask is None:
            return Head(front.queue)
        return Head(front.queue, ask, self.turn.sketch(front.queue, ask), resumes(ask))

    def _winner(self, front: Front) -> Head:
        """What is remembered about its flavor and quota holds for as long as the front does."""
        ask = front.head(self.number)
        assert ask is not None
        assert front.bid is not None
        served = why_not_nominated(self.turn.state, front.queue, ask) is None
        return Head(front.queue, ask, front.bid.sketch if served else None)

    def _renew(self, heads: list[tuple[Front, Head]]) -> bool:
        """Queues had their turn: where are they now? False if one of them has to be looked at closely."""
        turn, flat = self.turn, True
        for front, head in heads:
            self.fronts.remove(front)
            if not front.queue.line.size:
                continue
            new = find(front.queue)
            if new is None:
                flat = False
                continue
            self._add(new)
            kept = new.keeper
            if kept is not None and kept is head.ask and not (head.resumed or resumes(kept) or kept.key in turn.lost):
                # It would get the same answer again, whoever else has a turn; not if it lost to another.
                new.due = NEVER
        return flat

    def _changes_something(self) -> bool:
        """False when going on would repeat what was."""
        turn = self.turn
        if turn.decided or turn.reordered:
            self.seen.clear()
            if turn.commit.admitted:
                self._look_ahead()
            settled = turn.sole_preemptor(self.queues)
            for front in self.fronts:
                if front.keeper is not None:
                    front.due = NEVER if front.keeper is settled else self.number
            return True
        if turn.parked:
            self.seen.clear()
        signature = frozenset([front.looks(self.number) for front in self.fronts])
        if signature in self.seen:
            return False
        self.seen.add(signature)
        return True

    def _look_ahead(self) -> None:
        """Less is free: those for whom there is no hope any more have had their turns."""
        left: list[Front] = []
        number = self.number
        for front in self.fronts:
            if front.keeper is not None or (front.has_hope() and front.look_ahead(front.index_in(number), number)):
                left.append(front)
            else:
                front.queue.line.skip_all()
        self.fronts = left


def _entries(heads: list[tuple[Front, Head]]) -> list[Sketch | Claim] | None:
    """What the heads get or claim, if that can be told of all of them without asking closely; else None."""
    found: list[Sketch | Claim] = []
    for _, head in heads:
        if not isinstance(head.entry, SHORT):
            return None
        found.append(head.entry)
    return found
