"""
The scheduling of workloads: admission, flavors, preemption. START READING HERE.

The steps of a scheduling cycle, as in Kueue:

1. Heads: take one head from each active ClusterQueue.            ``queueing/pending_queue.py``, ``cycle.py``
2. Snapshot: Kueue copies its state. Here a what-if undoes itself. ``quota/amounts.py``, ``state.py``
3. Nominate: find an assignment for each head by itself.          ``nominate.py``
   Flavor assignment: fit, preempt or no fit, borrowing level.    ``flavors/compiled.py``, ``flavors/assignment.py``
   Topology: find nodes for the chosen flavors.                   ``flavors/placement.py``
   Preemption: find the targets to preempt.                       ``preemption/classical.py``, ``preemption/fair.py``
4. Order: by borrowing level, priority and time, or by shares.    ``cycle.py``, ``shares.py``
5. Commit: admit or preempt, each entry after the ones before it. ``commit.py``
6. Requeue: back to the queue, or inadmissible until a change.    ``cycle.py``, ``queueing/inadmissible.py``

Behind the blocked head of a ClusterQueue with backfill, later workloads may start then: ``backfill.py``.

``schedule`` runs one such cycle, or decides all that cycles would decide until nothing more changes
(``run_until_stable.py``). Trees in which nothing has changed are not visited.

Called by: controllers/scheduler.py, cli/admin/decide.py, bench. Kueue: pkg/scheduler/scheduler.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Literal

from kyu.engine.backfill import backfill
from kyu.engine.cycle import CycleRunner, heads_of
from kyu.engine.decisions import Cycle
from kyu.engine.run_until_stable import StableRun
from kyu.engine.state import State
from kyu.engine.tree import Queue, TreeNode


def schedule(state: State, now: datetime, *, cycles: Literal[1] | None = None) -> Cycle:
    """
    Decide which workloads get quota now. The state assumes the admissions.

    With ``cycles=1`` run one cycle over one head of every ClusterQueue, as Kueue does. Otherwise decide all that cycles
    would decide until one of them changes nothing.
    """
    moment = now.timestamp()
    state.begin(moment)
    if not (state.pending.awake or cycles):
        return Cycle()
    runner = CycleRunner(state, moment)
    if cycles == 1:
        runner.run_cycle(heads_of(by_name(state.queues.values())), list(state.reserved.second_passes.values()))
        return runner.result
    while state.pending.awake and not runner.result.blocked:
        roots = {state.hierarchy.find_root(node) for node in state.pending.awake}
        state.pending.awake.clear()
        started = latest = state.cycles
        for trees in trees_together(state, roots):
            # In plain cycles, all trees have their cycles at the same time.
            state.cycles = started
            queues = queues_together(state, trees)
            StableRun(runner, queues).run()
            if state.backfilling and not runner.result.blocked:
                for queue in queues:
                    if queue.backfills:
                        backfill(runner, queue)
            latest = max(latest, state.cycles)
            # The decisions in a tree wake nothing in the same tree.
            state.pending.awake.difference_update(trees, queues)
        state.cycles = latest
        if state.wakes.are_left:
            state.begin(moment)
    return runner.result


def queues_together(state: State, trees: list[TreeNode]) -> list[Queue]:
    """Return the ClusterQueues of some trees, by name."""
    if len(trees) == 1:
        return state.hierarchy.members(trees[0])
    return by_name(queue for root in trees for queue in state.hierarchy.members(root))


def by_name(queues: Iterable[Queue]) -> list[Queue]:
    """Return ClusterQueues in the order of their names."""
    return sorted(queues, key=lambda queue: queue.name)


def trees_together(state: State, roots: set[TreeNode]) -> Iterator[list[TreeNode]]:
    """Yield trees that run together: those whose workloads share nodes, or all if admission is one at a time."""
    if len(roots) == 1:
        yield list(roots)
        return
    together: list[TreeNode] = []
    for root in sorted(roots, key=lambda node: node.name):
        shares_nodes = state.placing and any(queue.placed for queue in state.hierarchy.members(root))
        if shares_nodes or state.options.block_admission:
            together.append(root)
        else:
            yield [root]
    if together:
        yield together
