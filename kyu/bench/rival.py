"""
The textbook scheduler, to compare with: copy the state for every cycle, take one head of every queue, and again.

It follows the same rules, being made of the same functions, so it is also the oracle: on the same events it must take
the same decisions. What it does not do is what the engine's passes do: it looks at every queue in every cycle, at every
workload after every wake-up, and copies what a snapshot holds: the quota and usage of every node with its place in the
tree, and who has quota in every queue. Workloads themselves are shared, as they are not changed. The rules then work on
the originals, which they leave as they found them, so that both sides run the very same code.

Called by: bench/engine.py, tests. Kueue: pkg/cache/scheduler/snapshot.go, pkg/scheduler/scheduler.go
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kyu.api.meta import Key
from kyu.engine.cycle import by_name
from kyu.engine.decisions import Cycle, Wait
from kyu.engine.quota import Cell, FlavorResource
from kyu.engine.state import State
from kyu.engine.tree import CohortNode, Queue, TreeNode
from kyu.engine.turn import heads_of, run_cycle
from kyu.engine.workload import Holding


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a cycle that worked on a copy would have to copy."""

    cells: dict[str, dict[FlavorResource, Cell]]
    """By node."""
    holdings: dict[str, dict[Key, Holding]]
    """By queue."""


def take_snapshot(state: State) -> Snapshot:
    snapshot = Snapshot({}, {})
    for root in {queue.root for queue in state.queues.values()}:
        _copy_tree(root, {}, snapshot)
    return snapshot


def _copy_tree(node: TreeNode, above: dict[FlavorResource, Cell], snapshot: Snapshot) -> None:
    cells = {key: _copy_cell(cell, above.get(key)) for key, cell in node.cells.items()}
    if isinstance(node, Queue):
        snapshot.cells[f"queue {node.name}"] = cells
        snapshot.holdings[node.name] = {holding.key: holding for _, holding in node.holdings}
    elif isinstance(node, CohortNode):
        snapshot.cells[f"cohort {node.name}"] = cells
        for child in (*node.queues, *node.children):
            _copy_tree(child, cells, snapshot)


def _copy_cell(cell: Cell, parent: Cell | None) -> Cell:
    copied = Cell(cell.key)
    copied.parent = parent
    copied.nominal, copied.borrowing_limit, copied.lending_limit = (
        cell.nominal,
        cell.borrowing_limit,
        cell.lending_limit,
    )
    copied.subtree, copied.local, copied.cap = cell.subtree, cell.local, cell.cap
    copied.potential, copied.usage, copied.height = cell.potential, cell.usage, cell.height
    if parent is not None:
        parent.children.append(copied)
    return copied


def schedule(state: State, now: datetime) -> Cycle:
    """Cycles until one decides nothing and the next would look at the same."""
    moment = now.timestamp()
    state.begin(moment)
    result = Cycle()
    seen: set[tuple[object, ...]] = set()
    while True:
        take_snapshot(state)
        heads = heads_of(by_name(state.queues.values()))
        cycle = run_cycle(state, heads, moment, list(state.second_passes.values()))
        result.extend(cycle)
        if cycle.blocked:
            return result
        if state.has_wakes:
            state.begin(moment)
        if any(not isinstance(decision, Wait) for decision in cycle.decisions):
            seen.clear()
            continue
        looks = next_heads(state)
        if looks in seen:
            return result
        seen.add(looks)


def next_heads(state: State) -> tuple[object, ...]:
    """What the next cycle would look at."""
    found: list[object] = []
    for queue in state.queues.values():
        head = queue.line.head() if queue.active else None
        if head is not None:
            found.append((head.uid, repr(head.memory.last_tried) if head.memory is not None else ""))
    return tuple(found)
