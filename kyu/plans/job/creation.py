"""
Give a job its Workload: create one, adopt a prebuilt one, let pods join that of their group.

Called by: plans/job/lifecycle.py (rules), plans/job/changes.py (the Workload of a larger size).
Kueue: ensureOneWorkload and constructWorkload in pkg/controller/jobframework/reconciler.go
"""

from __future__ import annotations

from collections.abc import Sequence

from kyu.api.actions import Action, Create, Event, Patch
from kyu.api.kueue import RESOURCE_IN_USE_FINALIZER, Workload
from kyu.api.meta import Json, Ref, is_true
from kyu.kinds import metadata
from kyu.kinds.pod_group import Incomplete
from kyu.kinds.templates import PodSetTemplate
from kyu.plans.job import priority, slices
from kyu.plans.job.round import JobRound, stop, written
from kyu.plans.job.unit import JobUnit, PodGroupUnit

MISSING_WORKLOAD = "missing workload"


def create(this: JobRound) -> list[Action] | None:
    if this.workload is not None:
        return None
    if metadata.identifier(this.unit.head, metadata.PREBUILT_WORKLOAD):
        return stop(this, MISSING_WORKLOAD)
    if stopping := stop(this, "Missing Workload; unable to restore pod templates"):
        return stopping
    if this.unit.is_active():
        return []
    pod_sets = this.unit.pod_sets()
    if isinstance(pod_sets, Incomplete):
        return [this.unit.event("ErrWorkloadCompose", str(pod_sets), warning=True)]
    found = priority.of(this.view, this.unit, pod_sets)
    if isinstance(found, priority.MissingPriorityClass):
        return [this.unit.event("WorkloadPriorityClassNotFound", str(found), warning=True)]
    body = workload_body(this, this.unit.workload_name(), pod_sets, found)
    if isinstance(body, Incomplete):
        return [this.unit.event("ErrWorkloadCompose", str(body), warning=True)]
    created = this.unit.event("CreatedWorkload", f"Created Workload: {this.namespace}/{body['metadata']['name']}")
    return [Create(Workload.KIND, body), created, *without_slices(this)]


def without_slices(this: JobRound) -> list[Action]:
    """Warn that the elastic annotation of the job has no effect."""
    if this.slices is not None or not metadata.is_elastic(this.unit.head):
        return []
    message = f"{metadata.ELASTIC_JOB} has no effect: when its size changes, it is stopped and queued in its new size"
    return [this.unit.event("ElasticJobNotSupported", message, warning=True)]


def workload_body(
    this: JobRound, name: str, pod_sets: Sequence[PodSetTemplate], found: priority.Priority
) -> Json | Incomplete:
    unit, head = this.unit, this.unit.head
    labels = metadata.labels_of(head)
    configuration = this.view.configuration
    shown = configuration.custom_labels("Workload")
    kept = (*configuration.integrations.label_keys_to_copy, *(label.label_key for label in shown))
    copied = unit.copied(kept, metadata.labels_of)
    marked = unit.copied([label.source_annotation_key for label in shown], metadata.annotations_of)
    if isinstance(copied, Incomplete):
        return copied
    if isinstance(marked, Incomplete):
        return marked
    annotations = {
        key: value
        for key, value in metadata.annotations_of(head).items()
        if key.startswith(metadata.PROVISIONING_PREFIX) or key == metadata.ADMISSION_GATED_BY
    }
    annotations |= marked
    if isinstance(unit, PodGroupUnit):
        annotations[metadata.IS_GROUP_WORKLOAD] = "true"
    if this.slices is not None:
        annotations |= slices.marks(this.workload, name)
    spec: Json = {
        "active": True,
        "podSets": [pod_set.to_json() for pod_set in pod_sets],
        **found.fields(),
    }
    if unit.queue_name:
        # The definition of Workload refuses an empty name.
        spec["queueName"] = unit.queue_name
    if limit := labels.get(metadata.MAX_EXEC_TIME_SECONDS):
        spec["maximumExecutionTimeSeconds"] = int(limit)
    meta: Json = {
        "name": name,
        "namespace": this.namespace,
        "labels": {**copied, metadata.JOB_UID: unit.uid},
        "finalizers": [RESOURCE_IN_USE_FINALIZER],
        "ownerReferences": unit.owners(),
    }
    if annotations:
        meta["annotations"] = annotations
    return {"apiVersion": Workload.KIND.api_version, "kind": "Workload", "metadata": meta, "spec": spec}


def take_prebuilt(this: JobRound) -> list[Action] | None:
    """Adopt a prebuilt Workload. Finish one that does not match the job."""
    workload, unit = this.workload, this.unit
    assert workload is not None
    if not isinstance(unit, JobUnit) or not metadata.identifier(unit.head, metadata.PREBUILT_WORKLOAD):
        return None
    if not any(owner.controller for owner in workload.metadata.owner_references):
        change: Json = {"ownerReferences": unit.owners(), "labels": {metadata.JOB_UID: unit.uid}}
        return [Patch(Ref(Workload.KIND, workload.key), {"metadata": change}, "", workload.metadata.resource_version)]
    if this.has_same_pods(unit.kind.pod_sets(unit.head)) or is_true(workload.status.conditions, "Finished"):
        return None
    edit = this.edit()
    edit.set_condition("Finished", "True", "OutOfSync", "The prebuilt workload is out of sync with its user job")
    return [*written(edit), *stop(this, MISSING_WORKLOAD)]


def join_group(this: JobRound) -> list[Action] | None:
    """Make pods that joined the group owners of its Workload, which stays as long as one of them does."""
    workload, unit = this.workload, this.unit
    if not isinstance(unit, PodGroupUnit) or this.raw is None or workload is None:
        return None
    known = {owner.uid for owner in workload.metadata.owner_references}
    added = [owner for owner in unit.active_owners() if owner["uid"] not in known]
    if not added:
        return None
    owners = [*(this.raw["metadata"].get("ownerReferences") or ()), *added]
    ref = Ref(Workload.KIND, workload.key)
    told = f"Added {len(added)} owner reference(s)"
    return [
        Patch(ref, {"metadata": {"ownerReferences": owners}}, "", workload.metadata.resource_version),
        Event(ref, "Normal", "OwnerReferencesAdded", told, workload.metadata.uid),
    ]
