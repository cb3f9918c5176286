"""
One cycle: the heads of some queues, looked at, put in order, and committed one by one.

Each head is nominated by itself (``nomination.py``); then they are processed in order, each seeing what the ones before
it took (``commit.py``). Who was not admitted goes back to its line, or aside until something changes.

Called by: cycle.py. Kueue: pkg/scheduler/scheduler.go (schedule, requeueAndUpdate), pkg/cache/queue (requeue)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kyu.api.meta import Key
from kyu.engine import fairshare, nomination, plan, watch
from kyu.engine.commit import Commit, Outcome, Requeue
from kyu.engine.decisions import Cycle
from kyu.engine.fairshare import Contender
from kyu.engine.nomination import Nomination
from kyu.engine.plan import Sketch
from kyu.engine.reasons import (
    BadRequest,
    ChecksFailed,
    ClaimsNotCounted,
    Deferred,
    NamespaceMismatch,
    NamespaceMissing,
    Reason,
    Skipped,
)
from kyu.engine.state import State
from kyu.engine.tree import CohortNode, Queue
from kyu.engine.workload import Ask, Holding


def run_cycle(
    state: State,
    heads: Iterable[tuple[Queue, Ask]],
    now: float,
    second_passes: Iterable[Holding] = (),
    *,
    short_ways: bool = False,
) -> Cycle:
    """
    One cycle over these heads of queues, and over workloads that have quota and need to be placed.

    With ``short_ways`` what is known about the peers of a head is used to nominate it without a search.
    """
    state.cycles += 1
    with state.forest.scope():
        work = _Work(state, short_ways and plan.are_open(state.options))
        for holding in second_passes:
            work.nominate_again(holding)
        for queue, head in heads:
            work.nominate(queue, head)
        for entry in work.in_order():
            if work.commit.blocked:
                break
            work.process(entry)
        work.commit.close()
    return work.finish(now)


def heads_of(queues: Iterable[Queue]) -> list[tuple[Queue, Ask]]:
    """The head of every queue that takes part."""
    found = ((queue, queue.line.head()) for queue in queues if queue.active)
    return [(queue, head) for queue, head in found if head is not None]


@dataclass(slots=True)
class _Work:
    """One cycle in the making."""

    state: State
    short_ways: bool
    commit: Commit = field(init=False)
    entries: list[Nomination] = field(default_factory=list)
    sketches: list[Sketch] = field(default_factory=list)
    lost: set[Key] = field(default_factory=set)
    """Who would have fitted if others had not been first."""
    parked: list[tuple[Nomination, bool]] = field(default_factory=list)
    """Who was parked with its peers, and whether all of its flavors were looked at."""
    changed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.commit = Commit(self.state)

    # Nomination

    def nominate(self, queue: Queue, ask: Ask) -> None:
        problem = why_not_nominated(self.state, queue, ask)
        if problem is None:
            entry = plan.nominate(self.state, queue, ask) if self.short_ways else None
            if isinstance(entry, Sketch):
                self.sketches.append(entry)
            else:
                self.entries.append(entry or nomination.nominate(self.state, queue, ask))
            return
        requeue = Requeue.ALONE_ALWAYS if isinstance(problem, NamespaceMismatch) else Requeue.ALONE
        self._requeue(queue, ask, Outcome(problem, requeue), pending_flavors=False)

    def nominate_again(self, holding: Holding) -> None:
        queue = self.state.queues.get(holding.cluster_queue)
        if queue is not None and queue.active and not holding.evicted:
            self.entries.append(nomination.nominate_again(self.state, queue, holding))

    # Order

    def in_order(self) -> Iterator[Nomination | Sketch]:
        if self.state.options.fair_sharing:
            return self._fair_order()
        entries: list[Nomination | Sketch] = [*self.entries, *self.sketches]
        return iter(sorted(entries, key=self._classical_rank))

    def _classical_rank(self, entry: Nomination | Sketch) -> tuple[object, ...]:
        options, ask = self.state.options, entry.ask
        return (
            isinstance(entry, Sketch) or entry.moving is None,
            options.prioritize_preemptor_workloads and entry.queue.line.preemptor is not ask,
            entry.level if isinstance(entry, Sketch) else entry.assignment.level,
            -ask.priority if options.priority_sorting_within_cohort else 0,
            ask.time,
            entry.queue.name,
            ask.uid,
        )

    def _fair_order(self) -> Iterator[Nomination]:
        """A tournament in each tree for every next place; each sees what the winners before it took."""
        remaining = {entry.queue: entry for entry in self.entries}
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

    def process(self, entry: Nomination | Sketch) -> None:
        if isinstance(entry, Sketch):
            if not self.commit.victims:
                if entry.fits():
                    self.commit.admit_sketch(entry)
                    self.changed.add(entry.queue.name)
                else:
                    # It stays at the head of its line, as if nothing had been.
                    self.lost.add(entry.ask.key)
                return
            entry = entry.nomination()
        self.settle(entry, self.commit.process(entry))

    def settle(self, entry: Nomination, outcome: Outcome | None) -> None:
        if outcome is None:
            self.changed.add(entry.queue.name)
            return
        if entry.moving is not None:
            self.commit.wait(entry.queue, entry.ask.key, outcome.reason, parked=False)
            return
        ask = entry.ask
        from_the_start = ask.memory is None or not ask.memory.pending
        ask.memory = None
        if outcome.keeps_memory:
            memory = entry.assignment.memory(self.state.cycles, entry.queue, ask)
            # A scan that saw all flavors starts over, as one that never was does.
            ask.memory = memory if memory.pending else None
        if isinstance(outcome.reason, Skipped | Deferred):
            self.lost.add(ask.key)
        pending_flavors = ask.memory is not None and ask.memory.pending
        parked = self._requeue(entry.queue, ask, outcome, pending_flavors=pending_flavors)
        if parked and outcome.requeue is Requeue.WITH_PEERS:
            self.parked.append((entry, from_the_start))

    def _requeue(self, queue: Queue, ask: Ask, outcome: Outcome, *, pending_flavors: bool) -> bool:
        """Put a workload back where its reason says, in the way of the queue's strategy."""
        line, identity = queue.line, self.state.waiting.identity(queue, ask)
        requeue = outcome.requeue
        stays = pending_flavors or (queue.strict and requeue is not Requeue.ALONE_ALWAYS)
        parked = requeue in (Requeue.WITH_PEERS, Requeue.ALONE, Requeue.ALONE_ALWAYS) and not stays
        if requeue is Requeue.PREEMPTING:
            line.preemptor = ask
            if not queue.strict:
                self.state.waiting.stick(queue, ask)
        elif parked and requeue is Requeue.WITH_PEERS:
            self.state.waiting.park(queue, ask)
        elif parked:
            line.park_alone(ask, identity=identity)
        line.note_reason(ask, outcome.reason, identity=identity)
        self.commit.wait(queue, ask.key, outcome.reason, parked=parked)
        return parked

    def finish(self, now: float) -> Cycle:
        """Assume what was admitted."""
        state = self.state
        for entry, assigned in self.commit.admitted:
            holding = Holding(entry.ask, entry.queue.name, assigned, reserved_at=now)
            if isinstance(entry, Sketch):
                holding.charges = ((entry.cell, entry.amount),)
            elif entry.moving is not None:
                state.reassign(entry.moving, assigned)
                continue
            elif entry.replaced is not None:
                state.remove_holding(entry.replaced)
            state.assume(entry.ask, holding, first=True)
        for entry, from_the_start in self.parked:
            identity = state.waiting.identity(entry.queue, entry.ask)
            entry.queue.line.watch(identity, watch.find_watches(state, entry, from_the_start=from_the_start))
        return Cycle(self.commit.decisions, self.changed, 1, self.commit.blocked, self.lost)


def why_not_nominated(state: State, queue: Queue, ask: Ask) -> Reason | None:
    """What keeps a head from being looked at."""
    if ask.special.failed_check:
        return ChecksFailed()
    if ask.key.namespace not in state.cluster.labels_by_namespace:
        return NamespaceMissing(ask.key.namespace)
    if not state.is_selected(queue, ask):
        return NamespaceMismatch(ask.key.namespace, queue.name)
    if ask.shape.violation is not None:
        return BadRequest(ask.shape.violation)
    return ClaimsNotCounted() if ask.shape.claims else None
