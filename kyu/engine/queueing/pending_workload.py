"""
Pending workloads and their equivalence classes.

A ``PendingWorkload`` is small, because a queue may have a million: its key, its rank, and a request shape that it
shares. Workloads of one queue with equal shape and priority form an ``EquivalenceClass``. If one of them does not fit,
none does, so they become inadmissible together, and a cycle only tries the first.

Called by: engine/workloads.py (makes them from objects), engine/queueing/pending_queue.py (keeps classes in order).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeAlias

from kyu.api.meta import Key
from kyu.api.workloads import PodSetUpdate
from kyu.engine.quota.amounts import QuotaNode
from kyu.engine.reasons import Reason
from kyu.engine.request_shape import RequestShape


@dataclass(frozen=True, slots=True)
class RareFields:
    """Fields that only few workloads have; the others share ``NO_RARE_FIELDS``."""

    requeue_at: float | None = None
    """The end of the backoff: the workload is not queued before this time."""
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
    """Node selectors and tolerations that its ready checks add."""

    def may_queue(self, now: float) -> bool:
        return self.requeued and (self.requeue_at is None or self.requeue_at <= now)


NO_RARE_FIELDS = RareFields()


@dataclass(frozen=True, slots=True)
class ScanMemory:
    """The flavors at which the last scan stopped. The next try continues from there."""

    last_tried: tuple[tuple[str, Mapping[str, int]], ...]
    """By pod set and resource: the last flavor that was tried; -1 if it was the last of the list."""
    cycle: int
    generation: int
    """The generation of the queue's quota and reserved workloads when the scan stopped."""
    shape: RequestShape
    priority: int

    @property
    def pending(self) -> bool:
        """Some flavors were not tried yet."""
        return any(index != -1 for _, indices in self.last_tried for index in indices.values())

    def next_flavor(self, pod_set: str, resource: str) -> int:
        for name, indices in self.last_tried:
            if name == pod_set:
                return indices.get(resource, -1) + 1
        return 0


class PendingWorkload:
    """A workload that waits for quota."""

    __slots__ = (
        "equivalents",
        "generation",
        "key",
        "limit",
        "local_queue",
        "memory",
        "priority",
        "rare",
        "shape",
        "time",
        "uid",
    )

    def __init__(
        self,
        key: Key,
        uid: str,
        priority: int,
        time: float,
        shape: RequestShape,
        local_queue: Key,
        rare: RareFields = NO_RARE_FIELDS,
        generation: int = 0,
        limit: int | None = None,
    ) -> None:
        self.key = key
        self.uid = uid
        self.priority = priority
        self.time = time
        self.shape = shape
        self.local_queue = local_queue
        self.rare = rare
        self.generation = generation
        self.limit = limit
        """The declared maximum execution time in seconds, without the time that it has already run."""
        self.memory: ScanMemory | None = None
        self.equivalents: EquivalenceClass | None = None
        """The class in its pending queue; None if it is inadmissible alone, a pending preemptor, or not queued."""

    def __lt__(self, other: PendingWorkload) -> bool:
        """Heaps compare members of equal time and UID, if a workload left and came back. Any order will do."""
        return False

    # A compiled class with __lt__ has no hash of its own. Without ClassVar it would be an attribute of each instance.
    __hash__: ClassVar[Callable[[object], int]] = object.__hash__

    def __repr__(self) -> str:
        return f"PendingWorkload({self.key}, priority {self.priority})"


class PendingGroup(NamedTuple):
    """Pending workloads of one ClusterQueue that have the same request shape."""

    shape: RequestShape
    size: int
    inadmissible: bool


def resumes(workload: PendingWorkload) -> bool:
    """Return whether the next try continues with flavors that were not tried yet."""
    return workload.memory is not None and workload.memory.pending


# Time, UID, workload.
Member: TypeAlias = tuple[float, str, PendingWorkload]


class EquivalenceClass:
    """Pending workloads of one queue that have the same shape and priority."""

    __slots__ = (
        "_others",
        "again",
        "first",
        "identity",
        "inadmissible_at",
        "place",
        "priority",
        "reason",
        "size",
        "wake_conditions",
    )

    def __init__(self, identity: object, priority: int) -> None:
        self.identity = identity
        """The value that makes workloads equivalent: shape, priority and more."""
        self.priority = priority
        self.first: PendingWorkload | None = None
        """The first workload by time and UID; None if the class is empty."""
        self._others: list[Member] | None = None
        """
        The other workloads, in a heap. A workload that left stays in the heap until it comes up, with another class or
        none by then.

        None until a second workload joins: most classes have one workload, and a list takes memory.
        """
        self.size = 0
        self.place: Place | None = None
        """The place of the first workload in the pending queue."""
        self.inadmissible_at = 0
        """The last wake-up after which the class was found inadmissible."""
        self.reason: Reason | None = None
        """The reason why the first workload was not admitted at its last try."""
        self.again = False
        """The class came after the mark had passed its place, and was not tried yet."""
        self.wake_conditions: WakeConditions | None = None
        """A retry is worth it once one of these amounts may be obtainable; None if that is not known."""

    def __lt__(self, other: EquivalenceClass) -> bool:
        """Places that are equal up to the class compare the classes. Any order will do."""
        return False

    # A compiled class with __lt__ has no hash of its own. Without ClassVar it would be an attribute of each instance.
    __hash__: ClassVar[Callable[[object], int]] = object.__hash__

    def add(self, workload: PendingWorkload) -> None:
        workload.equivalents = self
        self.size += 1
        first = self.first
        if first is None:
            self.first = workload
            return
        if workload.time <= first.time and (workload.time, workload.uid) < (first.time, first.uid):
            self.first, workload = workload, first
        if self._others is None:
            self._others = []
        heapq.heappush(self._others, (workload.time, workload.uid, workload))

    def remove(self, workload: PendingWorkload) -> None:
        workload.equivalents = None
        self.size -= 1
        if self.first is workload:
            self.first = None
            while self._others and self.first is None:
                _, _, other = heapq.heappop(self._others)
                if other.equivalents is self:
                    self.first = other

    def wait_for(self, wake_conditions: WakeConditions | None) -> None:
        """Set the wake conditions of the class."""
        for condition in self.wake_conditions or ():
            condition.holds = False
        self.wake_conditions = wake_conditions

    def waiting(self) -> Iterator[PendingWorkload]:
        found = [] if self.first is None else [self.first]
        found += [workload for _, _, workload in self._others or () if workload.equivalents is self]
        # A workload that left and came back is in the heap twice.
        return iter({id(workload): workload for workload in found}.values())


# The order in a queue (higher priority, then earlier, then by UID), and the class at that place.
Place: TypeAlias = tuple[int, float, str, EquivalenceClass]


class WakeCondition:
    """An amount of a quota node that must become obtainable before a class is worth a retry."""

    __slots__ = ("amount", "equivalents", "holds", "place", "quota")

    def __init__(self, amount: int, equivalents: EquivalenceClass, quota: QuotaNode, place: Place) -> None:
        self.amount = amount
        self.place = place
        """The place of the class when the condition was made."""
        self.equivalents = equivalents
        self.quota = quota
        self.holds = True
        """False when the class is gone, or has other wake conditions."""


# One condition for each combination of flavors; equal ones are listed once.
WakeConditions: TypeAlias = tuple[WakeCondition, ...]
