"""
Invariants of the state: counts, usage and queues agree with the workloads.

The usage of a queue is the sum of its workloads' charges, and a cohort's usage is the excess of its members. No
workload is both pending and reserved. Each pending workload is counted once. Every what-if was undone.

Called by: ``State.check`` (engine/state.py), which tests call after each step. A failure is a bug of the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kyu.api.meta import Key
from kyu.engine.pending_workloads import PendingWorkloads
from kyu.engine.quota.amounts import FlavorResource, QuotaNode
from kyu.engine.tree import CohortNode, Hierarchy, Queue
from kyu.engine.workloads import ReservedWorkload


def check(hierarchy: Hierarchy, waiting: PendingWorkloads, reserved_workloads: Mapping[Key, ReservedWorkload]) -> None:
    """Raise AssertionError if an invariant does not hold."""
    for queue in hierarchy.queues.values():
        check_queue(queue)
    for cohort in hierarchy.cohorts.values():
        for quota in cohort.quotas.values():
            total = sum(max(0, child.usage - child.local) for child in quota.children)
            assert quota.usage == total, f"{cohort}: {quota} should use {total}"
        if cohort.parent is None and not cohort.cyclic:
            check_root(cohort)
    for key, reserved in reserved_workloads.items():
        assert key not in waiting.workloads, f"{key} both waits and holds quota"
        assert reserved.present, f"{key} was taken out and not put back"
    pending = sum(queue.pending.size for queue in hierarchy.queues.values())
    counted = sum(record.pending for record in waiting.local_queues.values())
    assert pending == counted, f"{pending} wait in ClusterQueues, {counted} in LocalQueues"


def check_root(root: CohortNode) -> None:
    """Check the usage by priority that a root keeps for its whole tree."""
    usage: dict[FlavorResource, Counter[int]] = {key: Counter() for key in root.quotas}
    for queue in root.all_queues():
        for _, reserved in queue.reserved_workloads:
            for quota, amount in reserved.charges:
                if amount:
                    usage[quota.key][reserved.priority] += amount
    for key, quota in root.quotas.items():
        assert quota.by_priority == +usage[key], f"{root}: {quota} should know {usage[key]}"


def check_queue(queue: Queue) -> None:
    usage: dict[QuotaNode, int] = {}
    for order, reserved in queue.reserved_workloads:
        assert order == reserved.order, f"{reserved} is out of order"
        for quota, amount_held in reserved.charges:
            usage[quota] = usage.get(quota, 0) + amount_held
    for quota in queue.quotas.values():
        assert quota.usage == usage.get(quota, 0), f"{queue}: {quota} should use {usage.get(quota, 0)}"
    assert queue.reserved_workloads == sorted(queue.reserved_workloads, key=lambda entry: entry[0])
    assert queue.pending.size == len(queue.pending.waiting()), f"{queue} miscounts its pending workloads"
