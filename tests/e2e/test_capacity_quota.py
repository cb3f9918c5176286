"""Quota that follows clusters, end to end: a hub, two workers with simulated nodes, and a publisher in each."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from kyu.api.clusters.capacity import REPORTED_AT, CapacityQuota, ClusterMetrics
from kyu.api.core import Node, Pod
from kyu.api.kueue import ClusterQueue, LocalQueue, ResourceFlavor
from kyu.api.meta import Json, Key
from tests.support.local_kyu import LocalKyu, local_kyu

NODES = """\
apiVersion: v1
kind: Node
metadata: {{name: {name}-0, labels: {{instance: h100}}}}
status: {{allocatable: {{cpu: "{cpu}", memory: 8Gi, pods: "10"}}}}
---
apiVersion: v1
kind: Node
metadata: {{name: {name}-1, labels: {{instance: a100}}}}
status: {{allocatable: {{cpu: "500m", memory: 8Gi, pods: "10"}}}}
"""


class Fleet:
    """A hub whose ClusterQueue `global` follows the workers."""

    def __init__(self, hub: LocalKyu, workers: dict[str, LocalKyu]) -> None:
        self.hub = hub
        self.workers = workers
        flavors = []
        for name in ("h100", "a100"):
            hub.client.create(
                ResourceFlavor.KIND, {"metadata": {"name": name}, "spec": {"nodeLabels": {"instance": name}}}
            )
            flavors.append({"name": name, "resources": [{"name": "cpu", "nominalQuota": "100"}]})
        group = {"coveredResources": ["cpu"], "flavors": flavors}
        body = {"namespaceSelector": {}, "resourceGroups": [group]}
        hub.client.create(ClusterQueue.KIND, {"metadata": {"name": "global"}, "spec": body})
        queue = {"metadata": {"name": "global", "namespace": "default"}, "spec": {"clusterQueue": "global"}}
        hub.client.create(LocalQueue.KIND, queue)
        spec = {"clusterQueue": "global", "settleSeconds": 1}
        hub.client.create(CapacityQuota.KIND, {"metadata": {"name": "global"}, "spec": spec})

    def quotas(self) -> list[str]:
        spec = self.hub.client.get(ClusterQueue.KIND, Key("", "global"))["spec"]
        return [entry["resources"][0]["nominalQuota"] for entry in spec["resourceGroups"][0]["flavors"]]

    def wait_for(self, *quotas: str) -> None:
        self.hub.wait(f"the quota is {quotas}", lambda: self.quotas() == list(quotas))

    def reported(self, name: str) -> str:
        found = self.hub.client.get(ClusterMetrics.KIND, Key("", name))
        return str(found["metadata"]["annotations"][REPORTED_AT])


@contextmanager
def publisher(hub: LocalKyu, worker: LocalKyu, name: str) -> Iterator[subprocess.Popen[bytes]]:
    words = [sys.executable, "-m", "kyu", "cluster", "publish", "--name", name, "--period", "1"]
    words += ["--hub", str(hub.data / "kubeconfig"), "--kubeconfig", str(worker.data / "kubeconfig")]
    with open(worker.data / "publisher.log", "wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    with ExitStack() as stack:
        hub = stack.enter_context(local_kyu(folder / "hub", "--bare", "--trust-users"))
        workers = {}
        for name, cpu in (("east", "8"), ("west", "4")):
            nodes = folder / f"{name}.yaml"
            nodes.write_text(NODES.format(name=name, cpu=cpu))
            workers[name] = stack.enter_context(local_kyu(folder / name, "--bare", "--nodes", str(nodes)))
        fleet = Fleet(hub, workers)
        for name, worker in workers.items():
            stack.enter_context(publisher(hub, worker, name))
        yield fleet


def pod(name: str, node: str, cpu: str) -> Json:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    meta = {"name": name, "namespace": "default", "annotations": {"kyu.dev/run-seconds": "3600"}}
    return {"metadata": meta, "spec": {"nodeName": node, "containers": [container]}}


def test_quota_follows_nodes_and_foreign_pods(fleet: Fleet) -> None:
    east = fleet.workers["east"]
    fleet.wait_for("12", "1")
    # A pod that the hub did not send.
    east.client.create(Pod.KIND, pod("foreign", "east-0", "1500m"))
    fleet.wait_for("10500m", "1")
    # A node is cordoned, and with it the foreign pod does not matter.
    east.client.patch(Node.KIND, Key("", "east-0"), {"spec": {"unschedulable": True}})
    fleet.wait_for("4", "1")
    east.client.patch(Node.KIND, Key("", "east-0"), {"spec": {"unschedulable": None}})
    fleet.wait_for("10500m", "1")
    east.client.delete(Pod.KIND, Key("default", "foreign"))
    taint = {"key": "maintenance", "effect": "NoSchedule"}
    fleet.workers["west"].client.patch(Node.KIND, Key("", "west-1"), {"spec": {"taints": [taint]}})
    fleet.wait_for("12", "500m")
    fleet.workers["west"].client.patch(Node.KIND, Key("", "west-1"), {"spec": {"taints": None}})
    fleet.wait_for("12", "1")


def test_a_quiet_fleet_writes_nothing(fleet: Fleet) -> None:
    fleet.wait_for("12", "1")
    hub = fleet.hub
    kinds = (ClusterQueue.KIND, CapacityQuota.KIND)

    def is_settled() -> bool:
        status = hub.client.get(CapacityQuota.KIND, Key("", "global"))["status"]
        return any(c["type"] == "Degraded" and c["status"] == "False" for c in status["conditions"])

    hub.wait("it is as wanted", is_settled)
    before = [hub.client.get(kind, Key("", "global"))["metadata"]["resourceVersion"] for kind in kinds]
    for _ in range(3):
        for name in fleet.workers:
            last = fleet.reported(name)
            hub.wait("a report came", lambda name=name, last=last: fleet.reported(name) != last)  # type: ignore[misc]
    assert [hub.client.get(kind, Key("", "global"))["metadata"]["resourceVersion"] for kind in kinds] == before


def test_clusters_are_listed(fleet: Fleet) -> None:
    fleet.wait_for("12", "1")
    rows = [line.split() for line in fleet.hub.kyu("clusters").stdout.splitlines()]
    assert rows[0][:4] == ["CLUSTER", "HEALTH", "LAG", "NODES"]
    assert [(row[0], row[1], row[3]) for row in rows[1:]] == [("east", "Reporting", "3"), ("west", "Reporting", "3")]


def test_a_user_may_not_report_a_cluster(fleet: Fleet, tmp_path: Path) -> None:
    token = fleet.hub.kyu("user", "add", "mallory", "--role", "batch-user", "--data", str(fleet.hub.data), check=False)
    assert token.returncode == 0, token.stderr
    path = tmp_path / "mallory"
    path.write_text(token.stdout)
    words = ("cluster", "publish", "--name", "east", "--once", "--hub", str(path))
    refused = fleet.workers["east"].kyu(*words, check=False)
    assert refused.returncode == 1, refused.stdout + refused.stderr
    assert "forbidden" in refused.stderr.lower()
