"""Kyu's webhooks and policies on a real API server: with Kyu running, and with Kyu killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import kyu
from tests.cluster.client import ApiError, Manifest, has
from tests.cluster.conftest import require
from tests.cluster.controlplane import EVERYTHING, ControlPlane
from tests.cluster.nodes import RUN_FOR

KUEUE = "kueue.x-k8s.io/v1beta2"
OLDER = "kueue.x-k8s.io/v1beta1"
QUEUE = "kueue.x-k8s.io/queue-name"
GATE = {"name": "kueue.x-k8s.io/admission"}


@pytest.fixture(scope="module", params=["policies", "webhooks"])
def ready(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """Kyu with queues; with policies beside the webhooks, and with webhooks alone."""
    require(*EVERYTHING)
    with ControlPlane.start(*EVERYTHING) as plane:
        plane.add_nodes(["node"], {"cpu": "8", "memory": "8Gi"})
        kyu.install_all(plane, policies=request.param == "policies")
        kyu.start(plane)
        plane.admin.create(namespace("team"))
        plane.admin.apply(queues("team"))
        yield plane


@pytest.fixture
def killed(ready: ControlPlane) -> Iterator[ControlPlane]:
    ready.processes.kill("kyu")
    yield ready
    kyu.start(ready)


def namespace(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def queues(name: str) -> list[Manifest]:
    quota = {"name": name, "resources": [{"name": "cpu", "nominalQuota": 1}]}
    group = {"coveredResources": ["cpu"], "flavors": [quota]}
    return [
        {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": name}},
        {
            "apiVersion": KUEUE,
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
        },
        local_queue("team", name),
    ]


def local_queue(name: str, cluster_queue: str) -> Manifest:
    return {
        "apiVersion": KUEUE,
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"clusterQueue": cluster_queue},
    }


def pod_spec(cpu: str = "1") -> Manifest:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    return {"restartPolicy": "Never", "containers": [container]}


def pod(name: str, **labels: str) -> Manifest:
    metadata = {"name": name, "namespace": "team", "labels": labels, "annotations": {RUN_FOR: "0s"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec()}


def job(name: str, **labels: str) -> Manifest:
    template = {"metadata": {"annotations": {RUN_FOR: "0s"}}, "spec": pod_spec()}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "team", "labels": labels},
        "spec": {"template": template},
    }


def test_a_job_is_suspended_before_its_first_pod_and_finishes(ready: ControlPlane) -> None:
    made = ready.admin.create(job("one", **{QUEUE: "team"}))
    assert made["spec"]["suspend"] is True
    ready.admin.until(has("Complete"), "batch/v1", "Job", "one", namespace="team")


def test_a_plain_pod_is_gated_and_runs_when_admitted(ready: ControlPlane) -> None:
    made = ready.admin.create(pod("plain", **{QUEUE: "team"}))
    assert GATE in made["spec"]["schedulingGates"]
    assert "kueue.x-k8s.io/managed" in made["metadata"]["finalizers"]
    ready.admin.until(lambda found: found["status"].get("phase") == "Succeeded", "v1", "Pod", "plain", namespace="team")


def test_pods_of_a_group_run_together(ready: ControlPlane) -> None:
    for name in ("left", "right"):
        member = pod(name, **{QUEUE: "team", "kueue.x-k8s.io/pod-group-name": "pair"})
        member["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = "2"
        member["spec"] = pod_spec("500m")
        assert GATE in ready.admin.create(member)["spec"]["schedulingGates"]
    for name in ("left", "right"):
        ready.admin.until(
            lambda found: found["status"].get("phase") == "Succeeded", "v1", "Pod", name, namespace="team"
        )


def test_an_unlabelled_job_gets_the_default_queue(ready: ControlPlane) -> None:
    ready.admin.create(local_queue("default", "team"))
    try:
        made = ready.admin.create(job("unlabelled"))
        assert made["metadata"]["labels"][QUEUE] == "default"
        ready.admin.until(has("Complete"), "batch/v1", "Job", "unlabelled", namespace="team")
    finally:
        ready.admin.delete(KUEUE, "LocalQueue", "default", namespace="team")


def test_older_versions_are_converted(ready: ControlPlane) -> None:
    older = {**queues("older")[1], "apiVersion": OLDER}
    older["spec"] = {**older["spec"], "cohort": "all"}
    ready.admin.apply([queues("older")[0], older])
    assert ready.admin.get(KUEUE, "ClusterQueue", "older")["spec"]["cohortName"] == "all"
    assert ready.admin.get(OLDER, "ClusterQueue", "older")["spec"]["cohort"] == "all"


def test_a_wrong_object_is_refused_in_the_words_of_kueue(ready: ControlPlane) -> None:
    wrong = queues("wrong")[1]
    wrong["spec"]["namespaceSelector"] = {"matchExpressions": [{"key": "a", "operator": "Near"}]}
    with pytest.raises(ApiError, match=r'admission webhook "vclusterqueue\.kb\.io" denied the request: ') as refused:
        ready.admin.create(wrong)
    assert refused.value.status == 403


def test_a_wrong_job_is_refused(ready: ControlPlane) -> None:
    wrong = job("wrong", **{QUEUE: "Not A Name"})
    with pytest.raises(ApiError):
        ready.admin.create(wrong)


def test_with_kyu_killed_unlabelled_work_is_created(killed: ControlPlane) -> None:
    killed.admin.create(job("free"))
    killed.admin.create(pod("free"))
    killed.admin.until(has("Complete"), "batch/v1", "Job", "free", namespace="team")


def test_with_kyu_killed_labelled_work_does_not_run(killed: ControlPlane, request: pytest.FixtureRequest) -> None:
    """Policies suspend it; without policies the API server refuses it."""
    labelled = job("queued", **{QUEUE: "team"})
    if "policies" in request.node.name:
        assert killed.admin.create(labelled)["spec"]["suspend"] is True
        assert GATE in killed.admin.create(pod("queued", **{QUEUE: "team"}))["spec"]["schedulingGates"]
    else:
        with pytest.raises(ApiError, match="failed calling webhook"):
            killed.admin.create(labelled)


def test_labelled_work_runs_when_kyu_is_back(ready: ControlPlane, request: pytest.FixtureRequest) -> None:
    if "policies" not in request.node.name:
        pytest.skip("without policies, nothing is created while Kyu is down")
    ready.admin.until(has("Complete"), "batch/v1", "Job", "queued", namespace="team")
