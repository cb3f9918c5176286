"""Batch users cannot run work outside the quota of their queues: the attempts of a hostile user, on a real server."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator

import pytest

from kyu.api.core import Namespace
from kyu.api.kueue import RESOURCE_IN_USE_FINALIZER, ClusterQueue, LocalQueue, Workload
from kyu.api.meta import Json, Key, Kind
from kyu.kinds import table
from kyu.kinds.job import JOB
from kyu.kinds.pod import POD
from kyu.kube import kubeconfig
from kyu.kube.blocking import BlockingClient
from kyu.kube.errors import ApiError
from tests.support.local_kyu import LocalKyu, local_kyu

QUEUE = "kueue.x-k8s.io/queue-name"
CRON_JOB = Kind("batch", "v1", "CronJob", "cronjobs")
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments")
STATEFUL_SET = Kind("apps", "v1", "StatefulSet", "statefulsets")
REPLICA_SET = Kind("apps", "v1", "ReplicaSet", "replicasets")
SLICE = "kueue.x-k8s.io/workload-slice-replacement-for"
NEVER = "2026-01-01T00:00:00Z"
JOB_SET = Kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")


@pytest.fixture(scope="module")
def kyu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKyu]:
    with local_kyu(tmp_path_factory.mktemp("kyu") / "data", "--trust-users", "--cpu", "2") as running:
        for name, queue in (("bare", "main"), ("team", "default")):
            running.client.create(Namespace.KIND, {"metadata": {"name": name}})
            body = {"metadata": {"name": queue, "namespace": name}, "spec": {"clusterQueue": "local"}}
            running.client.create(LocalQueue.KIND, body)
        yield running


@pytest.fixture(scope="module")
def eve(kyu: LocalKyu) -> Iterator[BlockingClient]:
    """Yield a client of a batch user of both namespaces."""
    config = kyu.data / "eve.kubeconfig"
    config.write_text(kyu.kyu("user", "add", "eve", "--namespace", "bare", "--namespace", "team").stdout)
    client = BlockingClient(kubeconfig.load(config))
    yield client
    client.close()


@pytest.fixture(scope="module")
def boss(kyu: LocalKyu) -> Iterator[BlockingClient]:
    """Yield a client of an administrator of queues of one namespace."""
    config = kyu.data / "boss.kubeconfig"
    config.write_text(kyu.kyu("user", "add", "boss", "--namespace", "team", "--role", "batch-admin").stdout)
    client = BlockingClient(kubeconfig.load(config))
    yield client
    client.close()


def pod_spec(cpu: str = "100m", script: str = "sleep 600", grace: int = 0) -> Json:
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["/bin/sh", "-c", script],
        "resources": {"requests": {"cpu": cpu}},
    }
    return {"restartPolicy": "Never", "terminationGracePeriodSeconds": grace, "containers": [container]}


def bodies(name: str) -> dict[Kind, Json]:
    """Return an object of each kind that runs pods, without a queue."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod_spec()}
    served = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    always = copy.deepcopy(served)
    always["template"]["spec"]["restartPolicy"] = "Always"
    job = {"template": {"spec": pod_spec()}}
    specs = {
        POD: pod_spec(),
        JOB: job,
        CRON_JOB: {"schedule": "* * * * *", "jobTemplate": {"spec": job}},
        DEPLOYMENT: always,
        STATEFUL_SET: {**always, "serviceName": name},
        JOB_SET: {"replicatedJobs": [{"name": "a", "template": {"spec": job}}]},
    }
    return {kind: {"metadata": {"name": name}, "spec": spec} for kind, spec in specs.items()}


@pytest.mark.parametrize("kind", list(bodies("x")), ids=lambda kind: kind.kind)
def test_work_without_a_queue_is_refused_or_gets_the_default_queue(
    kyu: LocalKyu, eve: BlockingClient, kind: Kind
) -> None:
    body = bodies("unlabelled")[kind]
    with pytest.raises(ApiError, match="running outside the queues needs the right to bypass localqueues"):
        eve.create(kind, {**body, "metadata": {**body["metadata"], "namespace": "bare"}})
    made = eve.create(kind, {**body, "metadata": {**body["metadata"], "namespace": "team"}})
    job_kind = table.find_kind(kind)
    assert job_kind is not None
    assert job_kind.queue_name(made) == "default"
    eve.delete(kind, Key("team", "unlabelled"))
    # An administrator has the right.
    kyu.client.create(kind, {**body, "metadata": {**body["metadata"], "namespace": "bare"}})
    kyu.client.delete(kind, Key("bare", "unlabelled"))


def running(kyu: LocalKyu, namespace: str, **labels: str) -> list[str]:
    """Return the names of pods with these labels that have a node and are not over."""
    selector = ",".join(f"{name}={value}" for name, value in labels.items())
    pods = kyu.client.list(POD, namespace, labels=selector)
    bound = [pod for pod in pods if (pod.get("spec") or {}).get("nodeName")]
    return sorted(p["metadata"]["name"] for p in bound if p["status"].get("phase") not in ("Succeeded", "Failed"))


def unscheduled(kyu: LocalKyu, namespace: str, name: str) -> str:
    """Return why a pod has no node."""
    found = kyu.client.find(POD, Key(namespace, name)) or {}
    conditions = (found.get("status") or {}).get("conditions") or ()
    return next((c.get("message", "") for c in conditions if (c["type"], c["status"]) == ("PodScheduled", "False")), "")


def queued(name: str, spec: Json, namespace: str = "team", **more: object) -> Json:
    return {"metadata": {"name": name, "namespace": namespace, "labels": {QUEUE: "default"}, **more}, "spec": spec}


def controller(kind: Kind, owner: Json) -> list[Json]:
    meta = owner["metadata"]
    reference = {"apiVersion": kind.api_version, "kind": kind.kind, "name": meta["name"], "uid": meta["uid"]}
    return [{**reference, "controller": True}]


def test_an_owner_reference_exempts_nothing(kyu: LocalKyu, eve: BlockingClient) -> None:
    tiny = eve.create(JOB, queued("tiny", {"template": {"spec": pod_spec()}}))
    kyu.wait("the tiny job runs", lambda: running(kyu, "team", **{"job-name": "tiny"}))
    for kind, spec in ((POD, pod_spec("1")), (JOB, {"template": {"spec": pod_spec("1")}})):
        body = {"metadata": {"name": "child", "namespace": "team", "ownerReferences": controller(JOB, tiny)}}
        with pytest.raises(ApiError, match="only the controller of Job tiny may set or remove it"):
            eve.create(kind, {**body, "spec": spec})
    # Nor does one that comes later, or the removal of one that is there.
    eve.create(JOB, queued("late", {"template": {"spec": pod_spec("2")}}))
    owned = {"metadata": {"ownerReferences": controller(JOB, tiny)}, "spec": {"suspend": False}}
    with pytest.raises(ApiError, match="only the controller of Job tiny"):
        eve.patch(JOB, Key("team", "late"), owned)
    pod = running(kyu, "team", **{"job-name": "tiny"})[0]
    with pytest.raises(ApiError, match="only the controller of Job tiny"):
        eve.patch(POD, Key("team", pod), {"metadata": {"ownerReferences": None}})
    with pytest.raises(ApiError, match="is set by admission"):
        eve.patch(POD, Key("team", pod), {"metadata": {"annotations": {"kueue.x-k8s.io/workload": None}}})
    # A pod owns no other pod's quota.
    owner = eve.create(POD, queued("owner", pod_spec()))
    made = eve.create(POD, queued("owned", pod_spec("2"), ownerReferences=controller(POD, owner)))
    assert {gate["name"] for gate in made["spec"]["schedulingGates"]} >= {"kueue.x-k8s.io/admission"}
    # An owned pod goes with its owner, so it is deleted first.
    for kind, name in ((JOB, "tiny"), (JOB, "late"), (POD, "owned"), (POD, "owner")):
        eve.delete(kind, Key("team", name))


def test_the_children_of_a_job_run_no_more_than_was_admitted(kyu: LocalKyu, eve: BlockingClient) -> None:
    job = {"parallelism": 1, "completions": 8, "completionMode": "NonIndexed", "template": {"spec": pod_spec()}}
    eve.create(JOB_SET, queued("set", {"replicatedJobs": [{"name": "a", "template": {"spec": job}}]}))
    kyu.wait("its pod runs", lambda: running(kyu, "team", **{"job-name": "set-a-0"}))
    eve.patch(JOB, Key("team", "set-a-0"), {"spec": {"parallelism": 4}})

    def waiting() -> list[str]:
        pods = kyu.client.list(POD, "team", labels="job-name=set-a-0")
        return [name for p in pods if unscheduled(kyu, "team", name := p["metadata"]["name"])]

    names = kyu.wait("the others wait", lambda: waiting() if len(waiting()) == 3 else None)
    assert re.search(r"no (pods|cpu) is left of what was admitted", unscheduled(kyu, "team", names[0]))
    assert len(running(kyu, "team", **{"job-name": "set-a-0"})) == 1
    eve.delete(JOB_SET, Key("team", "set"))


def test_a_forged_role_gets_no_more_than_the_role_of_the_group(kyu: LocalKyu, eve: BlockingClient) -> None:
    group = {
        "kueue.x-k8s.io/pod-group-name": "fast",
        "kueue.x-k8s.io/pod-group-total-count": "3",
        "kueue.x-k8s.io/pod-group-fast-admission": "true",
    }
    first = eve.create(POD, queued("fast-0", pod_spec(), annotations=group))
    role = first["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"]
    kyu.wait("the first runs", lambda: "fast-0" in running(kyu, "team"))
    for name in ("fast-1", "fast-2"):
        forged = {**group, "kueue.x-k8s.io/role-hash": role}
        made = eve.create(POD, queued(name, pod_spec("2"), annotations=forged))
        assert made["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"] != role
        kyu.wait(f"{name} goes", lambda name=name: kyu.client.find(POD, Key("team", name)) is None)
    assert [name for name in running(kyu, "team") if name.startswith("fast")] == ["fast-0"]
    eve.delete(POD, Key("team", "fast-0"))


def test_a_wrapper_declares_what_it_wraps(eve: BlockingClient) -> None:
    kind = Kind("workload.codeflare.dev", "v1beta2", "AppWrapper", "appwrappers")
    wrapped = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "in"}}
    spec = {"parallelism": 10, "completions": 10, "template": {"spec": pod_spec()}}
    declared = [{"path": "template.spec.template", "replicas": 1}]
    component = {"template": {**wrapped, "spec": spec}, "podSets": declared}
    with pytest.raises(ApiError, match=r"the wrapped object has template.spec.template: 10"):
        eve.create(kind, queued("wrapper", {"components": [component]}))


@pytest.mark.parametrize("ending", ["deleted", "evicted"])
def test_quota_comes_back_when_the_processes_are_gone(kyu: LocalKyu, eve: BlockingClient, ending: str) -> None:
    spec = pod_spec("2", "trap '' TERM; echo stubborn; while true; do sleep 0.1; done", grace=3600)
    name = f"stubborn-{ending}"
    eve.create(JOB, queued(name, {"template": {"spec": spec}}))
    pod = kyu.wait("it runs", lambda: running(kyu, "team", **{"job-name": name}))[0]
    kyu.wait("it ignores SIGTERM", lambda: "stubborn" in kyu.kyu("logs", "-n", "team", name, check=False).stdout)
    if ending == "deleted":
        eve.delete(JOB, Key("team", name))
    else:
        workload = kyu.workload(name)
        assert workload is not None
        key = Key("team", workload["metadata"]["name"])
        kyu.client.patch(Kind("kueue.x-k8s.io", "v1beta2", "Workload", "workloads"), key, {"spec": {"active": False}})
    kyu.wait("its pod ends", lambda: kyu.client.get(POD, Key("team", pod))["metadata"].get("deletionTimestamp"))
    eve.create(JOB, queued(f"next-{ending}", {"template": {"spec": pod_spec("2", "true")}}))

    def refusal() -> str:
        conditions = ((kyu.workload(f"next-{ending}") or {}).get("status") or {}).get("conditions") or ()
        return next((c["message"] for c in conditions if (c["type"], c["status"]) == ("QuotaReserved", "False")), "")

    kyu.wait("the next one is told why it waits", lambda: "insufficient" in refusal())
    assert running(kyu, "team", **{"job-name": name}) == [pod]
    assert running(kyu, "team", **{"job-name": f"next-{ending}"}) == []
    kyu.client.delete(POD, Key("team", pod), grace_seconds=0)
    kyu.wait_for(f"next-{ending}", "Succeeded")


def test_what_an_administrator_runs_outside_the_queues_is_not_grown_by_others(
    kyu: LocalKyu, eve: BlockingClient
) -> None:
    body = bodies("free")[DEPLOYMENT]
    kyu.client.create(DEPLOYMENT, {**body, "metadata": {"name": "free", "namespace": "bare"}})
    kyu.wait("it runs", lambda: running(kyu, "bare", app="free"))
    for change in ({"spec": {"replicas": 5}}, {"spec": {"template": {"spec": pod_spec("1")}}}):
        with pytest.raises(ApiError, match="bypass localqueues"):
            eve.patch(DEPLOYMENT, Key("bare", "free"), change)
    eve.patch(DEPLOYMENT, Key("bare", "free"), {"metadata": {"labels": {"note": "mine"}}})
    kyu.client.delete(DEPLOYMENT, Key("bare", "free"))


def test_an_administrator_of_a_namespace_admits_nothing(
    kyu: LocalKyu, eve: BlockingClient, boss: BlockingClient
) -> None:
    eve.create(JOB, queued("large", {"template": {"spec": pod_spec("3")}}))
    name = kyu.wait("its Workload", lambda: kyu.workload("large"))["metadata"]["name"]
    condition = {"type": "QuotaReserved", "status": "True", "reason": "x", "message": "", "lastTransitionTime": NEVER}
    for kind, key in (
        (Workload.KIND, Key("team", name)),
        (LocalQueue.KIND, Key("team", "default")),
        (ClusterQueue.KIND, Key("", "local")),
    ):
        with pytest.raises(ApiError, match=f'"boss" cannot patch resource "{kind.plural}/status"'):
            boss.patch(kind, key, {"status": {"conditions": [condition]}}, subresource="status")
    boss.patch(Workload.KIND, Key("team", name), {"spec": {"active": False}})
    eve.delete(JOB, Key("team", "large"))


def test_an_edit_of_a_workload_frees_no_quota(kyu: LocalKyu, eve: BlockingClient, boss: BlockingClient) -> None:
    eve.create(JOB, queued("used", {"template": {"spec": pod_spec()}}))
    kyu.wait("it runs", lambda: running(kyu, "team", **{"job-name": "used"}))
    workload = kyu.workload("used")
    assert workload is not None
    key = Key("team", workload["metadata"]["name"])
    for change, said in (
        ({"metadata": {"finalizers": []}}, "is removed when no pod is left"),
        ({"metadata": {"ownerReferences": []}}, "ownerReferences: Forbidden: cannot be changed while"),
        ({"metadata": {"labels": {"kueue.x-k8s.io/job-uid": "x"}}}, "cannot be changed while the Workload holds quota"),
        ({"metadata": {"annotations": {SLICE: "team/other"}}}, "is set by the controller of the job"),
    ):
        with pytest.raises(ApiError, match=said):
            boss.patch(Workload.KIND, key, change)
    boss.patch(Workload.KIND, key, {"metadata": {"labels": {"note": "mine"}}})
    pod_sets = [{"name": "main", "count": 1, "template": {"spec": pod_spec()}}]
    made = boss.create(Workload.KIND, queued("prebuilt", {"queueName": "default", "podSets": pod_sets}))
    assert made["metadata"]["finalizers"] == [RESOURCE_IN_USE_FINALIZER]
    boss.delete(Workload.KIND, Key("team", "prebuilt"))
    kyu.wait("it goes", lambda: kyu.client.find(Workload.KIND, Key("team", "prebuilt")) is None)
    eve.delete(JOB, Key("team", "used"))


def test_the_quota_of_orphans_comes_back_with_their_end(kyu: LocalKyu, eve: BlockingClient) -> None:
    eve.create(JOB, queued("parent", {"template": {"spec": pod_spec()}}))
    pod = kyu.wait("it runs", lambda: running(kyu, "team", **{"job-name": "parent"}))[0]
    name = (kyu.workload("parent") or {})["metadata"]["name"]
    eve.delete(JOB, Key("team", "parent"), propagation="Orphan")
    kyu.wait("the job is gone", lambda: kyu.client.find(JOB, Key("team", "parent")) is None)
    assert running(kyu, "team", **{"job-name": "parent"}) == [pod]
    workload = kyu.client.get(Workload.KIND, Key("team", name))
    assert workload["status"]["admission"]
    assert "deletionTimestamp" not in workload["metadata"]
    eve.delete(POD, Key("team", pod))
    kyu.wait("its Workload goes", lambda: kyu.client.find(Workload.KIND, Key("team", name)) is None)
