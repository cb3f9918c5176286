"""MasterQueues beside upstream Kueue: Kyu makes the queues from what pools announce, Kueue takes and uses them."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kyu.api import pools
from tests.cluster.client import Client, Manifest, condition, has
from tests.cluster.controlplane import ControlPlane
from tests.cluster.nodes import RUN_FOR
from tests.support.nats_servers import NatsServer, nats_server

KUEUE = "kueue.x-k8s.io/v1beta2"
MASTER_QUEUE = ("vk.io/v1", "MasterQueue", "masterqueue")
MANIFESTS = Path(__file__).parent.parent / "walkthroughs"
ADDRESS = "nats://user:password@nats.nats:4222"
POOL_FLAVOR = "masterqueue-interlink-podman-firenze"
CONTROLLER = "kyu-pools"
BURST_SECONDS = 240.0
REQUESTS = re.compile(r"^apiserver_request_total\{(.*)\} (\d+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with nats_server(tmp_path_factory.mktemp("nats"), "--user", "user", "--pass", "password") as server:
        yield server


@pytest.fixture(scope="module")
def pooled(kueue_plane: ControlPlane, nats: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> ControlPlane:
    """Kueue schedules, Kyu looks after MasterQueues, a virtual node stands for the pools, and one pool speaks."""
    admin = kueue_plane.admin
    admin.apply([pools.definition()])
    admin.until(has("Established"), "apiextensions.k8s.io/v1", "CustomResourceDefinition", "masterqueues.vk.io")
    kueue_plane.add_nodes(["interlink"], {"cpu": "10k", "memory": "2Ti"})
    taint = {"key": pools.OFFLOAD_TAINT.key, "value": "true", "effect": "NoSchedule"}
    admin.patch("v1", "Node", "interlink", {"spec": {"taints": [taint]}})
    control(kueue_plane)
    publish(kueue_plane, nats, "podman-firenze", tmp_path_factory.mktemp("pool"))
    return kueue_plane


def control(plane: ControlPlane) -> None:
    kyu = [sys.executable, "-m", "kyu", "controller", "--only", "pools"]
    # Kueue has the usual addresses.
    kyu += ["--health-probe-bind-address=0", "--metrics-bind-address=0"]
    plane.processes.start(CONTROLLER, [*kyu, f"--kubeconfig={plane.kubeconfig}"])


def publish(plane: ControlPlane, nats: NatsServer, pool: str, folder: Path, *options: str) -> None:
    words = ["--nats", url(nats), "--pool", pool, "--period", "0.5", "--pool-data", str(folder), *options]
    words += ["--from", "static", "--resource", "cpu=8", "--resource", "memory=16Gi", "--resource", "pods=20"]
    plane.processes.start(f"pool-{pool}", [sys.executable, "-m", "kyu", "pool", "publish", *words])


def url(nats: NatsServer) -> str:
    return nats.url.replace("nats://", "nats://user:password@")


def manifests(name: str, nats: NatsServer) -> list[Manifest]:
    text = (MANIFESTS / f"masterqueue-{name}.yaml").read_text()
    return list(yaml.safe_load_all(text.replace(ADDRESS, url(nats))))


def create_job(admin: Client, nats: NatsServer) -> str:
    (job,) = manifests("job", nats)
    name: str = admin.create(job)["metadata"]["name"]
    return name


def until_workload(admin: Client, job: str, type_: str, status: str = "True") -> Manifest:
    """The Workload of the job, as soon as the condition is so."""

    def is_it(event: Manifest) -> bool:
        return owner_of(event["object"]) == job and condition(event["object"], type_).get("status") == status

    return admin.until_event(is_it, f"/apis/{KUEUE}/namespaces/default/workloads", {})


def owner_of(workload: Manifest) -> str:
    return next((str(owner["name"]) for owner in workload["metadata"].get("ownerReferences") or ()), "")


def applied(admin: Client) -> Counter[str]:
    """How often flavors and queues were stated so far, by kind; on this control plane only Kyu does that."""
    found = Counter[str]()
    for labels, count in REQUESTS.findall(admin.text("GET", "/metrics")):
        said = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if said["verb"] == "APPLY" and said["resource"] in ("clusterqueues", "resourceflavors"):
            found[said["resource"]] += int(count)
    return found


def test_kueue_takes_the_queues_and_admits_the_job_through_them(pooled: ControlPlane, nats: NatsServer) -> None:
    admin = pooled.admin
    admin.apply(manifests("pools", nats))
    admin.apply(manifests("local-queue", nats))
    for name in ("masterqueue", "group1"):
        admin.until(has("Active"), KUEUE, "ClusterQueue", name)
    admin.until(has("Active"), KUEUE, "LocalQueue", "gr1")
    admin.until(has("Ready"), *MASTER_QUEUE)
    (entry,) = admin.get(KUEUE, "ClusterQueue", "masterqueue")["spec"]["resourceGroups"][0]["flavors"]
    assert entry["name"] == POOL_FLAVOR
    assert {one["name"]: one["nominalQuota"] for one in entry["resources"]} == {
        "cpu": "8",
        "memory": "16Gi",
        "pods": "20",
        "nvidia.com/gpu": "0",
    }

    job = create_job(admin, nats)
    workload = until_workload(admin, job, "Admitted")
    (assigned,) = workload["status"]["admission"]["podSetAssignments"]
    assert set(assigned["flavors"].values()) == {POOL_FLAVOR}
    path, query = "/api/v1/namespaces/default/pods", {"labelSelector": f"batch.kubernetes.io/job-name={job}"}
    pod = admin.until_event(lambda event: bool(event["object"]["spec"].get("nodeName")), path, query)
    assert pod["spec"]["nodeName"] == "interlink"
    assert {"key": "pool.vk.io", "value": "podman-firenze", "effect": "NoSchedule"} in pod["spec"]["tolerations"]
    admin.delete("batch/v1", "Job", job)


def test_messages_and_a_restart_write_nothing(pooled: ControlPlane, nats: NatsServer, tmp_path: Path) -> None:
    """A second MasterQueue with another pool, made afterwards, tells when the new process has come to its work."""
    admin = pooled.admin
    admin.until(has("NatsConnected"), *MASTER_QUEUE)
    before = admin.get(*MASTER_QUEUE)["metadata"]["resourceVersion"]
    counted = applied(admin)
    pooled.processes.kill(CONTROLLER)
    control(pooled)
    publish(pooled, nats, "elsewhere", tmp_path, "--subject", "other.resources")
    (other,) = manifests("pools", nats)
    other["metadata"]["name"] = "other"
    other["spec"]["template"]["cohort"] = "other"
    other["spec"]["flavors"][0]["canLendTo"] = []
    other["spec"]["flavors"][0]["natsFlavor"]["natsSubject"] = "other.resources"
    admin.apply([other])
    admin.until(has("Ready"), "vk.io/v1", "MasterQueue", "other")
    admin.until(has("Active"), KUEUE, "ClusterQueue", "other")
    assert admin.get(*MASTER_QUEUE)["metadata"]["resourceVersion"] == before
    made = applied(admin) - counted
    # Those of the other one: its flavor, and its queue, closed before the pool has spoken or not.
    assert made["resourceflavors"] == 1
    assert made["clusterqueues"] <= 2
    admin.delete("vk.io/v1", "MasterQueue", "other")


def test_a_total_holds_where_kueue_schedules(pooled: ControlPlane, nats: NatsServer) -> None:
    admin = pooled.admin
    (queue,) = manifests("pools", nats)
    queue["spec"]["flavors"][0]["canLendTo"][0]["totalLimit"] = {"pods": 1}
    admin.apply([queue])
    admin.until(has("Active"), KUEUE, "AdmissionCheck", "masterqueue-total-limit")
    admin.until(lambda found: "admissionChecksStrategy" in found["spec"], KUEUE, "ClusterQueue", "group1")
    admin.until(has("Active"), KUEUE, "ClusterQueue", "group1")
    first = create_job(admin, nats)
    until_workload(admin, first, "Admitted")
    second = create_job(admin, nats)
    until_workload(admin, second, "QuotaReserved", "False")
    running = [one for one in admin.list(KUEUE, "Workload") if condition(one, "Admitted").get("status") == "True"]
    assert second not in [owner_of(one) for one in running]
    admin.delete("batch/v1", "Job", first)
    until_workload(admin, second, "Admitted")
    admin.delete("batch/v1", "Job", second)


def test_a_burst_over_two_pools_never_passes_the_total(pooled: ControlPlane, nats: NatsServer, tmp_path: Path) -> None:
    """Kueue gives quota faster than limits follow; the check holds back who is too many, and all run in the end."""
    admin = pooled.admin
    publish(pooled, nats, "slurm-cineca", tmp_path)
    admin.until(lambda found: "slurm-cineca" in str(found["spec"]), KUEUE, "ClusterQueue", "group1")
    (queue,) = manifests("pools", nats)
    queue["spec"]["flavors"][0]["canLendTo"][0]["totalLimit"] = {"pods": 2}
    admin.apply([queue])
    (job,) = manifests("job", nats)
    job["spec"]["template"]["metadata"] = {"annotations": {RUN_FOR: "1s"}}
    waiting = {str(admin.create(job)["metadata"]["name"]) for _ in range(6)}
    running: set[str] = set()
    for event in admin.watch(f"/apis/{KUEUE}/namespaces/default/workloads", {}, BURST_SECONDS):
        name, workload = owner_of(event["object"]), event["object"]
        is_over = event["type"] == "DELETED" or condition(workload, "Finished").get("status") == "True"
        if condition(workload, "Admitted").get("status") == "True" and not is_over:
            running.add(name)
        else:
            running.discard(name)
        if is_over:
            waiting.discard(name)
        assert len(running) <= 2, running
        if not waiting:
            break
    assert waiting == set()


def test_a_local_flavor_takes_the_place_of_the_pools_and_all_goes_with_the_master_queue(
    pooled: ControlPlane, nats: NatsServer
) -> None:
    admin = pooled.admin
    admin.apply(manifests("local", nats))

    def is_local(found: Manifest) -> bool:
        groups = found["spec"].get("resourceGroups") or ()
        return [one["name"] for group in groups for one in group["flavors"]] == ["local-cpu"]

    admin.until(is_local, KUEUE, "ClusterQueue", "group1")
    # There is no total any more, and no check of it.
    pooled.wait("kueue", lambda: not admin.list(KUEUE, "AdmissionCheck"))
    admin.until(has("Active"), KUEUE, "ClusterQueue", "group1")
    job = create_job(admin, nats)
    until_workload(admin, job, "Admitted")
    admin.delete("batch/v1", "Job", job)
    admin.delete(*MASTER_QUEUE)
    pooled.wait("kueue", lambda: not owned_by_master_queue(admin, "ClusterQueue"))
    pooled.wait("kueue", lambda: not owned_by_master_queue(admin, "ResourceFlavor"))


def owned_by_master_queue(admin: Client, kind: str) -> list[str]:
    return [one["metadata"]["name"] for one in admin.list(KUEUE, kind) if owner_of(one) == "masterqueue"]
