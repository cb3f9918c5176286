"""
Workloads that wait: an ``Ask`` each, and their peers, with whom they share their fate.

An ask is small, because there may be a million: who it is, its place in the queue, and its shape, which it shares.
Workloads of one queue with equal shape and priority are ``Peers``: if one of them does not fit, none does, so they are
parked together, and only their first is ever looked at.

Called by: workload.py (reads them from objects), queues.py (the line in which peers stand).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kyu.api.meta import Key
from kyu.api.workloads import PodSetUpdate
from kyu.engine.quota import Cell
from kyu.engine.reasons import Reason
from kyu.engine.shapes import Shape


@dataclass(frozen=True, slots=True)
class Special:
    """What only few workloads have; most share ``ORDINARY``."""

    requeue_at: float | None = None
    """Not before this time."""
    requeued: bool = True
    """False while the condition Requeued forbids queueing, whatever the time."""
    failed_check: bool = False
    """A check still says Retry or Rejected."""
    allowed_flavor: str = ""
    """The only flavor that this variant of a workload may use."""
    variant_of: str = ""
    """UID of the workload that this is a variant of."""
    elastic: bool = False
    """Its job may grow and shrink while it runs."""
    replaces: Key | None = None
    """The smaller slice of the same job that this one replaces once it is admitted."""
    gate_closed: bool = False
    """It must not preempt now."""
    checks: tuple[str, ...] = ()
    """Names of the checks that its status lists."""
    updates: tuple[PodSetUpdate, ...] = ()
    """What its ready checks ask of the nodes."""

    def may_queue(self, now: float) -> bool:
        return self.requeued and (self.requeue_at is None or self.requeue_at <= now)


ORDINARY = Special()


@dataclass(frozen=True, slots=True)
class ScanMemory:
    """Where the scan of flavors stopped, so that the next try goes on from there."""

    last_tried: tuple[tuple[str, Mapping[str, int]], ...]
    """By pod set and resource: the last flavor that was looked at; -1 if it was the last of the list."""
    cycle: int
    generation: int
    """Of the queue's quota and holdings, when it was stored."""
    shape: Shape
    priority: int

    @property
    def pending(self) -> bool:
        """Some flavors were not looked at yet."""
        return any(index != -1 for _, indices in self.last_tried for index in indices.values())

    def next_flavor(self, pod_set: str, resource: str) -> int:
        for name, indices in self.last_tried:
            if name == pod_set:
                return indices.get(resource, -1) + 1
        return 0


class Ask:
    """A workload that waits for quota."""

    __slots__ = ("generation", "key", "local_queue", "memory", "peers", "priority", "shape", "special", "time", "uid")

    def __init__(
        self,
        key: Key,
        uid: str,
        priority: int,
        time: float,
        shape: Shape,
        local_queue: Key,
        special: Special = ORDINARY,
        generation: int = 0,
    ) -> None:
        self.key = key
        self.uid = uid
        self.priority = priority
        self.time = time
        self.shape = shape
        self.local_queue = local_queue
        self.special = special
        self.generation = generation
        self.memory: ScanMemory | None = None
        self.peers: Peers | None = None
        """With whom it stands in a line; None where it stands apart, or nowhere."""

    def __lt__(self, other: Ask) -> bool:
        """Heaps compare members of equal time and UID: one has left, one came back. Any order will do."""
        return False

    def __repr__(self) -> str:
        return f"Ask({self.key}, priority {self.priority})"


def resumes(ask: Ask) -> bool:
    """Whether the next try goes on with flavors that were not looked at yet."""
    return ask.memory is not None and ask.memory.pending


# Time, UID, workload.
Member: TypeAlias = tuple[float, str, Ask]


class Peers:
    """Pending workloads of one queue that have the same shape and priority."""

    __slots__ = (
        "_others",
        "again",
        "first",
        "identity",
        "least",
        "parked_at",
        "place",
        "priority",
        "reason",
        "size",
        "watches",
    )

    def __init__(self, identity: object, priority: int) -> None:
        self.identity = identity
        """What they have in common."""
        self.priority = priority
        self.first: Ask | None = None
        """By time and UID; None if all have left."""
        self._others: list[Member] | None = None
        """
        The rest, in a heap. One that has left stays until it comes up: it has other peers by then, or none.

        None for as long as there never was another: most peers are alone, and a list takes room.
        """
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
        self.least = 0
        """The least of these amounts."""

    def __lt__(self, other: Peers) -> bool:
        """Whoever compares equal in all that counts: any order will do."""
        return False

    def add(self, ask: Ask) -> None:
        ask.peers = self
        self.size += 1
        first = self.first
        if first is None:
            self.first = ask
            return
        if ask.time <= first.time and (ask.time, ask.uid) < (first.time, first.uid):
            self.first, ask = ask, first
        if self._others is None:
            self._others = []
        heapq.heappush(self._others, (ask.time, ask.uid, ask))

    def remove(self, ask: Ask) -> None:
        ask.peers = None
        self.size -= 1
        if self.first is ask:
            self.first = None
            while self._others and self.first is None:
                _, _, other = heapq.heappop(self._others)
                if other.peers is self:
                    self.first = other

    def watch(self, watches: Watches | None) -> None:
        """From now on they wait for this."""
        for watch in self.watches or ():
            watch.holds = False
        self.watches = watches

    def waiting(self) -> Iterator[Ask]:
        found = [] if self.first is None else [self.first]
        found += [ask for _, _, ask in self._others or () if ask.peers is self]
        # Who has left and come back is in the heap twice.
        return iter({id(ask): ask for ask in found}.values())


# The order in a queue: higher priority, then earlier, then by UID. And who stands there.
Place: TypeAlias = tuple[int, float, str, Peers]


class Watch:
    """How much of which cell is wanted, and by whom."""

    __slots__ = ("amount", "cell", "holds", "peers", "simple")

    def __init__(self, amount: int, peers: Peers, cell: Cell, *, simple: bool) -> None:
        self.amount = amount
        self.peers = peers
        self.cell = cell
        self.simple = simple
        """That is all there is to say about them (``plan.py``)."""
        self.holds = True
        """False when they have gone, or wait for something else."""


# One for each flavor that could do.
Watches: TypeAlias = tuple[Watch, ...]
