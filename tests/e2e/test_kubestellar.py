"""The flow of kueue-ks end to end: a hub, two clusters, and a stand-in for KubeStellar's transport between them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from kyu.api import codec
from kyu.api.clusters.kubestellar import BINDING_POLICY, CLUSTER_LABEL, CUSTOM_TRANSFORM, WANTED_CLUSTER
from kyu.api.core import DEFINITION, Pod
from kyu.api.kueue import AdmissionCheck, ClusterQueue, LocalQueue, ResourceFlavor
from kyu.api.meta import Key, Kind
from kyu.kinds import metadata
from kyu.kinds.job import JOB
from kyu.kube import kubeconfig
from kyu.kube.blocking import BlockingClient
from tests.e2e.test_capacity_quota import publisher
from tests.support.kubestellar import DEFINITIONS, PYTORCH, KubeStellarStandIn
from tests.support.local_kyu import LocalKyu, local_kyu

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "04-kubestellar"
CLUSTERS = ("cluster1", "cluster2")
# PyTorchJobs are queued, as in the default configuration of an installed Kueue.
SETTINGS = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations: {frameworks: [batch/job, kubeflow.org/pytorchjob]}
"""


@dataclass
class Edge:
    """A hub, its clusters, and the transport. Publishers start with ``report``."""

    hub: LocalKyu
    clusters: dict[str, LocalKyu]
    transport: KubeStellarStandIn
    stack: ExitStack

    def report(self) -> None:
        for name, cluster in self.clusters.items():
            self.stack.enter_context(publisher(self.hub, cluster, name))

    def create(self, example: str) -> tuple[Kind, Key]:
        """`kubectl create -f`: as the document says it."""
        (one,) = codec.read((EXAMPLES / example).read_text())
        kind = JOB if one.kind == "Job" else PYTORCH
        made = self.hub.client.create(kind, one.object)
        return kind, Key("default", made["metadata"]["name"])

    def pause_for_rounds(self, count: int) -> None:
        """Let the transport look several times."""
        seen = self.transport.rounds
        self.hub.wait("the transport looks", lambda: self.transport.rounds >= seen + count)

    def pods(self, job: str) -> dict[str, int]:
        """The number of pods of a job in each server, those of the hub among them."""
        return {
            name: sum(pod["metadata"]["name"].startswith(f"{job}-") for pod in one.client.list(Pod.KIND, "default"))
            for name, one in {"hub": self.hub, **self.clusters}.items()
        }

    def condition(self, job: str, type_: str) -> str:
        status = (self.hub.workload(job) or {}).get("status") or {}
        return next((c["status"] for c in status.get("conditions") or () if c["type"] == type_), "")


def worker_queue(worker: LocalKyu) -> None:
    """A cluster of `kyu up` queues jobs with a queue label, so it needs the queue."""
    worker.make_queue("user-queue-ks", "10", resourceGroups=[
        {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "user-queue-ks", "resources": [
            {"name": "cpu", "nominalQuota": "10"}, {"name": "memory", "nominalQuota": "10Gi"}]}]}
    ])  # fmt: skip


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    folder = tmp_path_factory.mktemp("edge")
    with ExitStack() as stack:
        settings = folder / "settings.yaml"
        settings.write_text(SETTINGS)
        options = ("--bare", "--trust-users", "--config", str(settings))
        hub = stack.enter_context(local_kyu(folder / "hub", *options))
        for one in DEFINITIONS:
            hub.client.create(DEFINITION, one)
        hub.kyu("apply", "-f", str(EXAMPLES / "queues.yaml"))
        clusters = {name: stack.enter_context(local_kyu(folder / name, *options)) for name in CLUSTERS}
        for cluster in clusters.values():
            worker_queue(cluster)
        transport = KubeStellarStandIn(hub, clusters)
        transport.start()
        stack.callback(transport.stop)
        yield Edge(hub, clusters, transport, stack)


def test_a_preset_label_runs_nowhere_without_quota_and_is_a_wish_with_it(edge: Edge) -> None:
    hub = edge.hub
    kind, key = edge.create("batch-job.yaml")
    job = hub.client.get(kind, key)
    assert CLUSTER_LABEL not in job["metadata"]["labels"]
    assert job["metadata"]["annotations"][WANTED_CLUSTER] == "cluster2"
    hub.wait("it waits for quota", lambda: edge.condition(key.name, "QuotaReserved") == "False")
    # A user who applies the manifest again changes nothing.
    hub.client.patch(kind, key, {"metadata": {"labels": {CLUSTER_LABEL: "cluster1"}}})
    assert CLUSTER_LABEL not in hub.client.get(kind, key)["metadata"]["labels"]
    hub.client.patch(kind, key, {"metadata": {"labels": {CLUSTER_LABEL: "cluster2"}}})
    edge.pause_for_rounds(3)
    assert edge.pods(key.name) == {"hub": 0, "cluster1": 0, "cluster2": 0}
    # The clusters report, the quota follows, and the job gets the cluster that it asked for.
    edge.report()
    hub.wait("it has ended", lambda: hub.state(key.name) == "Succeeded")
    assert edge.pods(key.name) == {"hub": 0, "cluster1": 0, "cluster2": 3}
    ended = hub.client.get(kind, key)
    assert ended["metadata"]["labels"][CLUSTER_LABEL] == "cluster2"
    assert ended["spec"]["suspend"] is True
    assert ended["status"]["succeeded"] == 3
    assert edge.condition(key.name, "ClusterAssigned") == "True"
    assert edge.condition(key.name, "Admitted") != "True"
    policies = {one["metadata"]["name"]: one["spec"] for one in hub.client.list(BINDING_POLICY)}
    assert policies.keys() == set(CLUSTERS)
    hub.wait("the quota is free again", lambda: hub.used("cluster-queue-ks") == "0")


def test_a_pytorch_job_without_requests_runs_in_one_cluster(edge: Edge) -> None:
    hub = edge.hub
    _, key = edge.create("pytorch-simple-job.yaml")
    hub.wait("it has ended", lambda: hub.state(key.name) == "Succeeded")
    counts = edge.pods(key.name)
    assert counts.pop("hub") == 0
    # The pods of the workers may be cleaned up by now.
    assert min(counts.values()) == 0
    assert max(counts.values()) in (1, 2)
    (transform,) = hub.client.list(CUSTOM_TRANSFORM)
    assert transform["spec"]["remove"] == ["$.spec.runPolicy.suspend"]


def test_an_evicted_job_ends_in_its_cluster_and_starts_again(edge: Edge) -> None:
    hub = edge.hub
    hub.submit("long", "user-queue-ks", "sleep 600")
    hub.wait("it runs", lambda: sum(edge.pods("long").values()) == 1 and edge.condition("long", "ClusterAssigned"))
    hub.client.patch(ClusterQueue.KIND, Key("", "cluster-queue-ks"), {"spec": {"stopPolicy": "HoldAndDrain"}})
    hub.wait("it runs nowhere", lambda: not any(edge.pods("long").values()))
    hub.wait("it has no quota", lambda: edge.condition("long", "QuotaReserved") == "False")
    labels = metadata.labels_of(hub.client.get(JOB, Key("default", "long")))
    assert CLUSTER_LABEL not in labels
    hub.client.patch(ClusterQueue.KIND, Key("", "cluster-queue-ks"), {"spec": {"stopPolicy": "None"}})
    hub.wait("it runs again", lambda: sum(edge.pods("long").values()) == 1)
    hub.client.delete(JOB, Key("default", "long"))
    hub.wait("it runs nowhere", lambda: not any(edge.pods("long").values()))
    hub.wait("the quota is free again", lambda: hub.used("cluster-queue-ks") == "0")


def test_the_label_is_for_those_with_the_right(edge: Edge, tmp_path: Path) -> None:
    hub = edge.hub
    path = tmp_path / "ana"
    path.write_text(hub.kyu("user", "add", "ana", "--data", str(hub.data)).stdout)
    ana = BlockingClient(kubeconfig.load(path))
    # A queue that another controller serves: only its jobs wait for a label from outside.
    hub.client.create(AdmissionCheck.KIND, {"metadata": {"name": "other"}, "spec": {"controllerName": "example.com/x"}})
    hub.client.create(ResourceFlavor.KIND, {"metadata": {"name": "plain"}})
    flavor = {"name": "plain", "resources": [{"name": "cpu", "nominalQuota": "4"}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}],
            "admissionChecksStrategy": {"admissionChecks": [{"name": "other"}]}}  # fmt: skip
    hub.client.create(ClusterQueue.KIND, {"metadata": {"name": "other"}, "spec": spec})
    queue = {"metadata": {"name": "other", "namespace": "default"}, "spec": {"clusterQueue": "other"}}
    hub.client.create(LocalQueue.KIND, queue)
    hub.submit("theirs", "other", "true")
    key = Key("default", "theirs")
    ana.patch(JOB, key, {"metadata": {"labels": {CLUSTER_LABEL: "nowhere"}}})
    job = hub.client.get(JOB, key)
    assert CLUSTER_LABEL not in job["metadata"]["labels"]
    assert job["metadata"]["annotations"][WANTED_CLUSTER] == "nowhere"
    # The administrator has every right, and so has kueue-ks with its own.
    hub.client.patch(JOB, key, {"metadata": {"labels": {CLUSTER_LABEL: "nowhere"}}})
    assert hub.client.get(JOB, key)["metadata"]["labels"][CLUSTER_LABEL] == "nowhere"
    # Without the right it cannot be taken away either.
    ana.patch(JOB, key, {"metadata": {"labels": {CLUSTER_LABEL: None}}})
    assert hub.client.get(JOB, key)["metadata"]["labels"][CLUSTER_LABEL] == "nowhere"
    ana.close()
