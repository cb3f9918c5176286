"""
Turning nominations to decisions, one by one in the order of the cycle, each seeing what the ones before it took.

Between nomination and commitment the world has changed: quota and room were taken, victims were chosen. So each entry
is checked again, looked at again if its victims are somebody else's already, and may then get its quota, issue its
preemptions, hold its room while it waits, or be told to wait. What entries hold is written down and taken back when
the cycle ends; only admissions last.

Called by: turn.py. Calls: nomination.py, quota.py. Kueue: pkg/scheduler/scheduler.go (processEntry)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from kyu.api.meta import Key
from kyu.engine import nomination, quota, variants
from kyu.engine.decisions import Admit, Decision, Evict, Preempt
from kyu.engine.flavors import Mode
from kyu.engine.nomination import Nomination
from kyu.engine.plan import Claim, Sketch
from kyu.engine.preemption import Target
from kyu.engine.quota import Cell, FlavorResource
from kyu.engine.reasons import (
    BetterVariant,
    Deferred,
    Gated,
    Migrates,
    MigrationForbidden,
    NoFit,
    Reason,
    Skipped,
    WaitsForPodsReady,
    WaitsForPreempted,
)
from kyu.engine.state import State
from kyu.engine.tree import Queue
from kyu.engine.workload import AssignedPodSet, Holding


class Requeue(Enum):
    """Where a workload goes that was not admitted."""

    AT_ONCE = auto()
    """Back to the line."""
    PREEMPTING = auto()
    """Back to the line, before everybody: room is being made for it."""
    WITH_PEERS = auto()
    """Parked, with all of its shape."""
    ALONE = auto()
    """Parked by itself."""
    ALONE_ALWAYS = auto()
    """Parked by itself, even where the head of the line otherwise blocks the line."""


class Outcome(NamedTuple):
    """Why an entry waits, and where."""

    reason: Reason
    requeue: Requeue
    keeps_memory: bool = True
    """Whether the next try goes on with the next flavor."""


@dataclass(slots=True)
class Commit:
    """The entries of one cycle that were processed so far; ``begin`` starts the next cycle."""

    state: State
    decisions: list[Decision]
    """Of all cycles."""
    admitted: list[tuple[Nomination | Sketch, tuple[AssignedPodSet, ...]]] = field(default_factory=list)
    """Who gets quota, and what."""
    victims: dict[Key, Holding] = field(default_factory=dict)
    _returned: dict[FlavorResource, int] = field(default_factory=dict)
    """How much the victims use."""
    decided: bool = False
    """Somebody was admitted, preempted or evicted."""
    _as_nominated: bool = True
    """Nobody has taken anything so far: everything is as it was when the entries were nominated."""
    blocked: bool = False
    _journal: list[tuple[Cell, int]] = field(default_factory=list)
    _going: dict[Key, tuple[Holding, Evict | Preempt]] = field(default_factory=dict)
    """Who has to go. It shows only after the cycle: until then they are candidates like all others."""

    def begin(self) -> None:
        self.admitted.clear()
        self.victims.clear()
        self._returned.clear()
        self.decided = self.blocked = False
        self._as_nominated = True

    def process(self, entry: Nomination) -> Outcome | None:
        """Decide about one entry; None if it was admitted or evicted, else why it waits."""
        options = self.state.options
        if options.concurrent_admission and variants.find_better(entry.queue, entry.ask):
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
            return Outcome(NoFit(entry.assignment.word, entry.assignment.reasons), Requeue.WITH_PEERS)
        if mode == Mode.PREEMPT and not entry.targets:
            return self._wait_without_targets(entry)
        if mode == Mode.PREEMPT and entry.ask.special.gate_closed:
            return Outcome(Gated(), Requeue.ALONE, keeps_memory=False)
        if mode == Mode.DEFERRED_FIT:
            self._hold(entry)
            return Outcome(Deferred(), Requeue.PREEMPTING, keeps_memory=False)
        return self._take(entry, fits=quota_fits and place_fits)

    def _take(self, entry: Nomination, *, fits: bool) -> Outcome | None:
        """The entry fits, at once or by preempting, unless another was first."""
        keeps = self.state.options.flavor_fungibility_preserve_scan_progress
        if self._overlaps(entry):
            return Outcome(Skipped("overlap"), Requeue.AT_ONCE, keeps_memory=keeps)
        if not fits:
            return Outcome(Skipped("taken"), Requeue.AT_ONCE, keeps_memory=keeps)
        self._note_victims(entry.leaving())
        self._hold(entry)
        if entry.assignment.mode == Mode.PREEMPT:
            self._preempt(entry)
            waits = WaitsForPreempted(len(entry.targets), entry.assignment.reasons)
            return Outcome(waits, Requeue.PREEMPTING, keeps_memory=False)
        if self.state.options.block_admission and entry.moving is None and self._not_ready():
            self.blocked = True
            return Outcome(WaitsForPodsReady(), Requeue.AT_ONCE)
        if self.state.options.concurrent_admission and (outcome := self._migrate(entry)):
            return outcome
        self._admit(entry)
        return None

    def _not_ready(self) -> bool:
        return self.state.not_ready > 0 or any(
            isinstance(entry, Sketch) or entry.moving is None for entry, _ in self.admitted
        )

    def _note_victims(self, leaving: list[Holding]) -> None:
        for holding in leaving:
            if holding.key not in self.victims:
                self.victims[holding.key] = holding
                for cell, amount in holding.charges:
                    self._returned[cell.key] = self._returned.get(cell.key, 0) + amount

    # Room

    def could_fit(self, cell: Cell, amount: int) -> bool:
        """Whether there may be room once all victims so far have gone. They return no more than they use."""
        return amount <= 0 or amount <= quota.available(cell) + self._returned.get(cell.key, 0)

    def _overlaps(self, entry: Nomination) -> bool:
        return bool(self.victims) and any(holding.key in self.victims for holding in entry.leaving())

    def _room(self, entry: Nomination) -> tuple[bool, bool]:
        """Does the quota suffice, and the room on nodes, once all victims so far and its own have gone?"""
        if self._as_nominated and entry.short:
            return True, True
        assignment, forest = entry.assignment, self.state.forest
        gone = dict(self.victims)
        for holding in entry.leaving():
            gone[holding.key] = holding
        mark = forest.mark()
        for holding in gone.values():
            quota.refund_all(holding.charges)
            forest.release(holding.topology)
        usage = assignment.usage.items() if entry.moving is None else ()
        quota_fits = all(quota.fits(cell, amount) for cell, amount in usage)
        place_fits = not assignment.topology or forest.fits(assignment.topology)
        for holding in gone.values():
            quota.charge_all(holding.charges)
        forest.undo(mark)
        return quota_fits, place_fits

    def _look_again(self, entry: Nomination, without: Iterable[Holding]) -> None:
        """Nominate the entry once more on the flavors that it had, as if the given workloads were gone."""
        gone = list(without)
        for holding in gone:
            self.state.take_out(holding)
        if entry.moving is not None:
            again = nomination.nominate_again(self.state, entry.queue, entry.moving)
        else:
            again = nomination.nominate(self.state, entry.queue, entry.ask, pinned=entry.assignment.pinned())
        for holding in gone:
            self.state.put_back(holding)
        entry.assignment, entry.targets = again.assignment, again.targets

    def _hold(self, entry: Nomination) -> None:
        """Nobody after this entry gets what it takes, in this cycle."""
        self._as_nominated = False
        if entry.moving is None:
            self._charge(entry.assignment.usage.items())
        self.state.forest.charge(entry.assignment.topology)

    def _charge(self, charges: Iterable[tuple[Cell, int]]) -> None:
        self._as_nominated = False
        for cell, amount in charges:
            quota.hold(cell, amount)
            self._journal.append((cell, amount))

    def take_back(self) -> None:
        """Give back what entries held during the cycle, when it ends, and mark who has to go."""
        for holding, _ in self._going.values():
            holding.evicted = holding.preempting = True
            self.state.queues[holding.cluster_queue].reorder(holding)
        self._going.clear()
        for cell, amount in reversed(self._journal):
            quota.let_go(cell, amount)
        self._journal.clear()

    # Outcomes

    def _wait_without_targets(self, entry: Nomination) -> Outcome:
        if self._may_reserve(entry):
            self.reserve(entry.assignment.usage if entry.moving is None else {}, borrows=entry.level > 0)
            self.state.forest.charge(entry.assignment.topology)
        return Outcome(NoFit("WaitingForQuota", entry.assignment.reasons), Requeue.WITH_PEERS)

    def _may_reserve(self, entry: Nomination) -> bool:
        preemptor = self.state.options.prioritize_preemptor_workloads and entry.queue.line.preemptor is entry.ask
        return entry.queue.policies.reclaim != "Any" or preemptor

    def reserve(self, wanted: Mapping[Cell, int], *, borrows: bool) -> None:
        """Keep others from taking what would be this queue's, since it could not get it back from them."""
        for cell, amount in wanted.items():
            if not borrows:
                amount = max(0, min(amount, cell.nominal - cell.usage))
            elif cell.borrowing_limit is not None:
                amount = min(amount, cell.nominal + cell.borrowing_limit - cell.usage)
            self._charge([(cell, amount)])

    def _preempt(self, entry: Nomination) -> None:
        for target in entry.targets:
            if not target.holding.evicted:
                self._evict(target.holding, _preemption(entry, target))

    def preempt_alone(self, entry: Claim) -> None:
        """The short way for the only entry of a cycle: nobody else could be surprised by who has to go."""
        for target in entry.targets:
            holding = target.holding
            if not holding.evicted:
                self._decide(_preemption(entry, target))
                holding.evicted = holding.preempting = True
                target.queue.reorder(holding)

    def _evicts_for_failed_node(self, entry: Nomination) -> bool:
        moving = entry.moving
        if moving is None or moving.second_pass is None or not moving.second_pass.unhealthy_node:
            return False
        if not self.state.options.tas_failed_node_replacement_fail_fast:
            return False
        self._evict(moving, Evict(moving.key, "NodeFailures", (moving.second_pass.unhealthy_node,)))
        self.state.second_passes.pop(moving.key, None)
        return True

    def _evict(self, holding: Holding, decision: Evict | Preempt) -> None:
        """A workload that has to go for two reasons in one cycle is told the later one."""
        if (earlier := self._going.get(holding.key)) is not None:
            self.decisions.remove(earlier[1])
        self._going[holding.key] = (holding, decision)
        self._decide(decision)

    def _migrate(self, entry: Nomination) -> Outcome | None:
        """A variant in a worse flavor runs: it goes first, unless the queue does not want a move to this flavor."""
        worse = variants.find_worse(entry.queue, entry.ask)
        if worse is None:
            return None
        if not variants.may_migrate(entry.queue, entry.ask):
            return Outcome(MigrationForbidden(), Requeue.ALONE)
        if not worse.evicted:
            self._evict(worse, Evict(worse.key, "FlavorMigration"))
        return Outcome(Migrates(), Requeue.PREEMPTING, keeps_memory=False)

    def _admit(self, entry: Nomination) -> None:
        pod_sets = entry.assigned()
        flavors = {flavor for pod_set in pod_sets for flavor in pod_set.flavors.values()}
        self.admitted.append((entry, pod_sets))
        self._decide(
            Admit(
                entry.ask.key,
                entry.queue.name,
                pod_sets,
                self._checks(entry.queue, flavors),
                second_pass=entry.moving is not None,
                replaces=entry.replaced.key if entry.replaced else None,
            )
        )

    def hold_sketch(self, entry: Sketch) -> None:
        """Nobody after this entry gets what it takes, in this cycle."""
        self._as_nominated = False
        quota.charge(entry.cell, entry.amount)
        self._journal.append((entry.cell, entry.amount))

    def admit_sketch(self, entry: Sketch) -> None:
        """The short way for an entry that fits, where nobody in this cycle had to go."""
        queue, pod_sets = entry.queue, entry.assigned(self.state)
        checks = () if queue.spec.admission_checks_strategy is None else self._checks(queue, {entry.cell.key.flavor})
        self.admitted.append((entry, pod_sets))
        self._decide(Admit(entry.ask.key, queue.name, pod_sets, checks))

    def _checks(self, queue: Queue, flavors: set[str]) -> tuple[str, ...]:
        return tuple(sorted(self.state.cluster.checks_of(queue, flavors)))

    def _decide(self, decision: Admit | Preempt | Evict) -> None:
        self.decided = True
        self.decisions.append(decision)


def _preemption(entry: Nomination | Claim, target: Target) -> Preempt:
    ask, queue, other = entry.ask, entry.queue, target.queue
    return Preempt(target.holding.key, ask.key, target.reason, ask.uid, queue.name, queue.path, other.path)
