"""
Variants: one workload tried in several flavors at once, each as a workload of its own bound to one flavor.

A variant in an earlier flavor of the queue's list is better. Of the variants of one workload at most one is admitted at
a time; when a better one fits, the worse one makes room for it, as far as the queue's policy wants that.

Called by: commit.py, with the gate ConcurrentAdmission. Kueue: KEP-8691
"""

from __future__ import annotations

from collections.abc import Callable
from operator import gt, lt

from kyu.engine.asks import Ask
from kyu.engine.tree import Queue
from kyu.engine.workload import Holding


def find_better(queue: Queue, ask: Ask) -> Holding | None:
    return _find_sibling(queue, ask, lt)


def find_worse(queue: Queue, ask: Ask) -> Holding | None:
    return _find_sibling(queue, ask, gt)


def may_migrate(queue: Queue, ask: Ask) -> bool:
    """Whether the flavor of this variant is good enough to move to."""
    policy = queue.spec.concurrent_admission_policy
    constraints = policy.migration.constraints if policy else None
    last = _rank(queue, constraints.last_acceptable_flavor_name or "") if constraints else None
    own = _rank(queue, ask.special.allowed_flavor)
    return last is None or (own is not None and own <= last)


def _find_sibling(queue: Queue, ask: Ask, is_wanted: Callable[[int, int], bool]) -> Holding | None:
    """An admitted variant of the same workload, by how its flavor compares with the own one."""
    own = _rank(queue, ask.special.allowed_flavor)
    if own is None or not ask.special.variant_of:
        return None
    for _, holding in queue.holdings:
        if holding.admitted and holding.special.variant_of == ask.special.variant_of and holding.key != ask.key:
            rank = _rank(queue, holding.special.allowed_flavor)
            if rank is not None and is_wanted(rank, own):
                return holding
    return None


def _rank(queue: Queue, flavor: str) -> int | None:
    """The place of the flavor in the queue's list; None if the list does not have it."""
    names = [f.name for f in queue.groups[0].flavors] if queue.groups else []
    return names.index(flavor) if flavor in names else None
