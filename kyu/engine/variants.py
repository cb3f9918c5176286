"""
Variants of a workload: each is a Workload that may use one flavor only, and all are tried at once.

A variant in an earlier flavor of the ClusterQueue is better. At most one variant of a workload is admitted. When a
better variant fits, the worse one is evicted, if the policy of the ClusterQueue allows the migration.

Called by: engine/commit.py, with the gate ConcurrentAdmission. Kueue: KEP-8691
"""

from __future__ import annotations

from collections.abc import Callable
from operator import gt, lt

from kyu.engine.queueing.pending_workload import PendingWorkload
from kyu.engine.tree import Queue
from kyu.engine.workloads import ReservedWorkload


def find_better(queue: Queue, workload: PendingWorkload) -> ReservedWorkload | None:
    return _find_sibling(queue, workload, lt)


def find_worse(queue: Queue, workload: PendingWorkload) -> ReservedWorkload | None:
    return _find_sibling(queue, workload, gt)


def may_migrate(queue: Queue, workload: PendingWorkload) -> bool:
    """Return whether the policy of the queue allows a migration to the flavor of this variant."""
    policy = queue.spec.concurrent_admission_policy
    constraints = policy.migration.constraints if policy else None
    last = _rank(queue, constraints.last_acceptable_flavor_name or "") if constraints else None
    own = _rank(queue, workload.rare.allowed_flavor)
    return last is None or (own is not None and own <= last)


def _find_sibling(
    queue: Queue, workload: PendingWorkload, is_wanted: Callable[[int, int], bool]
) -> ReservedWorkload | None:
    """Return an admitted variant of the same workload whose flavor compares with the own one as wanted."""
    own = _rank(queue, workload.rare.allowed_flavor)
    if own is None or not workload.rare.variant_of:
        return None
    for _, reserved in queue.reserved_workloads:
        if reserved.admitted and reserved.rare.variant_of == workload.rare.variant_of and reserved.key != workload.key:
            rank = _rank(queue, reserved.rare.allowed_flavor)
            if rank is not None and is_wanted(rank, own):
                return reserved
    return None


def _rank(queue: Queue, flavor: str) -> int | None:
    """Return the place of a flavor in the first resource group of the queue; None if it is not listed."""
    names = [f.name for f in queue.groups[0].flavors] if queue.groups else []
    return names.index(flavor) if flavor in names else None
