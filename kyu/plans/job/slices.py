"""
Elastic jobs. One that grows while it runs gets a second Workload, a slice of its new size; until that has quota it runs
on as it is, and its new pods wait at a gate. Then the slice takes the place of the first. One that shrinks gives back.

The first slice has the name of any Workload, and pods carry it whichever slice is in force.

Kueue: pkg/workloadslicing, pkg/controller/elasticjob
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kyu.api.actions import Action, Event, Patch, View
from kyu.api.config.config import Configuration
from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key, Ref, is_true, key_of
from kyu.kinds import fields, metadata, pods, templates
from kyu.kinds.job import JOB
from kyu.kinds.pod import POD
from kyu.kinds.templates import PodSetTemplate
from kyu.plans.job import injection
from kyu.plans.status import StatusEdit

GATE = "ElasticJobsViaWorkloadSlices"
REPLACED = "WorkloadSliceReplaced"


@dataclass(frozen=True, slots=True)
class Slices:
    """The Workloads of one job: the current one, a larger one that waits, and others to delete.

    ``replaced`` still holds quota, and the current one has taken its place.
    """

    current: Key | None = None
    larger: Key | None = None
    replaced: Key | None = None
    surplus: tuple[Key, ...] = ()


def is_sliced(job: Json, configuration: Configuration) -> bool:
    """Return whether the Job is elastic. Elastic jobs of other kinds are queued again when their size changes."""
    return metadata.is_elastic(job) and configuration.gates.enabled(GATE)


def find(view: View, keys: Sequence[Key]) -> Slices:
    """Sort the Workloads of a job. The newest with quota is current, or else the newest that is not finished."""
    found = [workload for key in keys if (workload := view.get(Workload, key)) is not None]
    found.sort(key=lambda workload: (workload.metadata.creation_timestamp or "", workload.metadata.name))
    open_ = [one for one in found if not is_true(one.status.conditions, "Finished")]
    holding = [one for one in open_ if is_true(one.status.conditions, "QuotaReserved")]
    current = next(iter([*last(holding), *last(open_), *last(found)]), None)
    if current is None:
        return Slices()
    others = [one for one in open_ if one is not current]
    larger = [one for one in others if current in holding and one not in holding and replaces(one) == current.key][-1:]
    replaced = [one for one in others if one in holding and replaces(current) == one.key]
    surplus = tuple(one.key for one in others if one not in (*larger, *replaced))
    return Slices(current.key, larger[0].key if larger else None, replaced[0].key if replaced else None, surplus)


def last(workloads: list[Workload]) -> list[Workload]:
    """Return the last Workload, as a list. Two may be of one second, so replacement counts before time."""
    taken = {replaces(one) for one in workloads}
    return [one for one in workloads if one.key not in taken][-1:]


def replaces(workload: Workload) -> Key | None:
    """Return the slice that the Workload replaces."""
    namespace, _, name = workload.metadata.annotations.get(metadata.SLICE_REPLACEMENT_FOR, "").partition("/")
    return Key(namespace, name) if name else None


def takes_over(workload: Workload) -> bool:
    """Return whether the Workload has quota and replaces another, whose pods run on during its checks."""
    conditions = workload.status.conditions
    return (
        replaces(workload) is not None and is_true(conditions, "QuotaReserved") and not is_true(conditions, "Evicted")
    )


def end_replaced(view: View, key: Key | None, by: Key, now: datetime) -> list[Action]:
    """Finish a replaced Workload, which gives back its quota."""
    newer = view.get(Workload, by)
    if key is None or newer is None:
        return []
    job_uid = newer.metadata.labels.get(metadata.JOB_UID, "")
    message = (
        f"Replaced to accommodate a workload (UID: {newer.metadata.uid}, JobUID: {job_uid}) "
        "due to workload slice aggregation"
    )
    patches = finish(view, key, REPLACED, message, now)
    event = Event(Ref(Workload.KIND, key), "Normal", REPLACED, message)
    return [*patches, event] if patches else []


def end_surplus(view: View, keys: Sequence[Key], now: datetime) -> list[Action]:
    """Finish Workloads of a job that neither hold its quota nor wait to do so."""
    actions: list[Action] = []
    for key in keys:
        namesakes = [view.get(Workload, key_of(raw)) for raw in view.list_json(Workload.KIND, key.namespace)]
        if any(one is not None and replaces(one) == key for one in namesakes):
            actions += finish(view, key, REPLACED, "Replaced to accommodate a new workload slice", now)
        else:
            actions += finish(view, key, "OutOfSync", "The workload slice is out of sync with its parent job", now)
    return actions


def finish(view: View, key: Key, reason: str, message: str, now: datetime) -> list[Action]:
    raw = view.find_json(Workload.KIND, key)
    if raw is None:
        return []
    edit = StatusEdit(raw, now)
    edit.set_condition("Finished", "True", reason, message)
    patch = edit.patch(Workload.KIND)
    return [patch] if patch else []


def marks(current: Workload | None, name: str) -> dict[str, str]:
    """Return the annotations of a new slice of this name that will replace another, or of the first slice."""
    elastic = {metadata.ELASTIC_JOB: "true"}
    if current is None:
        return {**elastic, metadata.SLICE_NAME: name}
    return {**elastic, metadata.SLICE_REPLACEMENT_FOR: str(current.key), metadata.SLICE_NAME: first_name(current)}


def first_name(workload: Workload) -> str:
    """Return the name of the first slice, which the pods carry."""
    return workload.metadata.annotations.get(metadata.SLICE_NAME, workload.metadata.name)


def resized(raw: Json, pod_sets: Sequence[PodSetTemplate]) -> list[PodSetTemplate] | None:
    """Return the pod sets of the Workload in the sizes of the job, if only sizes differ."""
    asked = injection.originals(raw)
    if [one.name for one in asked] != [one.name for one in pod_sets]:
        return None
    wanted = [dataclasses.replace(one, count=now.count) for one, now in zip(asked, pod_sets, strict=True)]
    return wanted if injection.same_pods(pod_sets, {"spec": {"podSets": [one.to_json() for one in wanted]}}) else None


def is_smaller(wanted: Sequence[PodSetTemplate], raw: Json) -> bool:
    return all(now.count <= before.count for now, before in zip(wanted, injection.originals(raw), strict=True))


def grows_in_place(workload: Workload) -> bool:
    """
    Return whether the pods have gates, and their nodes were not chosen for the size. A job that was started before the
    feature was on has no gates; topology chooses nodes for the size.
    """
    return metadata.ELASTIC_JOB in workload.metadata.annotations and not is_placed(workload)


def is_placed(workload: Workload) -> bool:
    """Return whether topology has chosen the nodes of its pods."""
    admission = workload.status.admission
    return admission is not None and any(one.topology_assignment for one in admission.pod_set_assignments)


# The gates of its pods.


def plan_gates(view: View, key: Key, now: datetime) -> list[Action]:
    """Remove the gates of as many pods of a Job as have quota, the oldest first."""
    job = view.find_json(JOB, key)
    if job is None or not is_sliced(job, view.configuration):
        return []
    current = find(view, [key_of(one) for one in view.owned_by(Workload.KIND, metadata.uid_of(job))]).current
    workload = view.get(Workload, current) if current is not None else None
    if workload is None or not may_run(workload):
        return []
    mine = [pod for pod in pods_of_slice(view, first_name(workload), key.namespace) if not pods.is_terminal(pod)]
    gated = [pod for pod in mine if templates.has_gate(pod, metadata.ELASTIC_GATE) and not metadata.is_deleted(pod)]
    free = max(0, pods_with_quota(workload) - (len(mine) - len(gated)))
    gated.sort(key=lambda pod: (str(pod["metadata"].get("creationTimestamp")), metadata.name_of(pod)))
    return [
        Patch(Ref(POD, key_of(pod)), fields.merge_patch(pod, templates.without_gates(pod, metadata.ELASTIC_GATE)))
        for pod in gated[:free]
    ]


def pods_of_slice(view: View, name: str, namespace: str) -> list[Json]:
    """Return the pods that carry the name of the first slice, whichever slice is in force."""
    return [
        pod for pod in view.list_json(POD, namespace) if metadata.annotations_of(pod).get(metadata.SLICE_NAME) == name
    ]


def may_run(workload: Workload) -> bool:
    conditions = workload.status.conditions
    return (
        is_true(conditions, "Admitted") and not is_true(conditions, "Evicted") and not is_true(conditions, "Finished")
    )


def pods_with_quota(workload: Workload) -> int:
    """Return the number of admitted pods, less those that the job has given up."""
    admission = workload.status.admission
    admitted = {one.name: one.count for one in admission.pod_set_assignments} if admission else {}
    wanted = {one.name: one.count for one in workload.spec.pod_sets}
    return sum(min(count, count if (most := admitted.get(name)) is None else most) for name, count in wanted.items())
