"""
How much of a quota a workload could get at the very most, preempting everybody whom it may.

Reach is an upper bound that costs next to nothing: what is free, or what the queue could claim back from others, and on
top all that it could preempt in its own queue. What asks for more need not be searched victims for, and need not be
asked again until its reach has grown.

Called by: state.py, for every queue, flat.py; through the line of a queue preemption.py (before a search), plan.py
and queues.py (before asking again). Calls: quota.py.
"""

from __future__ import annotations

from kyu.engine import quota
from kyu.engine.quota import BOUNDLESS, Cell
from kyu.engine.tree import Policies, Queue
from kyu.engine.watches import Reach


def reach_of(queue: Queue, *, fair_sharing: bool) -> Reach:
    """The most of a cell that a workload of the queue could get, by its priority, whatever happens to others."""
    policies = queue.policies
    own = own_usage(policies)
    if not policies.reclaims or queue.parent is None:
        return lambda cell, priority: quota.available(cell) + own(cell, priority)
    claimed_only = policies.borrow_forbidden and not fair_sharing

    def claimable(cell: Cell, priority: int) -> int:
        if not claimed_only:
            return BOUNDLESS
        free, claimed, _ = look_up(cell)
        return (free if free > claimed else claimed) + own(cell, priority)

    known: dict[tuple[Cell, int], tuple[tuple[int, ...], int]] = {}

    def claimable_from_lower(cell: Cell, priority: int) -> int:
        """It is asked for all flavors, of which most are as they were: what was found out is kept."""
        parent = cell.parent
        if parent is None or parent.parent is not None:
            return find_claimable_from_lower(cell, priority)
        looks = (cell.changes, cell.usage, parent.changes, parent.usage)
        found = known.get((cell, priority))
        if found is not None and found[0] == looks:
            return found[1]
        most = find_claimable_from_lower(cell, priority)
        known[cell, priority] = (looks, most)
        return most

    def find_claimable_from_lower(cell: Cell, priority: int) -> int:
        free, claimed, root = look_up(cell)
        own_lower, most = own(cell, priority), free
        for other, amount in root.by_priority.items():  # as used_below says, which would be a quarter of the cost
            if other < priority:
                most += amount
        if own is not used_below:
            most += own_lower - used_below(cell, priority)
        if claimed_only:
            claimed = (free if free > claimed else claimed) + own_lower
            return claimed if claimed < most else most
        return most

    return claimable if policies.reclaim == "Any" else claimable_from_lower


def own_usage(policies: Policies) -> Reach:
    """How much of what its own queue uses a workload could preempt."""
    return _OWN_USAGE.get(policies.within, used_by_nobody)


def used_by_nobody(cell: Cell, priority: int) -> int:
    return 0


def used_below(cell: Cell, priority: int) -> int:
    """What workloads of lower priorities use, of a queue or of a whole tree."""
    total = 0
    for other, amount in cell.by_priority.items():
        if other < priority:
            total += amount
    return total


def used_up_to(cell: Cell, priority: int) -> int:
    """What workloads of lower priorities and of this one use."""
    return used_below(cell, priority) + cell.by_priority.get(priority, 0)


_OWN_USAGE: dict[str, Reach] = {"LowerPriority": used_below, "LowerOrNewerEqualPriority": used_up_to}


def look_up(cell: Cell) -> tuple[int, int, Cell]:
    """
    What is free, the most for which others may have to go, and the root of the tree.

    Others may have to go for what some part of the tree below the root has and does not use itself: a larger amount
    leaves every such part over its quota, and then nothing outside it is reclaimed. ``quota.available`` and this in one
    walk, since both count the unused private parts on the way up.
    """
    unused = claimable = cell.subtree - cell.usage
    private, most = 0, None
    while (parent := cell.parent) is not None:
        over, cap = cell.usage - cell.local, cell.cap
        if over < 0:
            private -= over
            over = 0
        if cap is not None and (most is None or cap - over + private < most):
            most = cap - over + private
        cell = parent
        unused = cell.subtree - cell.usage + private
        if cell.parent is not None and unused > claimable:
            claimable = unused
    return unused if most is None or unused < most else most, claimable, cell
