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
    policies = queue.policies
    if queue.parent is None or policies.reclaim not in ("Any", "LowerPriority"):
        return quota.available(cell) + preemptible(queue, cell, priority)
    if fair_sharing or policies.borrow not in ("", "Never"):
        return BOUNDLESS
    free, claimable = quota.available(cell), reclaimable(cell)
    return (free if free > claimable else claimable) + preemptible(queue, cell, priority)


def preemptible(queue: Queue, cell: Cell, priority: int) -> int:
    """What workloads of the same queue use that might be preempted."""
    within = queue.policies.within
    if within not in ("LowerPriority", "LowerOrNewerEqualPriority"):
        return 0
    below = priority if within == "LowerPriority" else priority + 1
    total = 0
    for other, amount in cell.by_priority.items():
        if other < below:
            total += amount
    return total


def reclaimable(cell: Cell) -> int:
    """
    The most for which others may have to go: what some part of the tree below the root has and does not use itself.

    A larger amount leaves every such part over its quota, and then nothing outside it is reclaimed.
    """
    most = cell.subtree - cell.usage
    below = 0
    while (parent := cell.parent) is not None and parent.parent is not None:
        below += quota.local_available(cell)
        most = max(most, parent.subtree - parent.usage + below)
        cell = parent
    return most
