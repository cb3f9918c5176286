"""
What a status says about a queue or cohort: who waits, who has quota, how much of it is in use.

Called by: state.py. Calls: fairshare.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kyu.engine import fairshare
from kyu.engine.local_queues import LocalQueueRecord
from kyu.engine.quota import FlavorResource
from kyu.engine.tree import CohortNode, Queue, queues_of


@dataclass(frozen=True, slots=True)
class Usage:
    """How much of one flavor and resource is in use."""

    reserved: int
    admitted: int
    borrowed: int = 0


@dataclass(frozen=True, slots=True)
class Stats:
    """What a status says about a queue or cohort; kept as things happen, never counted by listing."""

    pending: int
    reserving: int
    admitted: int
    usage: dict[FlavorResource, Usage]
    weighted_share: int = 0


def of_queue(queue: Queue, admitted_by_queue: Mapping[str, int]) -> Stats:
    usage = {
        key: Usage(cell.usage, cell.admitted, max(0, cell.usage - cell.nominal) if queue.parent else 0)
        for key, cell in queue.cells.items()
        if cell.declared or cell.usage
    }
    admitted = admitted_by_queue.get(queue.name, 0)
    return Stats(queue.line.size, len(queue.holdings), admitted, usage, fairshare.published(queue))


def of_local_queue(record: LocalQueueRecord) -> Stats:
    usage = {key: Usage(count.reserved, count.admitted) for key, count in record.usage.items()}
    return Stats(record.pending, record.reserving, record.admitted, usage)


def of_cohort(cohort: CohortNode, admitted_by_queue: Mapping[str, int]) -> Stats:
    """With everything below it."""
    members = list(queues_of(cohort))
    usage = {
        key: Usage(cell.usage, 0, max(0, cell.usage - cell.subtree) if cohort.parent else 0)
        for key, cell in cohort.cells.items()
    }
    return Stats(
        sum(queue.line.size for queue in members),
        sum(len(queue.holdings) for queue in members),
        sum(admitted_by_queue.get(queue.name, 0) for queue in members),
        usage,
        fairshare.published(cohort),
    )
