"""
Step 5 of a cycle: process the entries in order. The usage of earlier entries counts.

Earlier entries may have taken quota, room or targets since the nomination. So each entry is checked again, and
nominated again if it shares targets with another entry. Then it is admitted, issues its preemptions, or waits. When the
cycle ends, quota and room that entries held are released, except for admissions.

Called by: engine/cycle.py. Calls: engine/nominate.py, engine/quota/amounts.py.
Kueue: pkg/scheduler/scheduler.go (processEntry)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from kyu.api.meta import Key
from kyu.engine import nominate, variants
from kyu.engine.decisions import Admit, Decision, Evict, Preempt
from kyu.engine.flavors.assignment import Mode
from kyu.engine.flavors.compiled import Charge
from kyu.engine.nominate import Nomination
from kyu.engine.preemption.candidates import PreemptionTarget
from kyu.engine.quota import amounts
from kyu.engine.quota.amounts import QuotaNode
from kyu.engine.reasons import (
    BetterVariant,
    Deferred,
    Gated,
    Migrates,
    MigrationForbidden,
    Reason,
    Skipped,
    WaitsForPodsReady,
)
from kyu.engine.state import State
from kyu.engine.tree import Queue
from kyu.engine.workloads import AssignedPodSet, ReservedWorkload


class Requeue(Enum):
    """The place to which a workload returns that was not admitted."""

    AT_ONCE = auto()
    """Back to the queue."""
    PREEMPTING = auto()
    """Back to the queue as pending preemptor: its targets are being evicted."""
    WITH_EQUIVALENTS = auto()
    """Inadmissible, with its equivalence class."""
    ALONE = auto()
    """Inadmissible by itself."""
    ALONE_ALWAYS = auto()
    """Inadmissible by itself, even in a StrictFIFO queue, which any other head would block."""


class AsNominated(NamedTuple):
    """A placeholder for the reason of an entry, which is made from its nomination only if it is shown."""


class Outcome(NamedTuple):
    """The reason why an entry waits, and where it waits."""

    reason: Reason | AsNominated
    requeue: Requeue
    keeps_memory: bool = True
    """The next scan continues with the next flavor."""


@dataclass(slots=True)
class Commit:
    """The entries of one cycle that were processed so far; ``begin`` starts the next cycle."""

    state: State
    decisions: list[Decision]
    """The decisions of all cycles."""
    admitted: list[tuple[Nomination, tuple[AssignedPodSet, ...], tuple[Charge, ...]]] = field(default_factory=list)
    """The entries that get quota, with their pod set assignments and charges."""
    victims: dict[Key, ReservedWorkload] = field(default_factory=dict)
    decided: bool = False
    """A workload was admitted, preempted or evicted."""
    blocked: bool = False
    _journal: list[tuple[QuotaNode, int]] = field(default_factory=list)
    _going: dict[Key, tuple[ReservedWorkload, Evict | Preempt]] = field(default_factory=dict)
    """Workloads to evict. Until the cycle ends they are candidates like any other workload."""

    def begin(self) -> None:
        """Start a cycle."""
        self.admitted.clear()
        self.victims.clear()
        self.decided = self.blocked = False

    def process(self, entry: Nomination) -> Outcome | None:
        """Process one entry. Return None if it was admitted or evicted, else the reason why it waits."""
        options = self.state.options
        if options.concurrent_admission and variants.find_better(entry.queue, entry.workload):
            return Outcome(BetterVariant(), Requeue.AT_ONCE)
        quota_fits, place_fits = self._room(entry)
        if self._overlaps(entry) and options.recompute_assignment_upon_preemption_targets_overlap:
            self._look_again(entry, without=self.victims.values())
            if entry.assignment.mode == Mode.FIT:
                entry.assignment.mode = Mode.DEFERRED_FIT
            quota_fits, place_fits = self._room(entry)
        elif quota_fits and not place_fits and options.tas_recompute_assignment_within_scheduling_cycle:
            self._look_again(entry, without=())
            quota_fits, place_fits = self._room(entry)
        mode = entry.assignment.mode
        if mode != Mode.FIT and self._evicts_for_failed_node(entry):
            return None
        if mode == Mode.NO_FIT:
            return Outcome(AsNominated(), Requeue.WITH_EQUIVALENTS)
        if mode == Mode.PREEMPT and not entry.targets:
            return self._wait_without_targets(entry)
        if mode == Mode.PREEMPT and entry.workload.rare.gate_closed:
            return Outcome(Gated(), Requeue.ALONE, keeps_memory=False)
        if mode == Mode.DEFERRED_FIT:
            self._hold(entry)
            return Outcome(Deferred(), Requeue.PREEMPTING, keeps_memory=False)
        return self._take(entry, fits=quota_fits and place_fits)

    def _take(self, entry: Nomination, *, fits: bool) -> Outcome | None:
        """Admit an entry, or issue its preemptions, unless an entry before it took the quota."""
        keeps = self.state.options.flavor_fungibility_preserve_scan_progress
        if self._overlaps(entry):
            return Outcome(Skipped("overlap"), Requeue.AT_ONCE, keeps_memory=keeps)
        if not fits:
            return Outcome(Skipped("taken"), Requeue.AT_ONCE, keeps_memory=keeps)
        self._note_victims(entry.leaving())
        self._hold(entry)
        if entry.assignment.mode == Mode.PREEMPT:
            self._preempt(entry)
            return Outcome(AsNominated(), Requeue.PREEMPTING, keeps_memory=False)
        if self.state.options.block_admission and entry.moving is None and self._not_ready():
            self.blocked = True
            return Outcome(WaitsForPodsReady(), Requeue.AT_ONCE)
        if self.state.options.concurrent_admission and (outcome := self._migrate(entry)):
            return outcome
        self._admit(entry)
        return None

    def _not_ready(self) -> bool:
        return self.state.reserved.not_ready > 0 or any(entry.moving is None for entry, _, _ in self.admitted)

    def _note_victims(self, leaving: list[ReservedWorkload]) -> None:
        for reserved in leaving:
            self.victims.setdefault(reserved.key, reserved)

    # Room

    def _overlaps(self, entry: Nomination) -> bool:
        return bool(self.victims) and any(reserved.key in self.victims for reserved in entry.leaving())

    def _room(self, entry: Nomination) -> tuple[bool, bool]:
        """Return whether quota and nodes have room, once all targets so far and its own have stopped."""
        assignment, forest, leaving = entry.assignment, self.state.forest, entry.leaving()
        if not assignment.topology:
            if not entry.works and entry.moving is None:
                return False, True
            if not (leaving or self.victims):
                return self._quota_fits(entry), True
        gone = dict(self.victims)
        for reserved in leaving:
            gone[reserved.key] = reserved
        mark = forest.mark()
        for reserved in gone.values():
            amounts.refund_all(reserved.charges)
            forest.release(reserved.topology)
        quota_fits = self._quota_fits(entry)
        place_fits = not assignment.topology or forest.fits(assignment.topology)
        for reserved in gone.values():
            amounts.charge_all(reserved.charges)
        forest.undo(mark)
        return quota_fits, place_fits

    @staticmethod
    def _quota_fits(entry: Nomination) -> bool:
        usage = entry.assignment.usage.items() if entry.moving is None else ()
        return all(quota.fits(amount) for quota, amount in usage)

    def _look_again(self, entry: Nomination, without: Iterable[ReservedWorkload]) -> None:
        """Nominate an entry once more on the flavors that it had, as if the given workloads were gone."""
        gone = list(without)
        for reserved in gone:
            self.state.reserved.take_out(reserved)
        if entry.moving is not None:
            again = nominate.nominate_again(self.state, entry.queue, entry.moving)
        else:
            again = nominate.nominate(
                self.state, entry.queue, entry.workload, pinned=entry.assignment.pinned(self.state)
            )
        for reserved in gone:
            self.state.reserved.put_back(reserved)
        entry.assignment, entry.targets = again.assignment, again.targets

    def _hold(self, entry: Nomination) -> None:
        """Charge quota and room for the rest of the cycle."""
        if entry.moving is None:
            self._charge(entry.assignment.usage.items())
        self.state.forest.charge(entry.assignment.topology)

    def _charge(self, charges: Iterable[tuple[QuotaNode, int]]) -> None:
        for quota, amount in charges:
            quota.hold(amount)
            self._journal.append((quota, amount))

    def take_back(self) -> None:
        """Release quota that entries held during the cycle, and mark the evicted workloads."""
        for reserved, _ in self._going.values():
            reserved.evicted = reserved.preempting = True
            self.state.queues[reserved.cluster_queue].reorder(reserved)
        self._going.clear()
        for quota, amount in reversed(self._journal):
            quota.let_go(amount)
        self._journal.clear()

    # Outcomes

    def _wait_without_targets(self, entry: Nomination) -> Outcome:
        if self._may_reserve(entry):
            self.reserve(entry.assignment.usage if entry.moving is None else {}, borrows=entry.level > 0)
            self.state.forest.charge(entry.assignment.topology)
        return Outcome(AsNominated(), Requeue.WITH_EQUIVALENTS)

    def _may_reserve(self, entry: Nomination) -> bool:
        preemptor = (
            self.state.options.prioritize_preemptor_workloads and entry.queue.pending.preemptor is entry.workload
        )
        return entry.queue.policies.reclaim != "Any" or preemptor

    def reserve(self, wanted: Mapping[QuotaNode, int], *, borrows: bool) -> None:
        """Charge quota for the rest of the cycle, for a ClusterQueue that could not reclaim it from others."""
        for quota, amount in wanted.items():
            if not borrows:
                amount = max(0, min(amount, quota.nominal - quota.usage))
            elif quota.borrowing_limit is not None:
                amount = min(amount, quota.nominal + quota.borrowing_limit - quota.usage)
            self._charge([(quota, amount)])

    def _preempt(self, entry: Nomination) -> None:
        for target in entry.targets:
            if not target.reserved.evicted:
                self._evict(target.reserved, _preemption(entry, target))

    def _evicts_for_failed_node(self, entry: Nomination) -> bool:
        moving = entry.moving
        if moving is None or moving.second_pass is None or not moving.second_pass.unhealthy_node:
            return False
        if not self.state.options.tas_failed_node_replacement_fail_fast:
            return False
        self._evict(moving, Evict(moving.key, "NodeFailures", (moving.second_pass.unhealthy_node,)))
        self.state.reserved.second_passes.pop(moving.key, None)
        return True

    def _evict(self, reserved: ReservedWorkload, decision: Evict | Preempt) -> None:
        """Evict a workload. Of two reasons in one cycle, the later one is kept."""
        if (earlier := self._going.get(reserved.key)) is not None:
            self.decisions.remove(earlier[1])
        self._going[reserved.key] = (reserved, decision)
        self._decide(decision)

    def _migrate(self, entry: Nomination) -> Outcome | None:
        """Evict a variant that runs in a worse flavor, unless the policy of the ClusterQueue forbids the migration."""
        worse = variants.find_worse(entry.queue, entry.workload)
        if worse is None:
            return None
        if not variants.may_migrate(entry.queue, entry.workload):
            return Outcome(MigrationForbidden(), Requeue.ALONE)
        if not worse.evicted:
            self._evict(worse, Evict(worse.key, "FlavorMigration"))
        return Outcome(Migrates(), Requeue.PREEMPTING, keeps_memory=False)

    def _admit(self, entry: Nomination) -> None:
        pod_sets, charges = entry.assigned(self.state)
        queue = entry.queue
        checks: tuple[str, ...] = ()
        if queue.spec.admission_checks_strategy is not None:
            checks = self._checks(queue, {flavor for pod_set in pod_sets for flavor in pod_set.flavors.values()})
        self.admitted.append((entry, pod_sets, charges))
        replaces = None if entry.replaced is None else entry.replaced.key
        self._decide(Admit(entry.workload.key, queue.name, pod_sets, checks, entry.moving is not None, replaces))

    def _checks(self, queue: Queue, flavors: set[str]) -> tuple[str, ...]:
        return tuple(sorted(self.state.cluster.checks_of(queue, flavors)))

    def _decide(self, decision: Admit | Preempt | Evict) -> None:
        self.decided = True
        self.decisions.append(decision)


def _preemption(entry: Nomination, target: PreemptionTarget) -> Preempt:
    workload, queue, other = entry.workload, entry.queue, target.queue
    return Preempt(target.reserved.key, workload.key, target.reason, workload.uid, queue.name, queue.path, other.path)
