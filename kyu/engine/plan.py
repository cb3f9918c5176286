"""
The short way for the most common workload: one pod set, one resource, no wishes about nodes.

What such a workload asks for is one amount of one cell, that of the first flavor where it is free. If there is one, a
``Sketch`` says all there is to say; if not, the only question is whom to preempt, flavor by flavor, which a ``Claim``
answers. Either is written out as a nomination only if something else depends on it. Whatever is not as simple as that
takes the long way.

Called by: turn.py and passes.py. Agrees with: nomination.py and flavors.py, whose answers it anticipates.
"""

from __future__ import annotations

from dataclasses import dataclass

from kyu.engine import eligibility, flat_preemption, preemption, quota
from kyu.engine.asks import ORDINARY, Ask
from kyu.engine.flavors import WORST, Assignment, Choice, Inner, Mode, PodSetAnswer, Verdict, prefers
from kyu.engine.nomination import Nomination, valid_memory
from kyu.engine.options import Options
from kyu.engine.preemption import Demand, Target
from kyu.engine.quota import Cell, Level
from kyu.engine.reasons import InsufficientQuota, PodSetReasons
from kyu.engine.state import State
from kyu.engine.tree import Group, Queue
from kyu.engine.workload import AssignedPodSet


def are_open(options: Options) -> bool:
    """Whether short ways lead where the long way does, under these options."""
    return options.flavor_fungibility and not (
        options.fair_sharing or options.concurrent_admission or options.block_admission or options.head_start
    )


# In place of the index of a flavor: it is the last of its group.
LAST_FLAVOR = -1
# The best that preemption can do: what others have borrowed, and nothing borrowed for it. No other flavor is better.
OWN_RECLAIMED = Verdict(Inner.RECLAIM, 0)
# The best without anybody to preempt.
NOTHING_BORROWED = Verdict(Inner.NO_CANDIDATES, 0)


@dataclass(slots=True, eq=False)
class Sketch:
    """A workload that fits as things stand."""

    queue: Queue
    ask: Ask
    cell: Cell
    amount: int
    level: int
    last_tried: int
    """The place of the flavor among those of its group, or LAST_FLAVOR."""

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


@dataclass(slots=True, eq=False)
class Claim:
    """A workload that fits nowhere as things stand, and the best that preemption could do for it."""

    queue: Queue
    ask: Ask
    cell: Cell
    """Of the flavor in which that is."""
    amount: int
    verdict: Verdict
    targets: list[Target]
    reasons: tuple[InsufficientQuota, ...]
    """What each flavor lacks."""
    short: bool
    """All flavors were looked at, not only those after a remembered one."""

    @property
    def level(self) -> int:
        return self.verdict.level

    @property
    def pod_sets(self) -> tuple[PodSetReasons, ...]:
        return (PodSetReasons(self.ask.shape.pod_sets[0].name, self.reasons),)

    def nomination(self) -> Nomination:
        (pod_set,) = self.ask.shape.pod_sets
        answer = PodSetAnswer(pod_set, pod_set.count, pod_set.total, reasons=self.reasons)
        if self.verdict.inner is Inner.NO_FIT:
            assignment = Assignment([answer], Mode.NO_FIT, "WaitingForQuota")
        else:
            flavor, resource = self.cell.key
            answer.choices = {resource: Choice(flavor, self.cell, Mode.PREEMPT, self.level)}
            answer.last_tried = {resource: -1}
            assignment = Assignment([answer], Mode.PREEMPT, usage={self.cell: self.amount})
        return Nomination(self.queue, self.ask, assignment, self.targets, short=self.short)


SHORT = (Sketch, Claim)


@dataclass(slots=True)
class Reservation:
    """What a workload for which there is no room within reach keeps others from taking while it waits."""

    queue: Queue
    ask: Ask
    usage: dict[Cell, int]
    level: int


def _group(queue: Queue, resource: str) -> Group | None:
    """The flavors of a resource, where it is enough to ask each for an amount."""
    group = queue.group_by_resource.get(resource)
    if group is None or not group.flavors or queue.counts_pods or queue.topology_only:
        return None
    if len(group.flavors) > 1 and queue.spec.flavor_fungibility.when_can_preempt != "TryNextFlavor":
        return None
    return group


def nominate(state: State, queue: Queue, ask: Ask) -> Sketch | Claim | None:
    """What the workload would get; None if it has to be looked at closely."""
    sole = ask.shape.sole
    if sole is None or ask.special is not ORDINARY:
        return None
    resource, amount = sole
    group = _group(queue, resource)
    if group is None:
        return None
    pod_set, last, policy = ask.shape.pod_sets[0], len(group.flavors) - 1, queue.spec.flavor_fungibility
    memory = None if ask.memory is None else valid_memory(state, queue, ask)
    start = 0 if memory is None else memory.next_flavor(pod_set.name, resource)
    refused: list[tuple[Cell, int]] = []
    for index in range(start, len(group.flavors)):
        flavor = group.flavors[index]
        cell = flavor.cells[resource]
        if amount > cell.potential or eligibility.why_not(state, queue, group, flavor, pod_set) is not None:
            return None
        free = quota.available(cell)
        if amount <= 0 or amount <= free:
            level = quota.borrowing_level(cell, amount).height
            if last and level and policy.when_can_borrow == "TryNextFlavor":
                return None
            return Sketch(queue, ask, cell, amount, level, index if index < last else LAST_FLAVOR)
        refused.append((cell, free))
    if ask.shape.can_shrink:
        return None
    # What can be told about all flavors cannot be told about the rest of them.
    return _claim(state, queue, ask, refused, amount, short=not start)


def reserve(queue: Queue, ask: Ask) -> Reservation | None:
    """What a workload holds back of which its watches say that there is no room; None if that has to be looked at."""
    watches = None if ask.peers is None else ask.peers.watches
    if not watches or not watches[0].simple or ask.special is not ORDINARY or ask.memory is not None:
        return None
    best: Reservation | None = None
    for watch in watches:
        cell, amount = watch.cell, watch.amount
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


def _claim(state: State, queue: Queue, ask: Ask, refused: list[tuple[Cell, int]], amount: int, *, short: bool) -> Claim:
    """The best that preemption could do in any of the flavors, of each of which so much is free."""
    best, best_cell, best_targets = WORST, refused[0][0], list[Target]()
    over_borrowing, reach, settled = _prefers_preemption(queue), queue.line.reach, False
    for cell, _ in refused:
        if settled and amount > reach(cell, ask.priority):
            continue
        verdict, targets = _try(state, queue, ask, cell, amount)
        if best is WORST or prefers(verdict, best, preemption_over_borrowing=over_borrowing):
            best, best_cell, best_targets = verdict, cell, targets
            if best == OWN_RECLAIMED:
                break
            # A flavor without candidates is not better than one with, nor than another for which nothing is borrowed.
            settled = bool(targets) or best == NOTHING_BORROWED
    reasons = tuple([InsufficientQuota(*cell.key, amount, free if free > 0 else 0) for cell, free in refused])
    return Claim(queue, ask, best_cell, amount, best, best_targets, reasons, short)


def _prefers_preemption(queue: Queue) -> bool:
    return queue.spec.flavor_fungibility.preference == "PreemptionOverBorrowing"


def _try(state: State, queue: Queue, ask: Ask, cell: Cell, amount: int) -> tuple[Verdict, list[Target]]:
    """Whom it would have to preempt in one flavor, if preemption is conceivable there."""
    level = quota.borrowing_level(cell, amount)
    if not _may_preempt(queue, cell, amount, level):
        return WORST, []
    targets: list[Target] = []
    if amount <= queue.line.reach(cell, ask.priority):
        if queue.flat:
            targets = flat_preemption.search(queue, ask, cell, amount)
        else:
            targets = preemption.search(state, Demand(queue, ask, {cell: amount}, (cell.key,)))
    if not targets:
        return Verdict(Inner.NO_CANDIDATES, level.height), targets
    from_own = queue in [target.queue for target in targets]
    if from_own or not queue.flat:
        # In a flat tree what others return changes nothing about how much of its own the queue uses.
        for target in targets:
            quota.refund_all(target.holding.charges)
        level = quota.borrowing_level(cell, amount)
        for target in targets:
            quota.charge_all(target.holding.charges)
    return Verdict(Inner.PREEMPT if from_own else Inner.RECLAIM, level.height), targets
