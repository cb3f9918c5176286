"""
v1 Pod: a plain pod is a job of one pod set with one pod.

A pod cannot be suspended; it is held by a scheduling gate until it is admitted, and stopped by deleting it. Pods that
carry a group name are queued together (``pod_group.py``).

Kueue: pkg/controller/jobs/pod
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

from kyu.api.errors import FieldError, forbidden, invalid, not_supported, required
from kyu.api.meta import Json, Kind
from kyu.kinds import fields, metadata, pods, templates
from kyu.kinds.kind import Context, Finished, JobKind, Slot
from kyu.kinds.templates import PodSetInfo, PodSetTemplate, RankLabels, TemplateConflict
from kyu.kinds.validation import IMMUTABLE, annotation_field, label_field, positive, subdomain_errors

POD = Kind("", "v1", "Pod", "pods")
ROLE_HASH_LENGTH = 8
# Fields that are equal in pods of one role: such pods are interchangeable for scheduling.
SHAPE = (
    "nodeSelector", "affinity", "tolerations", "runtimeClassName", "priority", "topologySpreadConstraints", "overhead",
    "resourceClaims", "resources",
)  # fmt: skip


class PlainPod(JobKind):
    kinds = (POD,)
    framework = "pod"
    managed_by_path = None
    stops_by_deletion = True

    def slots(self, obj: Json) -> list[Slot]:
        return [Slot("main", (), 1, ranks=ranks(obj))]

    def template(self, obj: Json, slot: Slot) -> Json:
        return template(obj)

    def is_suspended(self, obj: Json) -> bool:
        return templates.has_gate(obj, metadata.ADMISSION_GATE)

    def with_suspend(self, obj: Json, *, suspend: bool) -> Json:
        change = templates.with_gates if suspend else templates.without_gates
        return change(obj, metadata.ADMISSION_GATE)

    def with_info(self, obj: Json, slot: Slot, info: PodSetInfo) -> Json | TemplateConflict:
        return released(obj, info)

    def with_original(self, obj: Json, slot: Slot, original: PodSetTemplate) -> Json:
        # A pod that was started is deleted, never put back.
        return obj

    def is_active(self, obj: Json) -> bool:
        return not pods.is_terminal(obj) and not self.is_suspended(obj)

    def pods_ready(self, obj: Json) -> bool:
        return pods.is_ready(obj) or pods.phase(obj) == "Succeeded"

    def finished(self, obj: Json) -> Finished | None:
        if not pods.is_terminal(obj):
            return None
        success = pods.phase(obj) == "Succeeded"
        message = fields.text_at(obj, ("status", "message"))
        return Finished(success, message or ("Pod succeeded" if success else "Pod failed"))

    def is_managed(self, obj: Json, context: Context) -> bool:
        return has_queued_parent(obj) or super().is_managed(obj, context)

    def defaults(self, obj: Json, context: Context) -> Json:
        """Return the pod with two gates: one for admission, one for the topology that admission may assign."""
        if not has_queued_parent(obj):
            obj = super().defaults(obj, context)
            if not self.is_managed(obj, context):
                return obj
            obj = with_managed_mark(obj)
        # Admission sets it. A copy of a pod that ran before would be held by its old value.
        obj = templates.without_annotation(obj, metadata.WORKLOAD)
        if label := metadata.annotations_of(obj).get(metadata.POD_GROUP_POD_INDEX_LABEL):
            rank = metadata.labels_of(obj).get(label, "")
            obj = fields.with_value(obj, ("metadata", "labels", metadata.POD_GROUP_POD_INDEX), rank)
        obj = templates.with_gates(obj, metadata.ADMISSION_GATE, metadata.TOPOLOGY_GATE)
        if has_queued_parent(obj) and metadata.ROLE_HASH in metadata.annotations_of(obj):
            return obj
        return templates.with_annotations(obj, {metadata.ROLE_HASH: role_hash(obj)})

    def own_errors(self, obj: Json, old: Json | None) -> list[FieldError]:
        return [*managed_errors(obj), *group_errors(obj), *([] if old is None else change_errors(obj, old))]


def ranks(obj: Json) -> RankLabels:
    """Return the label with the rank of the pod in its group, if there is one."""
    label = metadata.annotations_of(obj).get(metadata.POD_GROUP_POD_INDEX_LABEL)
    if label or metadata.POD_GROUP_POD_INDEX in metadata.labels_of(obj):
        return RankLabels(index_label=metadata.POD_GROUP_POD_INDEX)
    return RankLabels()


def has_queued_parent(pod: Json) -> bool:
    """Return whether a Deployment, StatefulSet or LeaderWorkerSet that is queued through its pods made this one."""
    return metadata.POD_SUSPENDING_PARENT in metadata.annotations_of(pod)


def with_managed_mark(obj: Json) -> Json:
    obj = fields.with_value(obj, ("metadata", "labels", metadata.MANAGED), "true")
    finalizers = fields.value_at(obj, ("metadata", "finalizers"))
    present = finalizers if isinstance(finalizers, list) else []
    if metadata.MANAGED in present:
        return obj
    return fields.with_value(obj, ("metadata", "finalizers"), [*present, metadata.MANAGED])


def template(pod: Json) -> Json:
    """Return the pod as the template of a Workload, without its identity, its node and the gates of Kueue."""
    free = templates.without_gates(pod, metadata.ADMISSION_GATE, metadata.TOPOLOGY_GATE)
    spec = {key: value for key, value in free["spec"].items() if key != "nodeName"}
    meta = {"labels": metadata.labels_of(pod), "annotations": metadata.annotations_of(pod)}
    return {"metadata": {key: value for key, value in meta.items() if value}, "spec": spec}


def role_hash(pod: Json) -> str:
    """Return a hash that is equal for pods of one shape: a group counts them as one role."""
    spec = pod.get("spec") or {}
    shape: Json = {key: spec[key] for key in SHAPE if spec.get(key)}
    for key in ("initContainers", "containers"):
        shape[key] = [
            {"requests": fields.value_at(c, ("resources", "requests")), "ports": c.get("ports")}
            for c in fields.list_at(spec, (key,))
        ]
    text = json.dumps(shape, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:ROLE_HASH_LENGTH]


def released(pod: Json, info: PodSetInfo) -> Json | TemplateConflict:
    """Return the pod with the additions of admission and without gates. With a place, the topology gate stays."""
    changed = templates.merged(pod, info)
    if isinstance(changed, TemplateConflict):
        return changed
    gates = {metadata.ADMISSION_GATE, metadata.TOPOLOGY_GATE} - set(info.scheduling_gates)
    return templates.without_gates(changed, *gates)


def release_patch(pod: Json, info: PodSetInfo) -> Json | TemplateConflict:
    """Return the patch that starts one pod of a group."""
    changed = released(pod, info)
    return changed if isinstance(changed, TemplateConflict) else fields.merge_patch(pod, changed)


def managed_errors(obj: Json) -> Iterator[FieldError]:
    managed = metadata.labels_of(obj).get(metadata.MANAGED)
    if managed not in (None, "true"):
        yield forbidden(label_field(metadata.MANAGED), 'may only be "true"')


def group_errors(obj: Json) -> Iterator[FieldError]:
    name = metadata.identifier(obj, metadata.POD_GROUP_NAME)
    total = metadata.annotations_of(obj).get(metadata.POD_GROUP_TOTAL_COUNT)
    name_field = label_field(metadata.POD_GROUP_NAME)
    total_field = annotation_field(metadata.POD_GROUP_TOTAL_COUNT)
    if name:
        yield from subdomain_errors(name_field, name)
    if name and total is None:
        yield required(total_field, f"must be set together with {metadata.POD_GROUP_NAME}")
    if total is not None and not name:
        yield required(name_field, f"must be set together with {metadata.POD_GROUP_TOTAL_COUNT}")
    if total is not None and positive(total) is None:
        yield invalid(total_field, total, "must be a whole number, 1 or more")
    fast = metadata.annotations_of(obj).get(metadata.POD_GROUP_FAST_ADMISSION)
    if fast is not None and fast != "true":
        field = annotation_field(metadata.POD_GROUP_FAST_ADMISSION)
        yield not_supported(field, fast, ["true"])
    prebuilt = metadata.identifier(obj, metadata.PREBUILT_WORKLOAD)
    if name and prebuilt and prebuilt != name:
        field = label_field(metadata.PREBUILT_WORKLOAD)
        yield invalid(field, prebuilt, "must be equal to the name of the pod group")


def change_errors(obj: Json, old: Json) -> Iterator[FieldError]:
    before, after = (metadata.identifier(o, metadata.POD_GROUP_NAME) for o in (old, obj))
    if before != after:
        yield invalid(label_field(metadata.POD_GROUP_NAME), after, IMMUTABLE)
    field = annotation_field(metadata.RETRIABLE_IN_GROUP)
    value = metadata.annotations_of(obj).get(metadata.RETRIABLE_IN_GROUP)
    if metadata.annotations_of(old).get(metadata.RETRIABLE_IN_GROUP) == "false" and value != "false":
        yield forbidden(field, "cannot be taken back")
