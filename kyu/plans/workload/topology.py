"""
Pods of a placed workload get their domain and lose their gate.

Kueue: pkg/controller/tas/topology_ungater.go
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from kyu.api import placement as stored
from kyu.api.actions import Action, Patch, View
from kyu.api.kueue import PodSetAssignment, Workload
from kyu.api.meta import Json, Key, Ref, is_true
from kyu.engine.topology.types import Placement
from kyu.engine.topology.ungate import PlacedPod, Ranks, plan_ungating
from kyu.kinds import fields, metadata, pods, templates
from kyu.kinds.pod import POD


def plan(view: View, key: Key, now: datetime) -> list[Action]:
    workload = view.get(Workload, key)
    admission = workload.status.admission if workload else None
    if workload is None or admission is None or not is_true(workload.status.conditions, "Admitted"):
        return []
    placed = [one for one in admission.pod_set_assignments if one.topology_assignment is not None]
    if not placed:
        return []
    mine = [
        pod
        for pod in view.list_json(POD, key.namespace)
        if metadata.annotations_of(pod).get(metadata.WORKLOAD) == key.name and not pods.is_terminal(pod)
    ]
    return [action for one in placed for action in ungate(workload, one, mine)]


def ungate(workload: Workload, assignment: PodSetAssignment, mine: Sequence[Json]) -> list[Action]:
    where = assignment.topology_assignment
    assert where is not None
    own = {
        metadata.name_of(pod): pod
        for pod in mine
        if metadata.labels_of(pod).get(metadata.POD_SET) == assignment.name
        and "deletionTimestamp" not in pod["metadata"]
    }
    listed = [
        PlacedPod(
            name,
            metadata.labels_of(pod),
            templates.has_gate(pod, metadata.TOPOLOGY_GATE),
            fields.json_at(pod, ("spec", "nodeSelector")),
        )
        for name, pod in own.items()
    ]
    placement = Placement(where.levels, stored.domains(where))
    unhealthy = [node.name for node in workload.status.unhealthy_nodes]
    actions: list[Action] = []
    for change in plan_ungating(placement, listed, ranks(workload, assignment.name), unhealthy):
        pod = own[change.pod]
        free = templates.without_gates(pod, metadata.TOPOLOGY_GATE)
        selector = {**fields.json_at(pod, ("spec", "nodeSelector")), **change.node_selector}
        wanted = fields.with_value(free, ("spec", "nodeSelector"), selector)
        ref = Ref(POD, Key(workload.metadata.namespace, change.pod))
        actions.append(Patch(ref, fields.merge_patch(pod, wanted)))
    return actions


def ranks(workload: Workload, pod_set: str) -> Ranks | None:
    """Return the label with the rank of the pods, if there is one. Workers come after their leader."""
    found = next((one for one in workload.spec.pod_sets if one.name == pod_set), None)
    request = found.topology_request if found else None
    if found is None or request is None or request.pod_index_label is None:
        return None
    group = request.pod_set_group_name
    leaders = [
        one.count
        for one in workload.spec.pod_sets
        if group
        and one.name != pod_set
        and one.topology_request
        and one.topology_request.pod_set_group_name == group
        and one.count < found.count
    ]
    return Ranks(request.pod_index_label, sum(leaders), request.sub_group_index_label, request.sub_group_count or 1)
