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
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from kyu.api.meta import Key
from kyu.engine import quota
from kyu.engine.quota import Cell, FlavorResource
from kyu.engine.reasons import BackingOff, Bypassed, InsufficientQuota, NoFit, PodSetReasons, Reason, Untried
from kyu.engine.workload import Ask

# The order in a queue: higher priority, then earlier, then by UID.
Place: TypeAlias = tuple[int, float, str]
# Time, UID, ticket, workload.
Member: TypeAlias = tuple[float, str, int, Ask]
# For each flavor that could do: a cell, and how much of it is wanted.
Watches: TypeAlias = tuple[tuple[Cell, int], ...]
# How much of a cell a workload of some priority could get at the most, preempting whom it may.
Reach: TypeAlias = Callable[[Cell, int], int]
# What the past usage of a LocalQueue is, where that comes before everything else.
PastUsage: TypeAlias = Callable[[Ask], float]


def place(ask: Ask) -> Place:
    return (-ask.priority, ask.time, ask.uid)


class Peers:
    """Pending workloads of one queue that have the same shape and priority."""

    __slots__ = ("_members", "_only", "again", "parked_at", "place", "priority", "reason", "size", "watches")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self._only: Ask | None = None
        """The only member, for as long as there was never another: most peers are alone, and a list takes room."""
        self._members: list[Member] | None = None
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
        self.watches: Watches | None = None
        """Asking again is worth it once one of these amounts may be within reach; None if that is not known."""

    def add(self, ask: Ask) -> None:
        self.size += 1
        if self._members is None:
            if self._only is None:
                self._only = ask
                return
            self._members = [_member(self._only)]
            self._only = None
        heapq.heappush(self._members, _member(ask))

    def remove(self, ask: Ask) -> None:
        """The workload leaves; its ticket has changed."""
        self.size -= 1
        if self._only is ask:
            self._only = None

    def first(self) -> Ask | None:
        members = self._members
        if members is None:
            return self._only
        while members and members[0][2] != members[0][3].ticket:
            heapq.heappop(members)
        return members[0][3] if members else None

    def waiting(self) -> Iterator[Ask]:
        if self._members is None:
            return iter(() if self._only is None else (self._only,))
        return (ask for _, _, ticket, ask in self._members if ask.ticket == ticket)


def _member(ask: Ask) -> Member:
    return (ask.time, ask.uid, ask.ticket, ask)


def _reason_of(peers: Peers) -> NoFit | None:
    """What peers wait for, in words."""
    first = peers.first()
    if not peers.watches or first is None:
        return None
    short = tuple(
        InsufficientQuota(cell.key.flavor, cell.key.resource, amount, max(0, quota.available(cell)))
        for cell, amount in peers.watches
    )
    return NoFit("WaitingForQuota", (PodSetReasons(first.shape.pod_sets[0].name, short),))


class WatchIndex:
    """Who waits for how much of what, the least first, by flavor and resource and by priority."""

    __slots__ = ("_entries", "_serial")

    def __init__(self) -> None:
        self._entries: dict[FlavorResource, tuple[Cell, dict[int, list[tuple[int, int, Peers]]]]] = {}
        self._serial = 0

    def add(self, peers: Peers, watches: Watches) -> None:
        for cell, amount in watches:
            _, by_priority = self._entries.setdefault(cell.key, (cell, {}))
            self._serial += 1
            waiting = by_priority.setdefault(peers.priority, [])
            if len(waiting) > 32 and len(waiting) & (len(waiting) - 1) == 0:
                waiting[:] = [entry for entry in waiting if _still_waits(cell, entry)]
            insort(waiting, (amount, self._serial, peers))

    def within_reach(self, grown: Iterable[FlavorResource], reach: Reach) -> Iterator[Peers]:
        """Those for whom there may be enough now, of all that wait for something that has grown."""
        for key in grown:
            if key not in self._entries:
                continue
            cell, by_priority = self._entries[key]
            for priority, waiting in by_priority.items():
                while waiting and not _still_waits(cell, waiting[0]):
                    del waiting[0]
                if not waiting or waiting[0][0] > (limit := reach(cell, priority)):
                    continue
                for entry in waiting[: bisect_right(waiting, (limit, self._serial + 1))]:
                    if _still_waits(cell, entry):
                        yield entry[2]


def _still_waits(cell: Cell, entry: tuple[int, int, Peers]) -> bool:
    """Entries of peers that have gone, or wait for something else by now, are dropped when they come up."""
    watches = entry[2].watches
    return watches is not None and (cell, entry[0]) in watches


class Line:
    """The pending workloads of a ClusterQueue in order, with those that had their turn told apart."""

    __slots__ = (
        "again",
        "grown",
        "held",
        "parked_ahead",
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
        "unknown",
        "wakes",
        "watched",
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
        self.parked_ahead = False
        """Some who stand behind the mark have had their turn too."""
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
        self.size += 1
        return self._join(ask, identity) or self.past_usage is not None

    def _join(self, ask: Ask, identity: object) -> bool:
        peers = self.peers_by_class.get(identity)
        if peers is None:
            peers = self.peers_by_class[identity] = Peers(ask.priority)
            self.unknown.add(peers)
        ask.ticket += 1
        peers.add(ask)
        if peers.size == 1:
            self._stand(peers, place(ask))
            self._note_newcomer(peers)
            return True
        if peers.first() is not ask:
            return False
        # Peers that had their turn keep it, however early the newcomer is.
        parked = self.is_parked(peers)
        self._leave(peers)
        self._stand(peers, place(ask))
        if parked:
            peers.parked_at = self.wakes
            self.parked_ahead = True
        else:
            self._note_newcomer(peers)
        return True

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
        peers.remove(ask)
        if peers.place != place(ask):
            return
        parked = self.is_parked(peers)
        self._leave(peers)
        first = peers.first()
        if first is None:
            del self.peers_by_class[identity]
            self.unknown.discard(peers)
            peers.watches = None
            return
        self._stand(peers, place(first))
        if parked:
            peers.parked_at = self.wakes
            self.parked_ahead = True
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

    @property
    def has_sticky(self) -> bool:
        """Whether the sticky workload is to have the next turn."""
        return self.sticky is not None and self.sticky_parked_at != self.wakes

    def is_parked(self, peers: Peers) -> bool:
        """Whether they had their turn since the last wake-up, and are not in the line any more."""
        if peers.parked_at == self.wakes:
            return True
        assert peers.place is not None
        return self.passed is not None and peers.place <= self.passed and not peers.again

    def head(self) -> Ask | None:
        """Who is next; None if all had their turn since the last wake-up."""
        if self.past_usage is not None:
            return self._head_by_usage(self.past_usage)
        if self.has_sticky:
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
            if first is not None and not self.is_parked(peers):
                yield first, False

    def park(self, ask: Ask, *, identity: object) -> None:
        """The head did not fit: it and its peers wait for the next wake-up."""
        if self.sticky is ask:
            self.sticky_parked_at = self.wakes
        peers = self.peers_by_class.get(identity)
        if peers is None or self.is_parked(peers):
            return
        self._pass(peers)

    def _pass(self, peers: Peers) -> None:
        where = peers.place
        assert where is not None
        if peers.again:
            peers.again = False
            del self.again[bisect_left(self.again, where)]
        elif self.past_usage is None and not self.again and where == self.next_place():
            self.passed = where
        else:
            self.parked_ahead = True
        peers.parked_at = self.wakes

    def park_alone(self, ask: Ask, *, identity: object) -> None:
        """Only this workload cannot be tried; its peers are not concerned."""
        self.remove(ask, identity=identity)
        self.hold(ask)

    def wake(self) -> None:
        """Everybody gets another turn. The held ones are let in by the caller, who knows who may."""
        self.wakes += 1
        self.passed = None
        self.parked_ahead = False
        for where in self.again:
            self.peers_by_place[where].again = False
        self.again.clear()

    # Who is worth asking

    def watch(self, identity: object, watches: Watches | None) -> None:
        """Remember what peers that were just parked wait for."""
        peers = self.peers_by_class.get(identity)
        if peers is None or (watches is not None and peers.watches == watches):
            return
        peers.watches = watches
        if watches is None:
            self.unknown.add(peers)
        else:
            self.unknown.discard(peers)
            self.watched.add(peers, watches)
            if isinstance(peers.reason, NoFit) and len(watches) == sum(len(p.reasons) for p in peers.reason.pod_sets):
                # The watches say the same in a tenth of the space.
                peers.reason = None

    def forget_watches(self) -> None:
        """Quotas or flavors have changed: nothing that was known about anybody holds."""
        self.watched = WatchIndex()
        self.unknown = set(self.peers_by_class.values())
        for peers in self.unknown:
            peers.watches = None

    def worth_asking(self, reach: Reach) -> list[Place]:
        """Where those stand, of all who have not had their turn, for whom the answer may have changed; in order."""
        found = {*self.unknown, *self.watched.within_reach(self.grown, reach)}
        self.grown.clear()
        return sorted(peers.place for peers in found if peers.place is not None and not self.is_parked(peers))

    def turns_before(self, where: Place) -> int:
        """How many others have their turn before those who stand there."""
        if self.passed is not None and where <= self.passed:
            return bisect_left(self.again, where)
        start = 0 if self.passed is None else bisect_right(self.places, self.passed)
        end = bisect_left(self.places, where)
        turns = end - start + len(self.again)
        if self.parked_ahead:
            turns -= sum(self.peers_by_place[p].parked_at == self.wakes for p in self.places[start:end])
        return turns

    def skip(self, turns: int) -> None:
        """So many peers had their turn without being asked: the answer could not have changed."""
        for _ in range(turns if self.parked_ahead or self.again else 0):
            where = self.next_place()
            if where is not None:
                self._pass(self.peers_by_place[where])
        if not (self.parked_ahead or self.again):
            start = 0 if self.passed is None else bisect_right(self.places, self.passed)
            end = min(start + turns, len(self.places))
            if end > start:
                self.passed = self.places[end - 1]

    def skip_all(self) -> None:
        """Everybody who is left had their turn without being asked."""
        for where in self.again:
            self.peers_by_place[where].again = False
        self.again.clear()
        if self.places:
            self.passed = self.places[-1]

    def ask_again(self, peers: Peers) -> None:
        """Whatever was known about them, they are to be asked."""
        peers.watches = None
        self.unknown.add(peers)

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
        reason = None if peers is None else peers.reason or _reason_of(peers)
        if peers is None or reason is None:
            return Untried()
        if isinstance(reason, NoFit) and peers.first() is not ask:
            return Bypassed(reason)
        return reason if peers.first() is ask else Untried()

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
            if self.is_parked(peers) == parked:
                yield from peers.waiting()
