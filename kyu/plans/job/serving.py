"""
The Workloads of kinds that are queued through groups of their pods: StatefulSet and LeaderWorkerSet.

The Workload comes first, made from the object, so quota is reserved before a pod exists. Pods of the object join it as
a pod group; plans/job/lifecycle.py starts and stops that group. An object without replicas gives its quota back, and
its Workload is on hold.

Kueue: pkg/controller/jobs/statefulset, pkg/controller/jobs/leaderworkerset
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kyu.api.actions import Action, Create, Delete, Patch, View, WakeAt
from kyu.api.kueue import RESOURCE_IN_USE_FINALIZER, Workload
from kyu.api.meta import Json, Key, Ref, find_condition, is_true, key_of
from kyu.kinds import metadata, pod_group
from kyu.kinds import pod as plain_pod
from kyu.kinds.kind import JobKind
from kyu.kinds.templates import PodSetTemplate
from kyu.plans.job import priority
from kyu.plans.job.unit import JobUnit, owner_reference, pod_ref
from kyu.plans.status import StatusEdit
from kyu.plans.workload import unadmitted
from kyu.plans.workload.eviction import clear_reservation

ON_HOLD = "OnHold"
NO_LONGER_ON_HOLD = "Workload no longer on hold; waiting for quota reservation"
# How often the pods of an object that was scaled to 0 are looked at.
LOOK_AGAIN = timedelta(seconds=1)


def plan(kind: JobKind, view: View, obj: Json, now: datetime) -> list[Action]:
    """Plan for an object whose pods are groups. Others, such as a Deployment, have no Workload of their own."""
    parts = kind.workloads(obj)
    if metadata.is_deleted(obj) or not kind.has_groups:
        return []
    actions: list[Action] = []
    for number, (name, pod_sets) in enumerate(parts):
        actions += keep(kind, view, obj, GroupWorkload(name, pod_sets, number if kind.is_in_parts else None), now)
    if kind.is_in_parts:
        actions += delete_surplus(view, obj, {name for name, _ in parts})
    return [*actions, *join(kind, view, obj)]


@dataclass(frozen=True, slots=True)
class GroupWorkload:
    """One Workload of the object, with its number if there may be several."""

    name: str
    pod_sets: Sequence[PodSetTemplate]
    number: int | None

    @property
    def is_empty(self) -> bool:
        return not any(pod_set.count for pod_set in self.pod_sets)


def keep(kind: JobKind, view: View, obj: Json, part: GroupWorkload, now: datetime) -> list[Action]:
    """Create the Workload of a part, or make it follow the object."""
    key = Key(obj["metadata"]["namespace"], part.name)
    workload, raw = view.get(Workload, key), view.find_json(Workload.KIND, key)
    if workload is None or raw is None:
        return [] if part.is_empty else create(kind, view, obj, part, now)
    if is_true(workload.status.conditions, "Finished") or workload.metadata.deletion_timestamp:
        return []
    if part.is_empty:
        return hold(kind, view, workload, raw, now)
    change = follow(kind, obj, workload, raw)
    reserved = find_condition(workload.status.conditions, "QuotaReserved")
    if change or reserved is None or reserved.reason != ON_HOLD:
        return change
    edit = StatusEdit(raw, now)
    unadmitted.set_no_quota(edit, "PendingEvaluation", NO_LONGER_ON_HOLD, view.configuration.gates)
    patch = edit.patch(Workload.KIND)
    return [patch] if patch else []


def create(kind: JobKind, view: View, obj: Json, part: GroupWorkload, now: datetime) -> list[Action]:
    unit = JobUnit(kind, obj, view, now)
    found = priority.of(view, unit, part.pod_sets)
    if isinstance(found, priority.MissingPriorityClass):
        return [unit.event("WorkloadPriorityClassNotFound", str(found), warning=True)]
    given = metadata.annotations_of(obj)
    annotations = {
        metadata.IS_GROUP_WORKLOAD: "true",
        metadata.JOB_OWNER_GVK: f"{kind.kind.api_version}, Kind={kind.kind.kind}",
        metadata.JOB_OWNER_NAME: metadata.name_of(obj),
        **{key: value for key, value in given.items() if key.startswith(metadata.PROVISIONING_PREFIX)},
    }
    if gates := given.get(metadata.ADMISSION_GATED_BY):
        annotations[metadata.ADMISSION_GATED_BY] = gates
    if part.number is not None:
        annotations[metadata.COMPONENT_INDEX] = str(part.number)
    kept = view.configuration.integrations.label_keys_to_copy
    labels = {key: value for key, value in metadata.labels_of(obj).items() if key in kept}
    namespace = obj["metadata"]["namespace"]
    pod_sets = [{**one.to_json(), "template": {"spec": one.template.get("spec") or {}}} for one in part.pod_sets]
    spec: Json = {"active": True, "podSets": pod_sets, **found.fields()}
    if queue := kind.queue_name(obj):
        spec["queueName"] = queue
    body: Json = {
        "apiVersion": Workload.KIND.api_version,
        "kind": "Workload",
        "metadata": {
            "name": part.name,
            "namespace": namespace,
            "labels": {**labels, metadata.JOB_UID: unit.uid},
            "annotations": annotations,
            "finalizers": [RESOURCE_IN_USE_FINALIZER],
            "ownerReferences": [owner_reference(kind.kind, obj, controller=False)],
        },
        "spec": spec,
    }
    return [Create(Workload.KIND, body), unit.event("CreatedWorkload", f"Created Workload: {namespace}/{part.name}")]


def follow(kind: JobKind, obj: Json, workload: Workload, raw: Json) -> list[Action]:
    """Write the owner, the queue and the gates of the object to its Workload."""
    meta: Json = {}
    owner = owner_reference(kind.kind, obj, controller=False)
    if all(one.uid != owner["uid"] for one in workload.metadata.owner_references):
        meta["ownerReferences"] = [*(raw["metadata"].get("ownerReferences") or ()), owner]
    gates = metadata.annotations_of(obj).get(metadata.ADMISSION_GATED_BY)
    if workload.metadata.annotations.get(metadata.ADMISSION_GATED_BY) != gates:
        meta["annotations"] = {metadata.ADMISSION_GATED_BY: gates}
    change: Json = {"metadata": meta} if meta else {}
    is_reserved = is_true(workload.status.conditions, "QuotaReserved")
    if not is_reserved and workload.spec.queue_name != kind.queue_name(obj):
        change["spec"] = {"queueName": kind.queue_name(obj) or None}
    if not change:
        return []
    return [Patch(Ref(Workload.KIND, workload.key), change, "", workload.metadata.resource_version)]


def hold(kind: JobKind, view: View, workload: Workload, raw: Json, now: datetime) -> list[Action]:
    """Give the quota of an object without replicas back, once its pods have ended."""
    if not is_true(workload.status.conditions, "QuotaReserved") or not workload.spec.active:
        return []
    pods = view.list_json(plain_pod.POD, workload.key.namespace)
    if pod_group.is_active([pod for pod in pods if pod_group.name(pod) == workload.key.name], now):
        return [WakeAt(now + LOOK_AGAIN)]
    edit = StatusEdit(raw, now)
    message = f"{kind.kind.kind} scaled to zero; workload on hold"
    clear_reservation(edit, ON_HOLD, message, view.configuration.gates)
    patch = edit.patch(Workload.KIND)
    return [patch] if patch else []


def delete_surplus(view: View, obj: Json, names: set[str]) -> Iterator[Action]:
    """Delete the Workloads of parts that the object does not have any more."""
    uid = metadata.uid_of(obj)
    for raw in view.list_json(Workload.KIND, obj["metadata"]["namespace"]):
        owners = raw["metadata"].get("ownerReferences") or ()
        is_own = any(owner.get("uid") == uid for owner in owners)
        if is_own and metadata.name_of(raw) not in names and not metadata.is_deleted(raw):
            yield Delete(Ref(Workload.KIND, key_of(raw)), metadata.uid_of(raw))


def join(kind: JobKind, view: View, obj: Json) -> Iterator[Action]:
    """Make the pods of the object members of its groups. Their templates cannot say in which group a pod is."""
    queue = kind.queue_name(obj)
    for pod in view.list_json(plain_pod.POD, obj["metadata"]["namespace"]):
        place = kind.group_place(obj, pod)
        if place is None or metadata.is_deleted(pod):
            continue
        if pod_group.name(pod) == place.group:
            if queue and metadata.queue_name(pod) != queue:
                yield Patch(pod_ref(pod), {"metadata": {"labels": {metadata.QUEUE_NAME: queue}}})
            continue
        labels = {metadata.MANAGED: "true", **({metadata.QUEUE_NAME: queue} if queue else {})}
        if name := metadata.labels_of(obj).get(metadata.PRIORITY_CLASS):
            labels[metadata.PRIORITY_CLASS] = name
        yield Patch(pod_ref(pod), {"metadata": {"labels": labels, "annotations": place.annotations()}})


def awaits_its_group(pod: Json) -> bool:
    """Return whether the pod comes from a template that cannot name its group, and has none yet."""
    parent = metadata.annotations_of(pod).get(metadata.POD_SUSPENDING_PARENT, "")
    return parent in GROUPED_PARENTS and not pod_group.name(pod)


GROUPED_PARENTS = frozenset({"statefulset", "leaderworkerset.x-k8s.io/leaderworkerset"})
