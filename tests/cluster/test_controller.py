"""`kyu controller` on a real Kubernetes, as its users run it: jobs run and grow; of several one acts, until it ends."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from kyu.api.config.config import LeaderElectionConfiguration
from kyu.install import objects as installation
from tests.cluster import kueue, kyu
from tests.cluster.client import Manifest, has
from tests.cluster.conftest import require
from tests.cluster.controlplane import EVERYTHING, ControlPlane
from tests.cluster.nodes import RUN_FOR
from tests.support.manifests import flavor, job, queues

KUEUE = "kueue.x-k8s.io/v1beta2"
LEASE = LeaderElectionConfiguration().resource_name
LONGEST_SECONDS = 60
CONFIGURATION = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {leaseDuration: 10s, renewDeadline: 8s, retryPeriod: 200ms}
# Several of them run on this machine.
health: {healthProbeBindAddress: "127.0.0.1:0"}
metrics: {bindAddress: "127.0.0.1:0"}
"""


def short_job(name: str) -> Manifest:
    """Return a Job of the queue `team` whose pod ends at once."""
    return job(name, queue="team", cpu="1", namespace="default", pod_annotations={RUN_FOR: "0s"})


def control(plane: ControlPlane, name: str, folder: Path) -> None:
    """Run a controller, with the rights that its Deployment has."""
    (folder / "configuration.yaml").write_text(CONFIGURATION)
    account = plane.user_kubeconfig(f"system:serviceaccount:{installation.NAMESPACE}:{installation.NAME}")
    words = ["controller", f"--kubeconfig={account}", f"--config={folder / 'configuration.yaml'}"]
    plane.processes.start(name, [sys.executable, "-m", "kyu", *words])


def end(plane: ControlPlane, name: str) -> None:
    """Kill it; whatever it has tried to do, it was allowed to."""
    plane.processes.kill(name)
    assert "forbidden" not in plane.processes.log(name).read_text()


def until_told(plane: ControlPlane, name: str, word: str) -> None:
    ends = time.monotonic() + LONGEST_SECONDS
    while word not in plane.processes.log(name).read_text():
        assert time.monotonic() < ends, f"{name} does not say {word!r}:\n{plane.processes.log_tail(name)}"
        time.sleep(0.1)


def is_held(lease: Manifest) -> bool:
    return bool(lease["spec"].get("holderIdentity"))


@pytest.fixture(scope="module")
def ready(plane: ControlPlane) -> ControlPlane:
    plane.add_nodes(["node"], {"cpu": "8", "memory": "8Gi"})
    kyu.install(plane)
    plane.admin.apply(rights())
    plane.admin.apply([flavor("team"), *queues("team")])
    return plane


def rights() -> list[Manifest]:
    """Return the accounts and roles of the installation."""
    account = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
    return [one for one in installation.objects("kyu") if one["kind"] in account]


def test_a_job_finishes_and_another_when_the_first_controller_is_killed(ready: ControlPlane, tmp_path: Path) -> None:
    control(ready, "first", tmp_path)
    until_told(ready, "first", "holding the lease")
    control(ready, "second", tmp_path)
    until_told(ready, "second", "waiting for the lease")
    ready.admin.create(short_job("one"))
    ready.admin.until(has("Complete"), "batch/v1", "Job", "one")
    end(ready, "first")
    until_told(ready, "second", "holding the lease")
    ready.admin.create(short_job("two"))
    ready.admin.until(has("Complete"), "batch/v1", "Job", "two")
    end(ready, "second")


def running_pod(ready: ControlPlane, name: str, *, not_on: str = "") -> Manifest:
    """The pod of the job, as soon as it runs, elsewhere than on this node."""

    def runs(event: Manifest) -> bool:
        pod = event["object"]
        is_there = event["type"] != "DELETED" and pod["status"].get("phase") == "Running"
        return bool(is_there and pod["spec"]["nodeName"] != not_on)

    return ready.admin.until_event(runs, "/api/v1/namespaces/default/pods", {"labelSelector": f"job-name={name}"})


def test_a_pod_finds_another_node_when_its_own_is_gone(ready: ControlPlane, tmp_path: Path) -> None:
    """Its Workload keeps its quota, and is placed anew; the job makes another pod."""
    levels = [{"nodeLabel": "kubernetes.io/hostname"}]
    ready.add_nodes(["here", "there"], {"cpu": "8", "memory": "8Gi"}, {"pool": "placed"})
    topology = {"apiVersion": KUEUE, "kind": "Topology", "metadata": {"name": "nodes"}, "spec": {"levels": levels}}
    placed = flavor("placed", nodeLabels={"pool": "placed"}, topologyName="nodes")
    ready.admin.apply([topology, placed, *queues("placed")])
    control(ready, "third", tmp_path)
    three = short_job("three")
    three["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "placed"}
    annotations = {"kueue.x-k8s.io/podset-required-topology": "kubernetes.io/hostname"}
    three["spec"]["template"]["metadata"] = {"annotations": annotations}
    uid = ready.admin.create(three)["metadata"]["uid"]
    first = running_pod(ready, "three")["spec"]["nodeName"]
    ready.admin.delete("v1", "Node", first)
    second = running_pod(ready, "three", not_on=first)["spec"]["nodeName"]
    assert {first, second} == {"here", "there"}
    (workload,) = ready.admin.list(KUEUE, "Workload", "default", f"kueue.x-k8s.io/job-uid={uid}")
    assert has("Admitted")(workload)
    name = workload["metadata"]["name"]
    ready.admin.until(lambda found: "unhealthyNodes" not in found["status"], KUEUE, "Workload", name)
    end(ready, "third")


def test_an_elastic_job_grows_and_a_queue_that_is_deleted_waits_for_it(ready: ControlPlane, tmp_path: Path) -> None:
    ready.admin.apply([flavor("elastic"), *queues("elastic")])
    control(ready, "fourth", tmp_path)
    four = short_job("four")
    four["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "elastic"}
    four["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": "true"}
    four["spec"] |= {"parallelism": 1, "completions": 9}
    del four["spec"]["template"]["metadata"]
    ready.admin.create(four)
    first = running_pod(ready, "four")["metadata"]["uid"]
    ready.admin.patch("batch/v1", "Job", "four", {"spec": {"parallelism": 2}})
    ready.admin.until(lambda found: found["status"].get("ready") == 2, "batch/v1", "Job", "four")
    assert first in {pod["metadata"]["uid"] for pod in ready.admin.list("v1", "Pod", "default", "job-name=four")}
    for kind in ("ResourceFlavor", "ClusterQueue"):
        ready.admin.until(is_in_use, KUEUE, kind, "elastic")
        ready.admin.delete(KUEUE, kind, "elastic")
        assert "deletionTimestamp" in ready.admin.get(KUEUE, kind, "elastic")["metadata"]
    ready.admin.delete("batch/v1", "Job", "four")
    for kind in ("ClusterQueue", "ResourceFlavor"):
        until_gone(ready, kind, "elastic")
    end(ready, "fourth")


def test_a_job_whose_workload_is_deleted_queues_again_as_it_was(ready: ControlPlane, tmp_path: Path) -> None:
    ready.add_nodes(["spot"], {"cpu": "8", "memory": "8Gi"}, {"kind": "spot"})
    ready.admin.apply([flavor("spot", nodeLabels={"kind": "spot"}), *queues("spot")])
    control(ready, "fifth", tmp_path)
    five = short_job("five")
    five["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "spot"}
    del five["spec"]["template"]["metadata"]
    ready.admin.create(five)
    first = running_pod(ready, "five")
    assert first["spec"]["nodeSelector"] == {"kind": "spot"}
    ready.admin.patch(KUEUE, "ClusterQueue", "spot", {"spec": {"stopPolicy": "Hold"}})
    uid = ready.admin.get("batch/v1", "Job", "five")["metadata"]["uid"]
    (held,) = ready.admin.list(KUEUE, "Workload", "default", f"kueue.x-k8s.io/job-uid={uid}")
    ready.admin.delete(KUEUE, "Workload", held["metadata"]["name"])

    def is_as_before(found: Manifest) -> bool:
        return bool(found["spec"]["suspend"]) and "nodeSelector" not in found["spec"]["template"]["spec"]

    ready.admin.until(is_as_before, "batch/v1", "Job", "five")
    ready.admin.patch(KUEUE, "ClusterQueue", "spot", {"spec": {"stopPolicy": "None"}})
    ready.admin.until(lambda found: found["status"].get("ready") == 1, "batch/v1", "Job", "five")
    end(ready, "fifth")


def until_gone(plane: ControlPlane, kind: str, name: str) -> None:
    ends = time.monotonic() + LONGEST_SECONDS
    while name in {found["metadata"]["name"] for found in plane.admin.list(KUEUE, kind)}:
        assert time.monotonic() < ends, f"{kind} {name} is still there"
        time.sleep(0.1)


def is_in_use(found: Manifest) -> bool:
    return "kueue.x-k8s.io/resource-in-use" in (found["metadata"].get("finalizers") or ())


def test_it_waits_while_an_installed_kueue_acts(tmp_path: Path) -> None:
    require(*EVERYTHING, "kueue")
    with ControlPlane.start(*EVERYTHING) as plane:
        kueue.start(plane, {"leaderElection": {"leaderElect": True, "resourceNamespace": "kueue-system"}})
        # Kueue is ready before it is the one that acts.
        plane.admin.until(is_held, "coordination.k8s.io/v1", "Lease", LEASE, "kueue-system")
        plane.admin.apply(rights())
        control(plane, "waiting", tmp_path)
        until_told(plane, "waiting", "waiting for the lease")
        assert "holding the lease" not in plane.processes.log("waiting").read_text()
        plane.processes.kill("kueue")
        until_told(plane, "waiting", "holding the lease")
