"""Jobs sent from cluster to cluster: Kyu to Kueue, Kueue to Kyu, and from a Kubernetes that Kyu schedules."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kyu.api import roles
from kyu.kube import kubeconfig
from tests.cluster.client import Client, Manifest, client_of_token, has
from tests.cluster.controlplane import ControlPlane
from tests.cluster.test_controller import control, end, ready, short_job
from tests.support.local_kyu import LocalKyu, local_kyu
from tests.support.manifests import flavor, queues

KUEUE = "kueue.x-k8s.io/v1beta2"
RBAC = "rbac.authorization.k8s.io"
MULTI_KUEUE = "kueue.x-k8s.io/multikueue"
# A fixture.
__all__ = ["ready"]


def manager_objects(name: str, worker: str) -> list[Manifest]:
    """What sends the jobs of the queue of this name to the cluster of this kubeconfig, which has the same name."""
    data = {"kubeconfig": base64.b64encode(worker.encode()).decode()}
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": name}
    source = {"kubeConfig": {"location": name, "locationType": "Secret"}}
    check = {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters}
    return [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "kueue-system"}, "data": data},
        *(
            {"apiVersion": KUEUE, "kind": kind, "metadata": {"name": name}, "spec": spec}
            for kind, spec in (
                ("MultiKueueCluster", {"clusterSource": source}),
                ("MultiKueueConfig", {"clusters": [name]}),
                ("AdmissionCheck", check),
            )
        ),
        flavor(name),
        *queues(name, checks=[name]),
    ]


def sent_job(name: str, queue_name: str) -> Manifest:
    """Ends at once on nodes that do not exist, and as a process."""
    body = short_job(name)
    body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue_name}
    body["spec"]["template"]["spec"]["containers"][0]["command"] = ["true"]
    return body


def restricted_kubeconfig(plane: ControlPlane) -> str:
    """Of a user who has the role for managers and nothing else, with all that it needs in it."""
    wanted = "kueue-multikueue-manager-role"
    role = next(one for one in roles.cluster_roles() if one["metadata"]["name"] == wanted)
    user = {"kind": "User", "name": "manager", "apiGroup": RBAC}
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": wanted},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": wanted},
        "subjects": [user],
    }
    plane.admin.apply([role, binding])
    found = kubeconfig.load(plane.user_kubeconfig("manager"))

    def text(data: bytes) -> str:
        return base64.b64encode(data).decode()

    cluster = {"server": found.server, "certificate-authority-data": text(found.authority)}
    identity = {"client-certificate-data": text(found.certificate), "client-key-data": text(found.key)}
    document = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": identity}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    return json.dumps(document)


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKyu]:
    with local_kyu(tmp_path_factory.mktemp("embedded"), "--bare") as kyu:
        yield kyu


@pytest.fixture
def client(embedded: LocalKyu) -> Iterator[Client]:
    found = kubeconfig.load(embedded.data / "kubeconfig")
    client = client_of_token(found.server, found.authority.decode(), found.token)
    yield client
    client.close()


def runs_elsewhere(manager: Client, body: Manifest, cluster: str) -> None:
    """The job ends in another cluster, as its status here says, and has no pods here."""
    manager.until(has("Active"), KUEUE, "MultiKueueCluster", cluster)
    manager.create(body)
    name = body["metadata"]["name"]
    done = manager.until(has("Complete"), "batch/v1", "Job", name)
    assert done["status"]["succeeded"] == 1
    assert done["spec"]["managedBy"] == MULTI_KUEUE
    (workload,) = [one for one in manager.list(KUEUE, "Workload", "default") if name in one["metadata"]["name"]]
    assert workload["status"]["clusterName"] == cluster
    assert not manager.list("v1", "Pod", "default", f"job-name={name}")


def test_kyu_sends_a_job_to_kueue(kueue_plane: ControlPlane, client: Client) -> None:
    kueue_plane.admin.apply([flavor("to-kueue"), *queues("to-kueue")])
    client.apply(manager_objects("to-kueue", restricted_kubeconfig(kueue_plane)))
    runs_elsewhere(client, sent_job("one", "to-kueue"), "to-kueue")


def test_kueue_sends_a_job_to_kyu(kueue_plane: ControlPlane, client: Client, embedded: LocalKyu) -> None:
    client.apply([flavor("to-kyu"), *queues("to-kyu")])
    kueue_plane.admin.apply(manager_objects("to-kyu", (embedded.data / "kubeconfig").read_text()))
    runs_elsewhere(kueue_plane.admin, sent_job("two", "to-kyu"), "to-kyu")


def test_a_kubernetes_that_kyu_schedules_sends_a_job(
    ready: ControlPlane, client: Client, embedded: LocalKyu, tmp_path: Path
) -> None:
    client.apply([flavor("from-kyu"), *queues("from-kyu")])
    ready.admin.apply(manager_objects("from-kyu", (embedded.data / "kubeconfig").read_text()))
    control(ready, "manager", tmp_path)
    body = sent_job("three", "from-kyu")
    # Without webhooks its user says so.
    body["spec"]["managedBy"] = MULTI_KUEUE
    runs_elsewhere(ready.admin, body, "from-kyu")
    end(ready, "manager")
