"""
What waits in one ClusterQueue, and who is next.

Pending workloads of equal shape and priority are ``Peers``: if one of them does not fit, none does, so they are parked
together and only their first is ever looked at. The peers stand in a line ordered by their first member. Waking the
queue costs nothing: it forgets who was parked. Parking is nearly as cheap: everybody up to a mark in the line has had
their turn since the last wake-up, so passing over a hundred peers moves one mark.

Called by: state.py (push, remove, wake), cycle.py (head, park), explain.py (order).
Kueue: pkg/cache/queue/cluster_queue.go
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from typing import TypeAlias

from kyu.api.meta import Key
from kyu.engine.reasons import BackingOff, Bypassed, NoFit, Reason, Untried
from kyu.engine.shapes import Shape
from kyu.engine.workload import Ask

# The order in a queue: higher priority, then earlier, then by UID.
Place: TypeAlias = tuple[int, float, str]
# Time, UID, ticket, workload.
Member: TypeAlias = tuple[float, str, int, Ask]
# What the past usage of a LocalQueue is, where that comes before everything else.
PastUsage: TypeAlias = Callable[[Ask], float]


def place(ask: Ask) -> Place:
    return (-ask.priority, ask.time, ask.uid)


class Peers:
    """Pending workloads of one queue that have the same shape and priority."""

    __slots__ = ("again", "members", "parked_at", "place", "reason", "shape", "size", "watches")

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.members: list[Member] = []
        """A heap by time and UID. One that has left stays until it comes up; its ticket tells."""
        self.size = 0
        self.place: Place | None = None
        """Where the first member stands in the line."""
        self.parked_at = 0
        """The last wake-up after which they were found not to fit."""
        self.reason: Reason | None = None
        """Why the first did not get anything when it was last looked at."""
        self.again = False
        """They came after the mark had passed their place, and have not had their turn."""
        self.watches: tuple[tuple[object, int], ...] | None = None
        """What must grow, and up to what, before asking again is worth it; None if that is not known."""

    def first(self) -> Ask | None:
        members = self.members
        while members and members[0][2] != members[0][3].ticket:
            heapq.heappop(members)
        return members[0][3] if members else None

    def waiting(self) -> Iterator[Ask]:
        return (ask for _, _, ticket, ask in self.members if ask.ticket == ticket)


class Line:
    """The pending workloads of a ClusterQueue in order, with those that had their turn told apart."""

    __slots__ = (
        "again",
        "held",
        "passed",
        "past_usage",
        "peers_by_class",
        "peers_by_place",
        "places",
        "preemptor",
        "reasons",
        "size",
        "sticky",
        "sticky_parked_at",
        "strict",
        "wakes",
    )

    def __init__(self) -> None:
        self.strict = False
        self.past_usage: PastUsage | None = None
        self.peers_by_class: dict[object, Peers] = {}
        self.places: list[Place] = []
        self.peers_by_place: dict[Place, Peers] = {}
        self.reasons: dict[Key, Reason] = {}
        """Why those who stand apart wait; the others share theirs with their peers."""
        self.held: dict[Key, Ask] = {}
        """Those that are parked one by one: backoff, wrong namespace, failed checks."""
        self.sticky: Ask | None = None
        """Preempted others and waits for them to go: comes before everybody."""
        self.sticky_parked_at = 0
        self.preemptor: Ask | None = None
        """Who preempted others last, sticky or not."""
        self.wakes = 1
        self.passed: Place | None = None
        self.again: list[Place] = []
        self.size = 0

    # Coming and going

    def push(self, ask: Ask, *, identity: object) -> None:
        """Queue a workload. ``identity`` is equal for those that share their fate."""
        self.size += 1
        self._join(ask, identity)

    def _join(self, ask: Ask, identity: object) -> None:
        peers = self.peers_by_class.get(identity)
        if peers is None:
            peers = self.peers_by_class[identity] = Peers(ask.shape)
        ask.ticket += 1
        heapq.heappush(peers.members, (ask.time, ask.uid, ask.ticket, ask))
        peers.size += 1
        if peers.size == 1:
            self._stand(peers, place(ask))
            self._note_newcomer(peers)
        elif peers.first() is ask:
            # Peers that had their turn keep it, however early the newcomer is.
            parked = self._is_parked(peers)
            self._leave(peers)
            self._stand(peers, place(ask))
            if parked:
                peers.parked_at = self.wakes
            else:
                self._note_newcomer(peers)

    def hold(self, ask: Ask) -> None:
        """Keep a workload out of the line until the next wake-up that it may take part in."""
        self.held[ask.key] = ask
        self.size += 1

    def remove(self, ask: Ask, *, identity: object) -> None:
        """The workload was admitted, deleted or deactivated."""
        self.size -= 1
        self.reasons.pop(ask.key, None)
        if self.preemptor is ask:
            self.preemptor = None
        if self.held.pop(ask.key, None) is not None:
            return
        ask.ticket += 1
        if self.sticky is ask:
            self.sticky = None
            return
        peers = self.peers_by_class[identity]
        peers.size -= 1
        if peers.place != place(ask):
            return
        parked = self._is_parked(peers)
        self._leave(peers)
        first = peers.first()
        if first is None:
            del self.peers_by_class[identity]
            return
        self._stand(peers, place(first))
        if parked:
            peers.parked_at = self.wakes
        else:
            self._note_newcomer(peers)

    def stick(self, ask: Ask, *, identity: object, old_identity: object) -> None:
        """Put a workload before everybody; who was there goes back to its place."""
        if self.sticky is ask:
            return
        previous, preemptor = self.sticky, self.preemptor
        self.remove(ask, identity=identity)
        self.preemptor = preemptor
        self.sticky = ask
        self.size += 1
        self.sticky_parked_at = 0
        if previous is not None:
            self._join(previous, old_identity)

    def _stand(self, peers: Peers, where: Place) -> None:
        peers.place = where
        insort(self.places, where)
        self.peers_by_place[where] = peers

    def _leave(self, peers: Peers) -> None:
        where = peers.place
        assert where is not None
        del self.places[bisect_left(self.places, where)]
        del self.peers_by_place[where]
        if peers.again:
            peers.again = False
            del self.again[bisect_left(self.again, where)]

    def _note_newcomer(self, peers: Peers) -> None:
        assert peers.place is not None
        if self.passed is not None and peers.place <= self.passed and peers.parked_at != self.wakes:
            peers.again = True
            insort(self.again, peers.place)

    # Turns

    def _is_parked(self, peers: Peers) -> bool:
        if peers.parked_at == self.wakes:
            return True
        assert peers.place is not None
        return self.passed is not None and peers.place <= self.passed and not peers.again

    def head(self) -> Ask | None:
        """Who is next; None if all had their turn since the last wake-up."""
        if self.past_usage is not None:
            return self._head_by_usage(self.past_usage)
        if self.sticky is not None and self.sticky_parked_at != self.wakes:
            return self.sticky
        where = self.next_place()
        return None if where is None else self.peers_by_place[where].first()

    def next_place(self) -> Place | None:
        """Where the next peers stand, the sticky workload aside."""
        index = 0 if self.passed is None else bisect_right(self.places, self.passed)
        places, by_place, wakes = self.places, self.peers_by_place, self.wakes
        while index < len(places) and by_place[places[index]].parked_at == wakes:
            index += 1
        following = places[index] if index < len(places) else None
        if self.again and (following is None or self.again[0] < following):
            return self.again[0]
        return following

    def _head_by_usage(self, past_usage: PastUsage) -> Ask | None:
        best: tuple[float, bool, Place] | None = None
        head = None
        for ask, sticky in self._active_firsts():
            rank = (past_usage(ask), not sticky, place(ask))
            if best is None or rank < best:
                best, head = rank, ask
        return head

    def _active_firsts(self) -> Iterator[tuple[Ask, bool]]:
        if self.sticky is not None and self.sticky_parked_at != self.wakes:
            yield self.sticky, True
        for peers in self.peers_by_place.values():
            first = peers.first()
            if first is not None and not self._is_parked(peers):
                yield first, False

    def park(self, ask: Ask, *, identity: object) -> None:
        """The head did not fit: it and its peers wait for the next wake-up."""
        if self.sticky is ask:
            self.sticky_parked_at = self.wakes
        peers = self.peers_by_class.get(identity)
        if peers is None or self._is_parked(peers):
            return
        where = peers.place
        assert where is not None
        if peers.again:
            peers.again = False
            del self.again[bisect_left(self.again, where)]
        elif self.past_usage is None and where == self.next_place() and self.sticky is not ask:
            self.passed = where
        peers.parked_at = self.wakes

    def park_alone(self, ask: Ask, *, identity: object) -> None:
        """Only this workload cannot be tried; its peers are not concerned."""
        self.remove(ask, identity=identity)
        self.hold(ask)

    def wake(self) -> None:
        """Everybody gets another turn. The held ones are let in by the caller, who knows who may."""
        self.wakes += 1
        self.passed = None
        for where in self.again:
            self.peers_by_place[where].again = False
        self.again.clear()

    # Looking

    def firsts(self) -> list[Ask]:
        """The first of all peers."""
        found = (peers.first() for peers in self.peers_by_place.values())
        return [ask for ask in found if ask is not None]

    def note_reason(self, ask: Ask, reason: Reason, *, identity: object) -> None:
        """Remember why a workload waits; its peers wait for the same reason."""
        peers = self.peers_by_class.get(identity)
        if peers is not None and self.sticky is not ask and ask.key not in self.held:
            peers.reason = reason
        else:
            self.reasons[ask.key] = reason

    def find_reason(self, ask: Ask, *, identity: object) -> Reason:
        if ask is self.sticky or ask.key in self.held:
            return self.reasons.get(ask.key) or BackingOff(ask.special.requeue_at)
        peers = self.peers_by_class.get(identity)
        if peers is None or peers.reason is None:
            return Untried()
        if isinstance(peers.reason, NoFit) and peers.first() is not ask:
            return Bypassed(peers.reason)
        return peers.reason if peers.first() is ask else Untried()

    def left(self) -> list[Ask]:
        """Who is still to have a turn, in order."""
        return sorted((ask for ask in self._members(parked=False)), key=place)

    def inadmissible(self) -> list[Ask]:
        """Who waits for a wake-up, in order."""
        return sorted([*self._members(parked=True), *self.held.values()], key=place)

    def waiting(self) -> list[Ask]:
        """Everybody, in order."""
        return sorted([*self._members(parked=False), *self._members(parked=True), *self.held.values()], key=place)

    def _members(self, *, parked: bool) -> Iterator[Ask]:
        if self.sticky is not None and (self.sticky_parked_at == self.wakes) == parked:
            yield self.sticky
        for peers in self.peers_by_place.values():
            if self._is_parked(peers) == parked:
                yield from peers.waiting()
