"""
All pending workloads, and the ClusterQueue of each, which its LocalQueue names.

A workload is an orphan, in no queue, while its LocalQueue or ClusterQueue does not exist or the LocalQueue is stopped.

Called by: engine/state.py. Calls: engine/local_queues.py (counts and past usage);
engine/queueing/pending_queue.py, through the ClusterQueues. Kueue: pkg/cache/queue/manager.go
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from kyu.api.meta import Key
from kyu.api.queues import LocalQueue
from kyu.engine.local_queues import LocalQueueRecord
from kyu.engine.options import Options
from kyu.engine.queueing.pending_workload import PendingWorkload
from kyu.engine.tree import Queue, TreeNode


@dataclass(slots=True)
class PendingWorkloads:
    """All pending workloads."""

    options: Options
    queues: dict[str, Queue]
    workloads: dict[Key, PendingWorkload] = field(default_factory=dict)
    local_queues: dict[Key, LocalQueueRecord] = field(default_factory=dict)
    awake: set[TreeNode] = field(default_factory=set)
    """Nodes of the trees that the next cycle visits."""
    _orphans: dict[Key, dict[Key, PendingWorkload]] = field(default_factory=dict)
    """By LocalQueue: workloads whose LocalQueue or ClusterQueue does not exist, or is stopped."""
    _doors: dict[str, set[Key]] = field(default_factory=dict)
    """By ClusterQueue: the LocalQueues that name it."""
    _timers: list[tuple[float, Key]] = field(default_factory=list)
    """A heap of the times at which backoffs end."""

    # Workloads

    def add(self, workload: PendingWorkload) -> None:
        self.workloads[workload.key] = workload
        self._enqueue(workload)

    def remove(self, workload: PendingWorkload) -> None:
        del self.workloads[workload.key]
        outside = self._orphans.get(workload.local_queue) if self._orphans else None
        if outside is not None and outside.pop(workload.key, None) is not None:
            return
        record = self.local_queues[workload.local_queue]
        queue = self.queues[record.cluster_queue]
        queue.pending.remove(workload)
        record.pending -= 1
        # If the workload was a head that blocked its queue, the next head can be tried.
        self.awake.add(queue)

    def replace(self, old: PendingWorkload, workload: PendingWorkload) -> None:
        """Replace a workload that has changed. A pending preemptor stays one if its queue is the same."""
        queue = self.find_queue(old)
        pending_preemptor = queue is not None and queue.pending.pending_preemptor is old
        self.remove(old)
        self.add(workload)
        if (
            pending_preemptor
            and queue is not None
            and queue is self.find_queue(workload)
            and workload.equivalents is not None
        ):
            queue.pending.make_pending_preemptor(workload)

    def find_queue(self, workload: PendingWorkload) -> Queue | None:
        """Return the ClusterQueue of a workload; None if it is an orphan."""
        return self._behind(self.local_queues.get(workload.local_queue))

    def _behind(self, record: LocalQueueRecord | None) -> Queue | None:
        return None if record is None or record.stopped else self.queues.get(record.cluster_queue)

    def identity(self, queue: Queue, workload: PendingWorkload) -> object:
        """Return the identity of a workload's equivalence class in a queue."""
        if not self.options.scheduling_equivalence_hashing:
            return workload.uid
        if queue.by_usage:
            return (workload.shape, workload.priority, workload.rare.allowed_flavor, workload.local_queue)
        if queue.backfills:
            return (workload.shape, workload.priority, workload.rare.allowed_flavor, workload.limit)
        return (workload.shape, workload.priority, workload.rare.allowed_flavor)

    def _enqueue(self, workload: PendingWorkload) -> None:
        record = self.local_queues.get(workload.local_queue)
        queue = self._behind(record)
        if record is None or queue is None:
            self._orphans.setdefault(workload.local_queue, {})[workload.key] = workload
            return
        # A million workloads may share one LocalQueue; sharing its key saves memory.
        workload.local_queue = record.key
        record.pending += 1
        if workload.rare.requeued and workload.rare.requeue_at is None:
            if queue.pending.push(workload, identity=self.identity(queue, workload)) or self.options.block_admission:
                self.awake.add(queue)
            return
        queue.pending.hold(workload)
        if workload.rare.requeue_at is not None:
            heapq.heappush(self._timers, (workload.rare.requeue_at, workload.key))

    def end_backoffs(self, now: float) -> None:
        """Queue the workloads whose backoff has ended."""
        while self._timers and self._timers[0][0] <= now:
            _, key = heapq.heappop(self._timers)
            workload = self.workloads.get(key)
            queue = self.find_queue(workload) if workload is not None else None
            if (
                workload is not None
                and queue is not None
                and key in queue.pending.held
                and workload.rare.may_queue(now)
            ):
                self.let_in(queue, workload)

    def let_in(self, queue: Queue, workload: PendingWorkload) -> None:
        """Queue a workload that was inadmissible alone."""
        queue.pending.remove(workload)
        queue.pending.push(workload, identity=self.identity(queue, workload))
        self.awake.add(queue)

    def mark_inadmissible(self, queue: Queue, workload: PendingWorkload) -> None:
        """Make a head and all equivalent workloads inadmissible until the next wake-up."""
        queue.pending.mark_inadmissible(workload)
        if queue.by_usage:
            # Each LocalQueue has a class of its own there, but the answer does not depend on the LocalQueue.
            for other in queue.pending.firsts():
                if other.shape is workload.shape and other.priority == workload.priority:
                    queue.pending.mark_inadmissible(other)

    # LocalQueues

    def record(self, key: Key) -> LocalQueueRecord:
        record = self.local_queues.get(key)
        if record is None:
            record = self.local_queues[key] = LocalQueueRecord(key)
        return record

    def put_local_queue(self, found: LocalQueue) -> None:
        record = self.record(found.key)
        probe = LocalQueueRecord(found.key)
        probe.read(found)
        moved = (record.cluster_queue, record.stopped) != (probe.cluster_queue, probe.stopped)
        if moved:
            self._detach(record)
        record.read(found)
        if moved:
            self._doors.setdefault(record.cluster_queue, set()).add(record.key)
            self._adopt(record.key)

    def delete_local_queue(self, key: Key) -> None:
        record = self.local_queues.get(key)
        if record is not None:
            self._detach(record)
            record.cluster_queue = ""

    def _detach(self, record: LocalQueueRecord) -> None:
        """Make the workloads of a LocalQueue orphans."""
        doors = self._doors.get(record.cluster_queue)
        if doors is None or record.key not in doors:
            return
        doors.discard(record.key)
        for workload in [workload for workload in self.workloads.values() if workload.local_queue == record.key]:
            self.remove(workload)
            self.workloads[workload.key] = workload
            self._orphans.setdefault(record.key, {})[workload.key] = workload

    def _adopt(self, door: Key) -> None:
        for workload in self._orphans.pop(door, {}).values():
            self._enqueue(workload)

    # ClusterQueues

    def open_queue(self, name: str) -> None:
        """Queue the orphans of a new ClusterQueue."""
        for door in sorted(self._doors.get(name, ())):
            self._adopt(door)

    def close_queue(self, queue: Queue) -> None:
        """Make the workloads of a deleted ClusterQueue orphans."""
        for workload in queue.pending.waiting():
            queue.pending.remove(workload)
            self.local_queues[workload.local_queue].pending -= 1
            self._orphans.setdefault(workload.local_queue, {})[workload.key] = workload
        self.awake.discard(queue)

    # Past usage

    def past_usage(self, queue: Queue, local_queue: Key) -> float:
        """Return the weighted past usage of a LocalQueue; 0 if the queue is not ordered by it."""
        rules = self.options.admission_fair_sharing
        record = self.local_queues.get(local_queue)
        if rules is None or record is None or not queue.by_usage:
            return 0.0
        return record.past_usage(rules)

    def order_by_usage(self, queue: Queue) -> Callable[[PendingWorkload], float]:
        return lambda workload: self.past_usage(queue, workload.local_queue)

    def sample_usage(self, now: float) -> None:
        rules = self.options.admission_fair_sharing
        if rules is not None:
            for record in self.local_queues.values():
                record.sample(now, rules)

    def note_penalty(self, workload: PendingWorkload, queue: Queue) -> None:
        """Add the penalty of a workload that just got quota, so that it counts before the next sample."""
        rules = self.options.admission_fair_sharing
        if rules is None or not queue.by_usage:
            return
        totals = workload.shape.totals()
        if self.options.ignore_undeclared:
            totals = {r: v for r, v in totals.items() if r in queue.group_by_resource}
        self.record(workload.local_queue).add_penalty(workload.key, totals, rules)

    def drop_penalty(self, workload: PendingWorkload) -> None:
        self.record(workload.local_queue).penalties.pop(workload.key, None)
