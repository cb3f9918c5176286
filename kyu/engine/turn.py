"""
One cycle: the heads of some queues, looked at, put in order, and committed one by one.

Each head is nominated by itself (``nomination.py``); then they are processed in order, each seeing what the ones before
it took (``commit.py``). Who was not admitted goes back to its line, or aside until something changes.

Called by: cycle.py, passes.py, flat.py.
Kueue: pkg/scheduler/scheduler.go (schedule, requeueAndUpdate), pkg/cache/queue (requeue)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kyu.api.meta import Key
from kyu.engine import fairshare, nomination, plan, watch
from kyu.engine.asks import Ask
from kyu.engine.commit import Commit, Outcome, Requeue
from kyu.engine.decisions import Cycle, Wait
from kyu.engine.fairshare import Contender
from kyu.engine.nomination import Nomination
from kyu.engine.plan import Claim, Reservation, Sketch
from kyu.engine.reasons import (
    BadRequest,
    ChecksFailed,
    ClaimsNotCounted,
    Deferred,
    NamespaceMismatch,
    NamespaceMissing,
    NoFit,
    Reason,
    Skipped,
    WaitsForPreempted,
)
from kyu.engine.state import State
from kyu.engine.tree import CohortNode, Queue
from kyu.engine.workload import Holding

Entry: TypeAlias = Nomination | Sketch | Claim | Reservation


@dataclass(slots=True, eq=False)
class Head:
    """A queue, who is first in it, and what came of that."""

    queue: Queue
    ask: Ask | None = None
    entry: Entry | None = None
    """Its nomination; where that is known beforehand, it is not asked again."""
    resumed: bool = False
    """It looked only at flavors after a remembered one."""


def heads_of(queues: Iterable[Queue]) -> list[Head]:
    """The head of every queue that takes part."""
    found = (Head(queue, queue.line.head()) for queue in queues if queue.active)
    return [head for head in found if head.ask is not None]


@dataclass(slots=True)
class Turn:
    """
    Cycles, one after another; what they decide is added to one result.

    With ``short_ways`` what is simple about a head is used to nominate it without a search. What is said about a cycle
    holds until the next is taken.
    """

    state: State
    now: float
    result: Cycle = field(default_factory=Cycle)
    short_ways: bool = False
    commit: Commit = field(init=False)
    lost: set[Key] = field(default_factory=set)
    """Who would have fitted if others had not been first."""
    parked: bool = False
    """Somebody who was in a line is aside now."""
    preempting: list[Nomination | Claim] = field(default_factory=list)
    """Who had others preempted, or still waits for them to go."""
    reordered: bool = False
    """Somebody became a preemptor, which may come first from the next cycle on."""
    _watching: list[tuple[Nomination | Claim, bool]] = field(default_factory=list)
    """Who was parked with its peers, and whether all of its flavors were looked at."""

    def __post_init__(self) -> None:
        self.commit = Commit(self.state, self.result.decisions)
        self.short_ways = self.short_ways and plan.are_open(self.state.options)

    @property
    def decided(self) -> bool:
        """Somebody was admitted, preempted or evicted."""
        return self.commit.decided

    def take(self, heads: Sequence[Head], second_passes: Sequence[Holding] = ()) -> None:
        """One cycle over these heads of queues, and over workloads that have quota and need to be placed."""
        self._begin()
        forest = self.state.forest
        mark = forest.mark()
        try:
            entries: list[Entry] = [e for h in second_passes if (e := self._nominate_again(h))] if second_passes else []
            for head in heads:
                if head.entry is None and head.ask is not None:
                    head.entry = self._nominate(head.queue, head.ask)
                if head.entry is not None:
                    entries.append(head.entry)
            if len(entries) == 1 and isinstance(entry := entries[0], plan.SHORT):
                self._settle_alone(entry)
            else:
                self._settle_together(entries)
        finally:
            forest.undo(mark)
        self._finish()

    def _settle_together(self, entries: list[Entry]) -> None:
        """One after another, each seeing what the ones before it took; at the end they give back what they held."""
        try:
            for entry in self._in_order(entries):
                if self.commit.blocked:
                    break
                self._process(entry)
        finally:
            self.commit.take_back()

    def _settle_alone(self, entry: Sketch | Claim) -> None:
        """The short way for the only entry of a cycle: nobody else sees what it takes."""
        if isinstance(entry, Sketch):
            self.commit.admit_sketch(entry)
        else:
            self._settle_claim(entry)

    def _settle_claim(self, entry: Claim) -> None:
        """Whom it claims the place of has to go, and it waits for them; or it is parked, if there is nobody."""
        queue, ask = entry.queue, entry.ask
        from_the_start = ask.memory is None or not ask.memory.pending
        queue.line.remember(ask, None)
        if entry.targets:
            self.commit.preempt_alone(entry)
            self.preempting.append(entry)
            outcome = Outcome(WaitsForPreempted(len(entry.targets), entry.pod_sets), Requeue.PREEMPTING)
            self._requeue(queue, ask, outcome, pending_flavors=False)
            return
        outcome = Outcome(NoFit("WaitingForQuota", entry.pod_sets), Requeue.WITH_PEERS)
        if self._requeue(queue, ask, outcome, pending_flavors=False):
            self._watching.append((entry, from_the_start))

    def _begin(self) -> None:
        self.result.cycles += 1
        self.lost.clear()
        self.parked = self.reordered = False
        self.preempting.clear()
        self.commit.begin()

    def sole_preemptor(self, queues: Iterable[Queue]) -> Ask | None:
        """
        Who preempted in this cycle, if that is all that has happened: asked again, it would name the same victims.

        They come first now that they are evicted, none of them could be spared, and without them it fits. With others
        on their way out, or other flavors to choose from, it might name others.
        """
        if len(self.preempting) != 1 or self.commit.admitted:
            return None
        (entry,) = self.preempting
        reasons = entry.reasons if isinstance(entry, Claim) else entry.assignment.pod_sets[0].reasons
        if not entry.short or len(reasons) > 1:
            return None
        leaving = 0
        for queue in queues:
            # As has_evicted says, which would be half of the cost.
            if queue.holdings and queue.holdings[0][1].evicted:
                leaving += len(queue.held(evicted=True))
        return entry.ask if leaving == len(entry.targets) else None

    # Nomination

    def sketch(self, queue: Queue, ask: Ask) -> Sketch | Claim | None:
        """What the head will be nominated for, if that can be told without asking closely."""
        return plan.nominate(self.state, queue, ask) if why_not_nominated(self.state, queue, ask) is None else None

    def _nominate(self, queue: Queue, ask: Ask) -> Nomination | Sketch | Claim | None:
        problem = why_not_nominated(self.state, queue, ask)
        if problem is None:
            entry = plan.nominate(self.state, queue, ask) if self.short_ways else None
            return entry or nomination.nominate(self.state, queue, ask)
        requeue = Requeue.ALONE_ALWAYS if isinstance(problem, NamespaceMismatch) else Requeue.ALONE
        self._requeue(queue, ask, Outcome(problem, requeue), pending_flavors=False)
        return None

    def _nominate_again(self, holding: Holding) -> Nomination | None:
        queue = self.state.queues.get(holding.cluster_queue)
        if queue is None or not queue.active or holding.evicted or self.state.cluster.is_dispatched(queue):
            return None
        return nomination.nominate_again(self.state, queue, holding)

    # Order

    def _in_order(self, entries: list[Entry]) -> Iterable[Entry]:
        if self.state.options.fair_sharing:
            # Sketches and reservations are for classical cycles only.
            return self._fair_order([entry for entry in entries if isinstance(entry, Nomination)])
        return sorted(entries, key=self._classical_rank) if len(entries) > 1 else entries

    def _classical_rank(self, entry: Entry) -> tuple[object, ...]:
        moves = isinstance(entry, Nomination) and entry.moving is not None
        return (not moves, *self.rank(entry.queue, entry.ask, entry.level))

    def rank(self, queue: Queue, ask: Ask, level: int) -> tuple[object, ...]:
        """The place of a head in a classical cycle, if it takes quota from so far up the tree."""
        options = self.state.options
        return (
            options.prioritize_preemptor_workloads and queue.line.preemptor is not ask,
            level,
            -ask.priority if options.priority_sorting_within_cohort else 0,
            ask.time,
            queue.name,
            ask.uid,
        )

    def _fair_order(self, entries: list[Nomination]) -> Iterator[Nomination]:
        """A tournament in each tree for every next place; each sees what the winners before it took."""
        remaining = {entry.queue: entry for entry in entries}
        while remaining:
            first = next(iter(remaining))
            root = first.root
            if not isinstance(root, CohortNode):
                yield remaining.pop(first)
                continue
            contenders = {
                queue: Contender(queue, entry.ask, entry.assignment.usage, queue.line.preemptor is entry.ask)
                for queue, entry in remaining.items()
                if queue.root is root
            }
            yield remaining.pop(fairshare.winner(root, contenders, self.state.options).queue)

    # Decision

    def _process(self, entry: Entry) -> None:
        if isinstance(entry, Sketch):
            if not self.commit.victims and entry.fits():
                self.commit.hold_sketch(entry)
                self.commit.admit_sketch(entry)
                return
            if entry.last_tried == plan.LAST_FLAVOR and not self.commit.could_fit(entry.cell, entry.amount):
                # It stays at the head of its line, as if nothing had been; a scan that saw all flavors starts over.
                entry.queue.line.remember(entry.ask, None)
                entry.queue.line.note_lost(entry.ask)
                self.lost.add(entry.ask.key)
                return
            entry = entry.nomination()
        elif isinstance(entry, Reservation):
            self.commit.reserve(entry.usage, borrows=entry.level > 0)
            entry.queue.line.park(entry.ask)
            self.parked = True
            return
        elif isinstance(entry, Claim):
            entry = entry.nomination()
        outcome = self.commit.process(entry)
        if outcome is not None:
            self._settle(entry, outcome)

    def _settle(self, entry: Nomination, outcome: Outcome) -> None:
        """The entry has to wait."""
        ask = entry.ask
        if entry.moving is not None:
            self._wait(entry.queue, ask, outcome.reason, parked=False)
            return
        from_the_start = ask.memory is None or not ask.memory.pending
        memory = entry.assignment.memory(self.state.cycles, entry.queue, ask) if outcome.keeps_memory else None
        # A scan that saw all flavors starts over, as one that never was does.
        entry.queue.line.remember(ask, memory if memory is not None and memory.pending else None)
        if isinstance(outcome.reason, Skipped | Deferred):
            self.lost.add(ask.key)
        elif outcome.requeue is Requeue.PREEMPTING:
            self.preempting.append(entry)
        pending_flavors = ask.memory is not None and ask.memory.pending
        parked = self._requeue(entry.queue, ask, outcome, pending_flavors=pending_flavors)
        if parked and outcome.requeue is Requeue.WITH_PEERS:
            self._watching.append((entry, from_the_start))

    def _requeue(self, queue: Queue, ask: Ask, outcome: Outcome, *, pending_flavors: bool) -> bool:
        """Put a workload back where its reason says, in the way of the queue's strategy."""
        line, requeue = queue.line, outcome.requeue
        stays = pending_flavors or (queue.strict and requeue is not Requeue.ALONE_ALWAYS)
        parked = requeue in (Requeue.WITH_PEERS, Requeue.ALONE, Requeue.ALONE_ALWAYS) and not stays
        if requeue is Requeue.PREEMPTING:
            if line.preemptor is not ask:
                line.preemptor = ask
                self.reordered = self.reordered or self.state.options.prioritize_preemptor_workloads
            if not queue.strict:
                line.stick(ask)
        elif parked and requeue is Requeue.WITH_PEERS:
            self.state.waiting.park(queue, ask)
        elif parked:
            line.park_alone(ask)
        line.note_reason(ask, outcome.reason)
        self._wait(queue, ask, outcome.reason, parked=parked)
        return parked

    def _wait(self, queue: Queue, ask: Ask, reason: Reason, *, parked: bool) -> None:
        self.parked = self.parked or parked
        self.result.decisions.append(Wait(ask.key, queue.name, reason, parked))

    def _finish(self) -> None:
        """Assume what was admitted, and remember what those who were parked wait for."""
        state, commit = self.state, self.commit
        for entry, assigned in commit.admitted:
            holding = Holding(entry.ask, entry.queue.name, assigned, self.now)
            if isinstance(entry, Sketch):
                holding.charges = ((entry.cell, entry.amount),)
            elif entry.moving is not None:
                state.reassign(entry.moving, assigned)
                continue
            elif entry.replaced is not None:
                state.remove_holding(entry.replaced)
            state.assume(entry.ask, holding, first=True)
        # Whoever is nominated from now on, be it before the next cycle begins, is nominated for that.
        state.cycles += 1
        self.result.blocked = commit.blocked
        for parked, from_the_start in self._watching:
            if (peers := parked.ask.peers) is not None:
                amounts = watch.find_watches(state, parked, from_the_start=from_the_start)
                parked.queue.line.watch(peers, amounts, simple=parked.short)
        self._watching.clear()


def why_not_nominated(state: State, queue: Queue, ask: Ask) -> Reason | None:
    """What keeps a head from being looked at."""
    if ask.special.failed_check:
        return ChecksFailed()
    namespace, shape = ask.key.namespace, ask.shape
    if namespace not in state.cluster.labels_by_namespace:
        return NamespaceMissing(namespace)
    if not queue.selects_all and not state.is_selected(queue, ask):
        return NamespaceMismatch()
    if shape.violations:
        return BadRequest(shape.violations)
    return ClaimsNotCounted() if shape.claims else None
