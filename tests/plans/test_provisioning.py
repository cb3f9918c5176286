"""The check that asks a cluster autoscaler: which request it makes, what it takes from the answer, when it stops."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kyu.api.config import file
from kyu.api.meta import Json, Key
from kyu.plans.provisioning import requests as provisioning
from tests.support.manifests import condition
from tests.support.memory_view import MemoryView, merged

NOW = datetime(2026, 1, 1, 10, tzinfo=UTC)
KUEUE = "kueue.x-k8s.io/v1beta2"
WORKLOAD = Key("team", "wl")
ASSIGNED = {"name": "main", "count": 2, "flavors": {"cpu": "spot"}}


def pod_set(name: str, image: str = "i", **resources: Any) -> Json:
    container = {"name": "c", "image": image, "resources": resources or {"requests": {"cpu": 1}}}
    return {"name": name, "count": 3, "template": {"spec": {"containers": [container]}}}


def objects(pod_sets: list[Json] | None = None, assigned: list[Json] | None = None, **config: Any) -> list[Json]:
    """A workload with quota and one check, that check, its config and the flavor."""
    spec = {"provisioningClassName": "queued", **config}
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "config"}
    return [
        {
            "apiVersion": KUEUE,
            "kind": "ResourceFlavor",
            "metadata": {"name": "spot"},
            "spec": {"nodeLabels": {"s": "1"}},
        },
        {"apiVersion": KUEUE, "kind": "ProvisioningRequestConfig", "metadata": {"name": "config"}, "spec": spec},
        {
            "apiVersion": KUEUE,
            "kind": "AdmissionCheck",
            "metadata": {"name": "nodes"},
            "spec": {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters},
        },
        {
            "apiVersion": KUEUE,
            "kind": "Workload",
            "metadata": {
                "name": "wl",
                "namespace": "team",
                "annotations": {"provreq.kueue.x-k8s.io/zone": "b", "x": "y"},
            },
            "spec": {"queueName": "q", "podSets": pod_sets or [pod_set("main")]},
            "status": {
                "conditions": [condition("QuotaReserved")],
                "admission": {"clusterQueue": "main", "podSetAssignments": assigned or [ASSIGNED]},
                "admissionChecks": [{"name": "nodes", "state": "Pending", "message": "", "lastTransitionTime": "t"}],
            },
        },
    ]


def run(view: MemoryView, now: datetime = NOW) -> None:
    for action in provisioning.plan(view, WORKLOAD, now):
        view.carry_out(action)


def requests(view: MemoryView) -> dict[str, Json]:
    return {obj["metadata"]["name"]: obj for obj in view.list_json(provisioning.REQUEST)}


def check(view: MemoryView) -> Json:
    (found,) = view.objects["kueue.x-k8s.io", "Workload", WORKLOAD]["status"]["admissionChecks"]
    return found


def change(view: MemoryView, status: Json) -> None:
    view.put(merged(view.objects["kueue.x-k8s.io", "Workload", WORKLOAD], {"status": status}))


def answer(view: MemoryView, *conditions: Json, **status: Any) -> None:
    """The autoscaler says this about the newest request."""
    newest = max(requests(view).values(), key=provisioning.attempt_of)
    view.put(merged(newest, {"status": {"conditions": list(conditions), **status}}))
    run(view)


def asked(**config: Any) -> MemoryView:
    view = MemoryView(objects(**config))
    run(view)
    return view


# The request


def test_a_request_says_which_pods_must_fit_on_which_nodes() -> None:
    view = asked(parameters={"limit": "5"})
    (name, request), *others = requests(view).items()
    assert (name, others) == ("wl-nodes-1", [])
    assert request["spec"] == {
        "provisioningClassName": "queued",
        "parameters": {"limit": "5", "zone": "b"},
        "podSets": [{"count": 2, "podTemplateRef": {"name": "ppt-wl-nodes-1-main"}}],
    }
    (template,) = view.list_json(provisioning.POD_TEMPLATE)
    assert template["metadata"]["name"] == "ppt-wl-nodes-1-main"
    assert template["template"]["spec"]["nodeSelector"] == {"s": "1"}
    assert [o["name"] for o in request["metadata"]["ownerReferences"]] == ["wl"]
    run(view)
    assert list(requests(view)) == ["wl-nodes-1"]


def test_limits_stand_in_for_requests_in_its_templates() -> None:
    view = MemoryView(objects([pod_set("main", limits={"cpu": 2, "memory": 4}, requests={"cpu": 1})]))
    run(view)
    (template,) = view.list_json(provisioning.POD_TEMPLATE)
    assert template["template"]["spec"]["containers"][0]["resources"]["requests"] == {"cpu": 1, "memory": 4}


@pytest.mark.parametrize(
    ("policy", "images", "counts"),
    [
        (None, "ii", [2, 2]),
        ("IdenticalPodTemplates", "ii", [4]),
        ("IdenticalPodTemplates", "ij", [2, 2]),
        ("IdenticalWorkloadSchedulingRequirements", "ij", [4]),
    ],
)
def test_pod_sets_that_are_alike_may_share_an_entry(policy: str | None, images: str, counts: list[int]) -> None:
    names = ("first", "second")
    pod_sets = [pod_set(name, image) for name, image in zip(names, images, strict=True)]
    config = {"podSetMergePolicy": policy} if policy else {}
    view = MemoryView(objects(pod_sets, [{**ASSIGNED, "name": name} for name in names], **config))
    run(view)
    (request,) = requests(view).values()
    assert [entry["count"] for entry in request["spec"]["podSets"]] == counts


def test_other_requests_are_no_share_of_an_entry() -> None:
    pod_sets = [pod_set("first"), pod_set("second", requests={"cpu": 2})]
    assigned = [{**ASSIGNED, "name": name} for name in ("first", "second")]
    view = MemoryView(objects(pod_sets, assigned, podSetMergePolicy="IdenticalWorkloadSchedulingRequirements"))
    run(view)
    (request,) = requests(view).values()
    assert len(request["spec"]["podSets"]) == 2


@pytest.mark.parametrize("kind", ["requests", "limits"])
def test_only_pods_that_use_what_is_managed_are_asked_for(kind: str) -> None:
    pod_sets = [pod_set("plain"), pod_set("gpu", **{kind: {"example.com/gpu": 1}})]
    assigned = [{**ASSIGNED, "name": name} for name in ("plain", "gpu")]
    view = MemoryView(objects(pod_sets, assigned, managedResources=["example.com/gpu"]))
    run(view)
    (request,) = requests(view).values()
    assert [entry["podTemplateRef"]["name"] for entry in request["spec"]["podSets"]] == ["ppt-wl-nodes-1-gpu"]


def test_where_nothing_has_to_be_provisioned_the_check_is_ready() -> None:
    view = asked(managedResources=["example.com/gpu"])
    assert (requests(view), check(view)["state"]) == ({}, "Ready")


def test_a_request_that_does_not_fit_its_config_any_more_is_made_again() -> None:
    view = asked(parameters={"limit": "5"})
    config = view.objects["kueue.x-k8s.io", "ProvisioningRequestConfig", Key("", "config")]
    view.put(merged(config, {"spec": {"parameters": {"limit": "6"}}}))
    run(view)
    assert requests(view) == {}
    run(view)
    assert requests(view)["wl-nodes-1"]["spec"]["parameters"] == {"limit": "6", "zone": "b"}


def test_without_its_config_the_check_waits() -> None:
    view = MemoryView([obj for obj in objects() if obj["kind"] != "ProvisioningRequestConfig"])
    run(view)
    assert (requests(view), check(view)["state"]) == ({}, "Pending")
    assert "not active" in check(view)["message"]


def test_long_names_end_in_a_hash_of_the_whole() -> None:
    name = "x" * 300
    assert provisioning.limited("x" * 247) == "x" * 247
    assert len(provisioning.limited(name)) == 253
    assert provisioning.limited(name)[:248] == "x" * 247 + "-"
    assert provisioning.limited(name) != provisioning.limited(name + "y")


# The answer


def test_accepted_is_told_with_what_is_expected() -> None:
    view = asked()
    answer(view, condition("Accepted"), condition("Provisioned", "False", message="in ten minutes"))
    assert (check(view)["state"], check(view)["message"]) == ("Pending", "in ten minutes")


def test_provisioned_makes_it_ready_and_tells_the_pods_where_to_go() -> None:
    details = {"pool": "p-1"}
    selector = [
        {"key": "node-pool", "valueFromProvisioningClassDetail": "pool"},
        {"key": "other", "valueFromProvisioningClassDetail": "missing"},
    ]
    view = asked(podSetUpdates={"nodeSelector": selector})
    answer(view, condition("Accepted"), condition("Provisioned"), provisioningClassDetails=details)
    assert check(view)["state"] == "Ready"
    (update,) = check(view)["podSetUpdates"]
    assert update == {
        "name": "main",
        "annotations": {
            "autoscaling.x-k8s.io/consume-provisioning-request": "wl-nodes-1",
            "autoscaling.x-k8s.io/provisioning-class-name": "queued",
        },
        "nodeSelector": {"node-pool": "p-1"},
    }


@pytest.mark.parametrize(("retries", "delay"), [(0, 60), (1, 120), (2, 200)])
def test_a_failure_is_tried_again_after_a_growing_delay(retries: int, delay: int) -> None:
    view = MemoryView(objects(retryStrategy={"backoffLimitCount": 3, "backoffMaxSeconds": 200}))
    change(view, {"admissionChecks": [{**check(view), "retryCount": retries}]})
    run(view)
    assert list(requests(view)) == [f"wl-nodes-{retries + 1}"]
    answer(view, condition("Failed", message="no nodes"))
    assert (check(view)["state"], check(view)["requeueAfterSeconds"]) == ("Retry", delay)
    assert "no nodes" in check(view)["message"]


def test_a_failure_too_many_rejects() -> None:
    view = MemoryView(objects(retryStrategy={"backoffLimitCount": 1}))
    change(view, {"admissionChecks": [{**check(view), "retryCount": 1}]})
    run(view)
    answer(view, condition("Failed"))
    assert check(view)["state"] == "Rejected"


@pytest.mark.parametrize(
    ("word", "admitted", "state"),
    [
        ("BookingExpired", False, "Retry"),
        ("BookingExpired", True, "Ready"),
        ("CapacityRevoked", False, "Rejected"),
        ("CapacityRevoked", True, "Rejected"),
    ],
)
def test_what_is_taken_back(word: str, admitted: bool, state: str) -> None:
    """A booking is used up once the workload is admitted; capacity may be revoked under running pods."""
    view = asked()
    if admitted:
        change(view, {"conditions": [condition("QuotaReserved"), condition("Admitted")]})
    answer(view, condition("Provisioned"), condition(word))
    assert check(view)["state"] == state


# The end


@pytest.mark.parametrize("admitted", [False, True])
def test_an_eviction_ends_its_requests_and_takes_nothing_from_them(admitted: bool) -> None:
    """Its check starts over: what was provisioned for the last round says nothing about the next."""
    view = asked()
    held = [condition("QuotaReserved"), *([condition("Admitted")] if admitted else [])]
    change(view, {"conditions": [*held, condition("Evicted")]})
    answer(view, condition("Provisioned"))
    assert (requests(view), check(view)["state"]) == ({}, "Pending")


def test_without_the_gate_requests_outlive_an_eviction() -> None:
    gates = {"featureGates": {"CleanupProvisioningRequestsOnEviction": False}}
    document = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **gates}
    view = MemoryView(objects(), file.load(document).configuration)
    run(view)
    change(view, {"conditions": [condition("QuotaReserved"), condition("Evicted")]})
    answer(view, condition("Provisioned"))
    assert (list(requests(view)), check(view)["state"]) == (["wl-nodes-1"], "Pending")


def test_a_finished_workload_needs_no_request() -> None:
    view = asked()
    change(view, {"conditions": [condition("QuotaReserved"), condition("Finished")]})
    run(view, NOW + timedelta(minutes=1))
    assert requests(view) == {}


def test_without_quota_there_is_nothing_to_ask_for() -> None:
    view = MemoryView(objects())
    change(view, {"conditions": [condition("QuotaReserved", "False")], "admission": None})
    run(view)
    assert requests(view) == {}


@pytest.mark.parametrize(("kept", "active"), [(True, "True"), (False, "False")])
def test_the_check_is_active_while_its_config_is_there(kept: bool, active: str) -> None:
    view = MemoryView([obj for obj in objects() if kept or obj["kind"] != "ProvisioningRequestConfig"])
    for action in provisioning.plan_check(view, Key("", "nodes"), NOW):
        view.carry_out(action)
    (found,) = view.objects["kueue.x-k8s.io", "AdmissionCheck", Key("", "nodes")]["status"]["conditions"]
    assert (found["type"], found["status"]) == ("Active", active)
