"""The visibility API of `kyu up`: discovery, rights, and what clients see."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kyu.api.kueue import Workload
from tests.support.local_kyu import LocalKyu, local_kyu
from tests.support.manifests import obj, workload

GROUP = "/apis/visibility.kueue.x-k8s.io"
OF_QUEUE = f"{GROUP}/v1beta2/clusterqueues/team/pendingworkloads"
OF_LOCAL_QUEUE = f"{GROUP}/v1beta1/namespaces/default/localqueues/team/pendingworkloads"


@pytest.fixture(scope="module")
def kyu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKyu]:
    """A queue of one CPU, and two workloads that do not fit."""
    with local_kyu(tmp_path_factory.mktemp("visibility") / "data", "--bare", "--trust-users") as running:
        running.make_queue("team", "1")
        for name, priority in (("low", 1), ("high", 2)):
            running.client.create(
                Workload.KIND, workload(name, queue="team", namespace="default", cpu="2", priority=priority)
            )
        running.wait("both are pending", lambda: len(json.loads(running.client.raw(OF_QUEUE))["items"]) == 2)
        yield running


def kubectl(running: LocalKyu, *words: str, config: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KUBECONFIG": str(config or running.data / "kubeconfig"), "HOME": str(running.data)}
    return subprocess.run(["kubectl", *words], capture_output=True, text=True, env=environment, timeout=60, check=False)


needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


@pytest.mark.parametrize("path", [OF_QUEUE, OF_LOCAL_QUEUE])
def test_the_positions_follow_the_priority(kyu: LocalKyu, path: str) -> None:
    shown = json.loads(kyu.client.raw(path))
    assert [(one["metadata"]["name"], one["positionInLocalQueue"]) for one in shown["items"]] == [
        ("high", 0),
        ("low", 1),
    ]


def test_both_versions_are_discovered(kyu: LocalKyu) -> None:
    group = json.loads(kyu.client.raw(GROUP))
    assert [version["version"] for version in group["versions"]] == ["v1beta2", "v1beta1"]
    found = json.loads(kyu.client.raw(f"{GROUP}/v1beta2"))["resources"]
    assert {(one["name"], one["namespaced"], *one["verbs"]) for one in found} == {
        ("clusterqueues", False),
        ("clusterqueues/pendingworkloads", False, "get"),
        ("localqueues", True),
        ("localqueues/pendingworkloads", True, "get"),
    }


@needs_kubectl
def test_kubectl_reads_it_and_still_means_the_queues_of_kueue(kyu: LocalKyu) -> None:
    raw = kubectl(kyu, "get", "--raw", f"{OF_QUEUE}?limit=1")
    assert [one["metadata"]["name"] for one in json.loads(raw.stdout)["items"]] == ["high"]
    assert kubectl(kyu, "get", "clusterqueues", "-o", "name").stdout == "clusterqueue.kueue.x-k8s.io/team\n"
    assert kubectl(kyu, "get", "--raw", OF_QUEUE.replace("team", "none")).returncode == 1


@needs_kubectl
def test_a_user_needs_the_right_to_see_a_queue(kyu: LocalKyu, tmp_path: Path) -> None:
    config = tmp_path / "ann"
    config.write_text(kyu.kyu("user", "add", "ann", "--namespace", "default").stdout)
    refused = kubectl(kyu, "get", "--raw", OF_QUEUE, config=config)
    assert "Forbidden" in refused.stderr, refused
    rule = {
        "apiGroups": ["visibility.kueue.x-k8s.io"],
        "resources": ["clusterqueues/pendingworkloads"],
        "verbs": ["get"],
    }
    role = {**obj("rbac.authorization.k8s.io/v1", "ClusterRole", "sees-queues"), "rules": [rule]}
    binding = {
        **obj("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "sees-queues"),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "sees-queues"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}],
    }
    for body in (role, binding):
        path = tmp_path / "body.json"
        path.write_text(json.dumps(body))
        assert kubectl(kyu, "create", "-f", str(path)).returncode == 0
    assert len(json.loads(kubectl(kyu, "get", "--raw", OF_QUEUE, config=config).stdout)["items"]) == 2
