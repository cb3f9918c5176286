"""The objects of the textbook scheduler: queues of pending workloads, and workloads that hold quota."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from kyu.api.core import Taint, Toleration
from kyu.api.meta import Key
from kyu.api.queues import ResourceFlavorSpec
from kyu.engine.queueing.pending_workload import PendingWorkload
from kyu.engine.request_shape import PodSetShape
from kyu.engine.workloads import AssignedPodSet
from tests.support.textbook.quota import Node, Pair, Usage

# For each pod set and resource, the last flavor that was tried; -1 if it was the last of the group.
Tried = dict[tuple[str, str], int]


@dataclass
class Memory:
    """Where the scans of flavors stopped."""

    tried: Tried
    cycle: int
    generation: int


@dataclass(eq=False)
class Reserved:
    """A workload that holds quota."""

    workload: PendingWorkload
    queue: Node
    pod_sets: tuple[AssignedPodSet, ...]
    usage: dict[Pair, int]
    reserved_at: float
    evicted: bool = False

    def order(self) -> tuple[bool, int, float, str]:
        return not self.evicted, self.workload.priority, -self.reserved_at, self.workload.uid


def order(workload: PendingWorkload) -> tuple[int, float, str]:
    return -workload.priority, workload.time, workload.uid


@dataclass(eq=False)
class Line:
    """The pending workloads of one ClusterQueue: the active ones in order, and the inadmissible ones."""

    active: list[tuple[int, float, str, PendingWorkload]] = field(default_factory=list)
    inadmissible: dict[Key, PendingWorkload] = field(default_factory=dict)
    parked: set[tuple[object, int]] = field(default_factory=set)
    """Shapes and priorities that are inadmissible until the next wake-up."""
    sticky: PendingWorkload | None = None
    preemptor: PendingWorkload | None = None
    memories: dict[Key, Memory] = field(default_factory=dict)
    generation: int = 0

    def push(self, workload: PendingWorkload) -> None:
        if (workload.shape, workload.priority) in self.parked:
            self.inadmissible[workload.key] = workload
        else:
            insort(self.active, (*order(workload), workload))

    def head(self) -> PendingWorkload | None:
        if not self.active:
            return None
        if self.sticky is not None and self._is_active(self.sticky):
            return self.sticky
        return self.active[0][3]

    def _is_active(self, workload: PendingWorkload) -> bool:
        index = bisect_left(self.active, (*order(workload),))
        return index < len(self.active) and self.active[index][3] is workload

    def drop(self, workload: PendingWorkload) -> None:
        self._take(workload)
        self.inadmissible.pop(workload.key, None)
        self.memories.pop(workload.key, None)
        if self.sticky is workload:
            self.sticky = None
        if self.preemptor is workload:
            self.preemptor = None

    def _take(self, workload: PendingWorkload) -> None:
        if self._is_active(workload):
            del self.active[bisect_left(self.active, (*order(workload),))]

    def park(self, workload: PendingWorkload, *, equivalents: bool) -> None:
        """Make a workload inadmissible, with all of its shape and priority."""
        self._take(workload)
        self.inadmissible[workload.key] = workload
        if equivalents:
            identity = (workload.shape, workload.priority)
            self.parked.add(identity)
            alike = [row[3] for row in self.active if (row[3].shape, row[3].priority) == identity]
            for other in alike:
                self._take(other)
                self.inadmissible[other.key] = other

    def wake(self) -> None:
        self.parked.clear()
        self.active += [(*order(workload), workload) for workload in self.inadmissible.values()]
        self.active.sort()
        self.inadmissible.clear()


@dataclass
class World:
    """All that a cycle looks at; ``snapshot`` copies what it changes."""

    nodes: dict[str, Node] = field(default_factory=dict)
    flavors: dict[str, ResourceFlavorSpec] = field(default_factory=dict)
    usage: Usage = field(default_factory=lambda: Usage({}))
    reserved: dict[Key, Reserved] = field(default_factory=dict)

    def snapshot(self) -> Snapshot:
        by_queue: dict[Node, list[Reserved]] = {}
        for reserved in self.reserved.values():
            by_queue.setdefault(reserved.queue, []).append(reserved)
        return Snapshot(self.usage.copy(), by_queue, self.flavors)


@dataclass
class Snapshot:
    """A copy of usage and of the workloads that hold quota, by ClusterQueue."""

    usage: Usage
    by_queue: dict[Node, list[Reserved]]
    flavors: dict[str, ResourceFlavorSpec]

    def take_out(self, reserved: Reserved) -> None:
        self.by_queue[reserved.queue].remove(reserved)
        self.release(reserved)

    def put_back(self, reserved: Reserved) -> None:
        self.by_queue[reserved.queue].append(reserved)
        self.charge(reserved)

    def release(self, reserved: Reserved) -> None:
        for pair, amount in reserved.usage.items():
            self.usage.remove(reserved.queue, pair, amount)

    def charge(self, reserved: Reserved) -> None:
        for pair, amount in reserved.usage.items():
            self.usage.add(reserved.queue, pair, amount)


def matches(flavor: ResourceFlavorSpec, pod_set: PodSetShape) -> bool:
    """Return whether the nodes of a flavor suit a pod set. Only taints and node selectors are known here."""
    tolerations = (*pod_set.spec.tolerations, *flavor.tolerations)
    for taint in flavor.node_taints:
        if taint.effect != "PreferNoSchedule" and not any(_tolerates(t, taint) for t in tolerations):
            return False
    return all(flavor.node_labels.get(key, value) == value for key, value in pod_set.spec.node_selector.items())


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value
