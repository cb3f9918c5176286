"""
Whom to preempt in a flat tree, for one amount of one flavor and resource.

The same search as in ``preemption.py``, for queues directly under one cohort that take from others only what is their
own (``Queue.flat``): then a candidate is one number in one of two levels, and the rules come down to these. Others may
be taken from while they use more than their own quota, if the workload ends up within its own; the queue's own
workloads also if it borrows.

Called by: plan.py. Agrees with: preemption.py, which answers the same for any tree and any workload.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from itertools import chain

from kyu.engine import quota
from kyu.engine.asks import Ask
from kyu.engine.preemption import Target
from kyu.engine.quota import Cell, FlavorResource
from kyu.engine.tree import Queue
from kyu.engine.workload import Holding


def search(queue: Queue, ask: Ask, cell: Cell, amount: int) -> list[Target]:
    """The smallest set that a greedy search finds; empty if nobody would help."""
    others = _borrowing(queue, cell.key)
    if others and cell.usage < cell.nominal:
        # With its own quota it is entitled to what others have borrowed; if that is not enough, to what is its own.
        owns = cell.usage + amount <= cell.subtree
        found = _attempt(queue, cell, amount, _in_order(queue, others, ask, cell.key), within_nominal=not owns)
        if found or owns:
            return found
    return _attempt(queue, cell, amount, _in_order(queue, [], ask, cell.key), within_nominal=False)


def _borrowing(queue: Queue, key: FlavorResource) -> list[Queue]:
    """Other queues that use more than they have, and somebody whom that could be taken from."""
    assert queue.parent is not None
    found: list[Queue] = []
    for other in queue.parent.queues:
        theirs = other.cells.get(key)
        if theirs is not None and theirs.usage > theirs.subtree and other is not queue and other.active:
            for _, holding in other.holdings:
                if holding.present and _uses(holding, theirs):
                    found.append(other)
                    break
    return found


def _in_order(queue: Queue, others: list[Queue], ask: Ask, key: FlavorResource) -> Iterator[tuple[Holding, Queue]]:
    """Those that are evicted already cost nothing; after that, others' workloads before the own."""
    leaving = [other for other in others if other.has_evicted]
    if leaving:
        yield from _merged(leaving, key, evicted=True)
    if queue.has_evicted:
        yield from _own(queue, ask, queue.cells[key], evicted=True)
    if others:
        yield from _merged(others, key, evicted=False)
    yield from _own(queue, ask, queue.cells[key], evicted=False)


def _own(queue: Queue, ask: Ask, cell: Cell, *, evicted: bool) -> Iterator[tuple[Holding, Queue]]:
    policy = queue.policies.within
    if policy not in ("LowerPriority", "LowerOrNewerEqualPriority"):
        return
    newer = policy == "LowerOrNewerEqualPriority"
    for _, holding in queue.held(evicted=evicted):
        if holding.priority > ask.priority:
            return
        lower = holding.priority < ask.priority or (newer and ask.time < holding.time)
        if lower and holding.present and _uses(holding, cell):
            yield holding, queue


def _merged(others: list[Queue], key: FlavorResource, *, evicted: bool) -> Iterator[tuple[Holding, Queue]]:
    """Workloads of several queues in one order."""
    held = [other.held(evicted=evicted) for other in others]
    waiting = [(listed[0][0], number, 0) for number, listed in enumerate(held) if listed]
    heapify(waiting)
    while waiting:
        _, number, index = waiting[0]
        listed, other = held[number], others[number]
        holding = listed[index][1]
        if holding.present and _uses(holding, other.cells[key]):
            yield holding, other
        index += 1
        if index < len(listed):
            heapreplace(waiting, (listed[index][0], number, index))
        else:
            heappop(waiting)


def _uses(holding: Holding, cell: Cell) -> bool:
    for used, _ in holding.charges:  # noqa: SIM110 - a generator costs as much again
        if used is cell:
            return True
    return False


def _attempt(
    queue: Queue, cell: Cell, amount: int, candidates: Iterable[tuple[Holding, Queue]], *, within_nominal: bool
) -> list[Target]:
    """Take candidates out one by one until the amount fits; then put back whom that does not need."""
    targets: list[Target] = []
    found = False
    for holding, other in candidates:
        if other is not queue:
            theirs = other.cells[cell.key]
            if theirs.usage <= theirs.subtree:
                # It is back within its own quota by now.
                continue
        quota.refund_all(holding.charges)
        targets.append(Target(holding, other, "InClusterQueue" if other is queue else "InCohortReclamation"))
        if _fits(cell, amount, within_nominal=within_nominal):
            found = True
            break
    if found and len(targets) > 1:
        _minimise(cell, amount, targets, within_nominal=within_nominal)
    quota.charge_all(chain.from_iterable([target.holding.charges for target in targets]))
    return targets if found else []


def _fits(cell: Cell, amount: int, *, within_nominal: bool) -> bool:
    if within_nominal and cell.usage + amount > cell.nominal:
        return False
    return amount <= quota.available(cell)


def _minimise(cell: Cell, amount: int, targets: list[Target], *, within_nominal: bool) -> None:
    """Put back whom we do not need, the last found first. The very last made it fit, so it is not asked about."""
    for index in range(len(targets) - 2, -1, -1):
        quota.charge_all(targets[index].holding.charges)
        if _fits(cell, amount, within_nominal=within_nominal):
            targets[index] = targets[-1]
            targets.pop()
        else:
            quota.refund_all(targets[index].holding.charges)
