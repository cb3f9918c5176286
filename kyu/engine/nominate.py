"""
Step 3 of a cycle: nominate one head, by itself, against the state as it is.

The full number of pods is tried first. If that neither fits nor finds preemption targets, partial admission searches
the largest smaller number that does, for workloads that allow it. A workload in its second pass keeps its flavors and
only needs nodes.

Called by: engine/cycle.py, engine/commit.py, engine/explain.py. Calls: engine/flavors/compiled.py,
engine/flavors/assignment.py, engine/flavors/placement.py. Kueue: pkg/scheduler/scheduler.go (nominate)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kyu.engine.flavors import placement
from kyu.engine.flavors.assignment import Assigner, Assignment, Attempt, GroupChoice, Mode, Oracle
from kyu.engine.flavors.compiled import (
    PODS,
    Charge,
    CompiledAssignment,
    CompiledGroup,
    CompiledPodSet,
    Compiler,
    FlavorOption,
    Pinned,
    PodSetsTogether,
    find_compiled,
)
from kyu.engine.preemption.candidates import Demand, PreemptionTarget
from kyu.engine.queueing.pending_workload import NO_RARE_FIELDS, PendingWorkload, ScanMemory
from kyu.engine.quota.amounts import FlavorResource
from kyu.engine.reasons import (
    BadRequest,
    ChecksFailed,
    ClaimsNotCounted,
    NamespaceMismatch,
    NamespaceMissing,
    NoFit,
    Reason,
    WaitsForPreempted,
)
from kyu.engine.state import State
from kyu.engine.topology import search
from kyu.engine.topology.types import PlacementRequest
from kyu.engine.tree import Queue
from kyu.engine.workloads import AssignedPodSet, ReservedWorkload


class Nomination:
    """The assignment and the preemption targets of one head, without regard to the other heads of the cycle."""

    __slots__ = ("assignment", "moving", "queue", "replaced", "targets", "workload")

    def __init__(
        self,
        queue: Queue,
        workload: PendingWorkload,
        assignment: Assignment,
        replaced: ReservedWorkload | None = None,
        moving: ReservedWorkload | None = None,
        targets: Sequence[PreemptionTarget] = (),
    ) -> None:
        self.queue = queue
        self.workload = workload
        self.assignment = assignment
        self.targets = targets
        self.replaced = replaced
        """The slice that this workload replaces. It ends when this one is admitted, without a preemption."""
        self.moving = moving
        """The workload itself, if it holds quota and only needs nodes."""

    @property
    def level(self) -> int:
        """The borrowing level."""
        return self.assignment.level

    @property
    def works(self) -> bool:
        """The workload fits, or has targets to preempt."""
        mode = self.assignment.mode
        return mode == Mode.FIT or (mode == Mode.PREEMPT and bool(self.targets))

    @property
    def is_repeatable(self) -> bool:
        """The workload would name the same targets again: it has no choice of flavors, numbers of pods or nodes."""
        assignment = self.assignment
        if self.replaced is not None or self.moving is not None or self.workload.shape.can_shrink:
            return False
        if assignment.placements:
            return False
        return all(len(c.group.options) == 1 and c.start == 0 for chosen in assignment.choices for c in chosen)

    def reason(self) -> NoFit | WaitsForPreempted:
        """Return the reason why the workload waits, if it does not fit."""
        assignment = self.assignment
        if self.targets:
            return WaitsForPreempted(len(self.targets), assignment.reasons)
        return NoFit("WaitingForQuota" if assignment.mode == Mode.PREEMPT else assignment.word, assignment.reasons)

    def leaving(self) -> list[ReservedWorkload]:
        """Return the workloads that must have stopped before this one can start."""
        gone = [target.reserved for target in self.targets]
        if self.replaced is not None and self.works:
            gone.insert(0, self.replaced)
        return gone

    def assigned(self, state: State) -> tuple[tuple[AssignedPodSet, ...], tuple[Charge, ...]]:
        """Return the assigned pod sets and their charges; no charges if a slice is replaced."""
        pod_sets, charges = self.assignment.assigned(state)
        return pod_sets, charges if self.replaced is None and self.moving is None else ()


def why_not_nominated(state: State, queue: Queue, workload: PendingWorkload) -> Reason | None:
    """Return the reason why a head must not be nominated at all."""
    if workload.rare.failed_check:
        return ChecksFailed()
    namespace, shape = workload.key.namespace, workload.shape
    if namespace not in state.cluster.labels_by_namespace:
        return NamespaceMissing(namespace)
    if not queue.selects_all and not state.cluster.is_selected(queue, workload):
        return NamespaceMismatch()
    if shape.violations:
        return BadRequest(shape.violations)
    return ClaimsNotCounted() if shape.claims else None


def nominate(state: State, queue: Queue, workload: PendingWorkload, pinned: Pinned | None = None) -> Nomination:
    """
    Return the best assignment that the workload can get now.

    ``pinned`` are flavors to stay with, when a workload is nominated again in the same cycle.
    """
    shape, rare = workload.shape, workload.rare
    replaced = None if rare is NO_RARE_FIELDS else find_replaced(state, queue, workload)
    memory = None if workload.memory is None or pinned is not None else valid_memory(state, queue, workload)
    assigner = Assigner(state, queue, workload, memory)

    def try_counts(counts: Sequence[int] | None) -> Nomination:
        if pinned is None and replaced is None:
            compiled = find_compiled(state, queue, shape, counts, rare.allowed_flavor)
        else:
            full = [pod_set.count for pod_set in shape.pod_sets] if counts is None else counts
            compiled = Compiler(state, queue, shape, full, rare.allowed_flavor, pinned, replaced).compile()
        nomination = Nomination(queue, workload, assigner.assign(compiled), replaced)
        requests = placement.place_assignment(state, queue, workload, nomination.assignment, replaced=replaced)
        add_targets(state, nomination, requests, assigner.oracle)
        return nomination

    full = try_counts(None)
    if full.works or not (shape.can_shrink and state.options.partial_admission):
        return full
    return largest_that_works(workload, try_counts) or full


def largest_that_works(
    workload: PendingWorkload, try_counts: Callable[[Sequence[int]], Nomination]
) -> Nomination | None:
    """Search the largest number of pods that works. The search assumes that smaller numbers work, too."""
    pod_sets = workload.shape.pod_sets
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
    state: State, nomination: Nomination, requests: list[PlacementRequest], oracle: Oracle | None = None
) -> None:
    """Find the workloads to preempt, and hold the room that the workload would have without them."""
    assignment = nomination.assignment
    if assignment.mode != Mode.PREEMPT:
        return

    def has_place() -> bool:
        return not placement.find_place(state, requests, nomination.replaced, nomination.moving).failures

    needed = assignment.needed()
    amounts = {quota: amount for quota, amount in assignment.usage.items() if amount and quota.key.resource != PODS}
    demand = Demand(
        nomination.queue,
        nomination.workload,
        amounts,
        needed,
        has_place if requests else None,
        state.options.head_start,
    )
    if oracle is not None and len(needed) == 1 and oracle.answers(demand):
        nomination.targets = oracle.targets
    elif not demand.is_unobtainable():
        nomination.targets = state.search_targets(state.reserved, demand)
    if requests:
        _hold_room(state, nomination, requests)


def _hold_room(state: State, nomination: Nomination, requests: list[PlacementRequest]) -> None:
    """Place the workload as if its targets were gone; without targets, as if no workload were placed."""
    if nomination.targets:
        for target in nomination.targets:
            state.reserved.take_out(target.reserved)
        outcome = placement.find_place(state, requests, nomination.replaced, nomination.moving)
        for target in nomination.targets:
            state.reserved.put_back(target.reserved)
    else:
        outcome = search.place(state.forest, requests, empty=True)
    if not outcome.failures:
        placement.settle(nomination.assignment, requests, outcome, nomination.moving)


def find_replaced(state: State, queue: Queue, workload: PendingWorkload) -> ReservedWorkload | None:
    """Return the slice of the same job that the workload replaces, if it holds quota in the same ClusterQueue."""
    key = workload.rare.replaces
    reserved = state.reserved.by_key.get(key) if key is not None else None
    if reserved is None or reserved.cluster_queue != queue.name or reserved.key.namespace != workload.key.namespace:
        return None
    return reserved


def valid_memory(state: State, queue: Queue, workload: PendingWorkload) -> ScanMemory | None:
    """Return where the scan of flavors stopped, unless quota may have become free since."""
    memory = workload.memory
    if memory is None:
        return None
    if state.options.flavor_fungibility_preserve_scan_progress:
        is_changed = memory.shape is not workload.shape or memory.priority != workload.priority
        if is_changed and state.options.scheduling_equivalence_hashing:
            return None
        if memory.cycle >= state.cycles - 1:
            return memory
    return memory if memory.generation == queue.generation else None


# The second pass


def nominate_again(state: State, queue: Queue, reserved: ReservedWorkload) -> Nomination:
    """Nominate a workload that holds quota. It keeps its flavors and quota, and only gets nodes."""
    workload = PendingWorkload(
        reserved.key,
        reserved.uid,
        priority=reserved.priority,
        time=reserved.time,
        shape=reserved.shape,
        local_queue=reserved.local_queue,
        rare=reserved.rare,
    )
    assert reserved.second_pass is not None
    if reserved.second_pass.keep:
        return Nomination(queue, workload, held_assignment(queue, reserved, {}), moving=reserved)

    def try_counts(counts: Sequence[int]) -> Nomination:
        names = (pod_set.name for pod_set in workload.shape.pod_sets)
        assignment = held_assignment(queue, reserved, dict(zip(names, counts, strict=True)))
        nomination = Nomination(queue, workload, assignment, moving=reserved)
        requests = placement.place_assignment(state, queue, workload, assignment, moving=reserved)
        add_targets(state, nomination, requests)
        return nomination

    held = {assigned.name: assigned.count for assigned in reserved.assigned}
    full = try_counts([held.get(pod_set.name, 0) for pod_set in workload.shape.pod_sets])
    if full.works or not (state.options.partial_admission and workload.shape.can_shrink):
        return full
    return largest_that_works(workload, try_counts) or full


def held_assignment(queue: Queue, reserved: ReservedWorkload, counts: Mapping[str, int]) -> Assignment:
    """Return the assignment of a workload that holds quota. Pod sets without a placement get these numbers of pods."""
    shapes = {pod_set.name: (index, pod_set) for index, pod_set in enumerate(reserved.shape.pod_sets)}
    result = Assignment(CompiledAssignment((), None, ()))
    together: list[PodSetsTogether] = []
    for assigned in reserved.assigned:
        count, usage = assigned.count, assigned.usage
        if assigned.placement is None and count and counts.get(assigned.name, count) != count:
            count = counts[assigned.name]
            usage = {resource: amount // assigned.count * count for resource, amount in usage.items()}
        chosen: list[GroupChoice] = []
        for resource, flavor in assigned.flavors.items():
            charge = (queue.quota(FlavorResource(flavor, resource)), usage.get(resource, 0))
            option = FlavorOption(0, flavor, (charge,))
            choice = GroupChoice(CompiledGroup(resource, (resource,), 1, (option,), ()), 0)
            choice.best = Attempt(option)
            chosen.append(choice)
            result.usage[charge[0]] = result.usage.get(charge[0], 0) + charge[1]
        index, shape = shapes[assigned.name]
        requests = {resource: usage.get(resource, 0) for resource in assigned.flavors}
        together.append(PodSetsTogether((CompiledPodSet(index, shape, count, requests),), (), None, False, False))
        result.choices.append(tuple(chosen))
        if assigned.placement is not None:
            result.placements[assigned.name] = assigned.placement
    result.compiled.together = tuple(together)
    return result
