"""
How much more than its own a queue or cohort uses, compared to what there is to borrow; and who goes first by that.

The share of a node is the largest, over all resources, of what it borrows divided by what its parent could lend, in
thousandths, divided by the node's weight. In each cycle the workload goes first whose admission would leave the
smallest share, decided level by level in the tree, like a tournament.

Called by: turn.py (order of heads), fair_preemption.py (comparisons), stats.py (published shares).
Kueue: pkg/cache/scheduler/fair_sharing.go, pkg/scheduler/fair_sharing_iterator.go
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from kyu.api.quantity import UNLIMITED
from kyu.engine import quota
from kyu.engine.asks import Ask
from kyu.engine.options import Options
from kyu.engine.quota import Cell
from kyu.engine.tree import CohortNode, Queue, TreeNode


class Share(NamedTuple):
    """Compares as shares do: who borrows with weight 0 is above everybody, among themselves by their ratio."""

    infinite: bool
    value: float


ZERO = Share(infinite=False, value=0.0)


def share(node: TreeNode) -> Share:
    """The share of a node as things are now. The root, and a queue without a cohort, borrow from nobody."""
    parent = node.parent
    if parent is None:
        return ZERO
    borrowed: dict[str, int] = {}
    for key, cell in node.cells.items():
        over = cell.usage - cell.subtree
        if over > 0 and cell.listed:
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
    """The share as a status shows it."""
    found = share(node)
    return UNLIMITED if found.infinite else min(UNLIMITED, ceil(found.value))


def is_borrowing(node: TreeNode) -> bool:
    """Anything at all is used beyond the node's own quota; even where nothing is lendable."""
    return any(cell.usage > cell.subtree and cell.listed for cell in node.cells.values())


@dataclass(frozen=True, slots=True)
class Contender:
    """The head of one queue, with what it would use."""

    queue: Queue
    ask: Ask
    usage: Mapping[Cell, int]
    preemptor: bool = False
    """It preempted others before and waits for them to go."""


@dataclass(frozen=True, slots=True)
class _Standing:
    """A contender as seen from one cohort: the share of the child that it comes from, with the contender added."""

    contender: Contender
    borrowing: bool
    share: Share

    def rank(self, options: Options) -> tuple[object, ...]:
        ask = self.contender.ask
        return (
            options.prioritize_preemptor_workloads and not self.contender.preemptor,
            options.fair_sharing_prioritize_non_borrowing and self.borrowing,
            self.share,
            -ask.priority if options.priority_sorting_within_cohort else 0,
            ask.time,
        )


class _Seat(NamedTuple):
    """Whose value it is, at which node."""

    node: TreeNode
    queue: Queue


def winner(root: CohortNode, contenders: Mapping[Queue, Contender], options: Options) -> Contender:
    """Who of the tree goes first, as things are now."""
    standings: dict[_Seat, _Standing] = {}
    for queue, contender in contenders.items():
        with quota.charged(contender.usage.items()):
            nodes: list[TreeNode] = [queue, *queue.ancestors()]
            for node in nodes[:-1]:
                standings[_Seat(node, queue)] = _Standing(contender, _borrows(node, contender), share(node))
    best = _tournament(root, contenders, standings, options)
    assert best is not None
    return best


def _borrows(node: TreeNode, contender: Contender) -> bool:
    for cell, amount in contender.usage.items():
        above = node.cells.get(cell.key)
        if amount > 0 and above is not None and above.usage > above.subtree:
            return True
    return False


def _tournament(
    cohort: CohortNode,
    contenders: Mapping[Queue, Contender],
    standings: Mapping[_Seat, _Standing],
    options: Options,
) -> Contender | None:
    """The best of the winners of the child cohorts, first, and the heads of the cohort's own queues."""
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
