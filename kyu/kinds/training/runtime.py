"""
The JobSet that a TrainJob stands for: the one in its training runtime, with layers laid over it.

A layer changes one replicated job after the other: first what the TrainJob says about its trainer, then every patch of
the runtime in the order in which they stand.

Kubeflow trainer: docs on runtimes, trainer settings and runtime patches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeAlias

from kyu.api.meta import Json, Key, Kind, Ref
from kyu.kinds import fields, metadata
from kyu.kinds.job_set import JOB_SET, REPLICATED_JOBS
from kyu.kinds.pods import owner_reference

GROUP = "trainer.kubeflow.org"
RUNTIME = Kind(GROUP, "v1alpha1", "TrainingRuntime", "trainingruntimes")
CLUSTER_RUNTIME = Kind(GROUP, "v1alpha1", "ClusterTrainingRuntime", "clustertrainingruntimes", namespaced=False)
# A label on the replicated job that trains, and the container in it that does so.
STEP, TRAINER = GROUP + "/trainjob-ancestor-step", "trainer"
TRAINING_CONTAINER = "node"
CONTAINERS: fields.Path = ("template", "spec", "template", "spec", "containers")
PATCHES: fields.Path = ("spec", "runtimePatches")
PATCHED_JOBS: fields.Path = ("trainingRuntimeSpec", "template", *REPLICATED_JOBS)
# Settings of the trainer, and the fields of its container that they take the place of.
REPLACED = {"image": "image", "command": "command", "args": "args", "resourcesPerNode": "resources"}

Layer: TypeAlias = Callable[[Json], Json]


def runtime_ref(obj: Json) -> Ref:
    """Return the runtime that it names. The default kind is that of the cluster."""
    wanted = fields.json_at(obj, ("spec", "runtimeRef"))
    name = fields.text_at(wanted, ("name",))
    if fields.text_at(wanted, ("kind",)) == RUNTIME.kind:
        return Ref(RUNTIME, Key(fields.text_at(obj, ("metadata", "namespace")), name))
    return Ref(CLUSTER_RUNTIME, Key("", name))


def make_job_set(obj: Json, runtime: Json) -> Json:
    template = fields.json_at(runtime, ("spec", "template"))
    jobs = fields.list_at(template, REPLICATED_JOBS)
    for layer in layers(obj, runtime):
        jobs = [layer(job) for job in jobs]
    return {
        "apiVersion": JOB_SET.api_version,
        "kind": JOB_SET.kind,
        "metadata": {
            "name": metadata.name_of(obj),
            "namespace": fields.text_at(obj, ("metadata", "namespace")),
            "labels": {**metadata.labels_of(template), **fields.json_at(obj, ("spec", "labels"))},
            "annotations": {**metadata.annotations_of(template), **fields.json_at(obj, ("spec", "annotations"))},
            "ownerReferences": [owner_reference(obj)],
        },
        "spec": {**fields.json_at(template, ("spec",)), "replicatedJobs": jobs, "suspend": False},
    }


def layers(obj: Json, runtime: Json) -> Iterator[Layer]:
    trainer = fields.json_at(obj, ("spec", "trainer"))
    nodes = fields.int_at(trainer, ("numNodes",)) or fields.int_at(runtime, ("spec", "mlPolicy", "numNodes"))
    yield partial(with_trainer, trainer, nodes)
    for patch in fields.list_at(obj, PATCHES):
        yield partial(with_patch, {name_in(change): change for change in fields.list_at(patch, PATCHED_JOBS)})


def with_patch(change_by_name: Mapping[str, Json], job: Json) -> Json:
    return overlay(job, change_by_name.get(name_in(job), {}))


def with_trainer(trainer: Json, nodes: int, job: Json) -> Json:
    """Return the replicated job of the trainer step with the settings of the trainer, and others unchanged."""
    if metadata.labels_of(fields.json_at(job, ("template",))).get(STEP) != TRAINER:
        return job
    if nodes:
        size = {"parallelism": nodes, "completions": nodes}
        job = overlay(job, {"template": {"spec": size}})
    containers = fields.list_at(job, CONTAINERS)
    if not containers:
        return job
    names = [container.get("name") for container in containers]
    position = names.index(TRAINING_CONTAINER) if TRAINING_CONTAINER in names else 0
    changed = {**containers[position], **{to: trainer[key] for key, to in REPLACED.items() if trainer.get(key)}}
    if trainer.get("env"):
        changed["env"] = with_variables(fields.list_at(changed, ("env",)), fields.list_at(trainer, ("env",)))
    return fields.with_value(job, (*CONTAINERS, position), changed)


def with_variables(present: list[Json], added: list[Json]) -> list[Json]:
    """Return the variables with the added ones. One of the same name is replaced as a whole."""
    names = {variable.get("name") for variable in added}
    return [*(variable for variable in present if variable.get("name") not in names), *added]


def overlay(base: Json, change: Json) -> Json:
    """Return the merged objects: mappings by key, lists of named items by name, other lists appended."""
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
    result = list(present)
    position_by_name = {name: position for position, item in enumerate(present) if (name := name_in(item))}
    for item in added:
        position = position_by_name.get(name_in(item))
        if position is not None:
            base = present[position]
            assert isinstance(base, dict), "only mappings have names"
            assert isinstance(item, dict), "only mappings have names"
            result[position] = overlay(base, item)
        elif item not in present:
            result.append(item)
    return result


def name_in(item: object) -> str:
    return str(item.get("name") or "") if isinstance(item, dict) else ""
