"""
The short way for the most common workload: one pod set, one resource, no wishes about nodes.

What such a workload asks for is one amount of one cell, that of the first flavor where it is free. If there is one, a
``Sketch`` says all there is to say; if not, the only question is whom to preempt, flavor by flavor, and the nomination
is written down at the end. Whatever is not as simple as that takes the long way.

Called by: turn.py, in passes. Agrees with: nomination.py and flavors.py, whose answers it anticipates.
"""

from __future__ import annotations

from dataclasses import dataclass

from kyu.engine import eligibility, preemption, quota
from kyu.engine.asks import ORDINARY, Ask
from kyu.engine.flavors import WORST, Assignment, Choice, Inner, Mode, PodSetAnswer, Verdict, prefers
from kyu.engine.nomination import Nomination, valid_memory
from kyu.engine.options import Options
from kyu.engine.preemption import Demand, Target
from kyu.engine.quota import Cell, Level
from kyu.engine.reasons import InsufficientQuota
from kyu.engine.state import State
from kyu.engine.tree import Group, Queue
from kyu.engine.workload import AssignedPodSet


def are_open(options: Options) -> bool:
    """Whether short ways lead where the long way does, under these options."""
    return options.flavor_fungibility and not (
        options.fair_sharing or options.concurrent_admission or options.block_admission or options.head_start
    )


@dataclass(slots=True)
class Sketch:
    """A workload that fits as things stand. The nomination is written out only if something else depends on it."""

    queue: Queue
    ask: Ask
    cell: Cell
    amount: int
    level: int
    last_tried: int
    """The place of the flavor among those of its group; -1 if it is the last."""

    def fits(self) -> bool:
        return self.amount <= 0 or self.amount <= quota.available(self.cell)

    def nomination(self) -> Nomination:
        (pod_set,) = self.ask.shape.pod_sets
        flavor, resource = self.cell.key
        choice = Choice(flavor, self.cell, Mode.FIT, self.level)
        answer = PodSetAnswer(
            pod_set, pod_set.count, pod_set.total, {resource: choice}, (), {resource: self.last_tried}
        )
        return Nomination(self.queue, self.ask, Assignment([answer], usage={self.cell: self.amount}))

    def assigned(self, state: State) -> tuple[AssignedPodSet, ...]:
        """What it gets; the same for all of its shape in this flavor."""
        (pod_set,) = self.ask.shape.pod_sets
        flavor, resource = self.cell.key
        known = state.cluster.sole_assignments
        found = known.get((pod_set, flavor))
        if found is None:
            usage = {resource: self.amount}
            found = (AssignedPodSet(pod_set.name, pod_set.count, {resource: flavor}, usage),)
            known[pod_set, flavor] = found
        return found


@dataclass(slots=True)
class Reservation:
    """What a workload for which there is no room within reach keeps others from taking while it waits."""

    queue: Queue
    ask: Ask
    usage: dict[Cell, int]
    level: int


def _group(queue: Queue, ask: Ask) -> tuple[Group, str, int] | None:
    """Where one amount is all that the workload asks for: the flavors, the resource and the amount."""
    sole = ask.shape.sole
    if sole is None or ask.special is not ORDINARY or queue.topology_only:
        return None
    resource, amount = sole
    group = queue.group_by_resource.get(resource)
    if group is None or not group.flavors or queue.counts_pods:
        return None
    if len(group.flavors) > 1 and queue.spec.flavor_fungibility.when_can_preempt != "TryNextFlavor":
        return None
    return group, resource, amount


def is_simple(queue: Queue, ask: Ask) -> bool:
    """Whether one amount, of one flavor or another, is all that there is to say about the workload."""
    return not ask.shape.can_shrink and ask.memory is None and _group(queue, ask) is not None


def nominate(state: State, queue: Queue, ask: Ask) -> Sketch | Nomination | None:
    """What the workload would get; None if it has to be looked at closely."""
    simple = _group(queue, ask)
    if simple is None:
        return None
    group, resource, amount = simple
    pod_set, last, policy = ask.shape.pod_sets[0], len(group.flavors) - 1, queue.spec.flavor_fungibility
    memory = None if ask.memory is None else valid_memory(state, queue, ask)
    start = 0 if memory is None else memory.next_flavor(pod_set.name, resource)
    cells = []
    for index in range(start, len(group.flavors)):
        flavor = group.flavors[index]
        cell = flavor.cells[resource]
        if amount > cell.potential or eligibility.why_not(state, queue, group, flavor, pod_set) is not None:
            return None
        if amount <= 0 or amount <= quota.available(cell):
            level = quota.borrowing_level(cell, amount).height
            if last and level and policy.when_can_borrow == "TryNextFlavor":
                return None
            return Sketch(queue, ask, cell, amount, level, index if index < last else -1)
        cells.append(cell)
    if ask.shape.can_shrink:
        return None
    found = _without_room(state, queue, ask, cells, amount)
    # What can be told about all flavors cannot be told about the rest of them.
    found.short = not start
    return found


def reserve(queue: Queue, ask: Ask) -> Reservation | None:
    """What a workload holds back of which its watches say that there is no room; None if that has to be looked at."""
    if ask.peers is None or not ask.peers.watches or not is_simple(queue, ask):
        return None
    best: Reservation | None = None
    for amount, _, cell in ask.peers.watches:
        level = quota.borrowing_level(cell, amount)
        # Of flavors without candidates, the one for which it would borrow least; the first of equals.
        if _may_preempt(queue, cell, amount, level) and (best is None or level.height < best.level):
            best = Reservation(queue, ask, {cell: amount}, level.height)
            if not level.height:
                break
    return best or Reservation(queue, ask, {}, 0)


def _may_preempt(queue: Queue, cell: Cell, amount: int, level: Level) -> bool:
    """Whether preemption is conceivable for so much of a flavor."""
    if cell.nominal >= amount or level.inside:
        return True
    return queue.policies.may_preempt_while_borrowing(fair_sharing=False)


def _without_room(state: State, queue: Queue, ask: Ask, cells: list[Cell], amount: int) -> Nomination:
    """It fits nowhere as things are: the best that preemption could do for it in any of the flavors."""
    over_borrowing = queue.spec.flavor_fungibility.preference == "PreemptionOverBorrowing"
    best, best_cell, best_targets = WORST, cells[0], list[Target]()
    for cell in cells:
        verdict, targets = _try(state, queue, ask, cell, amount)
        if prefers(verdict, best, preemption_over_borrowing=over_borrowing):
            best, best_cell, best_targets = verdict, cell, targets
    (pod_set,) = ask.shape.pod_sets
    reasons = tuple(InsufficientQuota(*cell.key, amount, max(0, quota.available(cell))) for cell in cells)
    answer = PodSetAnswer(pod_set, pod_set.count, pod_set.total, reasons=reasons)
    if best.inner is Inner.NO_FIT:
        return Nomination(queue, ask, Assignment([answer], Mode.NO_FIT, "WaitingForQuota"))
    flavor, resource = best_cell.key
    answer.choices = {resource: Choice(flavor, best_cell, Mode.PREEMPT, best.level)}
    answer.last_tried = {resource: -1}
    assignment = Assignment([answer], Mode.PREEMPT, usage={best_cell: amount})
    return Nomination(queue, ask, assignment, best_targets)


def _try(state: State, queue: Queue, ask: Ask, cell: Cell, amount: int) -> tuple[Verdict, list[Target]]:
    """Whom it would have to preempt in one flavor, if preemption is conceivable there."""
    level = quota.borrowing_level(cell, amount)
    if not _may_preempt(queue, cell, amount, level):
        return WORST, []
    targets: list[Target] = []
    if amount <= queue.line.reach(cell, ask.priority):
        targets = preemption.find_targets(state, Demand(queue, ask, {cell: amount}, (cell.key,)))
    if not targets:
        return Verdict(Inner.NO_CANDIDATES, level.height), targets
    for target in targets:
        quota.refund_all(target.holding.charges)
    level = quota.borrowing_level(cell, amount)
    for target in targets:
        quota.charge_all(target.holding.charges)
    from_own = any(target.queue is queue for target in targets)
    return Verdict(Inner.PREEMPT if from_own else Inner.RECLAIM, level.height), targets
