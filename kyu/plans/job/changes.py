"""
Update the Workload of a job that a user changed: its queue, priority, gates or size.

An elastic job that holds quota grows and shrinks in place. All others are stopped and queued in their new size.

Called by: plans/job/lifecycle.py. Kueue: pkg/controller/jobframework/reconciler.go, pkg/workloadslicing
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kyu.api.actions import Action, Create, Delete, Patch
from kyu.api.kueue import Workload
from kyu.api.meta import Json, Ref, is_true
from kyu.kinds import metadata
from kyu.kinds.job import JOB
from kyu.kinds.pod_group import Incomplete
from kyu.kinds.templates import PodSetTemplate, with_annotations
from kyu.plans.job import injection, priority, slices
from kyu.plans.job.creation import workload_body
from kyu.plans.job.round import JobRound, wind_down


def follow_changes(this: JobRound) -> list[Action] | None:
    """Update the Workload of a job whose queue, priority or size changed."""
    workload = this.workload
    assert workload is not None
    pod_sets = this.unit.pod_sets()
    if isinstance(pod_sets, Incomplete):
        return None
    spec: Json = {}
    told: list[str] = []
    reserved = is_true(workload.status.conditions, "QuotaReserved")
    if not this.has_same_pods(pod_sets):
        if reserved:
            return resize(this, pod_sets)
        spec["podSets"] = [pod_set.to_json() for pod_set in pod_sets]
        told.append(f"Updated not matching Workload for suspended job: {workload.key}")
    elif this.slices is not None and this.slices.larger is not None:
        return [Delete(Ref(Workload.KIND, this.slices.larger))]
    if not reserved and workload.spec.queue_name != this.unit.queue_name:
        spec["queueName"] = this.unit.queue_name or None
    found = priority.of(this.view, this.unit, pod_sets)
    # The definition of Workload refuses a class for one that got its quota without.
    may_change = not reserved or workload.spec.priority_class_ref is not None
    if may_change and isinstance(found, priority.Priority) and found.differs_from(workload):
        spec |= found.fields()
        told.append(f"Updated workload priority class: {workload.key}")
    gates = metadata.annotations_of(this.unit.head).get(metadata.ADMISSION_GATED_BY)
    change: Json = {"spec": spec} if spec else {}
    if workload.metadata.annotations.get(metadata.ADMISSION_GATED_BY) != gates:
        change["metadata"] = {"annotations": {metadata.ADMISSION_GATED_BY: gates}}
        told.append(f'Updated workload AdmissionGatedBy to "{gates or ""}"')
    if not change:
        return None
    patch = Patch(Ref(Workload.KIND, workload.key), change)
    return [patch, *(this.unit.event("UpdatedWorkload", message) for message in told)]


def resize(this: JobRound, pod_sets: Sequence[PodSetTemplate]) -> list[Action] | None:
    """Grow or shrink a changed job that holds quota, if it is elastic. Restart all others."""
    workload, raw, sliced = this.workload, this.raw, this.slices
    assert workload is not None
    assert raw is not None
    wanted = slices.resized(raw, pod_sets) if sliced is not None and slices.grows_in_place(workload) else None
    if sliced is None or wanted is None:
        return start_over(this, workload)
    sizes: Json = {"spec": {"podSets": [pod_set.to_json() for pod_set in wanted]}}
    if slices.is_smaller(wanted, raw):
        waiting = [Delete(Ref(Workload.KIND, sliced.larger))] if sliced.larger else []
        told = this.unit.event("UpdatedWorkload", f"Updated Workload: {workload.key}, for its new size")
        return [Patch(Ref(Workload.KIND, workload.key), sizes), *waiting, told]
    if sliced.larger is None:
        return grow(this, wanted)
    larger = this.view.find_json(Workload.KIND, sliced.larger) or {}
    if [one.count for one in injection.originals(larger)] == [one.count for one in wanted]:
        return None
    return [Patch(Ref(Workload.KIND, sliced.larger), sizes)]


def start_over(this: JobRound, workload: Workload) -> list[Action]:
    """Stop the job, and delete its Workload so that a new one follows."""
    ending = wind_down(this, "No matching Workload; restoring pod templates according to existent Workload")
    if ending is not None:
        return ending
    told = this.unit.event("DeletedWorkload", f"Deleted not matching Workload: {workload.key}")
    return [Delete(Ref(Workload.KIND, workload.key)), told]


def grow(this: JobRound, wanted: Sequence[PodSetTemplate]) -> list[Action] | None:
    """Create a second Workload for the new size, named after this generation of the job."""
    found = priority.of(this.view, this.unit, wanted)
    if isinstance(found, priority.MissingPriorityClass):
        return [this.unit.event("WorkloadPriorityClassNotFound", str(found), warning=True)]
    head = this.unit.head
    edit = str(head["metadata"].get("generation", 1))
    name = metadata.workload_name(JOB, metadata.name_of(head), metadata.uid_of(head), edit)
    created = this.unit.event("CreatedWorkload", f"Created Workload: {this.namespace}/{name}")
    mark = {metadata.SLICE_NAME: slices.first_name(this.workload)} if this.workload is not None else {}
    marked = [replace(one, template=with_annotations(one.template, mark)) for one in wanted]
    body = workload_body(this, name, marked, found)
    assert not isinstance(body, Incomplete), "only pod groups can be incomplete"
    return [Create(Workload.KIND, body), created]
