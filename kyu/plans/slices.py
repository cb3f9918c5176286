"""
Elastic jobs. One that grows while it runs gets a second Workload, a slice of its new size; until that has quota it runs
on as it is, and its new pods wait at a gate. Then the slice takes the place of the first. One that shrinks gives back.

The first slice has the name of any Workload, and pods carry it whichever slice is in force.

Called by: plans/job.py; the row `elastic-gates` of controllers/table.py.
Kueue: pkg/workloadslicing, pkg/controller/elasticjob
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kyu.api.actions import Action, Patch, View
from kyu.api.config import Configuration
from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key, Ref, is_true, key_of
from kyu.kinds import fields, metadata, pods, templates
from kyu.kinds.job import JOB
from kyu.kinds.pod import POD
from kyu.kinds.templates import PodSet
from kyu.plans import injection
from kyu.plans.status import StatusEdit

GATE = "ElasticJobsViaWorkloadSlices"
REPLACED = "WorkloadSliceReplaced"


@dataclass(frozen=True, slots=True)
class Slices:
    """Of one job: the Workload that it runs by or will, the one that asks for more, and what is left of others.

    ``replaced``: holds quota still, and the current one has taken its place.
    """

    current: Key | None = None
    larger: Key | None = None
    replaced: Key | None = None
    surplus: tuple[Key, ...] = ()


def is_sliced(job: Json, configuration: Configuration) -> bool:
    """Of a batch Job; those of other kinds are queued again when their size changes."""
    return metadata.is_elastic(job) and configuration.gates.enabled(GATE)


def find(view: View, keys: Sequence[Key]) -> Slices:
    """The newest that holds quota is in force; where none does, the newest. What is finished is history."""
    found = [workload for key in keys if (workload := view.get(Workload, key)) is not None]
    found.sort(key=lambda workload: (workload.metadata.creation_timestamp or "", workload.metadata.name))
    open_ = [one for one in found if not is_true(one.status.conditions, "Finished")]
    holding = [one for one in open_ if is_true(one.status.conditions, "QuotaReserved")]
    current = next(iter([*last(holding), *last(open_), *last(found)]), None)
    if current is None:
        return Slices()
    others = [one for one in open_ if one is not current]
    may_grow = current in holding and not is_true(current.status.conditions, "Evicted")
    larger = [one for one in others if may_grow and one not in holding and replaces(one) == current.key][-1:]
    replaced = [one for one in others if one in holding and replaces(current) == one.key]
    surplus = tuple(one.key for one in others if one not in (*larger, *replaced))
    return Slices(current.key, larger[0].key if larger else None, replaced[0].key if replaced else None, surplus)


def last(workloads: list[Workload]) -> list[Workload]:
    """The last of them, as a list. Two may be of the same second, so it is who takes whose place that counts first."""
    taken = {replaces(one) for one in workloads}
    return [one for one in workloads if one.key not in taken][-1:]


def replaces(workload: Workload) -> Key | None:
    """The slice whose place it takes."""
    namespace, _, name = workload.metadata.annotations.get(metadata.SLICE_REPLACEMENT_FOR, "").partition("/")
    return Key(namespace, name) if name else None


def takes_over(workload: Workload) -> bool:
    """It has quota and takes the place of another, whose pods run on while its own checks are made."""
    conditions = workload.status.conditions
    return (
        replaces(workload) is not None and is_true(conditions, "QuotaReserved") and not is_true(conditions, "Evicted")
    )


def end_replaced(view: View, key: Key | None, by: Key, now: datetime) -> list[Action]:
    """Its place is taken: it is over, and gives back its quota."""
    raw = view.find_json(Workload.KIND, key) if key is not None else None
    if raw is None:
        return []
    edit = StatusEdit(raw, now)
    edit.set_condition("Finished", "True", REPLACED, f"Its place was taken by {by}")
    patch = edit.patch(Workload.KIND)
    return [patch] if patch else []


def marks(current: Workload | None) -> dict[str, str]:
    """Annotations of a slice that will take the place of this one; of the first if there is none."""
    elastic = {metadata.ELASTIC_JOB: "true"}
    if current is None:
        return elastic
    return {**elastic, metadata.SLICE_REPLACEMENT_FOR: str(current.key), metadata.SLICE_NAME: first_name(current)}


def first_name(workload: Workload) -> str:
    """The name that the pods carry: that of the first slice."""
    return workload.metadata.annotations.get(metadata.SLICE_NAME, workload.metadata.name)


def resized(raw: Json, pod_sets: Sequence[PodSet]) -> list[PodSet] | None:
    """The pod sets of the Workload in the sizes of the job, if nothing but sizes differs."""
    asked = injection.originals(raw)
    if [one.name for one in asked] != [one.name for one in pod_sets]:
        return None
    wanted = [dataclasses.replace(one, count=now.count) for one, now in zip(asked, pod_sets, strict=True)]
    return wanted if injection.same_pods(pod_sets, {"spec": {"podSets": [one.to_json() for one in wanted]}}) else None


def is_smaller(wanted: Sequence[PodSet], raw: Json) -> bool:
    return all(now.count <= before.count for now, before in zip(wanted, injection.originals(raw), strict=True))


def grows_in_place(workload: Workload) -> bool:
    """
    Its pods have gates, which those of one that was started before the feature was on have not; and where they are was
    not decided for its size, as topology does it.
    """
    return metadata.ELASTIC_JOB in workload.metadata.annotations and not is_placed(workload)


def is_placed(workload: Workload) -> bool:
    """Topology has chosen the nodes of its pods."""
    admission = workload.status.admission
    return admission is not None and any(one.topology_assignment for one in admission.pod_set_assignments)


# The gates of its pods.


def plan_gates(view: View, key: Key, now: datetime) -> list[Action]:
    """For a Job: as many of its pods as have quota may be scheduled, the oldest first."""
    job = view.find_json(JOB, key)
    if job is None or not is_sliced(job, view.configuration):
        return []
    current = find(view, [key_of(one) for one in view.owned_by(Workload.KIND, metadata.uid_of(job))]).current
    workload = view.get(Workload, current) if current is not None else None
    if workload is None or not may_run(workload):
        return []
    mine = [pod for pod in view.owned_by(POD, metadata.uid_of(job)) if not pods.is_terminal(pod)]
    gated = [pod for pod in mine if templates.has_gate(pod, metadata.ELASTIC_GATE) and not metadata.is_deleted(pod)]
    free = max(0, pods_with_quota(workload) - (len(mine) - len(gated)))
    gated.sort(key=lambda pod: (str(pod["metadata"].get("creationTimestamp")), metadata.name_of(pod)))
    return [
        Patch(Ref(POD, key_of(pod)), fields.merge_patch(pod, templates.without_gates(pod, metadata.ELASTIC_GATE)))
        for pod in gated[:free]
    ]


def may_run(workload: Workload) -> bool:
    conditions = workload.status.conditions
    return (
        is_true(conditions, "Admitted") and not is_true(conditions, "Evicted") and not is_true(conditions, "Finished")
    )


def pods_with_quota(workload: Workload) -> int:
    """What was admitted, or what is left of it since the job has shrunk."""
    admission = workload.status.admission
    admitted = {one.name: one.count for one in admission.pod_set_assignments} if admission else {}
    wanted = {one.name: one.count for one in workload.spec.pod_sets}
    return sum(min(count, count if (most := admitted.get(name)) is None else most) for name, count in wanted.items())
