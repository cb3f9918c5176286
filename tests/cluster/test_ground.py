"""The ground holds: real Kubernetes, upstream Kueue and YuniKorn do on it what they do on a cluster."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.cluster import client, kueue, parts
from tests.cluster.client import ApiError, Client, Manifest, condition, has
from tests.cluster.controlplane import ControlPlane
from tests.cluster.nodes import RUN_FOR, end_pod
from tests.support.manifests import flavor, job, queues, workload

KUEUE = "kueue.x-k8s.io/v1beta2"


def test_the_server_is_the_pinned_kubernetes(plane: ControlPlane) -> None:
    version = plane.admin.request("GET", "/version")
    assert version["gitVersion"] == parts.KUBERNETES.version


def test_kubectl_sees_nodes_of_the_size_and_labels_asked_for(plane: ControlPlane) -> None:
    plane.add_nodes(["gpu-1"], {"cpu": "96", "memory": "1Ti", "nvidia.com/gpu": "8"}, {"zone": "a"})
    command = [str(parts.kubectl()), f"--kubeconfig={plane.kubeconfig}", "get", "nodes", "-l", "zone=a", "-o", "json"]
    listed = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["items"]
    assert [node["metadata"]["name"] for node in listed] == ["gpu-1"]
    assert listed[0]["status"]["allocatable"]["nvidia.com/gpu"] == "8"


def test_a_user_may_only_what_roles_allow(plane: ControlPlane) -> None:
    alice = plane.user("alice", ["researchers"])
    with pytest.raises(ApiError, match="Forbidden"):
        alice.list("v1", "Secret")


def test_a_failing_pod_fails_its_job(plane: ControlPlane) -> None:
    plane.add_nodes(["any"], {"cpu": "4", "memory": "8Gi"})
    plane.admin.create(plain_job("broken", {RUN_FOR: "0s", "test.kyu/exit-code": "3"}))
    finished = plane.admin.until(has("Failed"), "batch/v1", "Job", "broken")
    assert condition(finished, "Failed")["reason"] == "BackoffLimitExceeded"


def test_two_queues_share_a_cohort_and_both_jobs_finish(kueue_plane: ControlPlane) -> None:
    """Team A borrows all of B's quota; B's job waits, says why, and runs when A's has finished."""
    admin = kueue_plane.admin
    admin.apply([flavor("default-flavor", nodeLabels={"pool": "main"}), *team_queues("team-a"), *team_queues("team-b")])
    for team in ("team-a", "team-b"):
        admin.until(has("Active"), KUEUE, "LocalQueue", team)

    admin.create(job("train-a", cpu="8", queue="team-a", namespace="default", backoffLimit=0))
    started = admin.until(lambda found: not found["spec"]["suspend"], "batch/v1", "Job", "train-a")
    done_at_once = {RUN_FOR: "0s"}
    admin.create(job("train-b", cpu="4", queue="team-b", namespace="default", pod_annotations=done_at_once))
    waiting = workload_of(admin, "train-b", "QuotaReserved", "False")

    assert (
        "insufficient unused quota for cpu in flavor default-flavor" in condition(waiting, "QuotaReserved")["message"]
    )
    pending = admin.request("GET", "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/team-b/pendingworkloads")
    assert [item["metadata"]["name"] for item in pending["items"]] == [waiting["metadata"]["name"]]
    assert started["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "main"}
    end_pod(admin, "train-a")
    for name in ("train-a", "train-b"):
        admin.until(has("Complete"), "batch/v1", "Job", name)
        workload_of(admin, name, "Finished", "True")


def test_kueue_converts_its_old_api_version_and_refuses_what_is_invalid(kueue_plane: ControlPlane) -> None:
    admin = kueue_plane.admin
    old: Manifest = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ClusterQueue",
        "metadata": {"name": "old"},
        "spec": {"cohort": "lab", "namespaceSelector": {}},
    }
    admin.create(old)
    assert admin.get(KUEUE, "ClusterQueue", "old")["spec"]["cohortName"] == "lab"
    with pytest.raises(ApiError, match=r"vclusterqueue\.kb\.io"):
        admin.create(cluster_queue_with_bad_selector("refused"))


def test_kueue_without_webhooks_refuses_nothing_and_follows_its_configuration(plane: ControlPlane) -> None:
    kueue.start(plane, {"resources": {"excludeResourcePrefixes": ["example.com/"]}}, webhooks=False)
    admin = plane.admin
    admin.apply(
        [
            flavor("default-flavor", nodeLabels={"pool": "main"}),
            *team_queues("team-a"),
            cluster_queue_with_bad_selector("accepted"),
        ]
    )

    by_hand = workload("by-hand", queue="team-a", cpu="1", namespace="default")
    container = by_hand["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
    container["resources"]["requests"]["example.com/ignored"] = "1"
    admin.create(by_hand)

    admitted = admin.until(has("Admitted"), KUEUE, "Workload", "by-hand")
    assert admitted["status"]["admission"]["podSetAssignments"][0]["flavors"] == {"cpu": "default-flavor"}


def test_yunikorn_starts_a_gang_together_or_not_at_all(yunikorn_plane: ControlPlane) -> None:
    """Three pods that need one CPU each do not start on a node with two; with a second node they all do."""
    admin = yunikorn_plane.admin
    admin.create(gang("ring", members=3))
    admin.until(lambda found: found["status"].get("active") == 3, "batch/v1", "Job", "ring")
    wait_for_placeholders(admin, "ring", 2)
    members = admin.list("v1", "Pod", "default", selector="job-name=ring")
    assert [pod["status"]["phase"] for pod in members] == ["Pending"] * 3
    assert not any(has("PodScheduled")(pod) for pod in members)

    yunikorn_plane.add_nodes(["second"], {"cpu": "2", "memory": "8Gi"})

    admin.until(has("Complete"), "batch/v1", "Job", "ring")


def plain_job(name: str, pod_annotations: dict[str, str]) -> Manifest:
    """Return a Job without a queue."""
    return job(name, cpu="1", namespace="default", backoffLimit=0, pod_annotations=pod_annotations)


def team_queues(team: str) -> list[Manifest]:
    """Return a ClusterQueue with 4 CPUs in the cohort of both teams, and a LocalQueue of the same name."""
    return queues(team, flavor="default-flavor", cohortName="team-ab")


def cluster_queue_with_bad_selector(name: str) -> Manifest:
    """Its schema is right; only Kueue's webhook knows that this label key is none."""
    selector = {"matchLabels": {"not a label": "x"}}
    return {
        "apiVersion": KUEUE,
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {"namespaceSelector": selector},
    }


def workload_of(admin: Client, job_name: str, kind: str, status: str) -> Manifest:
    """The Workload that Kueue made for a Job, once it has this condition."""
    uid = admin.get("batch/v1", "Job", job_name)["metadata"]["uid"]
    path = admin.path(KUEUE, "Workload", None, "default")
    query = {"labelSelector": f"kueue.x-k8s.io/job-uid={uid}"}
    return admin.until_event(lambda event: has(kind, status)(event["object"]), path, query)


def gang(name: str, members: int) -> Manifest:
    """A Job whose pods YuniKorn starts together."""
    group = {"name": "ring", "minMember": members, "minResource": {"cpu": "1"}}
    annotations = {
        RUN_FOR: "0s",
        "yunikorn.apache.org/task-group-name": "ring",
        "yunikorn.apache.org/task-groups": json.dumps([group]),
    }
    manifest = plain_job(name, annotations)
    manifest["spec"] |= {"parallelism": members, "completions": members}
    manifest["spec"]["template"]["metadata"]["labels"] = {"applicationId": name, "queue": "root.default"}
    manifest["spec"]["template"]["spec"]["schedulerName"] = "yunikorn"
    return manifest


def wait_for_placeholders(admin: Client, application: str, wanted: int) -> None:
    """Until so many of the pods by which YuniKorn reserves a gang's room have a node."""
    scheduled: set[str] = set()
    path = admin.path("v1", "Pod", None, "default")
    for event in admin.watch(path, {}, client.PATIENCE_SECONDS):
        name = event["object"]["metadata"]["name"]
        if name.startswith(f"tg-{application}-") and has("PodScheduled")(event["object"]):
            scheduled.add(name)
        if len(scheduled) >= wanted:
            return
    raise client.Timeout(f"only {sorted(scheduled)} of {wanted} placeholders have a node")
