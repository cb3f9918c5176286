"""
Variants: one workload tried in several flavors at once, each as a workload of its own bound to one flavor.

A variant in an earlier flavor of the queue's list is better. Of the variants of one workload at most one is admitted at
a time; when a better one fits, the worse one makes room for it, as far as the queue's policy wants that.

Called by: commit.py, with the gate ConcurrentAdmission. Kueue: KEP-8691
"""

from __future__ import annotations

from collections.abc import Iterator

from kyu.engine.asks import Ask
from kyu.engine.state import State
from kyu.engine.tree import Queue
from kyu.engine.workload import Holding


def find_better(state: State, queue: Queue, ask: Ask) -> Holding | None:
    rank = _rank(queue, ask.special.allowed_flavor)
    return next((s for s in _siblings(state, queue, ask) if _rank(queue, s.special.allowed_flavor) < rank), None)


def find_worse(state: State, queue: Queue, ask: Ask) -> Holding | None:
    rank = _rank(queue, ask.special.allowed_flavor)
    return next((s for s in _siblings(state, queue, ask) if _rank(queue, s.special.allowed_flavor) > rank), None)


def may_migrate(queue: Queue, current: Holding) -> bool:
    """Whether a workload that runs in this flavor should move to a better one."""
    policy = queue.spec.concurrent_admission_policy
    constraints = policy.migration.constraints if policy else None
    last = constraints.last_acceptable_flavor_name if constraints else None
    return last is None or _rank(queue, current.special.allowed_flavor) > _rank(queue, last)


def _siblings(state: State, queue: Queue, ask: Ask) -> Iterator[Holding]:
    if not ask.special.variant_of:
        return
    for _, holding in queue.holdings:
        if holding.admitted and holding.special.variant_of == ask.special.variant_of and holding.key != ask.key:
            yield holding


def _rank(queue: Queue, flavor: str) -> int:
    names = [f.name for f in queue.groups[0].flavors] if queue.groups else []
    return names.index(flavor) if flavor in names else len(names)
