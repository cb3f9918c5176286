"""
What waits in one ClusterQueue, and who is next.

Peers (``asks.py``) stand in a line ordered by their first member, and are parked together. Waking the queue costs
nothing: it forgets who was parked. Parking is nearly as cheap: everybody up to a mark in the line has had their turn
since the last wake-up, so passing over a hundred peers moves one mark.

Called by: tree.py; through the line of a queue waiting.py (push, remove), state.py (wake), turn.py (head, park),
explain.py (order).
Kueue: pkg/cache/queue/cluster_queue.go
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from kyu.api.meta import Key
from kyu.engine import quota
from kyu.engine.asks import ORDINARY, Ask, Peers, Place, ScanMemory, Watch
from kyu.engine.quota import BOUNDLESS, Cell, FlavorResource
from kyu.engine.reasons import BackingOff, Bypassed, InsufficientQuota, NoFit, PodSetReasons, Reason, Skipped, Untried
from kyu.engine.watches import Reach, WatchIndex

# What the past usage of a LocalQueue is, where that comes before everything else.
PastUsage: TypeAlias = Callable[[Ask], float]
TAKEN = Skipped("taken")


def rank(ask: Ask) -> tuple[int, float, str]:
    """The order in a queue: higher priority, then earlier, then by UID."""
    return (-ask.priority, ask.time, ask.uid)


def _boundless(cell: Cell, priority: int) -> int:
    return BOUNDLESS


def _reason_of(peers: Peers) -> NoFit | Skipped | None:
    """What peers wait for, in words; None if that is not known."""
    first = peers.first
    if not peers.watches or first is None:
        return None
    short = tuple(
        InsufficientQuota(*watch.cell.key, watch.amount, max(0, quota.available(watch.cell))) for watch in peers.watches
    )
    if any(reason.requested <= reason.available for reason in short):
        # It has become free since they were asked, and is kept for somebody who comes first.
        return TAKEN
    return NoFit("WaitingForQuota", (PodSetReasons(first.shape.pod_sets[0].name, short),))


class Line:
    """The pending workloads of a ClusterQueue in order, with those that had their turn told apart."""

    __slots__ = (
        "again",
        "front",
        "grown",
        "held",
        "parked_ahead",
        "passed",
        "past_usage",
        "peers_by_identity",
        "places",
        "preemptor",
        "reach",
        "reasons",
        "scans",
        "size",
        "sticky",
        "sticky_identity",
        "sticky_parked_at",
        "strict",
        "unknown",
        "wakes",
        "watched",
        "weighed",
    )

    def __init__(self) -> None:
        self.strict = False
        self.past_usage: PastUsage | None = None
        self.reach: Reach = _boundless
        self.peers_by_identity: dict[object, Peers] = {}
        self.places: list[Place] = []
        self.reasons: dict[Key, Reason] = {}
        """Why those who stand apart wait; the others share theirs with their peers."""
        self.held: dict[Key, Ask] = {}
        """Those that are parked one by one: backoff, wrong namespace, failed checks."""
        self.sticky: Ask | None = None
        """Preempted others and waits for them to go: comes before everybody."""
        self.sticky_identity: object = None
        """What the sticky workload has in common with its peers."""
        self.sticky_parked_at = 0
        self.preemptor: Ask | None = None
        """Who preempted others last, sticky or not."""
        self.front: object = None
        """What ``flat.py`` knows about those in line, as long as they are the same."""
        self.weighed = False
        """Whether that holds for what the queue uses, too."""
        self.wakes = 1
        self.passed: Place | None = None
        self.again: list[Place] = []
        self.size = 0
        self.parked_ahead = False
        """Some who stand behind the mark have had their turn too."""
        self.scans = False
        """Whether there ever was somebody who had to go on with a scan of flavors."""
        self.unknown: set[Peers] = set()
        """Peers of whom nothing is known yet, or nothing that would spare asking them."""
        self.watched = WatchIndex()
        self.grown: set[FlavorResource] = set()
        """Of what there may be more within reach since the watches were last looked at."""

    # Coming and going

    def push(self, ask: Ask, *, identity: object) -> bool:
        """
        Queue a workload. ``identity`` is equal for those that share their fate.

        False if it only stands behind its peers, so that nobody's turn has changed.
        """
        if not self.size:
            self.wake()
        self.size += 1
        parked = self.sticky is not None and self.sticky_identity == identity and self.sticky_parked_at == self.wakes
        return self._join(ask, identity, parked=parked) or self.past_usage is not None

    def _join(self, ask: Ask, identity: object, *, parked: bool) -> bool:
        """Among its peers. Without any it is on its own, with another turn to come unless it, or its like, had one."""
        self.scans = self.scans or ask.memory is not None
        peers = self.peers_by_identity.get(identity)
        if peers is None:
            peers = self.peers_by_identity[identity] = Peers(identity, ask.priority)
            self.unknown.add(peers)
            if parked:
                peers.parked_at = self.wakes
                self.parked_ahead = True
        peers.add(ask)
        if peers.size > 1 and peers.first is not ask:
            return False
        self._stand(peers, ask)
        return True

    def hold(self, ask: Ask) -> None:
        """Keep a workload out of the line until the next wake-up that it may take part in."""
        self.held[ask.key] = ask
        self.size += 1

    def remove(self, ask: Ask) -> None:
        """The workload was admitted, deleted or deactivated."""
        self.size -= 1
        self.reasons.pop(ask.key, None)
        if self.preemptor is ask:
            self.preemptor = None
        if ask.peers is not None:
            self._part(ask, ask.peers)
        elif self.sticky is ask:
            self.sticky = None
        else:
            del self.held[ask.key]

    def _part(self, ask: Ask, peers: Peers) -> None:
        was_first = peers.first is ask
        peers.remove(ask)
        if not was_first:
            return
        first = peers.first
        if first is not None:
            self._stand(peers, first)
            return
        self._leave(peers)
        del self.peers_by_identity[peers.identity]
        self.unknown.discard(peers)
        peers.watch(None)

    def stick(self, ask: Ask) -> None:
        """Put a workload before everybody; who was there goes back to its place."""
        if self.sticky is ask:
            return
        previous, identity, parked = self.sticky, self.sticky_identity, self.sticky_parked_at == self.wakes
        assert ask.peers is not None
        self.sticky_identity = ask.peers.identity
        self._part(ask, ask.peers)
        self.sticky = ask
        self.sticky_parked_at = 0
        if previous is not None:
            self._join(previous, identity, parked=parked)

    def _stand(self, peers: Peers, first: Ask) -> None:
        """Peers have a new first. Whether they had their turn stays as it was."""
        old, where = peers.place, (*rank(first), peers)
        if old is not None and self.passed is None and self._stand_in(old, where):
            return
        parked = old is not None and self.is_parked(peers)
        if old is not None:
            self._leave(peers)
        self.front = None
        peers.place = where
        insort(self.places, where)
        if parked:
            peers.parked_at = self.wakes
            self.parked_ahead = True
        elif self.passed is not None and not self.passed < where and peers.parked_at != self.wakes:
            peers.again = True
            insort(self.again, where)

    def _stand_in(self, old: Place, where: Place) -> bool:
        """Take the place of another of the same peers, if nobody else stands between the two places."""
        places, index = self.places, bisect_left(self.places, old)
        if (index and not places[index - 1] < where) or not (index + 1 == len(places) or where < places[index + 1]):
            return False
        peers = where[3]
        places[index] = peers.place = where
        self.weighed = False
        if peers.first is None or peers.first.memory is not None or peers.first.special is not ORDINARY:
            self.front = None
        return True

    def _leave(self, peers: Peers) -> None:
        self.front = None
        where = peers.place
        assert where is not None
        peers.place = None
        del self.places[bisect_left(self.places, where)]
        if peers.again:
            peers.again = False
            del self.again[bisect_left(self.again, where)]

    # Turns

    @property
    def has_sticky(self) -> bool:
        """Whether the sticky workload is to have the next turn."""
        return self.sticky is not None and self.sticky_parked_at != self.wakes

    def is_parked(self, peers: Peers) -> bool:
        """Whether they had their turn since the last wake-up, and are not in the line any more."""
        if peers.parked_at == self.wakes:
            return True
        assert peers.place is not None
        return self.passed is not None and not peers.again and not self.passed < peers.place

    @property
    def had_turns(self) -> bool:
        """Whether nobody is left who has not had a turn; False if that is not seen at once."""
        if self.passed is None or self.again or self.has_sticky:
            return False
        # Others may be held beside a line that is empty by now.
        return not self.places or self.passed is self.places[-1]

    def head(self) -> Ask | None:
        """Who is next; None if all had their turn since the last wake-up."""
        if self.past_usage is not None:
            return self._head_by_usage(self.past_usage)
        if self.has_sticky:
            return self.sticky
        peers = self.next_peers()
        return None if peers is None else peers.first

    def next_peers(self) -> Peers | None:
        """Whose turn is next, the sticky workload aside."""
        places, wakes = self.places, self.wakes
        index = 0 if self.passed is None else bisect_right(places, self.passed)
        while index < len(places) and places[index][3].parked_at == wakes:
            index += 1
        following = places[index] if index < len(places) else None
        if self.again and (following is None or self.again[0] < following):
            following = self.again[0]
        return None if following is None else following[3]

    def _head_by_usage(self, past_usage: PastUsage) -> Ask | None:
        best: tuple[float, bool, tuple[int, float, str]] | None = None
        head = None
        for ask, sticky in self._active_firsts():
            own = (past_usage(ask), not sticky, rank(ask))
            if best is None or own < best:
                best, head = own, ask
        return head

    def _active_firsts(self) -> Iterator[tuple[Ask, bool]]:
        if self.sticky is not None and self.sticky_parked_at != self.wakes:
            yield self.sticky, True
        for _, _, _, peers in self.places:
            first = peers.first
            if first is not None and not self.is_parked(peers):
                yield first, False

    def park(self, ask: Ask) -> None:
        """The head did not fit: it and its peers wait for the next wake-up."""
        peers = ask.peers
        if self.sticky is ask:
            self.sticky_parked_at = self.wakes
            peers = self.peers_by_identity.get(self.sticky_identity)
        if peers is not None and not self.is_parked(peers):
            self._pass(peers)

    def _pass(self, peers: Peers) -> None:
        where = peers.place
        assert where is not None
        if peers.again:
            peers.again = False
            del self.again[bisect_left(self.again, where)]
        elif self.past_usage is None and not self.again and peers is self.next_peers():
            self.passed = where
        else:
            self.parked_ahead = True
        peers.parked_at = self.wakes

    def park_alone(self, ask: Ask) -> None:
        """Only this workload cannot be tried; its peers are not concerned."""
        self.remove(ask)
        self.hold(ask)

    def wake(self, grown: Iterable[FlavorResource] | None = ()) -> None:
        """
        Everybody gets another turn, since there may be more of something, or (None) since all may be different.

        The held ones are let in by the caller, who knows who may. An empty line need not be woken: it is when the
        first comes.
        """
        self.wakes += 1
        self.passed = None
        self.parked_ahead = False
        if self.again:
            self._forget_newcomers()
        if grown is None:
            self._forget_watches()
        else:
            self.grown.update(grown)

    def _forget_newcomers(self) -> None:
        for where in self.again:
            where[3].again = False
        self.again.clear()

    # Who is worth asking

    def watch(self, peers: Peers, amounts: list[tuple[Cell, int]] | None, *, simple: bool) -> None:
        """Remember what peers that were just parked wait for; None if that is not known."""
        if amounts is None:
            self.ask_again(peers)
            return
        if isinstance(peers.reason, NoFit) and len(amounts) == sum(len(p.reasons) for p in peers.reason.pod_sets):
            # The watches say the same in a tenth of the space.
            peers.reason = None
        if peers.watches is not None and amounts == [(watch.cell, watch.amount) for watch in peers.watches]:
            return
        watches = tuple([Watch(amount, peers, cell, simple=simple) for cell, amount in amounts])
        self.front = None
        peers.watch(watches)
        peers.least = min([amount for _, amount in amounts], default=0)
        self.unknown.discard(peers)
        self.watched.add(watches)

    def _forget_watches(self) -> None:
        """Quotas or flavors have changed: nothing that was known about anybody holds."""
        self.front = None
        self.watched = WatchIndex()
        self.unknown = set(self.peers_by_identity.values())
        for peers in self.unknown:
            self._forget(peers)

    @staticmethod
    def _forget(peers: Peers) -> None:
        """What they wait for is not known any more; until they are asked, they say what they said."""
        peers.reason = peers.reason or _reason_of(peers)
        peers.watch(None)

    @property
    def may_have_news(self) -> bool:
        """Whether anybody may be worth asking, or keeps the head of the line."""
        return bool(self.unknown or self.grown or self.has_sticky)

    @property
    def some_had_turns(self) -> bool:
        """Whether anybody had a turn since the last wake-up."""
        return self.passed is not None or self.parked_ahead

    def within_reach(self) -> list[list[Peers]]:
        """Those for whom there may be enough since they were last looked at, by priority; some may be twice in it."""
        found = list(self.watched.within_reach(self.grown, self.reach))
        self.grown.clear()
        return found

    def most_within_reach(self, priority: int, most_by_priority: dict[int, int]) -> int:
        """How much those of a priority could get of anything that one of them waits for, if that is not known yet."""
        most = most_by_priority.get(priority)
        if most is None:
            most = most_by_priority[priority] = self.watched.most_within_reach(priority, self.reach)
        return most

    def is_hopeless(self, peers: Peers, most_by_priority: dict[int, int]) -> bool:
        """Whether they are known to wait for what is not within reach."""
        if peers.watches is None:
            return False
        priority = peers.priority
        if peers.least <= self.most_within_reach(priority, most_by_priority):
            for watch in peers.watches:
                if watch.amount <= self.reach(watch.cell, priority):
                    return False
        first = peers.first
        return first is None or first.memory is None or not first.memory.pending

    def turns_before(self, peers: Peers) -> int:
        """How many others have their turn before them."""
        where = peers.place
        assert where is not None
        if peers.again:
            return bisect_left(self.again, where)
        start = 0 if self.passed is None else bisect_right(self.places, self.passed)
        end = bisect_left(self.places, where)
        turns = end - start + len(self.again)
        if self.parked_ahead:
            turns -= sum(peers.parked_at == self.wakes for _, _, _, peers in self.places[start:end])
        return turns

    def skip(self, turns: int) -> None:
        """So many peers had their turn without being asked: the answer could not have changed."""
        for _ in range(turns if self.parked_ahead or self.again else 0):
            peers = self.next_peers()
            if peers is not None:
                self._pass(peers)
        if not (self.parked_ahead or self.again):
            start = 0 if self.passed is None else bisect_right(self.places, self.passed)
            end = min(start + turns, len(self.places))
            if end > start:
                self.passed = self.places[end - 1]

    def skip_all(self) -> None:
        """Everybody who is left had their turn without being asked."""
        if self.again:
            self._forget_newcomers()
        if self.places:
            self.passed = self.places[-1]

    def remember(self, ask: Ask, memory: ScanMemory | None) -> None:
        """Where its scan of flavors has stopped; who is to go on with it is asked, whatever its peers wait for."""
        if ask.memory is not memory:
            ask.memory = memory
            self.front = None
            self.scans = self.scans or memory is not None

    def ask_again(self, peers: Peers) -> None:
        """Whatever was known about them, they are to be asked."""
        self.front = None
        self._forget(peers)
        self.unknown.add(peers)

    # Looking

    def firsts(self) -> list[Ask]:
        """The first of all peers."""
        found = (peers.first for _, _, _, peers in self.places)
        return [ask for ask in found if ask is not None]

    def note_reason(self, ask: Ask, reason: Reason) -> None:
        """Remember why a workload waits; its peers wait for the same reason."""
        if ask.peers is not None:
            ask.peers.reason = reason
        else:
            self.reasons[ask.key] = reason

    def note_lost(self, ask: Ask) -> None:
        """It would have fitted if another had not been first; who waits for an amount is known to, from that."""
        if ask.peers is None or ask.peers.watches is None:
            self.note_reason(ask, TAKEN)

    def find_reason(self, ask: Ask) -> Reason:
        peers = ask.peers
        if peers is None:
            return self.reasons.get(ask.key) or BackingOff(ask.special.requeue_at)
        reason = peers.reason or _reason_of(peers)
        if reason is None:
            return Untried()
        if isinstance(reason, NoFit) and peers.first is not ask:
            return Bypassed(reason)
        return reason if peers.first is ask else Untried()

    def left(self) -> list[Ask]:
        """Who is still to have a turn, in order."""
        return sorted((ask for ask in self._members(parked=False)), key=rank)

    def inadmissible(self) -> list[Ask]:
        """Who waits for a wake-up, in order."""
        return sorted([*self._members(parked=True), *self.held.values()], key=rank)

    def waiting(self) -> list[Ask]:
        """Everybody, in order."""
        return sorted([*self._members(parked=False), *self._members(parked=True), *self.held.values()], key=rank)

    def _members(self, *, parked: bool) -> Iterator[Ask]:
        if self.sticky is not None and (self.sticky_parked_at == self.wakes) == parked:
            yield self.sticky
        for _, _, _, peers in self.places:
            if self.is_parked(peers) == parked:
                yield from peers.waiting()
