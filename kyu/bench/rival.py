"""
The textbook scheduler, to compare with: copy the state for every cycle, take one head of every queue, and again.

It follows the same rules, being made of the same functions, so it is also the oracle: on the same events it must take
the same decisions. What it does not do is what the engine's passes do: it looks at every queue in every cycle, at every
workload after every wake-up, and takes no short way. Its copy is the least that a scheduler on copies needs: a number
for each cell, and a list of who has quota for each queue. The rules then work on the originals, which they leave as
they found them, so that both sides run the very same code; what the copy costs is part of the rival's time.

Called by: bench/engine.py, tests. Kueue: pkg/cache/scheduler/snapshot.go, pkg/scheduler/scheduler.go
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from kyu.engine.cycle import by_name
from kyu.engine.decisions import Cycle
from kyu.engine.quota import Cell
from kyu.engine.state import State
from kyu.engine.tree import TreeNode
from kyu.engine.turn import Turn, heads_of
from kyu.engine.workload import Holding


class Snapshot(NamedTuple):
    """The least that a cycle on a copy has to copy: what changes. Quotas and workloads do not, so they are shared."""

    usage: dict[Cell, int]
    holdings: dict[str, list[tuple[tuple[bool, int, float, str], Holding]]]
    """By queue."""


def take_snapshot(state: State) -> Snapshot:
    nodes: list[TreeNode] = [*state.hierarchy.queues.values(), *state.hierarchy.cohorts.values()]
    return Snapshot(
        {cell: cell.usage for node in nodes for cell in node.cells.values()},
        {name: queue.holdings.copy() for name, queue in state.queues.items()},
    )


def schedule(state: State, now: datetime) -> Cycle:
    """Cycles until one decides nothing and the next would look at the same."""
    moment = now.timestamp()
    state.begin(moment)
    turn = Turn(state, moment)
    seen: set[tuple[object, ...]] = set()
    while not turn.result.blocked:
        take_snapshot(state)
        turn.take(heads_of(by_name(state.queues.values())), list(state.second_passes.values()))
        if state.has_wakes:
            state.begin(moment)
        if turn.decided:
            seen.clear()
            continue
        looks = next_heads(state)
        if looks in seen:
            break
        seen.add(looks)
    return turn.result


def next_heads(state: State) -> tuple[object, ...]:
    """What the next cycle would look at."""
    found: list[object] = []
    for queue in state.queues.values():
        head = queue.line.head() if queue.active else None
        if head is not None:
            found.append((head.uid, repr(head.memory.last_tried) if head.memory is not None else ""))
    return tuple(found)
