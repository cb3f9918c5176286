"""
The short way for the most common workload: one pod set, one resource, one flavor, no wishes about nodes.

What such a workload asks for is one amount of one cell. If that is free it fits, and its nomination can be written
down without any search. If it is not, it takes the long way, like everybody else.

Called by: turn.py, in passes. Agrees with: nomination.py, whose answer it anticipates.
"""

from __future__ import annotations

from dataclasses import dataclass

from kyu.engine import eligibility, quota
from kyu.engine.flavors import PODS, Assignment, Choice, Mode, PodSetAnswer
from kyu.engine.nomination import Nomination
from kyu.engine.quota import Cell
from kyu.engine.state import State
from kyu.engine.tree import Queue
from kyu.engine.workload import ORDINARY, Ask


@dataclass(frozen=True, slots=True)
class Plan:
    """The only thing that workloads of some shape can get in a queue."""

    resource: str
    cell: Cell
    amount: int


def find_plan(state: State, queue: Queue, ask: Ask) -> Plan | None:
    """The plan of a workload's shape, if it has one."""
    if len(ask.shape.pod_sets) != 1 or queue.topology_only or PODS in queue.group_by_resource:
        return None
    (pod_set,) = ask.shape.pod_sets
    if len(pod_set.total) != 1 or pod_set.topology is not None:
        return None
    ((resource, amount),) = pod_set.total.items()
    group = queue.group_by_resource.get(resource)
    if group is None or len(group.flavors) != 1:
        return None
    (flavor,) = group.flavors
    if eligibility.why_not(state, queue, group, flavor, pod_set) is not None:
        return None
    return Plan(resource, flavor.cells[resource], amount)


@dataclass(frozen=True, slots=True)
class Sketch:
    """A nomination that is written out only when its turn to be committed has come and it still fits."""

    queue: Queue
    ask: Ask
    plan: Plan
    level: int

    def fits(self) -> bool:
        return quota.fits(self.plan.cell, self.plan.amount)

    def nomination(self) -> Nomination:
        (pod_set,) = self.ask.shape.pod_sets
        cell, resource = self.plan.cell, self.plan.resource
        choice = Choice(cell.key.flavor, cell, Mode.FIT, self.level)
        answer = PodSetAnswer(pod_set, pod_set.count, pod_set.total, {resource: choice}, (), {resource: -1})
        return Nomination(self.queue, self.ask, Assignment([answer], usage={cell: self.plan.amount}))


def sketch(queue: Queue, ask: Ask, plan: Plan) -> Sketch | None:
    """The sketch of a workload that fits as things stand; None if it has to be looked at closely."""
    cell, amount = plan.cell, plan.amount
    if ask.special is not ORDINARY or amount > cell.potential or not quota.fits(cell, amount):
        return None
    return Sketch(queue, ask, plan, quota.borrowing_level(cell, amount).height)
