"""
How much of a quota a workload could get at the very most, preempting everybody whom it may.

Reach is an upper bound that costs next to nothing: what is free, or what the queue could claim back from others, and on
top all that it could preempt in its own queue. What asks for more need not be searched victims for, and need not be
asked again until its reach has grown.

Called by: preemption.py (before a search), watch.py and cycle.py (before asking again). Calls: quota.py.
"""

from __future__ import annotations

from kyu.engine import quota
from kyu.engine.quota import BOUNDLESS, Cell
from kyu.engine.tree import Queue


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
