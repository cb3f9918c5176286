"""
The short way for the most common workload: one pod set, one resource, one flavor, no wishes about nodes.

What such a workload asks for is one amount of one cell. If that is free it fits, and a ``Sketch`` says all there is
to say; if it is not, the only question is whom to preempt, and the nomination is written down without any search for
flavors. Whatever is not as simple as that takes the long way.

Called by: turn.py, in passes. Agrees with: nomination.py and flavors.py, whose answers it anticipates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kyu.engine import eligibility, preemption, quota
from kyu.engine.asks import ORDINARY, Ask
from kyu.engine.flavors import Assignment, Choice, Mode, PodSetAnswer
from kyu.engine.nomination import Nomination
from kyu.engine.options import Options
from kyu.engine.preemption import Demand
from kyu.engine.quota import Cell
from kyu.engine.reasons import InsufficientQuota
from kyu.engine.state import State
from kyu.engine.tree import Flavor, Queue
from kyu.engine.workload import AssignedPodSet


def are_open(options: Options) -> bool:
    """Whether short ways lead where the long way does, under these options."""
    return options.flavor_fungibility and not (
        options.fair_sharing or options.concurrent_admission or options.block_admission
    )


@dataclass(slots=True)
class Sketch:
    """A workload that fits as things stand. The nomination is written out only if something else depends on it."""

    queue: Queue
    ask: Ask
    cell: Cell
    amount: int
    level: int
    moving: ClassVar[None] = None
    """As in a nomination: it has no quota yet."""

    def fits(self) -> bool:
        return self.amount <= 0 or self.amount <= quota.available(self.cell)

    def nomination(self) -> Nomination:
        (pod_set,) = self.ask.shape.pod_sets
        flavor, resource = self.cell.key
        choice = Choice(flavor, self.cell, Mode.FIT, self.level)
        answer = PodSetAnswer(pod_set, pod_set.count, pod_set.total, {resource: choice}, (), {resource: -1})
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


def nominate(state: State, queue: Queue, ask: Ask) -> Sketch | Nomination | None:
    """What the workload would get; None if it has to be looked at closely."""
    sole = ask.shape.sole
    if sole is None or ask.special is not ORDINARY or ask.memory is not None or queue.topology_only:
        return None
    resource, amount = sole
    flavor = queue.sole_flavors.get(resource)
    if flavor is None:
        return None
    cell = flavor.cells[resource]
    if amount > cell.potential or not _is_eligible(state, queue, resource, flavor, ask):
        return None
    level = quota.borrowing_level(cell, amount)
    free = quota.available(cell)
    if amount <= 0 or amount <= free:
        return Sketch(queue, ask, cell, amount, level.height)
    if ask.shape.can_shrink:
        return None
    reason = InsufficientQuota(flavor.name, resource, amount, max(0, free))
    policies = queue.policies
    if not (cell.nominal >= amount or level.inside or policies.may_preempt_while_borrowing(fair_sharing=False)):
        return _refusal(queue, ask, reason)
    return _preemption(state, queue, ask, cell, amount, level.height, reason)


def _is_eligible(state: State, queue: Queue, resource: str, flavor: Flavor, ask: Ask) -> bool:
    group = queue.group_by_resource[resource]
    return eligibility.why_not(state, queue, group, flavor, ask.shape.pod_sets[0]) is None


def _refusal(queue: Queue, ask: Ask, reason: InsufficientQuota) -> Nomination:
    (pod_set,) = ask.shape.pod_sets
    answer = PodSetAnswer(pod_set, pod_set.count, pod_set.total, reasons=(reason,))
    return Nomination(queue, ask, Assignment([answer], Mode.NO_FIT, "WaitingForQuota"), short=True)


def _preemption(
    state: State, queue: Queue, ask: Ask, cell: Cell, amount: int, level: int, reason: InsufficientQuota
) -> Nomination:
    """It could fit if others went; who, if anybody."""
    flavor, resource = cell.key
    targets = preemption.find_targets(state, Demand(queue, ask, {cell: amount}, (cell.key,)))
    if targets:
        with quota.without([charge for target in targets for charge in target.holding.charges]):
            level = quota.borrowing_level(cell, amount).height
    (pod_set,) = ask.shape.pod_sets
    choice = Choice(flavor, cell, Mode.PREEMPT, level)
    answer = PodSetAnswer(pod_set, pod_set.count, pod_set.total, {resource: choice}, (reason,), {resource: -1})
    return Nomination(queue, ask, Assignment([answer], Mode.PREEMPT, usage={cell: amount}), targets, short=True)
