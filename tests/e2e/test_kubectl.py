"""A tour with the real kubectl: what users type, and what they see."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not installed: see kubernetes.io/docs/tasks/tools"
)

MANIFESTS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: tour}}
data: {color: red}
---
apiVersion: batch/v1
kind: Job
metadata: {name: train, labels: {app: tour}}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: busybox, command: [sleep, "1"]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: research, labels: {app: tour}}
spec: {clusterQueue: lab}
"""

Kubectl = Callable[..., str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A server without controllers, so that nothing moves but what kubectl does; its own cache folder for kubectl."""
    data = tmp_path_factory.mktemp("tour") / "data"
    command = [sys.executable, "-m", "kyu"]
    subprocess.run([*command, "up", "-d", "--bare", "--server-only", "--data", str(data)], check=True, timeout=60)
    yield data
    subprocess.run([*command, "down", "--data", str(data)], check=True, timeout=60)


@pytest.fixture
def kubectl(server: Path, request: pytest.FixtureRequest) -> Kubectl:
    """kubectl in a namespace of the test's own; a refusal is an error unless ``fails``."""
    namespace = request.node.name.replace("_", "-")[:60].strip("-")
    environment = {**os.environ, "KUBECONFIG": str(server / "kubeconfig"), "HOME": str(server)}

    def run(*words: str, text: str = "", fails: bool = False, editor: str = "false") -> str:
        command = ["kubectl", "--namespace", namespace, *words]
        chosen = {**environment, "KUBE_EDITOR": editor}
        done = subprocess.run(command, input=text, capture_output=True, text=True, env=chosen, timeout=60, check=False)
        assert (done.returncode != 0) is fails, f"{words}: {done.stdout}{done.stderr}"
        return done.stderr if fails else done.stdout

    run("create", "namespace", namespace)
    return run


def test_apply_and_what_get_shows(kubectl: Kubectl) -> None:
    created = kubectl("apply", "-f", "-", text=MANIFESTS)
    assert created.count("created") == 3
    assert kubectl("apply", "-f", "-", text=MANIFESTS).count("unchanged") == 3
    assert kubectl("apply", "-f", "-", text=MANIFESTS.replace("red", "blue")).count("configured") == 1
    header, row = kubectl("get", "queues").splitlines()
    assert [name for name in header.split("  ") if name] == [
        "NAME",
        " CLUSTERQUEUE",
        " PENDING WORKLOADS",
        " ADMITTED WORKLOADS",
    ]
    assert row.split() == ["research", "lab"]
    assert kubectl("get", "cm", "settings", "-o", "jsonpath={.data.color}") == "blue"
    assert kubectl("get", "cm,job,queue", "-l", "app=tour", "-o", "name").splitlines() == [
        "configmap/settings",
        "job.batch/train",
        "localqueue.kueue.x-k8s.io/research",
    ]
    assert json.loads(kubectl("get", "job", "train", "-o", "json"))["spec"]["completions"] == 1
    assert kubectl("get", "cm", "settings", "-o", "go-template={{.data.color}}") == "blue"
    assert "kind: Job" in kubectl("get", "job", "train", "-o", "yaml")
    assert "busybox" in kubectl("get", "job", "train", "-o", "wide")
    assert kubectl("get", "cm", "-o", "custom-columns=N:.metadata.name", "--sort-by=.metadata.name").split() == [
        "N",
        "settings",
    ]
    assert "job.batch/train" in kubectl("get", "all")


def test_server_side_apply_conflicts_and_force(kubectl: Kubectl) -> None:
    mine = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared}\ndata: {k: mine}\n"
    kubectl("apply", "--server-side", "--field-manager=one", "-f", "-", text=mine)
    theirs = mine.replace("k: mine", "k: theirs")
    refused = kubectl("apply", "--server-side", "--field-manager=two", "-f", "-", text=theirs, fails=True)
    assert 'conflict with "one": .data.k' in refused
    kubectl("apply", "--server-side", "--field-manager=two", "--force-conflicts", "-f", "-", text=theirs)
    shown = kubectl("get", "cm", "shared", "-o", "yaml", "--show-managed-fields")
    assert "manager: two" in shown
    assert "manager: one" not in shown


def test_from_one_apply_to_the_other(kubectl: Kubectl) -> None:
    body = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: moved}\ndata: {a: '1', b: '2'}\n"
    kubectl("apply", "-f", "-", text=body)
    kubectl("apply", "--server-side", "-f", "-", text=body.replace(", b: '2'", ""))
    assert kubectl("get", "cm", "moved", "-o", "jsonpath={.data}") == '{"a":"1"}'


def test_describe_patch_label_annotate_edit(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", text=MANIFESTS)
    assert "Suspend:" in kubectl("describe", "job", "train")
    assert "Cluster Queue" in kubectl("describe", "queue", "research")
    kubectl("patch", "job", "train", "-p", '{"spec": {"parallelism": 3}}')
    kubectl("patch", "queue", "research", "--type=merge", "-p", '{"spec": {"stopPolicy": "Hold"}}')
    kubectl("patch", "cm", "settings", "--type=json", "-p", '[{"op": "add", "path": "/data/x", "value": "y"}]')
    kubectl("label", "cm", "settings", "team=a")
    kubectl("annotate", "cm", "settings", "note=b")
    settings = json.loads(kubectl("get", "cm", "settings", "-o", "json"))
    assert settings["data"] == {"color": "red", "x": "y"}
    assert settings["metadata"]["labels"]["team"] == "a"
    assert settings["metadata"]["annotations"]["note"] == "b"
    assert kubectl("get", "job", "train", "-o", "jsonpath={.spec.parallelism}") == "3"
    assert "strategic" in kubectl("patch", "queue", "research", "-p", '{"spec": {}}', fails=True)


def test_edit(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", text=MANIFESTS)
    kubectl("edit", "configmap", "settings", editor="sed -i s/red/green/")
    assert kubectl("get", "cm", "settings", "-o", "jsonpath={.data.color}") == "green"


def test_wait(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "seen", "--from-literal=a=1")
    kubectl("wait", "--for=jsonpath={.data.a}=1", "configmap/seen", "--timeout=60s")
    kubectl("delete", "configmap", "seen")
    kubectl("wait", "--for=delete", "configmap/seen", "--timeout=60s")


def test_watch(server: Path, kubectl: Kubectl) -> None:
    environment = {**os.environ, "KUBECONFIG": str(server / "kubeconfig"), "HOME": str(server)}
    command = ["kubectl", "--namespace", "test-watch", "get", "configmaps", "--watch", "-o", "name"]
    kubectl("create", "configmap", "before")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "configmap/before\n"
        kubectl("create", "configmap", "later")
        assert process.stdout.readline() == "configmap/later\n"
        process.terminate()


def test_delete_with_each_propagation_policy(kubectl: Kubectl) -> None:
    for policy, finalizers in (("background", None), ("foreground", "foregroundDeletion"), ("orphan", "orphan")):
        kubectl("create", "configmap", policy)
        kubectl("delete", "configmap", policy, f"--cascade={policy}", "--wait=false")
        left = kubectl("get", "configmap", policy, "--ignore-not-found", "-o", "jsonpath={.metadata.finalizers[0]}")
        assert left == (finalizers or "")


def test_explain_and_discovery(kubectl: Kubectl) -> None:
    assert "nominalQuota" in kubectl(
        "explain", "clusterqueue.spec.resourceGroups.flavors.resources", "--api-version=kueue.x-k8s.io/v1beta2"
    )
    assert "suspend" in kubectl("explain", "job.spec")
    resources = kubectl("api-resources")
    assert "localqueues" in resources
    assert "jobs" in resources
    assert "kueue.x-k8s.io/v1beta1" in kubectl("api-versions")
    assert "v1.36" in kubectl("version")


def test_rights_and_typed_creates(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "create", "jobs").strip() == "yes"
    assert "admin" in kubectl("auth", "whoami")
    kubectl("create", "secret", "generic", "s", "--from-literal=k=v")
    assert kubectl("get", "secret", "s", "-o", "jsonpath={.data.k}") == "dg=="
    kubectl("create", "job", "typed", "--image=busybox", "--", "true")
    assert kubectl("get", "job", "typed", "-o", "jsonpath={.spec.template.spec.containers[0].command[0]}") == "true"
    kubectl("create", "role", "reader", "--verb=get", "--resource=pods")
    kubectl("create", "rolebinding", "reader", "--role=reader", "--user=ana")
    assert "cannot list" in kubectl("get", "pods", "--as", "ana", fails=True)
    assert "not found" in kubectl("get", "pod", "p", "--as", "ana", fails=True)


def test_dry_run_diff_replace_and_scale(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", text=MANIFESTS)
    kubectl("apply", "--dry-run=server", "-f", "-", text=MANIFESTS.replace("red", "blue"))
    assert kubectl("get", "cm", "settings", "-o", "jsonpath={.data.color}") == "red"
    kubectl("diff", "-f", "-", text=MANIFESTS)
    kubectl("diff", "-f", "-", text=MANIFESTS.replace("red", "blue"), fails=True)
    body = kubectl("get", "cm", "settings", "-o", "json").replace('"red"', '"white"')
    kubectl("replace", "-f", "-", text=body)
    assert kubectl("get", "cm", "settings", "-o", "jsonpath={.data.color}") == "white"
    kubectl("create", "deployment", "web", "--image=nginx")
    kubectl("scale", "deployment", "web", "--replicas=4")
    assert kubectl("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}") == "4"


def test_wrong_input_is_explained(kubectl: Kubectl) -> None:
    typo = MANIFESTS.replace("suspend", "suspendd")
    assert 'unknown field "spec.suspendd"' in kubectl("create", "-f", "-", text=typo, fails=True)
    assert "Invalid value" in kubectl("create", "configmap", "Bad_Name", fails=True)
    assert "not found" in kubectl("get", "cm", "nothing", fails=True)


def test_logs_of_a_pod_without_a_node_are_empty(kubectl: Kubectl) -> None:
    kubectl("run", "p", "--image=busybox")
    assert kubectl("logs", "p") == ""
    assert "Pending" in kubectl("get", "pod", "p")


def test_a_kind_that_does_not_exist_is_told_by_its_name(kubectl: Kubectl) -> None:
    text = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQeue\nmetadata: {name: x}\n"
    told = kubectl("apply", "-f", "-", text=text, fails=True)
    assert 'no matches for kind "ClusterQeue" in version "kueue.x-k8s.io/v1beta2"' in told
