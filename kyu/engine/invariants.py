"""
What must always hold: everything that the state keeps agrees with what it is kept for.

Usage is what the holdings use, cohorts see exactly the excess of their members, nobody waits and holds quota at once,
everybody who waits is counted once, and every what-if was taken back.

Called by: state.py's check, after every round of the tests. A fault here is a bug of the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kyu.api.meta import Key
from kyu.engine.quota import Cell, FlavorResource
from kyu.engine.tree import CohortNode, Hierarchy, Queue
from kyu.engine.waiting import WaitingRoom
from kyu.engine.workload import Holding


def check(hierarchy: Hierarchy, waiting: WaitingRoom, holdings: Mapping[Key, Holding]) -> None:
    """Raise AssertionError where something does not agree."""
    for queue in hierarchy.queues.values():
        check_queue(queue)
    for cohort in hierarchy.cohorts.values():
        for cell in cohort.cells.values():
            total = sum(max(0, child.usage - child.local) for child in cell.children)
            assert cell.usage == total, f"{cohort}: {cell} should use {total}"
        if cohort.parent is None and not cohort.cyclic:
            check_root(cohort)
    for key, holding in holdings.items():
        assert key not in waiting.asks, f"{key} both waits and holds quota"
        assert holding.present, f"{key} was taken out and not put back"
    pending = sum(queue.line.size for queue in hierarchy.queues.values())
    counted = sum(record.pending for record in waiting.local_queues.values())
    assert pending == counted, f"{pending} wait in ClusterQueues, {counted} in LocalQueues"


def check_root(root: CohortNode) -> None:
    """The root knows what workloads of each priority use in its whole tree."""
    usage: dict[FlavorResource, Counter[int]] = {key: Counter() for key in root.cells}
    for queue in root.all_queues():
        for _, holding in queue.holdings:
            for cell, amount in holding.charges:
                if amount:
                    usage[cell.key][holding.priority] += amount
    for key, cell in root.cells.items():
        assert cell.by_priority == +usage[key], f"{root}: {cell} should know {usage[key]}"


def check_queue(queue: Queue) -> None:
    usage: dict[Cell, int] = {}
    for order, holding in queue.holdings:
        assert order == holding.order, f"{holding} is out of order"
        for cell, amount_held in holding.charges:
            usage[cell] = usage.get(cell, 0) + amount_held
    for cell in queue.cells.values():
        assert cell.usage == usage.get(cell, 0), f"{queue}: {cell} should use {usage.get(cell, 0)}"
    assert queue.holdings == sorted(queue.holdings, key=lambda entry: entry[0])
    assert queue.line.size == len(queue.line.waiting()), f"{queue} has lost count of who waits"
