"""Scheduler plugins on generated objects: twice is once, no value of the user is lost, and all results are valid."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kyu.api.meta import Json
from kyu.kinds import fields
from kyu.workflows import plugin, rules
from kyu.workflows.queueconfig import Gang, JobSettings, QueueConfig
from kyu.workflows.settings import Refusal
from kyu.workflows.submission import Submission
from kyu.workflows.task import Task, safe_name

JOBS = (JobSettings("ray", Gang(60, "Hard"), True), JobSettings("default", Gang(None, "Soft")))
PLUGINS = [plugin.load(QueueConfig(name, jobs=jobs)) for name in ("kueue", "yunikorn") for jobs in ((), JOBS)]

words = st.text(min_size=1, max_size=80)
labels = st.dictionaries(st.sampled_from(["team", "app", "example.com/x"]), st.sampled_from(["a", "b"]), max_size=3)
quantities = st.sampled_from(["1", "500m", "2Gi", "1e3", 4, "0", "1.5"])
resources = st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), quantities, max_size=3)
junk = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda x: st.lists(x, max_size=3))


@st.composite
def templates(draw: st.DrawFn) -> Json:
    containers = [
        {"name": f"c{i}", "resources": {"requests": draw(resources), "limits": draw(resources)}, "x": draw(junk)}
        for i in range(draw(st.integers(1, 3)))
    ]
    spec: Json = {"containers": containers, "futureField": draw(junk)}
    if draw(st.booleans()):
        spec["nodeSelector"] = draw(labels)
        spec["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
    template: Json = {"spec": spec}
    if draw(st.booleans()):
        template["metadata"] = {"labels": draw(labels), "annotations": draw(labels)}
    return template


@st.composite
def objects(draw: st.DrawFn) -> Json:
    kind = draw(st.sampled_from(sorted(SPECS)))
    api_version, make = SPECS[kind]
    meta: Json = {"name": "x", "labels": draw(labels), "annotations": draw(labels)}
    spec = make(draw, draw(st.integers(1, 50)))
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec, "extra": draw(junk)}


def roled(key: str, *names: str) -> Any:
    return lambda draw, count: {key: {name: {"replicas": count, "template": draw(templates())} for name in names}}


def dask(draw: st.DrawFn, count: int) -> Json:
    return {"scheduler": draw(templates()), "worker": {"replicas": count, **draw(templates())}}


def ray(draw: st.DrawFn, count: int) -> Json:
    groups = [{"groupName": f"g{i}", "replicas": count, "template": draw(templates())} for i in range(count % 3)]
    return {"headGroupSpec": {"template": draw(templates())}, "workerGroupSpecs": groups}


def spark(draw: st.DrawFn, count: int) -> Json:
    memory = draw(st.sampled_from(["512m", "4g", "1024k"]))
    return {"driver": {"cores": 1, "memory": memory}, "executor": {"instances": count, "labels": draw(labels)}}


SPECS: dict[str, tuple[str, Any]] = {
    "Job": ("batch/v1", lambda draw, count: {"parallelism": count, "template": draw(templates())}),
    "Pod": ("v1", lambda draw, count: draw(templates())["spec"]),
    "JobSet": (
        "jobset.x-k8s.io/v1alpha2",
        lambda draw, count: {
            "replicatedJobs": [{"name": "a", "replicas": count, "template": {"spec": {"template": draw(templates())}}}]
        },
    ),
    "PyTorchJob": ("kubeflow.org/v1", roled("pytorchReplicaSpecs", "Master", "Worker")),
    "TFJob": ("kubeflow.org/v1", roled("tfReplicaSpecs", "Chief", "PS", "Worker", "Evaluator")),
    "MPIJob": ("kubeflow.org/v2beta1", roled("mpiReplicaSpecs", "Launcher", "Worker")),
    "XGBoostJob": ("kubeflow.org/v1", roled("xgbReplicaSpecs", "Master", "Worker")),
    "PaddleJob": ("kubeflow.org/v1", roled("paddleReplicaSpecs", "Worker")),
    "JAXJob": ("kubeflow.org/v1", roled("jaxReplicaSpecs", "Worker")),
    "RayCluster": ("ray.io/v1", ray),
    "RayJob": (
        "ray.io/v1",
        lambda draw, count: {"rayClusterSpec": ray(draw, count), "shutdownAfterJobFinishes": True},
    ),
    "SparkApplication": ("sparkoperator.k8s.io/v1beta2", spark),
    "DaskCluster": ("kubernetes.dask.org/v1", dask),
    "DaskJob": (
        "kubernetes.dask.org/v1",
        lambda draw, count: {"cluster": {"spec": dask(draw, count)}, "job": draw(templates())},
    ),
}
tasks = st.builds(
    Task,
    organization=words,
    execution_id=words,
    user=st.sampled_from(["", "ann", "b.c@d"]),
    groups=st.sampled_from([(), ("lab",)]),
    type=st.sampled_from(["", "ray", "Odd Type"]),
    array_size=st.integers(1, 5),
)


def rendered(scheduler: plugin.SchedulerPlugin, task: Task, obj: Json) -> plugin.Rendered:
    result = plugin.render(scheduler, task, obj)
    assert isinstance(result, plugin.Rendered), str(result)
    return result


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(PLUGINS), tasks, objects())
def test_rendering_twice_is_rendering_once(scheduler: plugin.SchedulerPlugin, task: Task, obj: Json) -> None:
    once = rendered(scheduler, task, obj)
    again = rendered(scheduler, task, once.object)
    assert again.object == once.object
    assert {applied.outcome for applied in again.applied} <= {"already there"}


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(PLUGINS), tasks, objects())
def test_nothing_of_the_users_is_lost(scheduler: plugin.SchedulerPlugin, task: Task, obj: Json) -> None:
    before = copy.deepcopy(obj)
    result = rendered(scheduler, task, obj).object
    assert obj == before, "the given object is not changed"
    assert contains(result, before)


def contains(new: Any, old: Any) -> bool:
    """Return whether the new value has all of the old one; only mappings may have grown."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(key in new and contains(new[key], value) for key, value in old.items())
    if isinstance(old, list):
        return isinstance(new, list) and len(new) == len(old) and all(map(contains, new, old))
    return bool(new == old)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(PLUGINS), tasks, objects())
def test_results_are_valid_for_the_scheduler(scheduler: plugin.SchedulerPlugin, task: Task, obj: Json) -> None:
    result = rendered(scheduler, task, obj).object
    pods = Submission(task, result).roles
    assert not isinstance(pods, Refusal)
    places = [("metadata", "labels"), *(role.labels for role in pods), *(role.annotations for role in pods)]
    assert rules.refusals(scheduler.name, result, {place: fields.json_at(result, place) for place in places}) == []
    if scheduler.name == "yunikorn":
        assert all(role.template["spec"]["schedulerName"] == "yunikorn" for role in pods)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(PLUGINS), objects(), st.data())
def test_an_object_of_any_shape_is_rendered_or_refused(
    scheduler: plugin.SchedulerPlugin, obj: Json, data: st.DataObject
) -> None:
    places = [path for path in paths(obj) if path and path[0] not in ("apiVersion", "kind")]
    *way, last = data.draw(st.sampled_from(places))
    node: Any = obj
    for step in way:
        node = node[step]
    node[last] = data.draw(st.sampled_from([None, "x", "-1", 1, 1.5, True, [], {}, [None], ["x"], [{}], {"x": 1}]))
    assert isinstance(plugin.render(scheduler, Task("acme", "e"), obj), plugin.Rendered | plugin.NotRendered)


def paths(value: Any, prefix: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield prefix
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in items:
        yield from paths(item, (*prefix, step))


@settings(max_examples=300, deadline=None)
@given(words, words)
def test_different_names_stay_different(one: str, other: str) -> None:
    assert (safe_name(one) == safe_name(other)) == (one == other)
    assert rules.judge("DNS label", safe_name(one)) == ""
