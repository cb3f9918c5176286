"""
What a workload that did not fit waits for: how much of which quota must come within reach before asking again helps.

Reach is an upper bound of what a workload of some priority could get: what is free, or what its queue could claim back
from others, and on top all that it could preempt in its own queue. As long as some resource of every flavor asks for
more than that, the answer is the one it got, so it need not be asked. Where no such bound is known, it is asked.

Called by: cycle.py (when a workload is parked), passes.py (when its tree has changed). Calls: quota.py.
"""

from __future__ import annotations

from kyu.engine import placing, quota
from kyu.engine.nomination import Nomination
from kyu.engine.queues import Watches
from kyu.engine.quota import BOUNDLESS, Cell
from kyu.engine.reasons import FlavorReason, InsufficientQuota, ResourceNotCovered
from kyu.engine.state import State
from kyu.engine.tree import Flavor, Queue


def reach(queue: Queue, cell: Cell, priority: int, *, fair_sharing: bool) -> int:
    """The most of a cell that a workload of this priority could get, whatever happens to others."""
    free = quota.available(cell)
    own = preemptible(queue, cell, priority)
    policies = queue.policies
    if queue.parent is None or policies.reclaim not in ("Any", "LowerPriority"):
        return free + own
    if fair_sharing or not policies.borrow_forbidden:
        return BOUNDLESS
    return max(free, reclaimable(cell)) + own


def preemptible(queue: Queue, cell: Cell, priority: int) -> int:
    """What workloads of the same queue use that might be preempted."""
    match queue.policies.within:
        case "LowerPriority":
            return sum(amount for other, amount in cell.by_priority.items() if other < priority)
        case "LowerOrNewerEqualPriority":
            return sum(amount for other, amount in cell.by_priority.items() if other <= priority)
        case _:
            return 0


def reclaimable(cell: Cell) -> int:
    """
    The most for which others may have to go: what some part of the tree below the root has and does not use itself.

    A larger amount leaves every such part over its quota, and then nothing outside it is reclaimed.
    """
    most = cell.subtree - cell.usage
    below = quota.local_available(cell)
    parent = cell.parent
    while parent is not None and parent.parent is not None:
        most = max(most, parent.subtree - parent.usage + below)
        below += quota.local_available(parent)
        parent = parent.parent
    return most


def find_watches(state: State, entry: Nomination, *, from_the_start: bool) -> Watches | None:
    """
    For each flavor that could do one day, a resource that is out of reach now; None if asking again may always help.

    ``from_the_start`` says that all flavors were looked at, not only those after a remembered one.
    """
    assignment, shape, options = entry.assignment, entry.ask.shape, state.options
    if not from_the_start or len(shape.pod_sets) != 1 or not assignment.pod_sets or entry.replaced is not None:
        return None
    if options.partial_admission and shape.can_shrink:
        return None
    answer = assignment.pod_sets[0]
    if placing.is_placed(state, entry.queue, answer):
        return None
    if any(isinstance(reason, ResourceNotCovered) for reason in answer.reasons):
        return ()
    groups = {id(g): g for r in answer.requests if (g := entry.queue.group_by_resource.get(r)) is not None}
    if len(groups) != 1:
        return None
    (group,) = groups.values()
    watches = []
    for flavor in group.flavors:
        reasons = [r for r in answer.reasons if getattr(r, "flavor", None) == flavor.name]
        watch = _watch(state, entry, flavor, reasons)
        if watch is None:
            return None
        watches += watch
    return tuple(watches)


def _watch(
    state: State, entry: Nomination, flavor: Flavor, reasons: list[FlavorReason]
) -> list[tuple[Cell, int]] | None:
    """Nothing to watch for a flavor that can never do; None if nothing about the flavor is out of reach."""
    short = [reason for reason in reasons if isinstance(reason, InsufficientQuota)]
    if len(short) < len(reasons):
        return []
    for reason in short:
        cell = flavor.cells[reason.resource]
        if reason.requested > reach(entry.queue, cell, entry.ask.priority, fair_sharing=state.options.fair_sharing):
            return [(cell, reason.requested)]
    return None
