"""
One scheduling cycle over the heads of some ClusterQueues: nominate them, order them, process them, requeue them.

Each head is nominated by itself (``engine/nominate.py``). Then the entries are processed in order, and each sees what
the entries before it took (``engine/commit.py``). A workload that was not admitted goes back to its queue, or becomes
inadmissible until something changes.

Called by: engine/schedule.py, engine/run_until_stable.py. Calls: engine/nominate.py, engine/commit.py.
Kueue: pkg/scheduler/scheduler.go (schedule, requeueAndUpdate), pkg/cache/queue (requeue)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from kyu.api.meta import Key
from kyu.engine import shares
from kyu.engine.commit import AsNominated, Commit, Outcome, Requeue
from kyu.engine.decisions import Cycle, Wait
from kyu.engine.flavors.assignment import Assignment, Mode
from kyu.engine.flavors.compiled import changes_of, find_compiled
from kyu.engine.nominate import Nomination, nominate, nominate_again, why_not_nominated
from kyu.engine.preemption.candidates import PreemptionTarget
from kyu.engine.queueing import inadmissible
from kyu.engine.queueing.inadmissible import Ways
from kyu.engine.queueing.pending_workload import NO_RARE_FIELDS, PendingWorkload
from kyu.engine.reasons import Deferred, NamespaceMismatch, Reason, Skipped, WaitsForPreempted
from kyu.engine.shares import Contender
from kyu.engine.state import State
from kyu.engine.tree import CohortNode, Queue
from kyu.engine.workloads import ReservedWorkload

# The most nominations that are kept for a ClusterQueue.
MOST_KNOWN: Final = 8


@dataclass(slots=True, eq=False)
class Head:
    """The head of a ClusterQueue in a cycle."""

    queue: Queue
    workload: PendingWorkload | None = None
    entry: Nomination | None = None
    """The nomination of the head in the last cycle."""
    resumed: bool = False
    """The scan tried only flavors after a remembered one."""


class LastNomination(NamedTuple):
    """The nomination of a head, kept for the next cycle."""

    changes: int
    """The changes of the quotas that it depends on, counted when it was made."""
    assignment: Assignment
    targets: Sequence[PreemptionTarget]


def heads_of(queues: Iterable[Queue]) -> list[Head]:
    """Return the head of every active ClusterQueue that has one."""
    found = (Head(queue, queue.pending.head()) for queue in queues if queue.active)
    return [head for head in found if head.workload is not None]


@dataclass(slots=True)
class CycleRunner:
    """A runner of cycles, which adds their decisions to one result. Other fields hold for the last cycle."""

    state: State
    now: float
    result: Cycle = field(default_factory=Cycle)
    commit: Commit = field(init=False)
    lost: set[Key] = field(default_factory=set)
    """Workloads that would have fitted without an entry before them."""
    inadmissible: bool = False
    """Some workload became inadmissible."""
    preempting: list[Nomination] = field(default_factory=list)
    """Entries that preempt other workloads, or still wait until their targets have stopped."""
    reordered: bool = False
    """A workload became a preemptor, which may come first from the next cycle on."""
    _parked: list[Nomination] = field(default_factory=list)
    """Entries that became inadmissible with their equivalence class."""

    def __post_init__(self) -> None:
        self.commit = Commit(self.state, self.result.decisions)

    @property
    def decided(self) -> bool:
        """A workload was admitted, preempted or evicted."""
        return self.commit.decided

    def run_cycle(self, heads: Sequence[Head], second_passes: Sequence[ReservedWorkload] = ()) -> None:
        """Run one cycle over these heads, and over workloads that hold quota and need a placement."""
        self._begin()
        forest = self.state.forest
        mark = forest.mark()
        try:
            entries = [e for r in second_passes if (e := self._nominate_again(r))] if second_passes else []
            for head in heads:
                if head.workload is not None:
                    head.entry = self._nominate(head.queue, head.workload)
                    if head.entry is not None:
                        entries.append(head.entry)
            self._process_all(entries)
        finally:
            forest.undo(mark)
        self._finish()

    def admit_alone(self, queue: Queue, workload: PendingWorkload, permits: Callable[[Nomination], bool]) -> bool:
        """Admit a workload in a cycle of its own, if it fits without preemption and is permitted; return whether."""
        self._begin()
        forest = self.state.forest
        mark = forest.mark()
        try:
            if why_not_nominated(self.state, queue, workload) is None:
                entry = nominate_unless_known(self.state, queue, workload)
                if entry.assignment.mode == Mode.FIT and permits(entry):
                    self._process_all([entry])
        finally:
            forest.undo(mark)
        self._finish()
        return self.decided

    def _begin(self) -> None:
        self.result.cycles += 1
        self.lost.clear()
        self.inadmissible = self.reordered = False
        self.preempting.clear()
        self.commit.begin()

    def _process_all(self, entries: list[Nomination]) -> None:
        """Process the entries in order. Quota and room that they hold during the cycle are released in the end."""
        try:
            for entry in self._in_order(entries):
                if self.commit.blocked:
                    break
                outcome = self.commit.process(entry)
                if outcome is not None:
                    self._requeue_entry(entry, outcome)
        finally:
            self.commit.take_back()

    def sole_preemptor(self, queues: Iterable[Queue]) -> PendingWorkload | None:
        """
        Return the preemptor of this cycle, if the cycle decided nothing but its preemption.

        In the next cycle it would have the same targets: evicted candidates come first, it needs all of them, and
        without them it fits. With other evicted workloads, or other flavors, its targets might differ.
        """
        if len(self.preempting) != 1 or self.commit.admitted:
            return None
        (entry,) = self.preempting
        if not entry.is_repeatable:
            return None
        leaving = 0
        for queue in queues:
            if queue.has_evicted:
                leaving += len(queue.held(evicted=True))
        return entry.workload if leaving == len(entry.targets) else None

    # Step 3: nominate

    def _nominate(self, queue: Queue, workload: PendingWorkload) -> Nomination | None:
        problem = why_not_nominated(self.state, queue, workload)
        if problem is None:
            return nominate_unless_known(self.state, queue, workload)
        requeue = Requeue.ALONE_ALWAYS if isinstance(problem, NamespaceMismatch) else Requeue.ALONE
        self._requeue(queue, workload, problem, requeue, scan_pending=False)
        return None

    def _nominate_again(self, reserved: ReservedWorkload) -> Nomination | None:
        queue = self.state.queues.get(reserved.cluster_queue)
        if queue is None or not queue.active or reserved.evicted or self.state.cluster.is_dispatched(queue):
            return None
        return nominate_again(self.state, queue, reserved)

    # Step 4: order

    def _in_order(self, entries: list[Nomination]) -> Iterable[Nomination]:
        if self.state.options.fair_sharing:
            return self._fair_order(entries)
        return sorted(entries, key=self._classical_rank) if len(entries) > 1 else entries

    def _classical_rank(self, entry: Nomination) -> tuple[object, ...]:
        options, queue, workload = self.state.options, entry.queue, entry.workload
        return (
            entry.moving is None,
            options.prioritize_preemptor_workloads and queue.pending.preemptor is not workload,
            entry.assignment.level,
            -workload.priority if options.priority_sorting_within_cohort else 0,
            workload.time,
            queue.name,
            workload.uid,
        )

    def _fair_order(self, entries: list[Nomination]) -> Iterator[Nomination]:
        """Yield the winner of a tournament for each next place. The usage of earlier winners counts."""
        remaining = {entry.queue: entry for entry in entries}
        while remaining:
            first = next(iter(remaining))
            root = first.root
            if not isinstance(root, CohortNode):
                yield remaining.pop(first)
                continue
            contenders = {
                queue: Contender(
                    queue, entry.workload, entry.assignment.usage, queue.pending.preemptor is entry.workload
                )
                for queue, entry in remaining.items()
                if queue.root is root
            }
            yield remaining.pop(shares.winner(root, contenders, self.state.options).queue)

    # Step 6: requeue

    def _requeue_entry(self, entry: Nomination, outcome: Outcome) -> None:
        workload, assignment = entry.workload, entry.assignment
        if entry.moving is not None:
            told = entry.reason() if isinstance(outcome.reason, AsNominated) else outcome.reason
            self._wait(entry.queue, workload, told, inadmissible=False)
            return
        # After a scan of all flavors, the next scan starts with the first flavor.
        scan_pending = outcome.keeps_memory and assignment.is_scan_pending
        workload.memory = assignment.memory(self.state, entry.queue, workload) if scan_pending else None
        scan_pending = workload.memory is not None and workload.memory.pending
        if isinstance(outcome.reason, Skipped | Deferred):
            self.lost.add(workload.key)
        elif outcome.requeue is Requeue.PREEMPTING:
            self.preempting.append(entry)
        reason: Reason | None
        if isinstance(outcome.reason, AsNominated):
            reason = None if self._is_told(entry) else entry.reason()
        else:
            reason = outcome.reason
        parked = self._requeue(entry.queue, workload, reason, outcome.requeue, scan_pending=scan_pending)
        if parked and outcome.requeue is Requeue.WITH_EQUIVALENTS:
            self._parked.append(entry)

    @staticmethod
    def _is_told(entry: Nomination) -> bool:
        """Return whether the reason why a workload waits is known from an earlier cycle."""
        equivalents = entry.workload.equivalents
        if equivalents is not None:
            return bool(equivalents.wake_conditions) and equivalents.reason is None and not entry.targets
        known = entry.queue.pending.reasons.get(entry.workload.key)
        return isinstance(known, WaitsForPreempted) and known.count == len(entry.targets)

    def _requeue(
        self,
        queue: Queue,
        workload: PendingWorkload,
        reason: Reason | None,
        requeue: Requeue,
        *,
        scan_pending: bool,
    ) -> bool:
        """
        Put a workload back, by the queueing strategy, and return whether it is inadmissible.

        The reason is None if it is known from an earlier cycle.
        """
        pending = queue.pending
        stays = scan_pending or (queue.strict and requeue is not Requeue.ALONE_ALWAYS)
        parked = requeue in (Requeue.WITH_EQUIVALENTS, Requeue.ALONE, Requeue.ALONE_ALWAYS) and not stays
        if requeue is Requeue.PREEMPTING:
            if pending.preemptor is not workload:
                pending.preemptor = workload
                self.reordered = self.reordered or self.state.options.prioritize_preemptor_workloads
            if not queue.strict:
                pending.make_pending_preemptor(workload)
        elif parked and requeue is Requeue.WITH_EQUIVALENTS:
            self.state.pending.mark_inadmissible(queue, workload)
        elif parked:
            pending.mark_inadmissible_alone(workload)
        if reason is not None:
            pending.note_reason(workload, reason)
            self._wait(queue, workload, reason, inadmissible=parked)
        self.inadmissible = self.inadmissible or parked
        return parked

    def _wait(self, queue: Queue, workload: PendingWorkload, reason: Reason, *, inadmissible: bool) -> None:
        self.result.decisions.append(Wait(workload.key, queue.name, reason, inadmissible))

    # After the cycle

    def _finish(self) -> None:
        """Assume the admissions, and remember the wake conditions of workloads that became inadmissible."""
        state, commit = self.state, self.commit
        for entry, assigned, charges in commit.admitted:
            if entry.moving is not None:
                state.reserved.reassign(entry.moving, assigned)
                continue
            reserved = ReservedWorkload(entry.workload, entry.queue.name, assigned, self.now)
            reserved.charges = charges
            if reserved.limit is not None and entry.queue.spec.admission_checks_strategy is not None:
                # The time runs from the admission, which the checks decide.
                reserved.ends_at = inf
            if entry.replaced is not None:
                state.reserved.remove(entry.replaced)
            state.assume(entry.workload, reserved, first=True)
        # A workload that is nominated from now on is nominated for the next cycle.
        state.cycles += 1
        self.result.blocked = commit.blocked
        for entry in self._parked:
            if entry.workload.equivalents is not None:
                wait_for_quota(state, entry.queue, entry.workload)
        self._parked.clear()


def nominate_unless_known(state: State, queue: Queue, workload: PendingWorkload) -> Nomination:
    """Nominate a head, or return its last nomination if no quota that it depends on has changed since."""
    shape, known = workload.shape, queue.pending.nominations
    if (
        workload.memory is not None
        or workload.rare is not NO_RARE_FIELDS
        or (queue.placed or shape.wants_topology or queue.by_usage)
    ):
        return nominate(state, queue, workload)
    changes = changes_of(find_compiled(state, queue, shape))
    last = known.get(workload)
    if last is not None and last.changes == changes:
        return Nomination(queue, workload, last.assignment, targets=last.targets)
    entry = nominate(state, queue, workload)
    if len(known) >= MOST_KNOWN:
        known.clear()
    known[workload] = LastNomination(changes, entry.assignment, entry.targets)
    return entry


def wait_for_quota(state: State, queue: Queue, workload: PendingWorkload) -> None:
    """Remember the quota that must become obtainable before an inadmissible workload is worth a retry."""
    pending, equivalents = queue.pending, workload.equivalents
    assert equivalents is not None
    amounts = None
    if workload.rare.replaces is None:
        compiled = find_compiled(state, queue, workload.shape, None, workload.rare.allowed_flavor)
        scans = bool(compiled.early_stops)
        if not scans or queue.spec.flavor_fungibility.when_can_preempt == "TryNextFlavor":
            ways = ways_of(state, queue, workload)
            amounts = inadmissible.find_wake_conditions(ways, pending.obtainable, workload.priority)
            pending.wait_for(equivalents, amounts, scans=scans)
            return
    pending.wait_for(equivalents, amounts)


def ways_of(state: State, queue: Queue, workload: PendingWorkload) -> Ways:
    """Return the total charges of each combination of flavors, for the smallest number of pods that is allowed."""
    shape = workload.shape
    counts = None
    if shape.can_shrink and state.options.partial_admission:
        counts = [p.count if p.min_count is None else min(p.count, p.min_count) for p in shape.pod_sets]
    return find_compiled(state, queue, shape, counts, workload.rare.allowed_flavor).ways


def may_stop_early(state: State, queue: Queue, workload: PendingWorkload) -> bool:
    """Return whether a scan may stop before the last flavor, so that the next cycle continues it."""
    compiled = find_compiled(state, queue, workload.shape, None, workload.rare.allowed_flavor)
    for charges in compiled.early_stops:
        for quota, amount in charges:
            if quota.fit_level(amount) < 0:
                break
        else:
            return True
    return False
