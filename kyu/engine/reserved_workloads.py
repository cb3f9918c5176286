"""
All workloads that hold quota, with what they use: quota, nodes, the counts of their queues.

A workload is charged when it reserves quota and released when it stops. A what-if takes it out and puts it back.

Called by: engine/state.py (objects), engine/cycle.py and engine/commit.py (decisions). Calls: engine/tree.py (quota),
engine/topology/forest.py (nodes), engine/local_queues.py (counts). Kueue: pkg/cache/scheduler/cache.go
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kyu.api.meta import Key
from kyu.api.workloads import Workload
from kyu.engine import workloads
from kyu.engine.cluster import Cluster
from kyu.engine.options import Options
from kyu.engine.pending_workloads import PendingWorkloads
from kyu.engine.queueing.pending_workload import PendingWorkload
from kyu.engine.topology.forest import Forest
from kyu.engine.topology.types import DomainUsage
from kyu.engine.tree import Hierarchy, Queue
from kyu.engine.wakes import Wakes
from kyu.engine.workloads import AssignedPodSet, ReservedWorkload


@dataclass(slots=True)
class ReservedWorkloads:
    """All workloads that hold quota."""

    options: Options
    hierarchy: Hierarchy
    cluster: Cluster
    pending: PendingWorkloads
    wakes: Wakes
    queues: dict[str, Queue] = field(init=False)
    forest: Forest = field(init=False)
    by_key: dict[Key, ReservedWorkload] = field(default_factory=dict)
    second_passes: dict[Key, ReservedWorkload] = field(default_factory=dict)
    """Workloads whose nodes are to be found, or replaced, in a cycle of their own."""
    not_ready: int = 0
    """The number of workloads whose pods are not all ready."""
    admitted_by_queue: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.queues = self.hierarchy.queues
        self.forest = self.cluster.forest

    def add(self, reserved: ReservedWorkload) -> None:
        """Charge a workload that holds quota to its ClusterQueue, its LocalQueue and its nodes."""
        self.by_key[reserved.key] = reserved
        queue = self.queues.get(reserved.cluster_queue)
        if queue is not None:
            self.charge(queue, reserved)
            self.pending.awake.add(queue)
        reserved.topology = self._topology_usage(reserved)
        self.forest.add(reserved.topology)
        record = self.pending.record(reserved.local_queue)
        record.count(reserved, +1)
        if reserved.admitted:
            self.admitted_by_queue[reserved.cluster_queue] = self.admitted_by_queue.get(reserved.cluster_queue, 0) + 1
        self._count_not_ready(+(not reserved.ready))
        if reserved.second_pass is not None:
            self._note_second_pass(reserved)

    def charge(self, queue: Queue, reserved: ReservedWorkload) -> None:
        """Charge the quota of a ClusterQueue with the usage of a workload."""
        reserved.charges = reserved.charges or queue.charges_of(reserved.assigned)
        queue.add(reserved)
        for quota, _ in reserved.charges:
            if not quota.declared:
                # The queue no longer lists the flavor: its quota node must be linked into the tree.
                self.hierarchy.mark(queue)

    def remove(self, reserved: ReservedWorkload) -> None:
        """Release the quota of a workload, and wake its tree."""
        del self.by_key[reserved.key]
        self.second_passes.pop(reserved.key, None)
        queue = self.queues.get(reserved.cluster_queue)
        if queue is not None:
            queue.remove(reserved)
            self.wakes.add(queue, {quota.key for quota, _ in reserved.charges})
        self.forest.remove(reserved.topology)
        record = self.pending.record(reserved.local_queue)
        record.count(reserved, -1)
        if reserved.admitted:
            self.admitted_by_queue[reserved.cluster_queue] -= 1
        self._count_not_ready(-(not reserved.ready))

    def read(self, workload: PendingWorkload, assigned: tuple[AssignedPodSet, ...], found: Workload) -> None:
        """Add a workload whose object says that it holds quota."""
        assert found.status.admission is not None
        cluster_queue = found.status.admission.cluster_queue
        reserved = ReservedWorkload(workload, cluster_queue, assigned, workloads.reservation_time(found))
        self._note_status(reserved, found)
        reserved.order = reserved.candidate_order()
        reserved.ends_at = workloads.expected_end(found)
        self.add(reserved)

    def update(self, reserved: ReservedWorkload, workload: PendingWorkload, found: Workload) -> None:
        """Update the priority, time and conditions of a workload that holds the same quota as before."""
        queue = self.queues.get(reserved.cluster_queue)
        was_admitted, was_ready, old_priority = reserved.admitted, reserved.ready, reserved.priority
        if workload.priority != old_priority:
            Queue.count_priority(reserved, -1)
            reserved.priority = workload.priority
            Queue.count_priority(reserved, +1)
        if reserved.time != workload.time and queue is not None:
            # A workload may preempt newer workloads of its own priority.
            self.pending.awake.add(queue)
            queue.note_change(reserved)
        reserved.time, reserved.rare = workload.time, workload.rare
        reserved.reserved_at = workloads.reservation_time(found)
        self._note_status(reserved, found)
        self._note_end(reserved, workload.limit, workloads.expected_end(found))
        if reserved.order != reserved.candidate_order():
            if queue is not None:
                queue.reorder(reserved)
                self.pending.awake.add(queue)
            reserved.order = reserved.candidate_order()
        self._note_second_pass(reserved)
        self._count_not_ready(was_ready - reserved.ready)
        if was_admitted != reserved.admitted:
            self._count_admitted(reserved, +1 if reserved.admitted else -1)
        if reserved.priority != old_priority and queue is not None:
            self.wakes.add(queue)

    def reassign(self, reserved: ReservedWorkload, assigned: tuple[AssignedPodSet, ...]) -> None:
        """Replace the assignment of a workload after a second pass. Fewer pods release a part of its quota."""
        queue = self.queues[reserved.cluster_queue]
        record = self.pending.record(reserved.local_queue)
        queue.remove(reserved)
        record.count(reserved, -1)
        self.forest.remove(reserved.topology)
        reserved.assigned, reserved.charges, reserved.second_pass = assigned, queue.charges_of(assigned), None
        reserved.topology = self._topology_usage(reserved)
        queue.add(reserved)
        record.count(reserved, +1)
        self.forest.add(reserved.topology)
        self.second_passes.pop(reserved.key, None)

    def confirm(self, key: Key) -> None:
        """Count a workload that holds quota as admitted, before its object says so."""
        reserved = self.by_key.get(key)
        if reserved is not None and not reserved.admitted:
            reserved.admitted = True
            if reserved.limit is not None:
                self._note_end(reserved, reserved.limit, reserved.reserved_at + reserved.limit)
            self._count_admitted(reserved, +1)

    def forget_eviction(self, reserved: ReservedWorkload) -> None:
        queue = self.queues.get(reserved.cluster_queue)
        if reserved.preempting and queue is not None:
            reserved.preempting = reserved.evicted = False
            queue.reorder(reserved)
            self.pending.awake.add(queue)

    def take_out(self, reserved: ReservedWorkload) -> None:
        """Take the usage of a workload out of quota and nodes. The caller puts it back."""
        for quota, used in reserved.charges:
            quota.charge(-used)
        if reserved.topology:
            self.forest.release(reserved.topology)
        reserved.present = False

    def put_back(self, reserved: ReservedWorkload) -> None:
        for quota, used in reserved.charges:
            quota.charge(used)
        if reserved.topology:
            self.forest.charge(reserved.topology)
        reserved.present = True

    def _note_status(self, reserved: ReservedWorkload, found: Workload) -> None:
        reserved.admitted = workloads.is_admitted(found)
        reserved.evicted = reserved.preempting or workloads.is_evicted(found)
        reserved.ready = workloads.is_ready(found)
        reserved.second_pass = workloads.second_pass(found, self.options)

    def _note_end(self, reserved: ReservedWorkload, limit: int | None, end: float) -> None:
        """Set the maximum execution time and the expected end of a workload that holds quota."""
        reserved.limit = limit
        if reserved.ends_at != end:
            queue = self.queues.get(reserved.cluster_queue)
            if queue is None:
                reserved.ends_at = end
            else:
                queue.move_end(reserved, end)

    def _note_second_pass(self, reserved: ReservedWorkload) -> None:
        if reserved.second_pass is None:
            self.second_passes.pop(reserved.key, None)
        elif reserved.key not in self.second_passes:
            self.second_passes[reserved.key] = reserved
            if (queue := self.queues.get(reserved.cluster_queue)) is not None:
                self.pending.awake.add(queue)

    def _count_admitted(self, reserved: ReservedWorkload, sign: int) -> None:
        name = reserved.cluster_queue
        self.admitted_by_queue[name] = self.admitted_by_queue.get(name, 0) + sign
        Queue.count_admitted(reserved, sign)
        record = self.pending.record(reserved.local_queue)
        record.count_admitted(reserved, sign)
        if sign > 0:
            record.fold_penalty(reserved.key)

    def _count_not_ready(self, change: int) -> None:
        self.not_ready += change
        if change < 0 and not self.not_ready and self.options.block_admission:
            # Readiness of the last admitted workload unblocks the heads of all queues.
            self.pending.awake.update(self.queues.values())

    def _topology_usage(self, reserved: ReservedWorkload) -> tuple[DomainUsage, ...]:
        """Return the usage of nodes by a workload, one entry for each pod set and domain."""
        placed = [(one, one.placement) for one in reserved.assigned if one.placement is not None]
        if not placed:
            return ()
        raw = {pod_set.name: pod_set.raw for pod_set in reserved.shape.pod_sets}
        return tuple(
            DomainUsage(flavor, domain.values, domain.count, raw.get(assigned.name, ()))
            for assigned, placement in placed
            for flavor in sorted({f for f in assigned.flavors.values() if self.cluster.has_topology(f)})[:1]
            for domain in placement.domains
        )
