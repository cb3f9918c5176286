"""Jobs labelled by the scheduler plugins, on real schedulers; and the definitions of the job kinds on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kyu.kinds import crds, metadata, table
from kyu.workflows import plugin
from kyu.workflows.queueconfig import QueueConfig
from kyu.workflows.submission import Submission
from kyu.workflows.task import Task
from tests.cluster.client import Client, Manifest, has
from tests.cluster.conftest import require
from tests.cluster.controlplane import ControlPlane
from tests.cluster.test_crds import DEFINITION, is_established
from tests.cluster.test_ground import team_queues, wait_for_placeholders
from tests.support.manifests import flavor

CASES = sorted((Path(__file__).parent.parent / "cases" / "kinds").glob("*.yaml"))
DEFINED = {definition["spec"]["names"]["kind"] for definition in crds.definitions()}


@pytest.fixture(scope="module")
def server() -> Iterator[ControlPlane]:
    """An API server with the definitions of the job kinds."""
    require()
    with ControlPlane.start() as plane:
        plane.admin.apply(crds.definitions())
        for definition in crds.definitions():
            plane.admin.until(is_established, *DEFINITION, definition["metadata"]["name"])
        yield plane


def test_definitions_are_structural(server: ControlPlane) -> None:
    for definition in server.admin.list(*DEFINITION):
        assert not has("NonStructuralSchema")(definition), definition["metadata"]["name"]
        assert definition["status"]["acceptedNames"]["kind"] in DEFINED


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_objects_of_every_kind_are_stored_whole(server: ControlPlane, path: Path) -> None:
    namespace = f"case-{CASES.index(path)}"
    server.admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    for manifest in yaml.safe_load_all(path.read_text()):
        if manifest["kind"] in DEFINED:
            manifest["metadata"]["namespace"] = namespace
            created = server.admin.create(manifest)
            assert created["spec"] == manifest["spec"]


def render(scheduler: str, manifest: Manifest, array_size: int = 1) -> Manifest:
    name = manifest["metadata"]["name"]
    task = Task("acme", name, user="ann" if scheduler == "yunikorn" else "", array_size=array_size)
    result = plugin.render(plugin.load(QueueConfig(scheduler)), task, manifest)
    assert isinstance(result, plugin.Rendered), str(result)
    return result.object


def pods_of(manifest: Manifest) -> list[Manifest]:
    """The pods that the operator of a rendered object would make."""
    found = Submission(Task("acme", "e"), manifest).roles
    assert isinstance(found, list)
    name = manifest["metadata"]["name"]
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**role.template["metadata"], "name": f"{name}-{role.name}-{i}", "namespace": "default"},
            "spec": role.template["spec"],
        }
        for role in found
        for i in range(role.count)
    ]


def template(cpu: str) -> Manifest:
    return {"spec": {"containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}]}}


def ray(name: str, workers: int) -> Manifest:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name},
        "spec": {
            "headGroupSpec": {"template": template("1")},
            "workerGroupSpecs": [{"groupName": "small", "replicas": workers, "template": template("1")}],
        },
    }


def spark(name: str, executors: int) -> Manifest:
    role = {"cores": 1, "memory": "512m", "image": "none"}
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": name},
        "spec": {"type": "Scala", "mode": "cluster", "driver": role, "executor": {**role, "instances": executors}},
    }


def test_yunikorn_starts_labelled_gangs_together_or_not_at_all(yunikorn_plane: ControlPlane) -> None:
    """Gangs of three pods with one CPU each: they get nothing of what is free, until there is room for all."""
    admin = yunikorn_plane.admin
    gangs = [
        # The node of the plane has 2 CPUs; the first gang leaves 1 free on the two nodes that there are then.
        ("ray-lab", ray("lab", workers=2), 2, "second"),
        ("spark-etl", spark("etl", executors=2), 1, "third"),
    ]
    for application, manifest, places, new_node in gangs:
        names = create_pods(admin, render("yunikorn", manifest))
        wait_for_placeholders(admin, application, places)
        assert not any(has("PodScheduled")(admin.get("v1", "Pod", name)) for name in names), application

        yunikorn_plane.add_nodes([new_node], {"cpu": "2", "memory": "8Gi"})

        admin.until_all(has("PodScheduled"), "v1", "Pod", names)


def create_pods(admin: Client, manifest: Manifest) -> list[str]:
    made = pods_of(manifest)
    for pod in made:
        admin.create(pod)
    return [pod["metadata"]["name"] for pod in made]


def test_kueue_admits_a_labelled_group_as_a_whole(kueue_plane: ControlPlane) -> None:
    """Dask is no kind of Kueue: its pods are one group of 5 CPUs, which waits while the queue has 4."""
    admin = kueue_plane.admin
    cluster_queue, local_queue = team_queues("acme")
    del cluster_queue["spec"]["cohortName"]  # nobody lends to it
    local_queue["metadata"]["name"] = "acme.dask"
    admin.apply([flavor("default-flavor", nodeLabels={"pool": "main"}), cluster_queue, local_queue])
    cluster = {"scheduler": template("1"), "worker": {"replicas": 4, **template("1")}}
    dask = {"apiVersion": "kubernetes.dask.org/v1", "kind": "DaskCluster", "metadata": {"name": "fit"}, "spec": cluster}

    names = create_pods(admin, render("kueue", dask))

    workload = ("kueue.x-k8s.io/v1beta2", "Workload", "dask-fit")
    admin.until(has("QuotaReserved", "False"), *workload)
    assert all(is_gated(admin.get("v1", "Pod", name)) for name in names)

    cluster_queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "5"
    admin.apply([cluster_queue])

    admin.until(has("Admitted"), *workload)
    admin.until_all(lambda pod: not is_gated(pod), "v1", "Pod", names)


def test_kueue_takes_an_array_of_labelled_pods_as_one_job(kueue_plane: ControlPlane) -> None:
    admin = kueue_plane.admin
    cluster_queue, local_queue = team_queues("array")
    local_queue["metadata"]["name"] = "acme.pod"
    admin.apply([flavor("default-flavor", nodeLabels={"pool": "main"}), cluster_queue, local_queue])
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "map"}, **template("1")}
    rendered = render("kueue", pod, array_size=3)
    for index in range(3):
        admin.create({**rendered, "metadata": {**rendered["metadata"], "name": f"map-{index}", "namespace": "default"}})
    admitted = admin.until(has("Admitted"), "kueue.x-k8s.io/v1beta2", "Workload", "pod-map")
    assert [pod_set["count"] for pod_set in admitted["spec"]["podSets"]] == [3]


def is_gated(pod: Manifest) -> bool:
    return any(gate["name"] == metadata.ADMISSION_GATE for gate in pod["spec"].get("schedulingGates", ()))


def test_every_definition_belongs_to_a_kind() -> None:
    kinds = {kind.kind for job_kind in table.KINDS for kind in job_kind.kinds}
    # What jobs and admission checks refer to is no job itself.
    assert DEFINED - kinds == {"TrainingRuntime", "ClusterTrainingRuntime", "ProvisioningRequest"}
