"""
Who waits where: asks find their queue through their LocalQueue, or wait outside until it leads somewhere.

Called by: state.py. Calls: local_queues.py (counts and past usage); queues.py, through the lines.
Kueue: pkg/cache/queue/manager.go
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from kyu.api.meta import Key
from kyu.api.queues import LocalQueue
from kyu.engine.asks import Ask
from kyu.engine.local_queues import LocalQueueRecord
from kyu.engine.options import Options
from kyu.engine.tree import Queue, TreeNode


@dataclass(slots=True)
class WaitingRoom:
    """All pending workloads."""

    options: Options
    queues: dict[str, Queue]
    asks: dict[Key, Ask] = field(default_factory=dict)
    local_queues: dict[Key, LocalQueueRecord] = field(default_factory=dict)
    awake: set[TreeNode] = field(default_factory=set)
    """Nodes of the trees in which something may be decided."""
    _orphans: dict[Key, dict[Key, Ask]] = field(default_factory=dict)
    """By LocalQueue: who waits for it to exist, or to lead somewhere."""
    _doors: dict[str, set[Key]] = field(default_factory=dict)
    """By ClusterQueue: the LocalQueues that lead to it."""
    _timers: list[tuple[float, Key]] = field(default_factory=list)
    """When backoffs end."""

    # Workloads

    def add(self, ask: Ask) -> None:
        self.asks[ask.key] = ask
        self._enqueue(ask)

    def remove(self, ask: Ask) -> None:
        del self.asks[ask.key]
        outside = self._orphans.get(ask.local_queue) if self._orphans else None
        if outside is not None and outside.pop(ask.key, None) is not None:
            return
        record = self.local_queues[ask.local_queue]
        queue = self.queues[record.cluster_queue]
        queue.line.remove(ask)
        record.pending -= 1
        # Those behind a head that blocked its queue may go on.
        self.awake.add(queue)

    def replace(self, old: Ask, ask: Ask) -> None:
        """The workload has changed. Who waits for its victims to go still comes before everybody, in the same queue."""
        queue = self.find_queue(old)
        sticky = queue is not None and queue.line.sticky is old
        self.remove(old)
        self.add(ask)
        if sticky and queue is not None and queue is self.find_queue(ask) and ask.peers is not None:
            queue.line.stick(ask)

    def find_queue(self, ask: Ask) -> Queue | None:
        """Where the workload waits; None if its LocalQueue leads nowhere."""
        return self._behind(self.local_queues.get(ask.local_queue))

    def _behind(self, record: LocalQueueRecord | None) -> Queue | None:
        return None if record is None or record.stopped else self.queues.get(record.cluster_queue)

    def identity(self, queue: Queue, ask: Ask) -> object:
        """Equal for workloads that share their fate in a queue."""
        if not self.options.scheduling_equivalence_hashing:
            return ask.uid
        if queue.by_usage:
            return (ask.shape, ask.priority, ask.special.allowed_flavor, ask.local_queue)
        return (ask.shape, ask.priority, ask.special.allowed_flavor)

    def _enqueue(self, ask: Ask) -> None:
        record = self.local_queues.get(ask.local_queue)
        queue = self._behind(record)
        if record is None or queue is None:
            self._orphans.setdefault(ask.local_queue, {})[ask.key] = ask
            return
        # There may be a million of them, and they need not have a name of their own for the same thing.
        ask.local_queue = record.key
        record.pending += 1
        if ask.special.requeued and ask.special.requeue_at is None:
            if queue.line.push(ask, identity=self.identity(queue, ask)) or self.options.block_admission:
                self.awake.add(queue)
            return
        queue.line.hold(ask)
        if ask.special.requeue_at is not None:
            heapq.heappush(self._timers, (ask.special.requeue_at, ask.key))

    def end_backoffs(self, now: float) -> None:
        """Let those in whose time has come."""
        while self._timers and self._timers[0][0] <= now:
            _, key = heapq.heappop(self._timers)
            ask = self.asks.get(key)
            queue = self.find_queue(ask) if ask is not None else None
            if ask is not None and queue is not None and key in queue.line.held and ask.special.may_queue(now):
                self.let_in(queue, ask)

    def let_in(self, queue: Queue, ask: Ask) -> None:
        """From the side into the line."""
        queue.line.remove(ask)
        queue.line.push(ask, identity=self.identity(queue, ask))
        self.awake.add(queue)

    def park(self, queue: Queue, ask: Ask) -> None:
        """The head did not fit: it and all like it wait for the next wake-up."""
        queue.line.park(ask)
        if queue.by_usage:
            # Peers are told apart by LocalQueue there, but do not fit whatever theirs is.
            for other in queue.line.firsts():
                if other.shape is ask.shape and other.priority == ask.priority:
                    queue.line.park(other)

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
        """Everybody who came through this LocalQueue waits outside."""
        doors = self._doors.get(record.cluster_queue)
        if doors is None or record.key not in doors:
            return
        doors.discard(record.key)
        for ask in [ask for ask in self.asks.values() if ask.local_queue == record.key]:
            self.remove(ask)
            self.asks[ask.key] = ask
            self._orphans.setdefault(record.key, {})[ask.key] = ask

    def _adopt(self, door: Key) -> None:
        for ask in self._orphans.pop(door, {}).values():
            self._enqueue(ask)

    # ClusterQueues

    def open_queue(self, name: str) -> None:
        """A ClusterQueue came: queue those who waited for it."""
        for door in sorted(self._doors.get(name, ())):
            self._adopt(door)

    def close_queue(self, queue: Queue) -> None:
        """A ClusterQueue goes: those who wait in it wait outside."""
        for ask in queue.line.waiting():
            queue.line.remove(ask)
            self.local_queues[ask.local_queue].pending -= 1
            self._orphans.setdefault(ask.local_queue, {})[ask.key] = ask
        self.awake.discard(queue)

    # Past usage

    def past_usage(self, queue: Queue, local_queue: Key) -> float:
        """What a LocalQueue used in the past, weighed; 0 where that does not matter."""
        rules = self.options.admission_fair_sharing
        record = self.local_queues.get(local_queue)
        if rules is None or record is None or not queue.by_usage:
            return 0.0
        return record.past_usage(rules)

    def order_by_usage(self, queue: Queue) -> Callable[[Ask], float]:
        return lambda ask: self.past_usage(queue, ask.local_queue)

    def sample_usage(self, now: float) -> None:
        rules = self.options.admission_fair_sharing
        if rules is not None:
            for record in self.local_queues.values():
                record.sample(now, rules)

    def note_penalty(self, ask: Ask, queue: Queue) -> None:
        """The workload was just given quota: it counts before the next sample."""
        rules = self.options.admission_fair_sharing
        if rules is None or not queue.by_usage:
            return
        totals = ask.shape.totals()
        if self.options.ignore_undeclared:
            totals = {r: v for r, v in totals.items() if r in queue.group_by_resource}
        self.record(ask.local_queue).add_penalty(ask.key, totals, rules)

    def drop_penalty(self, ask: Ask) -> None:
        self.record(ask.local_queue).penalties.pop(ask.key, None)
