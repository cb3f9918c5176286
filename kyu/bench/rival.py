"""
The textbook scheduler, to compare with: copy the state for every cycle, take one head of every queue, and again.

It follows the same rules, being made of the same functions, so it is also the oracle: on the same events it must take
the same decisions. What it does not do is what the engine's passes do: it looks at every queue in every cycle, at every
workload after every wake-up, and copies what a snapshot holds (the usage of every node, and who has quota in every
queue). The copy is as shallow as it can be, and the rules then work on the originals, which they leave as they found
them: so the copy costs no more than it must.

Called by: bench/engine.py, tests. Kueue: pkg/cache/scheduler/snapshot.go, pkg/scheduler/scheduler.go
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kyu.engine.cycle import by_name
from kyu.engine.decisions import Cycle, Wait
from kyu.engine.state import State
from kyu.engine.turn import run_cycle
from kyu.engine.workload import Holding


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a cycle that worked on a copy would have to copy."""

    usage_by_queue: dict[str, list[int]]
    usage_by_cohort: dict[str, list[int]]
    holdings_by_queue: dict[str, list[tuple[tuple[bool, int, float, str], Holding]]]


def take_snapshot(state: State) -> Snapshot:
    queues, cohorts = state.hierarchy.queues, state.hierarchy.cohorts
    return Snapshot(
        {name: [cell.usage for cell in queue.cells.values()] for name, queue in queues.items()},
        {name: [cell.usage for cell in cohort.cells.values()] for name, cohort in cohorts.items()},
        {name: queue.holdings.copy() for name, queue in queues.items()},
    )


def schedule(state: State, now: datetime) -> Cycle:
    """Cycles until one decides nothing and the next would look at the same."""
    moment = now.timestamp()
    state.begin(moment)
    result = Cycle()
    seen: set[tuple[object, ...]] = set()
    while True:
        take_snapshot(state)
        cycle = run_cycle(state, by_name(state.queues.values()), moment, list(state.second_passes.values()))
        result.extend(cycle)
        if cycle.blocked:
            return result
        if state.has_wakes:
            state.begin(moment)
        if any(not isinstance(decision, Wait) for decision in cycle.decisions):
            seen.clear()
            continue
        looks = heads(state)
        if looks in seen:
            return result
        seen.add(looks)


def heads(state: State) -> tuple[object, ...]:
    """What the next cycle would look at."""
    found: list[object] = []
    for queue in state.queues.values():
        head = queue.line.head() if queue.active else None
        if head is not None:
            found.append((head.uid, repr(head.memory.last_tried) if head.memory is not None else ""))
    return tuple(found)
