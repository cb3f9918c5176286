"""
What one workload would get, and whom it would have to preempt: one head, looked at by itself.

First the full size; if that neither fits nor can preempt, the largest smaller size that does, for workloads that may
shrink. A workload in its second pass keeps its flavors and only looks for nodes.

Called by: turn.py, commit.py, explain.py. Calls: flavors.py, placing.py. Kueue: pkg/scheduler/scheduler.go (nominate)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kyu.engine import placing, topology
from kyu.engine.asks import Ask, ScanMemory
from kyu.engine.flavors import PODS, Assigner, Assignment, Choice, Mode, Oracle, PodSetAnswer
from kyu.engine.preemption import Demand, Target
from kyu.engine.quota import FlavorResource
from kyu.engine.state import State
from kyu.engine.topology_types import PodSetRequest
from kyu.engine.tree import Queue
from kyu.engine.workload import AssignedPodSet, Holding


@dataclass(slots=True)
class Nomination:
    """The outcome for one workload, before others of the cycle were looked at."""

    queue: Queue
    ask: Ask
    assignment: Assignment
    targets: list[Target] = field(default_factory=list)
    replaced: Holding | None = None
    """The slice that this one takes over from: it goes when this one is admitted, but is not preempted."""
    moving: Holding | None = None
    """The workload itself, if it has quota already and only looks for nodes."""
    short: bool = False
    """It was found on the short way: it asks for one amount, and every flavor of the group lacks that much."""

    @property
    def level(self) -> int:
        return self.assignment.level

    @property
    def works(self) -> bool:
        mode = self.assignment.mode
        return mode == Mode.FIT or (mode == Mode.PREEMPT and bool(self.targets))

    def leaving(self) -> list[Holding]:
        """Who must be gone before it can start."""
        gone = [target.holding for target in self.targets]
        if self.replaced is not None and self.works:
            gone.insert(0, self.replaced)
        return gone

    def assigned(self) -> tuple[AssignedPodSet, ...]:
        return tuple(
            AssignedPodSet(
                name=answer.shape.name,
                count=answer.count,
                flavors={resource: choice.flavor for resource, choice in answer.choices.items()},
                usage={resource: answer.requests[resource] for resource in answer.choices},
                placement=answer.placement,
                delayed=answer.delayed,
            )
            for answer in self.assignment.pod_sets
        )


def nominate(state: State, queue: Queue, ask: Ask, pinned: Mapping[str, Mapping[str, str]] | None = None) -> Nomination:
    """
    The best that the workload can get as things stand.

    ``pinned`` are flavors to stay with, when a workload is looked at again in the same cycle.
    """
    replaced = find_replaced(state, queue, ask)
    memory = valid_memory(state, queue, ask) if pinned is None else None
    assigner = Assigner(state, queue, ask, replaced, pinned, memory)

    def try_counts(counts: Sequence[int]) -> Nomination:
        assignment = assigner.assign(counts)
        requests = placing.place_assignment(state, queue, ask, assignment, replaced=replaced)
        nomination = Nomination(queue, ask, assignment, replaced=replaced)
        add_targets(state, nomination, requests, assigner.oracle)
        return nomination

    full = try_counts([pod_set.count for pod_set in ask.shape.pod_sets])
    if full.works or not (state.options.partial_admission and ask.shape.can_shrink):
        return full
    return largest_that_works(ask, try_counts) or full


def largest_that_works(ask: Ask, try_counts: Callable[[Sequence[int]], Nomination]) -> Nomination | None:
    """Search between the full and the smallest size, assuming that what works at some size works at smaller ones."""
    pod_sets = ask.shape.pod_sets
    spare = [p.spec_count - p.min_count if p.min_count is not None else 0 for p in pod_sets]
    total = sum(spare)
    found: Nomination | None = None
    low, high = 0, total + 1
    while low < high:
        middle = (low + high) // 2
        counts = [p.spec_count - s * middle // total for p, s in zip(pod_sets, spare, strict=True)]
        nomination = try_counts(counts)
        if nomination.works:
            found, high = nomination, middle
        else:
            low = middle + 1
    return found if low <= total else None


def add_targets(
    state: State, nomination: Nomination, requests: list[PodSetRequest], oracle: Oracle | None = None
) -> None:
    """Find whom to preempt, and hold the room that the workload would have once they are gone."""
    assignment = nomination.assignment
    if assignment.mode != Mode.PREEMPT:
        return

    def has_place() -> bool:
        return not placing.find_place(state, requests, nomination.replaced, nomination.moving).failures

    needed: dict[FlavorResource, None] = {}
    for answer in assignment.pod_sets:
        for choice in answer.choices.values():
            if choice.mode == Mode.PREEMPT:
                needed[choice.cell.key] = None
    amounts = {cell: amount for cell, amount in assignment.usage.items() if amount and cell.key.resource != PODS}
    demand = Demand(
        nomination.queue,
        nomination.ask,
        amounts,
        tuple(needed),
        has_place if requests else None,
        state.options.head_start,
    )
    if oracle is not None and len(needed) == 1 and oracle.answers(demand):
        nomination.targets = oracle.targets
    else:
        nomination.targets = state.find_targets(state, demand)
    if requests:
        _hold_room(state, nomination, requests)


def _hold_room(state: State, nomination: Nomination, requests: list[PodSetRequest]) -> None:
    """Where it would go without its targets; without any targets, where it would go if nobody were placed."""
    if nomination.targets:
        for target in nomination.targets:
            state.take_out(target.holding)
        outcome = placing.find_place(state, requests, nomination.replaced, nomination.moving)
        for target in nomination.targets:
            state.put_back(target.holding)
    else:
        outcome = topology.place(state.forest, requests, empty=True)
    if not outcome.failures:
        placing.settle(nomination.assignment, requests, outcome, nomination.moving)


def find_replaced(state: State, queue: Queue, ask: Ask) -> Holding | None:
    """The slice of the same job that this one takes over from, if it holds quota in the same queue."""
    key = ask.special.replaces
    holding = state.holdings.get(key) if key is not None else None
    if holding is None or holding.cluster_queue != queue.name or holding.key.namespace != ask.key.namespace:
        return None
    return holding


def valid_memory(state: State, queue: Queue, ask: Ask) -> ScanMemory | None:
    """Where the scan of flavors stopped, unless quota may have become free since."""
    memory = ask.memory
    if memory is None:
        return None
    if state.options.flavor_fungibility_preserve_scan_progress:
        is_changed = memory.shape is not ask.shape or memory.priority != ask.priority
        if is_changed and state.options.scheduling_equivalence_hashing:
            return None
        if memory.cycle >= state.cycles - 1:
            return memory
    return memory if memory.generation == queue.generation else None


def nominate_again(state: State, queue: Queue, holding: Holding) -> Nomination:
    """The second pass: flavors and quota stay, only nodes are looked for."""
    ask = Ask(
        holding.key,
        holding.uid,
        priority=holding.priority,
        time=holding.time,
        shape=holding.shape,
        local_queue=holding.local_queue,
        special=holding.special,
    )
    assert holding.second_pass is not None
    if holding.second_pass.keep:
        return Nomination(queue, ask, held_assignment(queue, holding, {}), moving=holding)

    def try_counts(counts: Sequence[int]) -> Nomination:
        names = (pod_set.name for pod_set in ask.shape.pod_sets)
        assignment = held_assignment(queue, holding, dict(zip(names, counts, strict=True)))
        nomination = Nomination(queue, ask, assignment, moving=holding)
        requests = placing.place_assignment(state, queue, ask, assignment, moving=holding)
        add_targets(state, nomination, requests)
        return nomination

    held = {assigned.name: assigned.count for assigned in holding.assigned}
    full = try_counts([held.get(pod_set.name, 0) for pod_set in ask.shape.pod_sets])
    if full.works or not (state.options.partial_admission and ask.shape.can_shrink):
        return full
    return largest_that_works(ask, try_counts) or full


def held_assignment(queue: Queue, holding: Holding, counts: Mapping[str, int]) -> Assignment:
    """What a workload has, as if it were found now; pod sets that have no place yet with these numbers of pods."""
    shapes = {pod_set.name: pod_set for pod_set in holding.shape.pod_sets}
    result = Assignment()
    for assigned in holding.assigned:
        count, usage = assigned.count, assigned.usage
        if assigned.placement is None and count and counts.get(assigned.name, count) != count:
            count = counts[assigned.name]
            usage = {resource: amount // assigned.count * count for resource, amount in usage.items()}
        answer = PodSetAnswer(shapes[assigned.name], count, usage, placement=assigned.placement)
        for resource, flavor in assigned.flavors.items():
            cell = queue.cell(FlavorResource(flavor, resource))
            answer.choices[resource] = Choice(flavor, cell, Mode.FIT, 0)
            result.usage[cell] = result.usage.get(cell, 0) + usage.get(resource, 0)
        result.pod_sets.append(answer)
    return result
