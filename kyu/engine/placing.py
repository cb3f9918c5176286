"""
Topology on top of quota: once flavors are chosen, find the nodes; and say what that means for how well it fits.

Quota decides the flavor, topology never changes it: a workload whose pods find no room now may preempt for room, one
that would find none on empty nodes does not fit. What a placement takes is held in the forest while the cycle lasts.

Called by: nomination.py. Calls: topology.py. Kueue: pkg/scheduler/flavorassigner/tas_flavorassigner.go
"""

from __future__ import annotations

from collections.abc import Mapping

from kyu.api.checks import PROVISIONING_CONTROLLER
from kyu.api.workloads import PodSetUpdate
from kyu.engine import topology
from kyu.engine.asks import Ask
from kyu.engine.flavors import Assignment, Mode, PodSetAnswer
from kyu.engine.reasons import NoFitWord, NoTopologyFlavor, PlacementFailed
from kyu.engine.state import State
from kyu.engine.topology import Outcome
from kyu.engine.topology_failures import ElasticNotUnconstrained, UpdateConflict
from kyu.engine.topology_types import DomainUsage, Placement, PodSetRequest, TopologyRequest
from kyu.engine.tree import Queue
from kyu.engine.workload import Holding

ANYWHERE = TopologyRequest(unconstrained=True)


def is_placed(state: State, queue: Queue, answer: PodSetAnswer) -> bool:
    """Whether the pod set needs nodes: it says so, or every flavor of its queue has a topology."""
    if not state.options.topology_aware_scheduling or answer.count == 0:
        return False
    return answer.shape.topology is not None or queue.topology_only


def place_assignment(
    state: State,
    queue: Queue,
    ask: Ask,
    assignment: Assignment,
    *,
    replaced: Holding | None = None,
    moving: Holding | None = None,
) -> list[PodSetRequest]:
    """
    Find nodes for an assignment that quota allows, and lower its mode where that fails.

    ``replaced`` is the slice of an elastic job that this one takes over from; ``moving`` is a workload in its second
    pass. The requests that were placed, or are to be placed after preemption.
    """
    answers = [a for a in assignment.pod_sets if is_placed(state, queue, a)]
    if not answers or assignment.mode == Mode.NO_FIT:
        return []
    requests: list[PodSetRequest] = []
    keeps_pods = moving is None and ask.special.elastic and state.options.elastic_jobs_via_workload_slices_with_tas
    for answer in answers:
        wish = answer.shape.topology
        if keeps_pods and wish is not None and (wish.required is not None or wish.preferred is not None):
            failure = ElasticNotUnconstrained("required" if wish.required is not None else "preferred")
            _refuse(assignment, answer, PlacementFailed(failure))
            return []
        flavors = {c.flavor for c in answer.choices.values() if state.cluster.has_topology(c.flavor)}
        if len(flavors) != 1:
            _refuse(assignment, answer, NoTopologyFlavor(tuple(sorted(flavors))))
            return []
        (flavor,) = flavors
        if moving is None and is_delayed(state, queue, flavor):
            answer.delayed = True
        else:
            request = _request(answer, flavor, ask.special.updates)
            if isinstance(request, UpdateConflict):
                _refuse(assignment, answer, PlacementFailed(request), "TopologyPlacementFailed")
                return []
            requests.append(request)
    if requests:
        _place(state, assignment, requests, replaced, moving)
    return requests


def is_delayed(state: State, queue: Queue, flavor: str) -> bool:
    """Its nodes are not there yet, or are in another cluster: the place is chosen when the checks are ready."""
    cluster = state.cluster
    return cluster.is_dispatched(queue) or cluster.has_check(queue, {flavor}, PROVISIONING_CONTROLLER)


def _request(answer: PodSetAnswer, flavor: str, updates: tuple[PodSetUpdate, ...]) -> PodSetRequest | UpdateConflict:
    pod_filter = answer.shape.pod_filter
    for update in updates:
        if update.name == answer.shape.name:
            for key, value in pod_filter.node_selector:
                if update.node_selector.get(key, value) != value:
                    return UpdateConflict(answer.shape.name, key, value, update.node_selector[key])
            pod_filter = pod_filter.merged(update.node_selector, update.tolerations)
    return PodSetRequest(
        name=answer.shape.name,
        flavor=flavor,
        count=answer.count,
        requests=answer.shape.raw,
        topology=answer.shape.topology or ANYWHERE,
        pod_filter=pod_filter,
        group=answer.shape.group,
    )


def _place(
    state: State,
    assignment: Assignment,
    requests: list[PodSetRequest],
    replaced: Holding | None,
    moving: Holding | None,
) -> None:
    repairing = moving is not None and moving.second_pass is not None and bool(moving.second_pass.unhealthy_node)
    if assignment.mode == Mode.FIT:
        outcome = find_place(state, requests, replaced, moving)
        if not outcome.failures:
            settle(assignment, requests, outcome, moving)
            return
        _lower(_tell(assignment, outcome))
        assignment.mode = Mode.PREEMPT
    if repairing:
        return
    outcome = topology.place(state.forest, requests, empty=True)
    if outcome.failures:
        if not any(isinstance(reason, PlacementFailed) for answer in assignment.pod_sets for reason in answer.reasons):
            _tell(assignment, outcome)
        assignment.mode, assignment.word = Mode.NO_FIT, "TopologyPlacementFailed"
    else:
        placed = {request.name for request in requests}
        for answer in assignment.pod_sets:
            if answer.shape.name in placed:
                _lower(answer)


def _tell(assignment: Assignment, outcome: Outcome) -> PodSetAnswer:
    """Note why there is no place: of several pod sets that have none, the first is told."""
    answer = next(answer for answer in assignment.pod_sets if answer.shape.name in outcome.failures)
    answer.reasons = (*answer.reasons, PlacementFailed(outcome.failures[answer.shape.name]))
    return answer


def find_place(
    state: State, requests: list[PodSetRequest], replaced: Holding | None = None, moving: Holding | None = None
) -> Outcome:
    """Where the pod sets go as things stand."""
    if moving is not None and moving.second_pass is not None:
        current = placements(moving)
        if moving.second_pass.unhealthy_node:
            return topology.replace(state.forest, requests, current, moving.second_pass.unhealthy_node)
        requests = [request for request in requests if request.name not in current]
        return topology.place(state.forest, requests)
    keeps_pods = replaced is not None and state.options.elastic_jobs_via_workload_slices_with_tas
    return topology.place(state.forest, requests, previous=placements(replaced) if replaced and keeps_pods else {})


def placements(holding: Holding) -> dict[str, Placement]:
    return {a.name: a.placement for a in holding.assigned if a.placement is not None}


def settle(assignment: Assignment, requests: list[PodSetRequest], outcome: Outcome, moving: Holding | None) -> None:
    """Write the found places to the pod sets, and note what room they take beyond what the workload has."""
    current: Mapping[str, Placement] = placements(moving) if moving is not None else {}
    usages: list[DomainUsage] = []
    for request in requests:
        placed = outcome.placements.get(request.name) or current.get(request.name)
        if placed is None:
            continue
        for answer in assignment.pod_sets:
            if answer.shape.name == request.name:
                answer.placement = placed
        usages += topology.net_usages(request, placed, current.get(request.name))
    assignment.topology = tuple(usages)


def _lower(answer: PodSetAnswer) -> None:
    """Preemption must look at all that the pod set uses, also where quota alone would fit."""
    for choice in answer.choices.values():
        choice.mode = min(choice.mode, Mode.PREEMPT)


def _refuse(
    assignment: Assignment,
    answer: PodSetAnswer,
    reason: NoTopologyFlavor | PlacementFailed,
    word: NoFitWord = "NoMatchingFlavor",
) -> None:
    answer.reasons = (*answer.reasons, reason)
    assignment.mode = Mode.NO_FIT
    assignment.word = word
