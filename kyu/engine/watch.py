"""
What a workload that did not fit waits for: how much of which quota must come within reach before asking again helps.

As long as some resource of every flavor asks for more than is within reach, the answer is the one it got, so it need
not be asked. Where that is not known, it is asked.

Called by: turn.py (when a workload is parked). Calls: reach.py, through the line.
"""

from __future__ import annotations

from kyu.engine import placing
from kyu.engine.asks import Ask
from kyu.engine.nomination import Nomination
from kyu.engine.plan import Claim
from kyu.engine.quota import Cell
from kyu.engine.reasons import FlavorReason, InsufficientQuota, ResourceNotCovered
from kyu.engine.state import State
from kyu.engine.tree import Flavor, Queue


def find_watches(state: State, entry: Nomination | Claim, *, from_the_start: bool) -> list[tuple[Cell, int]] | None:
    """
    For each flavor that could do one day, a resource that is out of reach now; None if asking again may always help.

    ``from_the_start`` says that all flavors were looked at, not only those after a remembered one.
    """
    if entry.short:
        return _short_watches(entry.queue, entry.ask)
    if isinstance(entry, Claim):
        return None
    assignment, shape, options = entry.assignment, entry.ask.shape, state.options
    if not from_the_start or len(shape.pod_sets) != 1 or not assignment.pod_sets or entry.replaced is not None:
        return None
    if options.partial_admission and shape.can_shrink:
        return None
    answer = assignment.pod_sets[0]
    if placing.is_placed(state, entry.queue, answer):
        return None
    if any(isinstance(reason, ResourceNotCovered) for reason in answer.reasons):
        return []
    groups = {id(g): g for r in answer.requests if (g := entry.queue.group_by_resource.get(r)) is not None}
    if len(groups) != 1:
        return None
    (group,) = groups.values()
    watches: list[tuple[Cell, int]] = []
    for flavor in group.flavors:
        reasons = [r for r in answer.reasons if getattr(r, "flavor", None) == flavor.name]
        watch = _watch(entry, flavor, reasons)
        if watch is None:
            return None
        watches += watch
    return watches


def _short_watches(queue: Queue, ask: Ask) -> list[tuple[Cell, int]] | None:
    """What was found on the short way asks for one amount, of one flavor or another."""
    ((resource, amount),) = ask.shape.pod_sets[0].total.items()
    reach, priority = queue.line.reach, ask.priority
    cells = [flavor.cells[resource] for flavor in queue.group_by_resource[resource].flavors]
    for cell in cells:
        if amount <= reach(cell, priority):
            return None
    return [(cell, amount) for cell in cells]


def _watch(entry: Nomination, flavor: Flavor, reasons: list[FlavorReason]) -> list[tuple[Cell, int]] | None:
    """Nothing to watch for a flavor that can never do; None if nothing about the flavor is out of reach."""
    short = [reason for reason in reasons if isinstance(reason, InsufficientQuota)]
    if len(short) < len(reasons):
        return []
    for reason in short:
        cell = flavor.cells[reason.resource]
        if reason.requested > entry.queue.line.reach(cell, entry.ask.priority):
            return [(cell, reason.requested)]
    return None
