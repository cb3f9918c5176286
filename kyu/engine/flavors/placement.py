"""
Topology placement of an assignment: find nodes for the chosen flavors, and lower the mode if there are none.

Quota decides the flavor, and topology never changes it. A workload whose pods find no room now may preempt. A workload
that would find no room on empty nodes does not fit. The forest holds the usage of a placement during the cycle.

Called by: engine/nominate.py. Calls: engine/topology/search.py. Kueue:
pkg/scheduler/flavorassigner/tas_flavorassigner.go
"""

from __future__ import annotations

from collections.abc import Mapping

from kyu.api.checks import PROVISIONING_CONTROLLER
from kyu.api.workloads import PodSetUpdate
from kyu.engine.flavors.assignment import Assignment, GroupChoice, Mode
from kyu.engine.flavors.compiled import CompiledPodSet
from kyu.engine.queueing.pending_workload import PendingWorkload
from kyu.engine.reasons import FlavorReason, NoFitWord, NoTopologyFlavor, PlacementFailed
from kyu.engine.state import State
from kyu.engine.topology import search
from kyu.engine.topology.failures import ElasticNotUnconstrained, UpdateConflict
from kyu.engine.topology.search import PlacementOutcome
from kyu.engine.topology.types import DomainUsage, Placement, PlacementRequest, TopologyRequest
from kyu.engine.tree import Queue
from kyu.engine.workloads import ReservedWorkload

ANYWHERE = TopologyRequest(unconstrained=True)


def is_placed(state: State, queue: Queue, pod_set: CompiledPodSet) -> bool:
    """Return whether a pod set needs nodes: it asks for a topology, or every flavor of its ClusterQueue has one."""
    if not state.options.topology_aware_scheduling or pod_set.count == 0:
        return False
    return pod_set.shape.topology is not None or queue.topology_only


def place_assignment(
    state: State,
    queue: Queue,
    workload: PendingWorkload,
    assignment: Assignment,
    *,
    replaced: ReservedWorkload | None = None,
    moving: ReservedWorkload | None = None,
) -> list[PlacementRequest]:
    """
    Find nodes for an assignment that quota allows, and lower its mode where that fails.

    ``replaced`` is the slice of an elastic job that this workload takes over from. ``moving`` is a workload in its
    second pass. Return the requests that were placed, or are to be placed after preemption.
    """
    if assignment.mode == Mode.NO_FIT or not (queue.placed or workload.shape.wants_topology):
        return []
    requests: list[PlacementRequest] = []
    keeps_pods = moving is None and workload.rare.elastic and state.options.elastic_jobs_via_workload_slices_with_tas
    for pod_set, chosen in assignment.pod_sets():
        if not is_placed(state, queue, pod_set):
            continue
        name, wish = pod_set.shape.name, pod_set.shape.topology
        if keeps_pods and wish is not None and (wish.required is not None or wish.preferred is not None):
            failure = ElasticNotUnconstrained("required" if wish.required is not None else "preferred")
            _refuse(assignment, name, PlacementFailed(failure))
            return []
        assigned = assignment.flavors(state, pod_set, chosen).values()
        flavors = {flavor for flavor in assigned if state.cluster.has_topology(flavor)}
        if len(flavors) != 1:
            _refuse(assignment, name, NoTopologyFlavor(tuple(sorted(flavors))))
            return []
        (flavor,) = flavors
        if moving is None and is_delayed(state, queue, flavor):
            assignment.delayed.add(name)
        else:
            request = _request(pod_set, flavor, workload.rare.updates)
            if isinstance(request, UpdateConflict):
                _refuse(assignment, name, PlacementFailed(request), "TopologyPlacementFailed")
                return []
            requests.append(request)
    if requests:
        _place(state, assignment, requests, replaced, moving)
    return requests


def is_delayed(state: State, queue: Queue, flavor: str) -> bool:
    """Return whether nodes are chosen after the checks: they do not exist yet, or are in another cluster."""
    cluster = state.cluster
    return cluster.is_dispatched(queue) or cluster.has_check(queue, {flavor}, PROVISIONING_CONTROLLER)


def _request(
    pod_set: CompiledPodSet, flavor: str, updates: tuple[PodSetUpdate, ...]
) -> PlacementRequest | UpdateConflict:
    shape = pod_set.shape
    pod_filter = shape.pod_filter
    for update in updates:
        if update.name == shape.name:
            for key, value in pod_filter.node_selector:
                if update.node_selector.get(key, value) != value:
                    return UpdateConflict(shape.name, key, value, update.node_selector[key])
            pod_filter = pod_filter.merged(update.node_selector, update.tolerations)
    return PlacementRequest(
        name=shape.name,
        flavor=flavor,
        count=pod_set.count,
        requests=shape.raw,
        topology=shape.topology or ANYWHERE,
        pod_filter=pod_filter,
        group=shape.group,
    )


def _place(
    state: State,
    assignment: Assignment,
    requests: list[PlacementRequest],
    replaced: ReservedWorkload | None,
    moving: ReservedWorkload | None,
) -> None:
    repairing = moving is not None and moving.second_pass is not None and bool(moving.second_pass.unhealthy_node)
    if assignment.mode == Mode.FIT:
        outcome = find_place(state, requests, replaced, moving)
        if not outcome.failures:
            settle(assignment, requests, outcome, moving)
            return
        _lower(state, assignment, {_tell(assignment, outcome)})
        assignment.mode = Mode.PREEMPT
    if repairing:
        return
    outcome = search.place(state.forest, requests, empty=True)
    if outcome.failures:
        told = (reason for reasons in assignment.placement_reasons.values() for reason in reasons)
        if not any(isinstance(reason, PlacementFailed) for reason in told):
            _tell(assignment, outcome)
        assignment.mode, assignment.failure_word = Mode.NO_FIT, "TopologyPlacementFailed"
    else:
        _lower(state, assignment, {request.name for request in requests})


def _tell(assignment: Assignment, outcome: PlacementOutcome) -> str:
    """Note why there is no place, for the first pod set that has none. Return the name of the pod set."""
    name = next(p.shape.name for p, _ in assignment.pod_sets() if p.shape.name in outcome.failures)
    _add_reason(assignment, name, PlacementFailed(outcome.failures[name]))
    return name


def find_place(
    state: State,
    requests: list[PlacementRequest],
    replaced: ReservedWorkload | None = None,
    moving: ReservedWorkload | None = None,
) -> PlacementOutcome:
    """Return the placements of the pod sets on the nodes as they are now."""
    if moving is not None and moving.second_pass is not None:
        current = placements(moving)
        if moving.second_pass.unhealthy_node:
            return search.replace(state.forest, requests, current, moving.second_pass.unhealthy_node)
        requests = [request for request in requests if request.name not in current]
        return search.place(state.forest, requests)
    keeps_pods = replaced is not None and state.options.elastic_jobs_via_workload_slices_with_tas
    return search.place(state.forest, requests, previous=placements(replaced) if replaced and keeps_pods else {})


def placements(reserved: ReservedWorkload) -> dict[str, Placement]:
    return {a.name: a.placement for a in reserved.assigned if a.placement is not None}


def settle(
    assignment: Assignment, requests: list[PlacementRequest], outcome: PlacementOutcome, moving: ReservedWorkload | None
) -> None:
    """Write the found placements to the assignment, with the room that they take beyond what the workload has."""
    current: Mapping[str, Placement] = placements(moving) if moving is not None else {}
    usages: list[DomainUsage] = []
    for request in requests:
        placed = outcome.placements.get(request.name) or current.get(request.name)
        if placed is not None:
            assignment.placements[request.name] = placed
            usages += search.net_usages(request, placed, current.get(request.name))
    assignment.topology = tuple(usages)


def _lower(state: State, assignment: Assignment, names: set[str]) -> None:
    """Let preemption look at all that some pod sets use, also where quota alone would fit."""
    for pod_set, chosen in assignment.pod_sets():
        if pod_set.shape.name in names:
            lower(chosen, assignment.flavors(state, pod_set, chosen))


def lower(chosen: tuple[GroupChoice, ...], flavors: Mapping[str, str]) -> None:
    """Set the mode of some resources to Preempt."""
    for choice in chosen:
        best, resources = choice.best, choice.group.resources
        if best is not None:
            modes = best.modes or [Mode.FIT] * len(resources)
            best.modes = [
                Mode.PREEMPT if resource in flavors else mode for resource, mode in zip(resources, modes, strict=True)
            ]


def _refuse(
    assignment: Assignment,
    pod_set: str,
    reason: NoTopologyFlavor | PlacementFailed,
    word: NoFitWord = "NoMatchingFlavor",
) -> None:
    _add_reason(assignment, pod_set, reason)
    assignment.mode = Mode.NO_FIT
    assignment.failure_word = word


def _add_reason(assignment: Assignment, pod_set: str, reason: FlavorReason) -> None:
    found = assignment.placement_reasons
    found[pod_set] = (*found.get(pod_set, ()), reason)
