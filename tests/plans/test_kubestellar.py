"""
Placement and dispatch by KubeStellar, on objects in memory. The defects of kueue-ks are each a test here:
a gang is judged as one pod, taints and missing GPUs are ignored, an exact fit counts as none, an empty cluster ends the
process, the selector of the user is overwritten, Workloads without an owner end the process, lost clusters keep quota.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kyu.api.actions import Action, Create, Patch
from kyu.api.clusters.capacity import COST
from kyu.api.clusters.kubestellar import (
    BINDING_POLICY,
    CLUSTER_LABEL,
    COMBINED_STATUS,
    CUSTOM_TRANSFORM,
    PLACED_WORKLOAD,
    WANTED_CLUSTER,
)
from kyu.api.config.config import Configuration
from kyu.api.core import DEFINITION
from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key
from kyu.api.pools import FLAVOR_CLUSTER_LABEL
from kyu.kinds import conditions, table
from kyu.kinds.job import JOB
from kyu.plans.clusters import kubestellar, placement
from kyu.plans.job import lifecycle
from tests.plans.test_capacity_quota import START, metrics
from tests.support.dispatch_world import kueue_object, settings
from tests.support.memory_view import MemoryView

KEY = Key("default", "w")
PYTORCH = "kubeflow.org/v1"


def pod_spec(**fields: Any) -> Json:
    return {"restartPolicy": "Never", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], **fields}


def job(parallelism: int = 1, spec: Json | None = None, **annotations: str) -> Json:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "default", "uid": "uid-j", "annotations": annotations,
                     "labels": {"kueue.x-k8s.io/queue-name": "all"}},
        "spec": {"suspend": True, "parallelism": parallelism, "completions": parallelism,
                 "template": {"spec": spec or pod_spec()}},
    }  # fmt: skip


def workload(of: Json, pod_sets: list[Json], flavor: str = "any", *, at: datetime = START, **status: Any) -> Json:
    owner = {"apiVersion": of["apiVersion"], "kind": of["kind"], "name": "j", "uid": "uid-j", "controller": True}
    assignments = [
        {"name": one["name"], "count": one["count"], "flavors": {"cpu": flavor}, "resourceUsage": {"cpu": "1"}}
        for one in pod_sets
    ]
    reserved = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": ""}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "default", "ownerReferences": [owner]},
        "spec": {"queueName": "all", "podSets": pod_sets},
        "status": {
            "admission": {"clusterQueue": "all", "podSetAssignments": assignments},
            "admissionChecks": [{"name": "ks", "state": "Pending", "message": "", "lastTransitionTime": stamp(at)}],
            "conditions": [{**reserved, "lastTransitionTime": stamp(at)}],
            **status,
        },
    }


def stamp(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()[:19] + "Z"


def world(
    *clusters: Json, of: Json | None = None, flavor: Json | None = None, config: Configuration | None = None
) -> MemoryView:
    one = of or job()
    template = one["spec"]["template"] if one["kind"] == "Job" else pod_spec()
    sets = [{"name": "main", "count": one["spec"].get("parallelism", 1), "template": template}]
    check = kueue_object("AdmissionCheck", "ks", controllerName="kubestellar.io/ks-kueue")
    queue = kueue_object("ClusterQueue", "all", admissionChecksStrategy={"admissionChecks": [{"name": "ks"}]})
    local = kueue_object("LocalQueue", "all", "default", clusterQueue="all")
    flavors = kueue_object("ResourceFlavor", "any", **(flavor or {}))
    return MemoryView([check, queue, local, flavors, one, workload(one, sets), *clusters], config)


def cluster(name: str, *nodes: Json, at: datetime = START, **annotations: str) -> Json:
    made = metrics(name, {"nodes": list(nodes)}, at)
    made["metadata"]["annotations"] |= annotations
    return made


def settle(view: MemoryView, now: datetime = START) -> None:
    job_kind = table.find_kind(JOB)
    assert job_kind is not None
    for _ in range(12):
        planned: list[Action] = placement.plan(view, Key("", "workloads"), now)
        planned += kubestellar.plan(view, KEY, now)
        planned += lifecycle.plan(job_kind, view, Key("default", "j"), now)
        writes = [action for action in planned if isinstance(action, Patch | Create)]
        for action in writes:
            # Plans of one round may have seen the object before the others wrote.
            view.carry_out(Patch(action.ref, action.patch, action.subresource) if isinstance(action, Patch) else action)
        if not writes:
            return
    raise AssertionError("the plans do not settle")


def chosen(view: MemoryView) -> str:
    found = view.find_json(Workload.KIND, KEY)
    assert found is not None
    return str(found["status"].get("clusterName") or "")


def message(view: MemoryView) -> str:
    found = view.find_json(Workload.KIND, KEY)
    assert found is not None
    return str(found["status"]["admissionChecks"][0]["message"])


def the_job(view: MemoryView) -> Json:
    found = view.find_json(JOB, Key("default", "j"))
    assert found is not None
    return found


def test_all_pods_must_fit_in_one_cluster() -> None:
    view = world(
        cluster("large-but-full", {"name": "a", "cpu": 100, "used": {"cpu": 98}}),
        cluster("small", {"name": "a", "cpu": 2}, {"name": "b", "cpu": 1}),
        of=job(3),
    )
    settle(view)
    # An exact fit is a fit.
    assert chosen(view) == "small"
    assert the_job(view)["metadata"]["labels"][CLUSTER_LABEL] == "small"
    assert the_job(view)["spec"]["suspend"] is True
    assert message(view) == "Runs in cluster small"


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ({"name": "a", "cpu": 4, "taints": [{"key": "gone", "effect": "NoSchedule"}]}, "untolerated taint"),
        ({"name": "a", "cpu": 4, "unschedulable": True}, "unschedulable"),
        ({"name": "a", "cpu": 4, "used": {"cpu": "3500m"}}, "Insufficient cpu"),
        ({"name": "a", "memory": "4Gi"}, "Insufficient cpu"),
    ],
)
def test_a_node_that_cannot_run_the_pods_does_not_count(node: Json, why: str) -> None:
    view = world(cluster("east", node), cluster("empty"))
    settle(view)
    assert chosen(view) == ""
    assert CLUSTER_LABEL not in the_job(view)["metadata"]["labels"]
    assert why in message(view)
    assert "empty: " in message(view)


def test_a_missing_gpu_disqualifies() -> None:
    gpu = {"name": "c", "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "2"}}}
    view = world(
        cluster("east", {"name": "a", "cpu": 64}),
        cluster("west", {"name": "a", "cpu": 2, "nvidia.com/gpu": 2, "used": {"cpu": 1}}),
        of=job(spec=pod_spec(containers=[gpu])),
    )
    settle(view)
    assert chosen(view) == "west"


def test_the_labels_of_the_flavor_are_added_to_the_selector_of_the_user() -> None:
    view = world(
        cluster("east", {"name": "a", "cpu": 4, "labels": {"tier": "gold", "disk": "ssd"}}),
        cluster("west", {"name": "a", "cpu": 64, "labels": {"tier": "gold"}}),
        of=job(spec=pod_spec(nodeSelector={"disk": "ssd"})),
        flavor={"nodeLabels": {"tier": "gold"}, "tolerations": [{"key": "spot", "operator": "Exists"}]},
    )
    settle(view)
    assert chosen(view) == "east"
    spec = the_job(view)["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"disk": "ssd", "tier": "gold"}
    assert spec["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    # A copy in a cluster with Kueue must not carry the marks of this one.
    assert "labels" not in (the_job(view)["spec"]["template"].get("metadata") or {})


def test_a_withdrawn_job_is_as_it_was() -> None:
    view = world(
        cluster("east", {"name": "a", "cpu": 4, "labels": {"tier": "gold"}}), flavor={"nodeLabels": {"tier": "gold"}}
    )
    before = the_job(view)
    settle(view)
    found = view.find_json(Workload.KIND, KEY)
    assert found is not None
    evicted = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": "x", "lastTransitionTime": ""}
    found["status"]["conditions"].append(evicted)
    settle(view)
    after = the_job(view)
    assert CLUSTER_LABEL not in after["metadata"]["labels"]
    assert PLACED_WORKLOAD not in after["metadata"]["annotations"]
    assert after["spec"]["template"] == before["spec"]["template"]
    # It ran nowhere, so its quota is free.
    assert not conditions.is_true(view.find_json(Workload.KIND, KEY) or {}, "QuotaReserved")


def test_two_workloads_do_not_count_on_the_same_room() -> None:
    view = world(cluster("east", {"name": "a", "cpu": 1}))
    second = workload(job(), [{"name": "main", "count": 1, "template": {"spec": pod_spec()}}])
    second["metadata"] |= {"name": "second", "ownerReferences": []}
    view.put(second)
    actions = placement.plan(view, Key("", "workloads"), START)
    nominated = [a for a in actions if isinstance(a, Patch) and "nominatedClusterNames" in a.patch["status"]]
    assert len(nominated) == 1


def test_a_wish_is_a_condition() -> None:
    nodes = {"name": "a", "cpu": 4}
    view = world(cluster("east", nodes), cluster("west", {**nodes, "cpu": 1}), of=job(**{WANTED_CLUSTER: "west"}))
    settle(view)
    assert chosen(view) == "west"
    view = world(cluster("east", nodes), of=job(**{WANTED_CLUSTER: "mars"}))
    settle(view)
    assert "mars: there is no such cluster" in message(view)


def test_the_flavor_of_a_cluster_fixes_the_cluster() -> None:
    """A MasterQueue labels the flavors of its clusters, so that a workload goes where its quota is."""
    view = world(cluster("east", {"name": "a", "cpu": 40}), cluster("west", {"name": "a", "cpu": 4}))
    flavor = kueue_object("ResourceFlavor", "any")
    flavor["metadata"]["labels"] = {FLAVOR_CLUSTER_LABEL: "west"}
    view.put(flavor)
    settle(view)
    assert chosen(view) == "west"
    flavor["metadata"]["labels"] = {FLAVOR_CLUSTER_LABEL: "mars"}
    view = world(cluster("east", {"name": "a", "cpu": 40}))
    view.put(flavor)
    settle(view)
    assert "east: its flavor is of another cluster" in message(view)


@pytest.mark.parametrize(("policy", "wanted"), [("Spread", "empty"), ("Pack", "full"), ("Cheapest", "cheap")])
def test_the_policy_prefers_one_of_those_with_room(policy: str, wanted: str) -> None:
    view = world(
        cluster("empty", {"name": "a", "cpu": 8}, **{COST: "3"}),
        cluster("full", {"name": "a", "cpu": 8, "used": {"cpu": 6}}, **{COST: "2"}),
        cluster("cheap", {"name": "a", "cpu": 8, "used": {"cpu": 3}}, **{COST: "1"}),
    )
    check = view.objects["kueue.x-k8s.io", "AdmissionCheck", Key("", "ks")]
    check["metadata"]["annotations"] = {placement.POLICY: policy}
    settle(view)
    assert chosen(view) == wanted


def test_quota_without_room_is_given_back_after_a_while() -> None:
    view = world(cluster("east", {"name": "a", "cpu": 1}), of=job(3))
    settle(view)
    assert "1 of 3 pod(s) would fit" in message(view)
    view.put(cluster("east", {"name": "a", "cpu": 1}, at=START + timedelta(seconds=60)))
    settle(view, START + timedelta(seconds=60))
    found = view.find_json(Workload.KIND, KEY)
    assert found is not None
    assert found["status"]["admissionChecks"][0]["state"] == "Retry"


def test_a_lost_cluster_is_left() -> None:
    view = world(cluster("east", {"name": "a", "cpu": 1}), config=settings(workerLostTimeout="60s"))
    settle(view)
    assert chosen(view) == "east"
    settle(view, START + timedelta(seconds=89))
    assert chosen(view) == "east"
    settle(view, START + timedelta(seconds=90))
    found = view.find_json(Workload.KIND, KEY)
    assert found is not None
    assert found["status"]["admissionChecks"][0]["state"] == "Retry"
    assert CLUSTER_LABEL not in the_job(view)["metadata"]["labels"]


def test_a_silent_cluster_gets_nothing() -> None:
    view = world(cluster("east", {"name": "a", "cpu": 9}), cluster("west", {"name": "a", "cpu": 1}))
    view.put(cluster("west", {"name": "a", "cpu": 1}, at=START + timedelta(seconds=40)))
    settle(view, START + timedelta(seconds=40))
    assert chosen(view) == "west"


def test_the_cluster_that_another_controller_chose_is_kept() -> None:
    view = world(cluster("east", {"name": "a", "cpu": 9}), cluster("west", {"name": "a", "cpu": 1}))
    the_job(view)["metadata"]["labels"][CLUSTER_LABEL] = "west"
    # Its placement may come at the same time as ours.
    for action in kubestellar.plan(view, KEY, START):
        view.carry_out(action)
    settle(view)
    assert chosen(view) == "west"


def test_a_workload_without_a_job_is_rejected() -> None:
    view = world(cluster("east", {"name": "a", "cpu": 9}))
    found = view.find_json(Workload.KIND, KEY)
    assert found is not None
    found["metadata"]["ownerReferences"] = []
    (patch,) = kubestellar.plan(view, KEY, START)
    assert isinstance(patch, Patch)
    assert patch.patch["status"]["admissionChecks"][0]["state"] == "Rejected"


def definition(kind: Any) -> Json:
    meta = {"name": f"{kind.plural}.{kind.group}"}
    return {"apiVersion": DEFINITION.api_version, "kind": DEFINITION.kind, "metadata": meta}


def test_a_cluster_that_reports_gets_a_policy_once_kubestellar_is_there() -> None:
    view = world(cluster("east", {"name": "a", "cpu": 9}))
    assert kubestellar.plan_policy(view, Key("", "east"), START) == []
    view.put(definition(BINDING_POLICY))
    (made,) = kubestellar.plan_policy(view, Key("", "east"), START)
    assert isinstance(made, Create)
    spec = made.body["spec"]
    assert spec["clusterSelectors"] == [{"matchLabels": {"location-group": "edge", "name": "east"}}]
    assert spec["wantSingletonReportedState"] is spec["downsync"][0]["wantSingletonReportedState"] is True
    view.carry_out(made)
    assert kubestellar.plan_policy(view, Key("", "east"), START) == []


def test_the_status_may_come_from_a_combined_status() -> None:
    view = world(cluster("east", {"name": "a", "cpu": 9}))
    settle(view)
    labels = {"api-group": "batch", "resource": "jobs", "namespace": "default", "name": "j", "binding-policy": "east"}
    row = [{"type": "String", "string": "east"}, {"type": "Object", "object": {"active": 1, "ready": 1}}]
    result = {"name": "jobs-status-aggregator", "columnNames": ["wec", "status"], "rows": [{"columns": row}]}
    view.put({
        "apiVersion": COMBINED_STATUS.api_version,
        "kind": COMBINED_STATUS.kind,
        "metadata": {"name": "uid-j.policy", "namespace": "default",
                     "labels": {f"status.kubestellar.io/{name}": value for name, value in labels.items()}},
        "results": [result],
    })  # fmt: skip
    (patch,) = kubestellar.plan_combined_status(view, Key("default", "uid-j.policy"), START)
    view.carry_out(patch)
    assert the_job(view)["status"] == {"active": 1, "ready": 1}
    assert kubestellar.plan_combined_status(view, Key("default", "uid-j.policy"), START) == []
    # Where KubeStellar writes the status into the job, this does not.
    view.put({"apiVersion": BINDING_POLICY.api_version, "kind": BINDING_POLICY.kind, "metadata": {"name": "east"},
              "spec": {"downsync": [{"wantSingletonReportedState": True}]}})  # fmt: skip
    result["rows"] = [{"columns": [row[0], {"type": "Object", "object": {"active": 0}}]}]
    assert kubestellar.plan_combined_status(view, Key("default", "uid-j.policy"), START) == []


def test_other_kinds_lose_their_suspension_by_a_transform() -> None:
    view = world(cluster("east", {"name": "a", "cpu": 9}))
    kind = next(one for one in table.KINDS if one.kind.kind == "PyTorchJob")
    assert kubestellar.transform(view, kind) == []
    view.put(definition(CUSTOM_TRANSFORM))
    (made,) = kubestellar.transform(view, kind)
    assert isinstance(made, Create)
    wanted = {"apiGroup": "kubeflow.org", "resource": "pytorchjobs", "remove": ["$.spec.runPolicy.suspend"]}
    assert made.body["spec"] == wanted
    view.carry_out(made)
    assert kubestellar.transform(view, kind) == []


def test_the_check_has_the_conditions_of_kueue_ks() -> None:
    view = world()
    (patch,) = kubestellar.plan_check(view, Key("", "ks"), START)
    view.carry_out(patch)
    check = view.objects["kueue.x-k8s.io", "AdmissionCheck", Key("", "ks")]
    found = {one["type"]: one["status"] for one in check["status"]["conditions"]}
    assert found == {"Active": "True", "SingleInstanceInClusterQueue": "True", "FlavorIndependent": "True"}
    assert kubestellar.plan_check(view, Key("", "ks"), START) == []


def test_a_multikueue_check_is_placed_if_the_dispatcher_says_so() -> None:
    def hub(dispatcher: str) -> MemoryView:
        view = world(
            cluster("east", {"name": "a", "cpu": 1}),
            cluster("west", {"name": "a", "cpu": 9}),
            cluster("south", {"name": "a", "cpu": 99}),
            of=job(3),
            config=settings(dispatcherName=dispatcher),
        )
        config = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"}
        controller = "kueue.x-k8s.io/multikueue"
        view.put(kueue_object("AdmissionCheck", "ks", controllerName=controller, parameters=config))
        view.put(kueue_object("MultiKueueConfig", "all", clusters=["east", "west"]))
        active = {"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": ""}
        for name in ("east", "west"):
            source = {"kubeConfig": {"location": name}}
            made = kueue_object("MultiKueueCluster", name, clusterSource=source)
            view.put({**made, "status": {"conditions": [active]}})
        return view

    assert placement.plan(hub("example.com/mine"), Key("", "workloads"), START) == []
    (patch,) = placement.plan(hub(placement.DISPATCHER), Key("", "workloads"), START)
    assert isinstance(patch, Patch)
    assert patch.patch["status"]["nominatedClusterNames"] == ["west"]
