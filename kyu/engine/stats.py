"""
The numbers in the status of a queue or cohort: pending workloads, workloads with quota, usage.

Called by: engine/state.py. Calls: engine/shares.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kyu.engine import shares
from kyu.engine.local_queues import LocalQueueRecord
from kyu.engine.quota.amounts import FlavorResource
from kyu.engine.tree import CohortNode, Queue, TreeNode, queues_of


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of one flavor and resource."""

    reserved: int
    admitted: int
    borrowed: int = 0


@dataclass(frozen=True, slots=True)
class Stats:
    """The numbers in the status of a queue or cohort. They are kept with each change, never counted from a list."""

    pending: int
    reserving: int
    admitted: int
    usage: dict[FlavorResource, Usage]
    weighted_share: int = 0
    precise_share: float = 0.0
    """The share before rounding; infinite for a node of weight 0 that borrows."""


@dataclass(frozen=True, slots=True)
class QuotaReport:
    """The quota of a ClusterQueue or Cohort for one flavor and resource, as a report shows it."""

    key: FlavorResource
    nominal: int
    used: int
    borrowed: int
    available: int
    subtree: int
    """The quota of the node and of what its children lend to it."""
    declared: bool
    borrowing_limit: int | None
    lending_limit: int | None


def quotas_of(node: TreeNode) -> list[QuotaReport]:
    """Return a report for every flavor and resource of a node."""
    return [
        QuotaReport(
            key,
            quota.nominal,
            quota.usage,
            max(0, quota.usage - quota.subtree) if quota.parent is not None else 0,
            max(0, quota.available()),
            quota.subtree,
            quota.declared,
            quota.borrowing_limit,
            quota.lending_limit,
        )
        for key, quota in node.quotas.items()
    ]


def of_queue(queue: Queue, admitted_by_queue: Mapping[str, int]) -> Stats:
    usage = {
        key: Usage(quota.usage, quota.admitted, max(0, quota.usage - quota.nominal) if queue.parent else 0)
        for key, quota in queue.quotas.items()
        if quota.declared or quota.usage
    }
    admitted = admitted_by_queue.get(queue.name, 0)
    reserving = len(queue.reserved_workloads)
    return Stats(queue.pending.size, reserving, admitted, usage, shares.published(queue), shares.precise(queue))


def of_local_queue(record: LocalQueueRecord) -> Stats:
    usage = {key: Usage(count.reserved, count.admitted) for key, count in record.usage.items()}
    return Stats(record.pending, record.reserving, record.admitted, usage)


def of_cohort(cohort: CohortNode, admitted_by_queue: Mapping[str, int]) -> Stats:
    """Return the numbers of a cohort with all queues below it."""
    members = list(queues_of(cohort))
    usage = {
        key: Usage(quota.usage, 0, max(0, quota.usage - quota.subtree) if cohort.parent else 0)
        for key, quota in cohort.quotas.items()
    }
    return Stats(
        sum(queue.pending.size for queue in members),
        sum(len(queue.reserved_workloads) for queue in members),
        sum(admitted_by_queue.get(queue.name, 0) for queue in members),
        usage,
        shares.published(cohort),
        shares.precise(cohort),
    )
