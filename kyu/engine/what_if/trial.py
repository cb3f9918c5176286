"""
A trial: change objects, let the scheduler decide until nothing more changes, look, and undo everything.

No state is copied. Each step notes how it is undone: an object is put back, an admission returns to its queue, and a
preempted workload gets back the quota that it held. A preempted workload stops at once in a trial, and queues again.

Use it on a state of your own. After a trial, quota, workloads and queues are as before; the notes which classes are
inadmissible are made anew by the next cycle.

Called by: engine/what_if/counterfactuals.py, engine/what_if/forecast.py. Calls: engine/schedule.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Self

from kyu.api.meta import Key, Object
from kyu.api.workloads import Workload
from kyu.engine.decisions import Admit, Cycle, Evict, Preempt
from kyu.engine.queueing.pending_workload import PendingWorkload
from kyu.engine.quota.amounts import FlavorResource
from kyu.engine.schedule import schedule
from kyu.engine.state import State
from kyu.engine.tree import Queue
from kyu.engine.workloads import AFTER_PREEMPTION, ReservedWorkload

# The most rounds of preemption at one moment, because ClusterQueues can preempt each other for ever.
MOST_ROUNDS: Final = 20


def requeue_time(state: State, preempted: Preempt, now: float) -> float | None:
    """Return the time from which a preempted workload queues, or None if it keeps its place."""
    by_borrower = preempted.reason == "InCohortReclaimWhileBorrowing"
    keeps_its_place = not by_borrower or state.options.priority_sorting_within_cohort
    return None if keeps_its_place else now + AFTER_PREEMPTION


@dataclass(slots=True)
class StateTrial:
    """The changes of a what-if, and how to undo them. Use it as a context manager."""

    state: State
    now: float
    """Seconds since 1970."""
    preempted: list[Preempt] = field(default_factory=list)
    admitted: list[Admit] = field(default_factory=list)
    _undo: list[Callable[[], None]] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for step in reversed(self._undo):
            step()
        self._undo.clear()

    def put(self, new: Object, old: Object) -> None:
        """Change an object."""
        self._undo.append(lambda: self._put_back(old))
        if isinstance(new, Workload):
            # A pending preemptor stays one when it is updated, but its targets are those of the old object.
            self.state.delete(Workload.KIND, new.key)
        self.state.put(new)

    def _put_back(self, old: Object) -> None:
        if isinstance(old, Workload):
            self.state.delete(Workload.KIND, old.key)
        self.state.put(old)

    def grow(self, cluster_queue: str, amounts: Mapping[FlavorResource, int]) -> None:
        """
        Let a ClusterQueue use so much less of its quota than it does, as if its nominal quota had grown.

        Rules compare usage with quota, so both are the same, except for workloads that exceed all quota. This wakes
        only the workloads that wait for the quota, where a changed ClusterQueue wakes its whole tree.
        """
        queue = self.state.queues[cluster_queue]
        for key, amount in amounts.items():
            queue.quota(key).charge(-amount)
        self.state.wakes.add(queue, set(amounts))
        self._undo.append(lambda: self._shrink(queue, amounts))

    @staticmethod
    def _shrink(queue: Queue, amounts: Mapping[FlavorResource, int]) -> None:
        for key, amount in amounts.items():
            queue.quota(key).charge(amount)

    def end(self, reserved: ReservedWorkload) -> None:
        """End a workload that holds quota."""
        self.state.reserved.remove(reserved)
        self._undo.append(lambda: self._restore(reserved))

    def run(self) -> None:
        """Let the scheduler decide until no preempted workload queues again."""
        seen: set[frozenset[Key]] = set()
        for _ in range(MOST_ROUNDS):
            if not self._carry_out(self._schedule()):
                return
            holders = frozenset(self.state.reserved.by_key)
            if holders in seen:
                return
            seen.add(holders)

    def holds_quota(self, key: Key) -> bool:
        """Return whether a workload holds quota now."""
        return key in self.state.reserved.by_key

    def stop_evicted(self, inactive: Iterable[Key] = ()) -> None:
        """Release the quota of workloads that are being evicted. Inactive ones do not queue again."""
        gone = set(inactive)
        for reserved in [r for r in self.state.reserved.by_key.values() if r.evicted]:
            if reserved.key in gone:
                self.end(reserved)
            else:
                self._release(reserved, None)

    def _schedule(self) -> Cycle:
        elastic = self.state.options.elastic_jobs_via_workload_slices
        slices = dict(self.state.reserved.by_key) if elastic else {}
        cycle = schedule(self.state, datetime.fromtimestamp(self.now, UTC))
        for decision in cycle.admitted():
            if decision.second_pass:
                continue
            self.admitted.append(decision)
            if decision.replaces is not None and (replaced := slices.get(decision.replaces)) is not None:
                self._undo.append(lambda reserved=replaced: self._restore(reserved))  # type: ignore[misc]
            self._note_admission(decision.key)
        return cycle

    def _note_admission(self, key: Key) -> None:
        reserved, workload = self.state.reserved.by_key[key], self.state.assumed_workload(key)

        def undo() -> None:
            self.state.reserved.remove(reserved)
            self._queue_again(workload)

        self._undo.append(undo)

    def _queue_again(self, workload: PendingWorkload) -> None:
        self.state.forget_assumed(workload)
        self.state.pending.add(workload)

    def _carry_out(self, cycle: Cycle) -> bool:
        """Stop the workloads that are preempted or evicted; return whether there are any."""
        leaving: dict[Key, float | None] = {}
        preemptors: set[Key] = set()
        for decision in cycle.decisions:
            if isinstance(decision, Preempt):
                self.preempted.append(decision)
                preemptors.add(decision.preemptor)
                leaving[decision.victim] = requeue_time(self.state, decision, self.now)
            elif isinstance(decision, Evict):
                leaving[decision.key] = None
        for key in preemptors:
            self._undo.append(lambda key=key: self._forget_preemptor(key))  # type: ignore[misc]
        for key, queued_at in leaving.items():
            reserved = self.state.reserved.by_key.get(key)
            if reserved is not None:
                self._release(reserved, queued_at)
        return bool(leaving)

    def _forget_preemptor(self, key: Key) -> None:
        """Queue a workload anew that preempts in the trial, as it has no targets outside of it."""
        workload = self.state.pending.workloads.get(key)
        if workload is not None:
            self.state.pending.remove(workload)
            self.state.pending.add(workload)

    def _release(self, reserved: ReservedWorkload, queued_at: float | None) -> None:
        self.state.release(reserved.key, queued_at=queued_at)
        self._undo.append(lambda: self._hold_again(reserved))

    def _hold_again(self, reserved: ReservedWorkload) -> None:
        self.state.pending.remove(self.state.pending.workloads[reserved.key])
        reserved.evicted = reserved.preempting = False
        reserved.order = reserved.candidate_order()
        self._restore(reserved)

    def _restore(self, reserved: ReservedWorkload) -> None:
        self.state.reserved.add(reserved)
