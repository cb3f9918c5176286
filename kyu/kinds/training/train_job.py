"""
TrainJob: the name of a training runtime and what this job changes in it. It runs as a JobSet.

The runtime is another object, so a TrainJob is first resolved: it then carries the JobSet that it stands for
(``runtime.py``), and asks that for its pod sets and its state. What admission adds goes to a patch of the runtime
that Kueue owns, not to the templates.

Kueue: site docs on TrainJobs. Kubeflow: trainer v1alpha1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from kyu.api.meta import Json, Kind, Ref
from kyu.kinds import conditions, fields, templates
from kyu.kinds.conditions import Mark
from kyu.kinds.job_set import JobSet
from kyu.kinds.kind import Context, Finished, JobKind, MissingReference, Slot, finished_by
from kyu.kinds.templates import PodSetInfo, PodSetTemplate, TemplateConflict
from kyu.kinds.training.runtime import (
    CLUSTER_RUNTIME,
    GROUP,
    PATCHED_JOBS,
    PATCHES,
    RUNTIME,
    make_job_set,
    runtime_ref,
)

# The owner of the patch that admission writes to.
MANAGER = "kueue.x-k8s.io/manager"
# A resolved TrainJob carries its JobSet under this key. No API object has it, so it can never be sent.
RESOLVED = "resolved JobSet"
SUSPENDED = Mark("Suspended", "True", "Suspended", "The training is suspended")
RESUMED = Mark("Suspended", "False", "Resumed", "The training may run")


class TrainJob(JobKind):
    kinds = (Kind(GROUP, "v1alpha1", "TrainJob", "trainjobs"),)
    framework = GROUP + "/trainjob"
    own_manager = GROUP + "/trainjob-controller"
    refers_to = (RUNTIME, CLUSTER_RUNTIME)
    job_set = JobSet()

    def resolve(self, obj: Json, find: Callable[[Ref], Json | None]) -> Json | MissingReference:
        ref = runtime_ref(obj)
        runtime = find(ref)
        return MissingReference(ref) if runtime is None else {**obj, RESOLVED: make_job_set(obj, runtime)}

    def as_job_set(self, obj: Json) -> Json:
        """Return the JobSet of the TrainJob, with the status that the TrainJob reports of it."""
        reported = fields.list_at(obj, ("status", "jobsStatus"))
        return {**fields.json_at(obj, (RESOLVED,)), "status": {"replicatedJobsStatus": reported}}

    def slots(self, obj: Json) -> list[Slot]:
        inner = self.job_set.slots(self.as_job_set(obj))
        return [Slot(s.name, (RESOLVED, *s.template), s.count, s.min_count, s.ranks) for s in inner]

    def is_active(self, obj: Json) -> bool:
        return self.job_set.is_active(self.as_job_set(obj))

    def pods_ready(self, obj: Json) -> bool:
        return self.job_set.pods_ready(self.as_job_set(obj))

    def reclaimable_pods(self, obj: Json) -> dict[str, int]:
        return self.job_set.reclaimable_pods(self.as_job_set(obj))

    def finished(self, obj: Json) -> Finished | None:
        return finished_by(obj, "Complete")

    # Admission

    def defaults(self, obj: Json, context: Context) -> Json:
        """Return the object with Kueue's patch: none can be added to a job that runs."""
        obj = super().defaults(obj, context)
        return obj if any(map(is_own, fields.list_at(obj, PATCHES))) else with_admitted(obj, [])

    def with_info(self, obj: Json, slot: Slot, info: PodSetInfo) -> Json | TemplateConflict:
        result = templates.merged(fields.json_at(obj, slot.template), info)
        if isinstance(result, TemplateConflict):
            return result
        change = {"name": slot.name, "template": {"spec": {"template": templates.additions(info)}}}
        others = [job for job in admitted(obj) if job.get("name") != slot.name]
        return with_admitted(obj, [*others, change])

    def with_original(self, obj: Json, slot: Slot, original: PodSetTemplate) -> Json:
        return with_admitted(obj, []) if admitted(obj) else obj

    # Embedded mode

    def children_of(self, obj: Json) -> list[Json]:
        if self.is_suspended(obj) or self.finished(obj) is not None or RESOLVED not in obj:
            return []
        return [obj[RESOLVED]]

    def status_of(self, obj: Json, parts: Sequence[Json], now: datetime) -> Json:
        child = next(iter(parts), {})
        marks = []
        if self.is_suspended(obj):
            marks.append(SUSPENDED)
        elif conditions.is_true(obj, "Suspended"):
            marks.append(RESUMED)
        end = self.job_set.finished(child)
        if end is not None:
            type_, reason = ("Complete", "JobsCompleted") if end.success else ("Failed", "JobsFailed")
            marks.append(Mark(type_, "True", reason, end.message))
        present = fields.list_at(obj, ("status", "conditions"))
        return {
            "jobsStatus": fields.list_at(child, ("status", "replicatedJobsStatus")),
            "conditions": conditions.with_marks(present, marks, now) or None,
        }


def is_own(patch: Json) -> bool:
    return patch.get("manager") == MANAGER


def admitted(obj: Json) -> list[Json]:
    """Return the changes of admission, by replicated job."""
    own = filter(is_own, fields.list_at(obj, PATCHES))
    return [job for patch in own for job in fields.list_at(patch, PATCHED_JOBS)]


def with_admitted(obj: Json, jobs: list[Json]) -> Json:
    """Return the object with these changes in Kueue's patch, which stands last."""
    spec: Json = {"replicatedJobs": jobs} if jobs else {}
    own = fields.with_value({"manager": MANAGER}, PATCHED_JOBS[:-1], spec)
    others = [patch for patch in fields.list_at(obj, PATCHES) if not is_own(patch)]
    return fields.with_value(obj, PATCHES, [*others, own])
