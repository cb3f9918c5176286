"""
The additions of admission to the pods of a job: node selectors and tolerations of flavors, updates of checks.

Kueue: pkg/podset, pkg/controller/jobframework (getPodSetsInfoFromStatus)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec

from kyu.api.actions import View
from kyu.api.clusters.kubestellar import PLACED_WORKLOAD
from kyu.api.kueue import PodSetAssignment, PodSetUpdate, ResourceFlavor, Workload
from kyu.api.meta import Json, Key
from kyu.kinds import metadata
from kyu.kinds.templates import PodSetInfo, PodSetTemplate

RANKS = frozenset({"podIndexLabel", "subGroupIndexLabel", "subGroupCount"})
# While a job runs its templates carry what admission added; only these say whether it is still the same job.
CONTENT = (
    "initContainers", "containers", "runtimeClassName", "priorityClassName", "overhead", "resourceClaims", "resources",
)  # fmt: skip

CONTAINER_DEFAULTS: Json = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "resources": {},
}
MISSING = object()


def pod_set_infos(view: View, workload: Workload, queue_name: str) -> list[PodSetInfo]:
    admission = workload.status.admission
    if admission is None:
        return []
    updates = [
        update
        for check in workload.status.admission_checks
        if check.state == "Ready"
        for update in check.pod_set_updates
    ]
    labels = {}
    if view.configuration.gates.enabled("AssignQueueLabelsForPods"):
        labels = {
            "kueue.x-k8s.io/cluster-queue-name": admission.cluster_queue,
            "kueue.x-k8s.io/local-queue-name": queue_name,
        }
    return [
        pod_set_info(view, workload, assignment, labels, [u for u in updates if u.name == assignment.name])
        for assignment in admission.pod_set_assignments
    ]


def pod_set_info(
    view: View,
    workload: Workload,
    assignment: PodSetAssignment,
    labels: dict[str, str],
    updates: Sequence[PodSetUpdate],
) -> PodSetInfo:
    asked = next((p.count for p in workload.spec.pod_sets if p.name == assignment.name), 0)
    info = PodSetInfo(
        name=assignment.name,
        count=asked if assignment.count is None else assignment.count,
        labels={**labels, metadata.POD_SET: assignment.name},
        annotations={metadata.WORKLOAD: workload.metadata.name},
        scheduling_gates=(metadata.TOPOLOGY_GATE,) if assignment.topology_assignment else (),
    )
    if metadata.ELASTIC_JOB in workload.metadata.annotations:
        # More pods may come than have quota; and they stay when another slice is in force.
        info.annotations[metadata.SLICE_NAME] = workload.metadata.annotations.get(
            metadata.SLICE_NAME, workload.metadata.name
        )
        info = dataclasses.replace(info, scheduling_gates=(*info.scheduling_gates, metadata.ELASTIC_GATE))
    tolerations: list[Json] = []
    for name in dict.fromkeys(assignment.flavors.values()):
        flavor = view.get(ResourceFlavor, Key("", name))
        if flavor is not None:
            info.node_selector.update(flavor.spec.node_labels)
            tolerations += [msgspec.to_builtins(toleration) for toleration in flavor.spec.tolerations]
    for update in updates:
        info.labels.update(update.labels)
        info.annotations.update(update.annotations)
        info.node_selector.update(update.node_selector)
        tolerations += [msgspec.to_builtins(toleration) for toleration in update.tolerations]
    return dataclasses.replace(info, tolerations=tuple(tolerations))


def originals(raw: Json) -> list[PodSetTemplate]:
    """Return the pod sets before admission, from the Workload."""
    return [
        PodSetTemplate(
            item.get("name", "main"),
            item.get("template") or {},
            item.get("count", 1),
            item.get("minCount"),
            item.get("topologyRequest"),
        )
        for item in (raw.get("spec") or {}).get("podSets") or ()
    ]


def is_injected(pod_sets: Sequence[PodSetTemplate]) -> bool:
    """Return whether the templates carry the additions of an admission, marked by the name of the Workload."""
    return any(metadata.WORKLOAD in metadata.annotations_of(pod_set.template) for pod_set in pod_sets)


def is_placed(job: Json, raw: Json | None) -> bool:
    """Return whether the templates of a suspended job carry additions for the cluster that its copy runs in."""
    mark = metadata.annotations_of(job).get(PLACED_WORKLOAD)
    return raw is not None and mark is not None and mark == metadata.name_of(raw)


def same_pods(pod_sets: Sequence[PodSetTemplate], raw: Json, *, placed: bool = False) -> bool:
    """Return whether the Workload has the pod sets of the job."""
    asked = originals(raw)
    if [pod_set.name for pod_set in pod_sets] != [pod_set.name for pod_set in asked]:
        return False
    injected = placed or is_injected(pod_sets)
    for now, before in zip(pod_sets, asked, strict=True):
        if injected:
            counts = now.count == before.count or before.min_count is not None
            same = all(spec(now).get(field) == spec(before).get(field) for field in CONTENT)
        else:
            counts = now.count == before.count and now.min_count == before.min_count
            same = spec(now) == spec(before) and wish(now) == wish(before)
        if not (counts and same):
            return False
    return True


def same_containers(pod_sets: Sequence[PodSetTemplate], raw: Json) -> bool:
    """Return whether the Workload has the sizes and containers of the job, as Kueue compares a prebuilt Workload.

    An API server fills in fields of a Job that it does not fill in for a Workload, so those do not count.
    """
    asked = originals(raw)
    if len(pod_sets) != len(asked):
        return False
    injected = is_injected(pod_sets)
    for now, before in zip(pod_sets, asked, strict=True):
        if now.count != before.count and not (injected and before.min_count is not None):
            return False
        if not injected and (spec(now).get("tolerations") or []) != (spec(before).get("tolerations") or []):
            return False
        for field in ("initContainers", "containers"):
            pairs = (spec(now).get(field) or (), spec(before).get(field) or ())
            if [undefaulted(one) for one in pairs[0]] != [undefaulted(one) for one in pairs[1]]:
                return False
    return True


def same_roles(pod_sets: Sequence[PodSetTemplate], raw: Json) -> bool:
    """Return whether the Workload has room for each role of a pod group, as Kueue compares a prebuilt Workload."""
    sizes = {one.name: one.count for one in originals(raw)}
    return all(one.count <= sizes.get(one.name, -1) for one in pod_sets)


def undefaulted(container: Json) -> Json:
    """Return the container without the fields that an API server fills in."""
    kept = {name: value for name, value in container.items() if CONTAINER_DEFAULTS.get(name, MISSING) != value}
    kept.pop("imagePullPolicy", None)
    if ports := kept.get("ports"):
        kept["ports"] = [{k: v for k, v in port.items() if (k, v) != ("protocol", "TCP")} for port in ports]
    return kept


def wish(pod_set: PodSetTemplate) -> Json | None:
    """Return the topology request, or None. Kueue also writes a request that names only labels of ranks."""
    request = pod_set.topology_request
    return request if request is not None and request.keys() - RANKS else None


def spec(pod_set: PodSetTemplate) -> Json:
    return pod_set.template.get("spec") or {}
