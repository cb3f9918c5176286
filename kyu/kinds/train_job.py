"""
TrainJob: the name of a training runtime and what this job changes in it. It runs as a JobSet.

The runtime is another object, so a TrainJob is first resolved: the JobSet that it stands for is made from the runtime,
its own settings and its patches. Pod sets and children are those of that JobSet; what admission adds goes to a runtime
patch that Kueue owns, not to the templates.

Kueue: pkg/controller/jobs/trainjob. Kubeflow: trainer v1alpha1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from kyu.api.meta import Json, Key, Kind, Ref
from kyu.kinds import conditions, fields, metadata, templates
from kyu.kinds.job_set import JOB_SET, JobSet
from kyu.kinds.kind import Context, Finished, JobKind, Missing, Slot, finished_by
from kyu.kinds.pods import owner_reference
from kyu.kinds.templates import Conflict, PodSet, PodSetInfo

GROUP = "trainer.kubeflow.org"
TRAIN_JOB = Kind(GROUP, "v1alpha1", "TrainJob", "trainjobs")
RUNTIME = Kind(GROUP, "v1alpha1", "TrainingRuntime", "trainingruntimes")
CLUSTER_RUNTIME = Kind(GROUP, "v1alpha1", "ClusterTrainingRuntime", "clustertrainingruntimes", namespaced=False)
ANCESTOR = GROUP + "/trainjob-ancestor-step"
MANAGER = "kueue.x-k8s.io/manager"
PATCHES: fields.Path = ("spec", "runtimePatches")
PATCHED: fields.Path = ("trainingRuntimeSpec", "template", "spec", "replicatedJobs")
# Where a resolved TrainJob carries its JobSet. No API object has this key, so it can never be sent.
RESOLVED = "resolved JobSet"


class TrainJob(JobKind):
    kinds = (TRAIN_JOB,)
    framework = GROUP + "/trainjob"
    own_manager = GROUP + "/trainjob-controller"
    refers_to = (RUNTIME, CLUSTER_RUNTIME)
    job_set = JobSet()

    def resolve(self, obj: Json, find: Callable[[Ref], Json | None]) -> Json | Missing:
        ref = runtime_ref(obj)
        runtime = find(ref)
        return Missing(ref) if runtime is None else {**obj, RESOLVED: make_job_set(obj, runtime)}

    def slots(self, obj: Json) -> list[Slot]:
        inner = fields.json_at(obj, (RESOLVED,))
        return [Slot(s.name, (RESOLVED, *s.template), s.count, s.min_count, s.ranks) for s in self.job_set.slots(inner)]

    def defaults(self, obj: Json, context: Context) -> Json:
        """Kueue's patch is always there, since none can be added to a job that runs."""
        obj = super().defaults(obj, context)
        if find_patch(obj) is not None:
            return obj
        empty = fields.with_value({"manager": MANAGER}, PATCHED[:-1], {})
        return fields.with_value(obj, PATCHES, [*fields.list_at(obj, PATCHES), empty])

    def with_info(self, obj: Json, slot: Slot, info: PodSetInfo) -> Json | Conflict:
        result = templates.merged(fields.json_at(obj, slot.template), info)
        if isinstance(result, Conflict):
            return result
        addition = templates.merged({}, info)
        assert not isinstance(addition, Conflict), "an empty template has no values to conflict with"
        added = {"name": slot.name, "template": {"spec": {"template": addition}}}
        patch = find_patch(obj) or {"manager": MANAGER}
        others = [part for part in fields.list_at(patch, PATCHED) if part.get("name") != slot.name]
        return with_patch(obj, fields.with_value(patch, PATCHED, [*others, added]))

    def with_original(self, obj: Json, slot: Slot, original: PodSet) -> Json:
        patch = find_patch(obj)
        if patch is None or not fields.list_at(patch, PATCHED):
            return obj
        return with_patch(obj, fields.with_value({"manager": MANAGER}, PATCHED[:-1], {}))

    def is_active(self, obj: Json) -> bool:
        return any(fields.int_at(s, ("active",)) > 0 for s in jobs_status(obj))

    def pods_ready(self, obj: Json) -> bool:
        return self.job_set.pods_ready(self.as_job_set(obj))

    def reclaimable_pods(self, obj: Json) -> dict[str, int]:
        return self.job_set.reclaimable_pods(self.as_job_set(obj))

    def as_job_set(self, obj: Json) -> Json:
        """The JobSet that it stands for, with the status that the TrainJob reports of it."""
        return {**fields.json_at(obj, (RESOLVED,)), "status": {"replicatedJobsStatus": jobs_status(obj)}}

    def finished(self, obj: Json) -> Finished | None:
        return finished_by(obj, "Complete", "Failed")

    def children_of(self, obj: Json) -> list[Json]:
        if self.is_suspended(obj) or self.finished(obj) is not None or RESOLVED not in obj:
            return []
        return [obj[RESOLVED]]

    def status_of(self, obj: Json, parts: Sequence[Json], now: datetime) -> Json:
        present = fields.list_at(obj, ("status", "conditions"))
        child = next(iter(parts), {})
        status: Json = {"jobsStatus": fields.list_at(child, ("status", "replicatedJobsStatus"))}
        if self.is_suspended(obj) or conditions.is_true(obj, "Suspended"):
            held = self.is_suspended(obj)
            present = conditions.with_condition(
                present,
                "Suspended",
                "True" if held else "False",
                reason="Suspended" if held else "Resumed",
                message="TrainJob is suspended" if held else "TrainJob is resumed",
                now=now,
            )
            status["conditions"] = present
        end = self.job_set.finished(child)
        if end is not None:
            type_, reason = ("Complete", "JobsCompleted") if end.success else ("Failed", "JobsFailed")
            status["conditions"] = conditions.with_condition(
                present, type_, "True", reason=reason, message=end.message, now=now
            )
        return status


def jobs_status(obj: Json) -> list[Json]:
    return fields.list_at(obj, ("status", "jobsStatus"))


def runtime_ref(obj: Json) -> Ref:
    ref = fields.json_at(obj, ("spec", "runtimeRef"))
    name = str(ref.get("name", ""))
    if (ref.get("kind") or CLUSTER_RUNTIME.kind) == CLUSTER_RUNTIME.kind:
        return Ref(CLUSTER_RUNTIME, Key("", name))
    return Ref(RUNTIME, Key(fields.text_at(obj, ("metadata", "namespace")), name))


def find_patch(obj: Json) -> Json | None:
    return next((patch for patch in fields.list_at(obj, PATCHES) if patch.get("manager") == MANAGER), None)


def with_patch(obj: Json, patch: Json) -> Json:
    others = [other for other in fields.list_at(obj, PATCHES) if other.get("manager") != MANAGER]
    return fields.with_value(obj, PATCHES, [*others, patch])


def make_job_set(obj: Json, runtime: Json) -> Json:
    """The JobSet of the runtime, with the trainer's settings and all patches, as children of the TrainJob."""
    template = fields.json_at(runtime, ("spec", "template"))
    groups = [with_trainer(obj, runtime, group) for group in fields.list_at(template, ("spec", "replicatedJobs"))]
    for patch in fields.list_at(obj, PATCHES):
        change_by_name = {str(part.get("name")): part for part in fields.list_at(patch, PATCHED)}
        groups = [overlay(group, change_by_name.get(str(group.get("name")), {})) for group in groups]
    labels = {**metadata.labels_of(template), **fields.json_at(obj, ("spec", "labels"))}
    annotations = {**metadata.annotations_of(template), **fields.json_at(obj, ("spec", "annotations"))}
    return {
        "apiVersion": JOB_SET.api_version,
        "kind": JOB_SET.kind,
        "metadata": {
            "name": metadata.name_of(obj),
            "namespace": fields.text_at(obj, ("metadata", "namespace")),
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner_reference(obj)],
        },
        "spec": {**fields.json_at(template, ("spec",)), "replicatedJobs": groups, "suspend": False},
    }


def with_trainer(obj: Json, runtime: Json, group: Json) -> Json:
    """What ``spec.trainer`` says about nodes, image, command and resources holds for the job of the trainer step."""
    job = fields.json_at(group, ("template",))
    if metadata.labels_of(job).get(ANCESTOR) != "trainer":
        return group
    trainer = fields.json_at(obj, ("spec", "trainer"))
    nodes = fields.int_at(trainer, ("numNodes",)) or fields.int_at(runtime, ("spec", "mlPolicy", "numNodes"))
    if nodes:
        for key in ("parallelism", "completions"):
            group = fields.with_value(group, ("template", "spec", key), nodes)
    path: fields.Path = ("template", "spec", "template", "spec", "containers")
    containers = fields.list_at(group, path)
    position = next((i for i, c in enumerate(containers) if c.get("name") == "node"), 0)
    if not containers:
        return group
    changes = {key: trainer[key] for key in ("image", "command", "args") if trainer.get(key)}
    if trainer.get("resourcesPerNode"):
        changes["resources"] = trainer["resourcesPerNode"]
    if trainer.get("env"):
        names = {item.get("name") for item in trainer["env"]}
        kept = [e for e in containers[position].get("env") or [] if e.get("name") not in names]
        changes["env"] = kept + trainer["env"]
    return fields.with_value(group, (*path, position), {**containers[position], **changes})


def overlay(base: Json, change: Json) -> Json:
    """A patch of a runtime: objects are merged, lists of named things by name, other lists are appended to."""
    result = dict(base)
    for key, value in change.items():
        present = base.get(key)
        if isinstance(value, dict) and isinstance(present, dict):
            result[key] = overlay(present, value)
        elif isinstance(value, list) and isinstance(present, list):
            result[key] = overlay_list(present, value)
        else:
            result[key] = value
    return result


def overlay_list(present: list[object], added: list[object]) -> list[object]:
    change_by_name = {name_in(item): item for item in added if isinstance(item, dict)}
    merged = [
        overlay(item, change_by_name[name])
        if isinstance(item, dict) and (name := name_in(item)) in change_by_name
        else item
        for item in present
    ]
    known = {name_in(item) for item in present} - {""}
    return merged + [item for item in added if name_in(item) not in known and item not in present]


def name_in(item: object) -> str:
    return str(item.get("name") or "") if isinstance(item, dict) else ""
