"""Jobs of kinds that have an operator elsewhere, run by Kyu: what comes with time, what waits, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kyu.api.meta import Json, Key
from kyu.kinds import fields, metadata, table
from kyu.kinds.kind import JobKind
from kyu.plans.job import webhook
from kyu.plans.pods import operators
from tests.plans.test_pods import World

TEMPLATE: Json = {"spec": {"containers": [{"name": "main", "command": ["true"]}]}}


class Stage:
    """One job in a world of its own."""

    def __init__(self, api_version: str, kind: str, spec: Json) -> None:
        self.world = World()
        found = table.find({"apiVersion": api_version, "kind": kind})
        assert found is not None
        self.kind: JobKind = found
        self.world.add(found.kind, {"metadata": {"name": "x"}, "spec": spec})

    def run(self) -> None:
        self.world.run(partial(operators.plan, self.kind.kind), "x")

    @property
    def obj(self) -> Json | None:
        return self.world.find_json(self.kind.kind, Key("team", "x"))

    def made(self, kind: str) -> dict[str, Json]:
        """The objects of a kind, by name."""
        return {key.name: obj for (found, key), obj in self.world.objects.items() if found == kind}

    @property
    def pods(self) -> list[str]:
        return list(self.made("Pod"))

    def end(self, pod_name: str, exit_code: int = 0) -> None:
        self.world.end(self.made("Pod")[pod_name], exit_code)


def mpi(**spec: Any) -> Stage:
    replicas = {"Launcher": {"template": TEMPLATE}, "Worker": {"replicas": 2, "template": TEMPLATE}}
    return Stage("kubeflow.org/v2beta1", "MPIJob", {"mpiReplicaSpecs": replicas, **spec})


def spark(**spec: Any) -> Stage:
    role = {"cores": 1, "memory": "1g", "template": TEMPLATE}
    body = {"type": "Scala", "mode": "cluster", "driver": role, "executor": {**role, "instances": 1}, **spec}
    return Stage("sparkoperator.k8s.io/v1beta2", "SparkApplication", body)


def job_set(**spec: Any) -> Stage:
    groups = [{"name": "a", "replicas": 2, "template": {"spec": {"template": TEMPLATE}}}]
    return Stage("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": groups, **spec})


def finish_job_set(stage: Stage) -> None:
    for job in stage.made("Job").values():
        job["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}


EXPIRING: dict[str, tuple[Callable[[], Stage], Callable[[Stage], None]]] = {
    "MPIJob": (lambda: mpi(runPolicy={"ttlSecondsAfterFinished": 60}), lambda stage: stage.end("x-launcher-0")),
    "SparkApplication": (lambda: spark(timeToLiveSeconds=60), lambda stage: stage.end("x-driver")),
    "JobSet": (lambda: job_set(ttlSecondsAfterFinished=60), finish_job_set),
}


@pytest.mark.parametrize("name", EXPIRING)
def test_it_goes_when_its_time_to_live_is_over(name: str) -> None:
    make, finish = EXPIRING[name]
    stage = make()
    stage.run()
    assert stage.world.wake_at is None, "the time counts from its end"
    ended = stage.world.now
    finish(stage)
    stage.run()
    stage.world.pass_time(59)
    stage.run()
    assert stage.obj is not None
    assert stage.world.wake_at is not None
    assert (stage.world.wake_at - ended).total_seconds() == 60
    stage.world.pass_time(1)
    stage.run()
    assert stage.obj is None


def test_a_launcher_may_wait_for_its_workers() -> None:
    stage = mpi(launcherCreationPolicy="WaitForWorkersReady")
    stage.run()
    assert stage.pods == ["x-worker-0", "x-worker-1"]
    stage.world.start_pods()
    stage.run()
    assert stage.pods == ["x-worker-0", "x-worker-1", "x-launcher-0"]


def test_a_launcher_does_not_wait_by_default() -> None:
    stage = mpi()
    stage.run()
    assert stage.pods == ["x-launcher-0", "x-worker-0", "x-worker-1"]


def ray_job(**spec: Any) -> Stage:
    cluster = {"headGroupSpec": {"template": TEMPLATE}}
    return Stage("ray.io/v1", "RayJob", {"entrypoint": "true", "rayClusterSpec": cluster, **spec})


DEADLINES = {
    "MPIJob": lambda: mpi(runPolicy={"activeDeadlineSeconds": 30}),
    "RayJob": lambda: ray_job(activeDeadlineSeconds=30, backoffLimit=5),
}


@pytest.mark.parametrize("name", DEADLINES)
def test_a_deadline_ends_a_job_though_nothing_happens(name: str) -> None:
    stage = DEADLINES[name]()
    stage.run()
    stage.world.start_pods()
    stage.run()
    assert stage.world.wake_at is not None
    stage.world.now = stage.world.wake_at
    stage.run()
    assert stage.obj is not None
    end = stage.kind.finished(stage.obj)
    assert end is not None
    assert "activeDeadlineSeconds" in end.message


def test_an_application_is_run_again_after_a_pause_that_grows() -> None:
    stage = spark(restartPolicy={"type": "OnFailure", "onFailureRetries": 2, "onFailureRetryInterval": 10})
    for pause in (10, 20):
        stage.run()
        stage.end("x-driver", 1)
        stage.run()
        assert stage.pods == []
        assert stage.world.wake_at is not None
        assert (stage.world.wake_at - stage.world.now).total_seconds() == pause
        stage.world.pass_time(pause)
    stage.run()
    assert stage.pods == ["x-driver", "x-exec-1"]
    stage.end("x-driver", 1)
    stage.run()
    assert stage.obj is not None
    assert stage.kind.finished(stage.obj) is not None
    assert fields.int_at(stage.obj, ("status", "executionAttempts")) == 3


def test_an_application_may_run_again_for_ever() -> None:
    stage = spark(restartPolicy={"type": "Always"})
    for exit_code in (0, 1, 0):
        stage.run()
        stage.end("x-driver", exit_code)
        stage.run()
        assert stage.world.wake_at is not None
        stage.world.now = stage.world.wake_at
    assert stage.obj is not None
    assert stage.kind.finished(stage.obj) is None


@pytest.mark.parametrize(("strategy", "made"), [("BlockingRecreate", []), ("Recreate", ["x-a-0"])])
def test_jobs_are_made_again_when_all_or_when_each_is_gone(strategy: str, made: list[str]) -> None:
    stage = job_set(failurePolicy={"maxRestarts": 1, "restartStrategy": strategy})
    stage.run()
    jobs = stage.made("Job")
    # One Job takes its time to go.
    jobs["x-a-1"]["metadata"]["finalizers"] = ["example.com/slow"]
    jobs["x-a-0"]["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
    stage.run()
    assert [name for name, job in stage.made("Job").items() if attempt(job) == 1] == made


def attempt(job: Json) -> int:
    return int(metadata.labels_of(job)["jobset.sigs.k8s.io/restart-attempt"])


CLUSTER: Json = {"headGroupSpec": {"template": TEMPLATE}, "enableInTreeAutoscaling": True}
REFUSED: list[tuple[str, str, Json, str]] = [
    ("kubeflow.org/v1", "PyTorchJob", {"elasticPolicy": {"minReplicas": 1}}, "spec.elasticPolicy"),
    ("ray.io/v1", "RayCluster", CLUSTER, "spec.enableInTreeAutoscaling"),
    ("ray.io/v1", "RayJob", {"rayClusterSpec": CLUSTER}, "spec.rayClusterSpec.enableInTreeAutoscaling"),
    ("ray.io/v1", "RayService", {"rayClusterConfig": CLUSTER}, "spec.rayClusterConfig.enableInTreeAutoscaling"),
    (
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        {"failurePolicy": {"restartStrategy": "InPlaceRestart"}},
        "spec.failurePolicy.restartStrategy",
    ),
    (
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        {"failurePolicy": {"rules": [{"action": "RestartJob"}]}},
        "spec.failurePolicy.rules[0].action",
    ),
    (
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        {"failurePolicy": {"rules": [{"action": "FailJobSet", "onJobFailureMessagePatterns": ["x"]}]}},
        "spec.failurePolicy.rules[0].onJobFailureMessagePatterns",
    ),
]


@pytest.mark.parametrize(("api_version", "kind", "spec", "field"), REFUSED, ids=[field for *_, field in REFUSED])
def test_what_only_the_operator_can_do_is_refused_by_its_field(
    api_version: str, kind: str, spec: Json, field: str
) -> None:
    obj = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    assert [error.field for error in webhook.not_run_here(obj, None)] == [field]
    assert webhook.not_run_here(obj, obj) == [], "what was stored before stays"
    job_kind = table.find(obj)
    assert job_kind is not None
    assert job_kind.managed_by_path is not None
    elsewhere = fields.with_value(obj, job_kind.managed_by_path, "example.com/operator")
    assert webhook.not_run_here(elsewhere, None) == []
