"""
Who runs, where, instead of whom. START READING HERE.

A cycle takes the head of every queue, looks at each by itself (``nomination.py``), puts them in order, and commits them
one by one (``commit.py``). Who was not admitted goes back to its line, or aside until something changes. ``schedule``
runs one cycle exactly as Kueue does, or as many as it takes until there is nothing more to decide; trees in which
nothing has changed are not visited at all.

Called by: controllers/scheduler.py, cli/decide.py, bench. Kueue: pkg/scheduler/scheduler.go (schedule)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from kyu.engine import fairshare, nomination
from kyu.engine.commit import Commit, Outcome, Requeue
from kyu.engine.decisions import Cycle
from kyu.engine.fairshare import Contender
from kyu.engine.nomination import Nomination
from kyu.engine.reasons import (
    BadRequest,
    ChecksFailed,
    ClaimsNotCounted,
    NamespaceMismatch,
    NamespaceMissing,
    Reason,
)
from kyu.engine.state import State, queues_of
from kyu.engine.tree import CohortNode, Queue
from kyu.engine.workload import Ask, Holding


def schedule(state: State, now: datetime, *, cycles: Literal[1] | None = None) -> Cycle:
    """
    Decide who gets quota now; afterwards the state has assumed its admissions.

    With ``cycles=1`` one cycle as Kueue's: one head of every queue. Without, cycles are run until one changes nothing.
    """
    moment = now.timestamp()
    state.begin(moment)
    if cycles == 1:
        return run_cycle(state, sorted_queues(state.queues.values()), moment)
    return run_until_stable(state, moment)


def sorted_queues(queues: Iterable[Queue]) -> list[Queue]:
    return sorted(queues, key=lambda queue: queue.name)


def run_until_stable(state: State, now: float) -> Cycle:
    """Cycles in every tree that something has changed in, until they repeat themselves."""
    result = Cycle()
    while state.waiting.awake:
        roots, state.waiting.awake = state.waiting.awake, set()
        queues = sorted_queues(queue for root in roots for queue in queues_of(root))
        seen: set[tuple[object, ...]] = set()
        while (signature := heads_signature(state, queues)) not in seen:
            seen.add(signature)
            cycle = run_cycle(state, queues, now)
            result.extend(cycle)
            if cycle.blocked:
                return result
            if any(cycle.admitted()) or any(cycle.preempted()) or any(cycle.evicted()):
                seen.clear()
            if not signature:
                break
        state.waiting.awake -= roots
    return result


def heads_signature(state: State, queues: Iterable[Queue]) -> tuple[object, ...]:
    """What the next cycle would look at: nothing comes of looking at the same twice."""
    found: list[object] = [key for key, holding in state.second_passes.items() if not holding.evicted]
    for queue in queues:
        head = queue.line.head() if queue.active else None
        if head is not None:
            memory = head.memory.last_tried if head.memory is not None and head.memory.pending else ()
            found.append((head.uid, str(memory)))
    return tuple(found)


def run_cycle(state: State, queues: Iterable[Queue], now: float) -> Cycle:
    """One cycle over the heads of these queues."""
    state.cycles += 1
    with state.forest.scope():
        work = _Work(state)
        for holding in list(state.second_passes.values()):
            work.nominate_again(holding)
        for queue in queues:
            head = queue.line.head() if queue.active else None
            if head is not None:
                work.nominate(queue, head)
        for entry in work.in_order():
            if work.commit.blocked:
                break
            work.settle(entry, work.commit.process(entry))
        work.commit.close()
    return work.finish(now)


@dataclass(slots=True)
class _Work:
    """One cycle in the making."""

    state: State
    commit: Commit = field(init=False)
    entries: list[Nomination] = field(default_factory=list)
    changed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.commit = Commit(self.state)

    # Nomination

    def nominate(self, queue: Queue, ask: Ask) -> None:
        problem = why_not_nominated(self.state, queue, ask)
        if problem is None:
            self.entries.append(nomination.nominate(self.state, queue, ask))
            return
        requeue = Requeue.ALONE_ALWAYS if isinstance(problem, NamespaceMismatch) else Requeue.ALONE
        self._requeue(queue, ask, Outcome(problem, requeue), pending_flavors=False)

    def nominate_again(self, holding: Holding) -> None:
        queue = self.state.queues.get(holding.cluster_queue)
        if queue is not None and queue.active and not holding.evicted:
            self.entries.append(nomination.nominate_again(self.state, queue, holding))

    # Order

    def in_order(self) -> Iterator[Nomination]:
        if self.state.options.fair_sharing:
            return self._fair_order()
        return iter(sorted(self.entries, key=self._classical_rank))

    def _classical_rank(self, entry: Nomination) -> tuple[object, ...]:
        options, ask = self.state.options, entry.ask
        return (
            entry.moving is None,
            options.prioritize_preemptor_workloads and entry.queue.line.preemptor is not ask,
            entry.assignment.level,
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

    # After the decision

    def settle(self, entry: Nomination, outcome: Outcome | None) -> None:
        if outcome is None:
            self.changed.add(entry.queue.name)
            return
        if entry.moving is not None:
            self.commit.wait(entry.queue, entry.ask.key, outcome.reason, parked=False)
            return
        ask = entry.ask
        ask.memory = None
        if outcome.keeps_memory and self.state.options.flavor_fungibility:
            ask.memory = entry.assignment.memory(self.state.cycles, entry.queue, ask)
        self._requeue(entry.queue, ask, outcome, pending_flavors=ask.memory is not None and ask.memory.pending)

    def _requeue(self, queue: Queue, ask: Ask, outcome: Outcome, *, pending_flavors: bool) -> None:
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

    def finish(self, now: float) -> Cycle:
        """Assume what was admitted."""
        state = self.state
        for entry in self.commit.admitted:
            assigned = entry.assigned()
            if entry.moving is not None:
                state.reassign(entry.moving, assigned)
                continue
            holding = Holding(entry.ask, entry.queue.name, assigned, reserved_at=now)
            holding.admitted = False
            if entry.replaced is not None:
                state.remove_holding(entry.replaced)
            state.assume(entry.ask, holding, first=True)
        return Cycle(self.commit.decisions, self.changed, 1, self.commit.blocked)


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
