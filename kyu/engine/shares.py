"""
Fair sharing: the share of a ClusterQueue or Cohort, and the order of heads by share.

For each resource, the borrowed amount is divided by the amount that the parent could lend, in thousandths. The share
of a node is the largest of these ratios, divided by the node's weight. In each cycle, the head comes first whose
admission would leave the smallest share. A tournament finds it, level by level in the tree.

Called by: engine/cycle.py (order of heads), engine/preemption/fair.py (comparisons), engine/stats.py (published
shares). Kueue: pkg/cache/scheduler/fair_sharing.go, pkg/scheduler/fair_sharing_iterator.go
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, inf
from typing import NamedTuple

from kyu.api.quantity import UNLIMITED
from kyu.engine.options import Options
from kyu.engine.queueing.pending_workload import PendingWorkload
from kyu.engine.quota import amounts
from kyu.engine.quota.amounts import QuotaNode
from kyu.engine.tree import CohortNode, Queue, TreeNode


class Share(NamedTuple):
    """A share in comparable form. A borrower with weight 0 has an infinite share; such shares compare by ratio."""

    infinite: bool
    value: float


ZERO = Share(infinite=False, value=0.0)


def share(node: TreeNode) -> Share:
    """Return the current share of a node. A root, also a queue without a cohort, cannot borrow."""
    parent = node.parent
    if parent is None:
        return ZERO
    borrowed: dict[str, int] = {}
    for key, quota in node.quotas.items():
        over = quota.usage - quota.subtree
        if over > 0 and quota.listed:
            borrowed[key.resource] = borrowed.get(key.resource, 0) + over
    ratio = 0.0
    for resource, amount in borrowed.items():
        lendable = parent.lendable.get(resource, 0)
        if lendable > 0:
            ratio = max(ratio, amount * 1000.0 / lendable)
    if ratio == 0.0:
        return ZERO
    return Share(infinite=True, value=ratio) if node.weight == 0 else Share(infinite=False, value=ratio / node.weight)


def published(node: TreeNode) -> int:
    """Return the share as a status shows it."""
    found = share(node)
    return UNLIMITED if found.infinite else min(UNLIMITED, ceil(found.value))


def precise(node: TreeNode) -> float:
    """Return the share as a metric shows it: infinite for a node of weight 0 that borrows."""
    found = share(node)
    return inf if found.infinite else found.value


def is_borrowing(node: TreeNode) -> bool:
    """Return whether a node uses more than its own quota of some resource, even if nothing of it is lendable."""
    return any(quota.usage > quota.subtree and quota.listed for quota in node.quotas.values())


@dataclass(frozen=True, slots=True)
class Contender:
    """The head of one queue, with the usage of its assignment."""

    queue: Queue
    workload: PendingWorkload
    usage: Mapping[QuotaNode, int]
    preemptor: bool = False
    """The head preempted other workloads, which have not stopped yet."""


@dataclass(frozen=True, slots=True)
class _Standing:
    """A contender as seen from one cohort: the share of the child that it comes from, with the contender added."""

    contender: Contender
    borrowing: bool
    share: Share

    def rank(self, options: Options) -> tuple[object, ...]:
        workload = self.contender.workload
        return (
            options.prioritize_preemptor_workloads and not self.contender.preemptor,
            options.fair_sharing_prioritize_non_borrowing and self.borrowing,
            self.share,
            -workload.priority if options.priority_sorting_within_cohort else 0,
            workload.time,
        )


class _Seat(NamedTuple):
    """A node, and the queue whose contender is compared there."""

    node: TreeNode
    queue: Queue


def winner(root: CohortNode, contenders: Mapping[Queue, Contender], options: Options) -> Contender:
    """Return the contender of the tree that comes first with the current usage."""
    standings: dict[_Seat, _Standing] = {}
    for queue, contender in contenders.items():
        with amounts.charged(contender.usage.items()):
            nodes: list[TreeNode] = [queue, *queue.ancestors()]
            for node in nodes[:-1]:
                standings[_Seat(node, queue)] = _Standing(contender, _borrows(node, contender), share(node))
    best = _tournament(root, contenders, standings, options)
    assert best is not None
    return best


def _borrows(node: TreeNode, contender: Contender) -> bool:
    for quota, amount in contender.usage.items():
        above = node.quotas.get(quota.key)
        if amount > 0 and above is not None and above.usage > above.subtree:
            return True
    return False


def _tournament(
    cohort: CohortNode,
    contenders: Mapping[Queue, Contender],
    standings: Mapping[_Seat, _Standing],
    options: Options,
) -> Contender | None:
    """Return the best of the winners of child cohorts and the heads of the cohort's queues. On a tie, children win."""
    entries: list[_Standing] = []
    for child in cohort.children:
        found = _tournament(child, contenders, standings, options)
        if found is not None:
            entries.append(standings[_Seat(child, found.queue)])
    entries += [standings[_Seat(queue, queue)] for queue in cohort.queues if queue in contenders]
    return _first(entries, options)


def _first(entries: Iterable[_Standing], options: Options) -> Contender | None:
    best = min(entries, key=lambda standing: standing.rank(options), default=None)
    return None if best is None else best.contender
