"""
Who runs, where, instead of whom. START READING HERE.

``schedule`` runs one cycle exactly as Kueue does (``turn.py``), or decides all that cycles would decide until there is
nothing more to decide. In cycles, every queue gives one head a turn in each, and most heads are parked again with the
answer that they had. A pass (``passes.py``) takes only those turns that matter, and decides the same; in a flat tree
with simple workloads (``flat.py``) most of that is arithmetic. Trees in which nothing has changed are not visited.

Called by: controllers/scheduler.py, cli/decide.py, bench. Kueue: pkg/scheduler/scheduler.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Literal

from kyu.engine import flat
from kyu.engine.decisions import Cycle
from kyu.engine.passes import Pass
from kyu.engine.state import State
from kyu.engine.tree import Queue, TreeNode
from kyu.engine.turn import Turn, heads_of


def schedule(state: State, now: datetime, *, cycles: Literal[1] | None = None) -> Cycle:
    """
    Decide who gets quota now; afterwards the state has assumed its admissions.

    With ``cycles=1`` one cycle as Kueue's: one head of every queue. Without, all that cycles would decide until one of
    them changes nothing.
    """
    moment = now.timestamp()
    state.begin(moment)
    if not (state.waiting.awake or cycles):
        return Cycle()
    turn = Turn(state, moment, short_ways=cycles is None)
    if cycles == 1:
        turn.take(heads_of(by_name(state.queues.values())), list(state.second_passes.values()))
        return turn.result
    while state.waiting.awake and not turn.result.blocked:
        roots = {state.hierarchy.find_root(node) for node in state.waiting.awake}
        state.waiting.awake.clear()
        started = latest = state.cycles
        for arena in arenas(state, roots):
            # In cycles, all trees have their turns at the same time.
            state.cycles = started
            queues = arena_queues(state, arena)
            if not flat.run(turn, queues):
                Pass(turn, queues).run()
            latest = max(latest, state.cycles)
            # What is decided in a tree wakes nobody there.
            state.waiting.awake.difference_update(arena, queues)
        state.cycles = latest
        if state.has_wakes:
            state.begin(moment)
    return turn.result


def arena_queues(state: State, arena: list[TreeNode]) -> list[Queue]:
    if len(arena) == 1:
        return state.hierarchy.members(arena[0])
    return by_name(queue for root in arena for queue in state.hierarchy.members(root))


def by_name(queues: Iterable[Queue]) -> list[Queue]:
    return sorted(queues, key=lambda queue: queue.name)


def arenas(state: State, roots: set[TreeNode]) -> Iterator[list[TreeNode]]:
    """Trees to be looked at together: those whose workloads share nodes, or all if admission is one at a time."""
    if len(roots) == 1:
        yield list(roots)
        return
    together: list[TreeNode] = []
    for root in sorted(roots, key=lambda node: node.name):
        shares = state.placing and True in [queue.placed for queue in state.hierarchy.members(root)]
        if shares or state.options.block_admission:
            together.append(root)
        else:
            yield [root]
    if together:
        yield together
