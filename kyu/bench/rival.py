"""
The textbook scheduler, to compare with: copy the state for every cycle, take one head of every queue, and again.

It follows the same rules, being made of the same functions, so it is also the oracle: on the same events it must take
the same decisions. What it does not have is what the engine keeps between decisions: it looks at every queue in every
cycle and at every workload after every wake-up, takes no short way, and whenever somebody might be preempted it lists
all who could be and puts them in order. Its copy is the least that a scheduler on copies needs: a number for each cell,
and for each queue a list of who has quota, from which it takes its candidates. Usage is charged on the originals and
taken back, so that both sides count by the very same code; what the copy costs is part of the rival's time.

Called by: bench/engine.py, tests. Kueue: pkg/cache/scheduler/snapshot.go, pkg/scheduler/scheduler.go
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from kyu.engine import preemption
from kyu.engine.cycle import by_name
from kyu.engine.decisions import Cycle
from kyu.engine.preemption import Candidates, Demand, Source, Stage, Target
from kyu.engine.quota import Cell
from kyu.engine.state import State
from kyu.engine.tree import TreeNode
from kyu.engine.turn import Turn, heads_of
from kyu.engine.workload import CandidateOrder, Holding


@dataclass(slots=True)
class ListedCandidates(Candidates):
    """All who might be preempted, listed and sorted for one search."""

    holdings: dict[str, list[tuple[CandidateOrder, Holding]]] = field(default_factory=dict)
    found: dict[Source, list[Holding]] = field(default_factory=dict)

    def add(self, part: list[Source], source: Source) -> None:
        demand, queue = self.demand, source.queue
        policy = demand.queue.policies.within if source.meeting is None else demand.queue.policies.reclaim
        found = [
            holding
            for _, holding in self.holdings[queue.name]
            if holding.present and demand.may_take(policy, holding) and demand.uses_needed(holding)
        ]
        if found:
            part.append(source)
            self.found[source] = found

    def in_order(self) -> Iterator[tuple[Holding, Source]]:
        parts = [self._sorted(part) for part in (self.hierarchical, self.priority, self.own)]
        for evicted in (True, False):
            for part in parts:
                for holding, source in part:
                    if holding.evicted == evicted:
                        yield holding, source

    def _sorted(self, part: list[Source]) -> list[tuple[Holding, Source]]:
        if part is self.own and self.demand.queue.by_usage:
            return [(holding, part[0]) for holding in preemption.own_candidates(self.stage, self.demand)]
        listed = [(holding, source) for source in part for holding in self.found[source]]
        listed.sort(key=_order)
        return listed


def _order(candidate: tuple[Holding, Source]) -> CandidateOrder:
    return candidate[0].order


class Snapshot(NamedTuple):
    """The least that a cycle on a copy has to copy: what changes. Quotas and workloads do not, so they are shared."""

    usage: dict[Cell, int]
    holdings: dict[str, list[tuple[CandidateOrder, Holding]]]
    """By queue."""

    def find_targets(self, stage: Stage, demand: Demand) -> list[Target]:
        return preemption.choose(ListedCandidates(stage, demand, holdings=self.holdings))


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
    queues, find_targets = by_name(state.queues.values()), state.find_targets
    while not turn.result.blocked:
        snapshot = take_snapshot(state)
        if not state.options.fair_sharing:
            state.find_targets = snapshot.find_targets
        turn.take(heads_of(queues), list(state.second_passes.values()))
        if state.has_wakes:
            state.begin(moment)
        if turn.decided:
            seen.clear()
            continue
        looks = next_heads(state)
        if looks in seen:
            break
        seen.add(looks)
    state.find_targets = find_targets
    return turn.result


def next_heads(state: State) -> tuple[object, ...]:
    """What the next cycle would look at."""
    found: list[object] = []
    for queue in state.queues.values():
        head = queue.line.head() if queue.active else None
        if head is not None:
            found.append((head.uid, repr(head.memory.last_tried) if head.memory is not None else ""))
    return tuple(found)
