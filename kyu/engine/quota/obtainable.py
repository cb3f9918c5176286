"""
Obtainable quota: the most of a quota that a workload could get, with all preemption that its policies allow.

Obtainable quota is a cheap upper bound. It is the free or reclaimable quota, plus the preemptible usage of the
workload's own ClusterQueue. A workload that requests more needs no search for targets. It stays inadmissible until
its obtainable quota grows.

Called by: engine/state.py, for every ClusterQueue. The pending queue passes the result to
engine/preemption/candidates.py, engine/flavors/assignment.py, engine/cycle.py and engine/queueing/inadmissible.py.
Calls: engine/quota/amounts.py.
"""

from __future__ import annotations

from typing import Protocol

from kyu.engine.quota.amounts import BOUNDLESS, QuotaNode
from kyu.engine.quota.policies import Policies


class ObtainableQuota(Protocol):
    """A function that returns the most of a quota that a workload of some priority could get, with preemption."""

    def __call__(self, quota: QuotaNode, priority: int) -> int: ...


def obtainable_quota(policies: Policies, *, in_cohort: bool, fair_sharing: bool) -> ObtainableQuota:
    """Return the function that computes obtainable quota for a ClusterQueue with these policies."""
    own = own_usage(policies)
    if not policies.reclaims or not in_cohort:
        return lambda quota, priority: quota.available() + own(quota, priority)
    claimed_only = policies.borrow_forbidden and not fair_sharing

    def claimable(quota: QuotaNode, priority: int) -> int:
        if not claimed_only:
            return BOUNDLESS
        free, claimed, _ = look_up(quota)
        return (free if free > claimed else claimed) + own(quota, priority)

    known: dict[tuple[QuotaNode, int], tuple[tuple[int, ...], int]] = {}

    def claimable_from_lower(quota: QuotaNode, priority: int) -> int:
        """Return a cached result while the quota is unchanged, which holds for most flavors between two calls."""
        parent = quota.parent
        if parent is None or parent.parent is not None:
            return find_claimable_from_lower(quota, priority)
        looks = (quota.changes, quota.usage, parent.changes, parent.usage)
        found = known.get((quota, priority))
        if found is not None and found[0] == looks:
            return found[1]
        most = find_claimable_from_lower(quota, priority)
        known[quota, priority] = (looks, most)
        return most

    def find_claimable_from_lower(quota: QuotaNode, priority: int) -> int:
        free, claimed, root = look_up(quota)
        own_lower, most = own(quota, priority), free
        for other, amount in root.by_priority.items():  # inlines used_below: the call is a quarter of the cost
            if other < priority:
                most += amount
        if own is not used_below:
            most += own_lower - used_below(quota, priority)
        if claimed_only:
            claimed = (free if free > claimed else claimed) + own_lower
            return claimed if claimed < most else most
        return most

    return claimable if policies.reclaim == "Any" else claimable_from_lower


def own_usage(policies: Policies) -> ObtainableQuota:
    """Return the function that computes how much usage a workload could preempt in its own ClusterQueue."""
    return _OWN_USAGE.get(policies.within, used_by_nobody)


def used_by_nobody(quota: QuotaNode, priority: int) -> int:
    return 0


def used_below(quota: QuotaNode, priority: int) -> int:
    """Return the usage of workloads with lower priorities, in a ClusterQueue or a whole tree."""
    total = 0
    for other, amount in quota.by_priority.items():
        if other < priority:
            total += amount
    return total


def used_up_to(quota: QuotaNode, priority: int) -> int:
    """Return the usage of workloads with this priority or a lower one."""
    return used_below(quota, priority) + quota.by_priority.get(priority, 0)


_OWN_USAGE: dict[str, ObtainableQuota] = {"LowerPriority": used_below, "LowerOrNewerEqualPriority": used_up_to}


def look_up(quota: QuotaNode) -> tuple[int, int, QuotaNode]:
    """
    Return the free quota, the most that may be reclaimed by preemption, and the root of the tree.

    A subtree below the root reclaims at most its own unused quota. A larger amount would make every such subtree
    borrow, and a borrowing subtree reclaims nothing outside it. One walk computes this and ``available``, because both
    add up the unused local parts of the ancestors.
    """
    unused = claimable = quota.subtree - quota.usage
    private, most = 0, None
    while (parent := quota.parent) is not None:
        over, cap = quota.usage - quota.local, quota.cap
        if over < 0:
            private -= over
            over = 0
        if cap is not None and (most is None or cap - over + private < most):
            most = cap - over + private
        quota = parent
        unused = quota.subtree - quota.usage + private
        if quota.parent is not None and unused > claimable:
            claimable = unused
    return unused if most is None or unused < most else most, claimable, quota
