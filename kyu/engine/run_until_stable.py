"""
All cycles of some ClusterQueues until nothing more is decided, without the cycles that cannot matter.

In plain cycles most heads are found inadmissible again, with the answer that they had. An inadmissible class is worth a
retry only if its quota may have become obtainable (``engine/queueing/inadmissible.py``). The cycle in which it becomes
the head is known: as many cycles ahead as classes stand before it. So a run goes from one cycle that matters to the
next. It runs each with all heads that could change its outcome: heads worth a retry, heads that keep their place
(StrictFIFO, pending preemptors), and heads that hold back quota while they wait.

Called by: engine/schedule.py. Calls: engine/cycle.py, engine/queueing/inadmissible.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kyu.engine.cycle import CycleRunner, Head, may_stop_early, ways_of
from kyu.engine.queueing.inadmissible import RetryHeap, Ways
from kyu.engine.queueing.pending_workload import EquivalenceClass, PendingWorkload, resumes
from kyu.engine.state import State
from kyu.engine.tree import Queue
from kyu.engine.workloads import ReservedWorkload

NEVER: Final = 1 << 62


@dataclass(slots=True, eq=False)
class QueueProgress(Head):
    """The progress of one ClusterQueue in a run."""

    state: State = field(kw_only=True)
    each_cycle: bool = False
    """The head takes part in every cycle: its order depends on past usage, or it blocks its queue."""
    retry_heap: RetryHeap = field(init=False)
    keeps_head: bool = False
    """The head stays until it is admitted or inadmissible."""
    due: int = NEVER
    """The cycle in which the next class that is worth a retry is the head."""
    checked: int = 0
    """The number of decisions after which ``due`` was found."""
    at: int = 0
    """The cycle up to which the queue was moved; it is moved only when a head is needed."""
    tried: EquivalenceClass | None = None
    """The class of the head in the last cycle."""
    blocker: EquivalenceClass | None = None
    """The next head, which is not worth a retry but may need several cycles."""
    pending_preemptor: PendingWorkload | None = None
    """The pending preemptor before the last cycle."""

    def __post_init__(self) -> None:
        self.retry_heap = RetryHeap(self.queue.pending, self._ways_of)
        if not self.each_cycle:
            self.retry_heap.collect()

    def _ways_of(self, workload: PendingWorkload) -> Ways:
        return ways_of(self.state, self.queue, workload)

    def look_ahead(self, decisions: int) -> None:
        """Find the next class that is worth a retry, and its cycle. Decisions may have taken obtainable quota."""
        pending = self.queue.pending
        if self.checked != decisions:
            self.checked = decisions
            self.retry_heap.forget_known()
        self.keeps_head = self.each_cycle or pending.has_pending_preemptor
        self.blocker = None
        if self.keeps_head:
            self.due = NEVER if pending.head() is None else 0
            return
        first = self.retry_heap.first()
        if pending.scanning and (first is not None or self.holds_back):
            self.blocker = self._find_blocker(first)
            first = self.blocker or first
        self.due = NEVER if first is None else self.at + pending.turns_before(first)

    def _find_blocker(self, first: EquivalenceClass | None) -> EquivalenceClass | None:
        """Return the earliest class before another that may need more than one cycle to become inadmissible."""
        pending, best = self.queue.pending, first
        for equivalents in pending.scanning:
            place, workload = equivalents.place, equivalents.first
            if place is None or workload is None or pending.is_inadmissible(equivalents):
                continue
            is_earlier = best is None or best.place is None or place < best.place
            if is_earlier and may_stop_early(self.state, self.queue, workload):
                best = equivalents
        return None if best is first else best

    @property
    def holds_back(self) -> bool:
        """The head may hold back quota from others while it waits."""
        return (self.keeps_head or self.queue.policies.reclaim != "Any") and self.queue.pending.head() is not None

    def begin(self, cycle: int) -> None:
        """Find the head of a cycle."""
        pending = self.queue.pending
        self.catch_up(cycle)
        self.entry = None
        self.pending_preemptor = pending.pending_preemptor
        if self.keeps_head or self.due > cycle:
            self.workload = pending.head()
            self.tried = None if self.workload is None else self.workload.equivalents
        else:
            self.tried = self.blocker or self.retry_heap.pop()
            self.workload = self.tried.first
        self.resumed = self.workload is not None and resumes(self.workload)

    def catch_up(self, cycle: int) -> None:
        """Move the queue to a cycle: the heads of skipped cycles become inadmissible again."""
        if cycle > self.at and not self.keeps_head:
            self.queue.pending.skip(cycle - self.at)
        self.at = cycle

    def end(self, decisions: int) -> None:
        """Find the next head that is worth a retry, after a cycle."""
        self.at += 1
        if not self.each_cycle:
            self._retry(self.tried)
            before = self.pending_preemptor
            if before is not None and before is not self.queue.pending.pending_preemptor:
                # The workload may be back in its class, and is then its first workload.
                self._retry(before.equivalents)
        self.look_ahead(decisions)

    def _retry(self, equivalents: EquivalenceClass | None) -> None:
        if equivalents is not None:
            self.retry_heap.add(equivalents)

    def repeats(self, runner: CycleRunner) -> bool:
        """Return whether the head would get the same answer again; not if it lost to another entry."""
        head = self.queue.pending.head()
        if head is None or head is not self.workload:
            return head is self.workload
        return head.key not in runner.lost and not self.resumed and not resumes(head)

    def looks(self, cycle: int) -> object:
        """Return the values that the next cycle of the queue depends on, as long as nothing is decided."""
        pending = self.queue.pending
        head = pending.head()
        memory = head.memory.last_tried if head is not None and head.memory is not None else ()
        due = None if self.due == NEVER else max(0, self.due - cycle)
        return (head and head.uid, repr(memory), pending.passed, due)

    def close(self, cycle: int) -> None:
        """End the run. Classes that are still worth a retry are tried next time; without any, all are inadmissible."""
        pending = self.queue.pending
        if not self.retry_heap and not self.keeps_head:
            pending.skip_all()
            return
        self.catch_up(cycle)
        self.retry_heap.close()


@dataclass(slots=True)
class StableRun:
    """All cycles of some ClusterQueues."""

    runner: CycleRunner
    queues: list[Queue]
    progresses: list[QueueProgress] = field(default_factory=list)
    number: int = 0
    """The number of the cycle, skipped ones included."""
    decisions: int = 0
    """The number of cycles in which a workload was admitted, preempted or evicted."""
    seen: set[tuple[object, ...]] = field(default_factory=set)
    """The ``looks`` of cycles without a change, since the last change."""

    def run(self) -> None:
        """Run all cycles that matter."""
        self._line_up()
        second = self._second_passes()
        while self._go_on(at_once=bool(second)) and self._run_cycle(second):
            second = self._second_passes()
        for progress in self.progresses:
            progress.close(self.number)

    def _line_up(self) -> None:
        hashing = self.runner.state.options.scheduling_equivalence_hashing
        for queue in self.queues:
            pending = queue.pending
            if not pending.size or not queue.active:
                continue
            each_cycle = queue.strict or queue.by_usage or not hashing
            if not (each_cycle or pending.may_have_news or queue.policies.reclaim != "Any"):
                pending.skip_all()
                continue
            progress = QueueProgress(queue, state=self.runner.state, each_cycle=each_cycle)
            progress.look_ahead(0)
            if progress.due < NEVER or progress.holds_back:
                self.progresses.append(progress)
            else:
                pending.skip_all()

    def _second_passes(self) -> list[ReservedWorkload]:
        state = self.runner.state
        if not state.reserved.second_passes:
            return []
        names = {queue.name for queue in self.queues if queue.active}
        return [r for r in state.reserved.second_passes.values() if r.cluster_queue in names and not r.evicted]

    def _go_on(self, *, at_once: bool) -> bool:
        """Move to the next cycle in which some head is worth a retry; return False if there is none."""
        while True:
            nearest = min([progress.due for progress in self.progresses], default=NEVER)
            if at_once or nearest < self.number:
                nearest = self.number
            if nearest == NEVER:
                return False
            found = at_once
            for progress in self.progresses:
                if progress.due <= nearest:
                    if progress.checked != self.decisions and not progress.keeps_head:
                        progress.look_ahead(self.decisions)
                    found = found or progress.due <= nearest
            if found:
                # The cycles between would decide nothing.
                self.runner.state.cycles += nearest - self.number
                self.number = nearest
                return True

    def _run_cycle(self, second: list[ReservedWorkload]) -> bool:
        """Run one cycle with all heads that matter; return False when further cycles would repeat earlier ones."""
        chosen = [p for p in self.progresses if p.due <= self.number or p.holds_back]
        for progress in chosen:
            progress.begin(self.number)
        self.runner.run_cycle(chosen, second)
        self.number += 1
        self.decisions += self.runner.decided
        for progress in chosen:
            progress.end(self.decisions)
        return not self.runner.result.blocked and self._changes_something(chosen)

    def _changes_something(self, chosen: list[QueueProgress]) -> bool:
        if self.runner.decided or self.runner.reordered:
            self.seen.clear()
            settled = self.runner.sole_preemptor(self.queues)
            for progress in self.progresses:
                if progress.keeps_head:
                    progress.look_ahead(self.decisions)
                    if progress.workload is settled is not None and self._stays_first(progress):
                        progress.due = NEVER
            return True
        if self.runner.inadmissible:
            self.seen.clear()
        for progress in chosen:
            if progress.keeps_head and progress.repeats(self.runner) and self._stays_first(progress):
                progress.due = NEVER
        signature = tuple([progress.looks(self.number) for progress in self.progresses])
        if signature in self.seen:
            return False
        self.seen.add(signature)
        return True

    def _stays_first(self, progress: QueueProgress) -> bool:
        """
        Return whether no later head that holds back quota could be processed before this head.

        Such a head may take the quota of the preempted workloads; the preemptor then has other targets.
        """
        coming = [other.queue.pending.head() for other in self.progresses if not other.keeps_head and other.holds_back]
        if not coming:
            return True
        if progress.workload is None or progress.entry is None or progress.entry.level > 0:
            return False
        if not self.runner.state.options.priority_sorting_within_cohort:
            return False
        # No workload of a queue has a higher priority than its head.
        return all(head is not None and head.priority < progress.workload.priority for head in coming)
