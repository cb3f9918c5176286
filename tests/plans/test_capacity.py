"""The built-in answer to ProvisioningRequests of class check-capacity: what the nodes really have free."""

from __future__ import annotations

from datetime import UTC, datetime

from kyu.api.meta import Json, Key
from kyu.plans.provisioning import capacity
from kyu.plans.provisioning.requests import CONSUMED_REQUEST, REQUEST
from tests.support.manifests import node, pod, pod_spec
from tests.support.memory_view import MemoryView

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def request(name: str, cpu: str, count: int = 1, **parameters: str) -> list[Json]:
    """A request with its template."""
    meta = {"name": name, "namespace": "team", "creationTimestamp": "2026-01-01T00:00:00Z"}
    template = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {**meta}, "template": {"spec": pod_spec(cpu)}}
    wanted: Json = {
        "provisioningClassName": capacity.CLASS,
        "podSets": [{"count": count, "podTemplateRef": {"name": name}}],
        "parameters": parameters,
    }
    return [template, {"apiVersion": REQUEST.api_version, "kind": REQUEST.kind, "metadata": meta, "spec": wanted}]


def answer(view: MemoryView, name: str) -> dict[str, Json]:
    """Plan until nothing changes; the conditions of the request, by type."""
    for _ in range(5):
        actions = capacity.plan(view, Key("", "requests"), NOW)
        for action in actions:
            view.carry_out(action)
        if not actions:
            found = view.find_json(REQUEST, Key("team", name))
            assert found is not None
            return {c["type"]: c for c in found.get("status", {}).get("conditions", ())}
    raise AssertionError("the plan does not come to an end")


def test_pods_that_fit_are_provisioned() -> None:
    view = MemoryView([node("a", cpu="2"), node("b", cpu="2"), *request("r", "1", 4)])
    found = answer(view, "r")
    assert found["Accepted"]["status"] == "True"
    assert (found["Provisioned"]["status"], found["Provisioned"]["reason"]) == ("True", "CapacityIsFound")


def test_a_sum_that_would_fit_on_no_single_node_is_refused_with_the_reason() -> None:
    view = MemoryView([node("a", cpu="2"), node("b", cpu="2"), *request("r", "1500m", 3)])
    found = answer(view, "r")
    assert (found["Provisioned"]["status"], found["Provisioned"]["reason"]) == ("False", "CapacityIsNotFound")
    expected = "2 of 3 pod(s) would fit: 0/2 nodes are available: 2 Insufficient cpu."
    assert found["Provisioned"]["message"] == expected


def test_running_pods_take_their_part_and_give_it_back() -> None:
    view = MemoryView([node("a", cpu="2"), pod("busy", cpu="1500m", node="a", phase="Running"), *request("r", "1")])
    assert answer(view, "r")["Provisioned"]["status"] == "False"
    view.put(pod("busy", cpu="1500m", node="a", phase="Succeeded"))
    assert answer(view, "r")["Provisioned"]["status"] == "True"


def test_what_was_promised_is_not_promised_again() -> None:
    view = MemoryView([node("a", cpu="2"), *request("first", "1500m")])
    assert answer(view, "first")["Provisioned"]["status"] == "True"
    for obj in request("second", "1"):
        view.put(obj)
    assert answer(view, "second")["Provisioned"]["status"] == "False"


def test_a_promise_that_is_used_counts_once() -> None:
    view = MemoryView([node("a", cpu="2"), *request("first", "500m", 2)])
    answer(view, "first")
    for position in range(2):
        consumer = {"annotations": {CONSUMED_REQUEST: "first"}}
        view.put(pod(f"p-{position}", cpu="500m", node="a", phase="Running", metadata=consumer))
    for obj in request("second", "1"):
        view.put(obj)
    assert answer(view, "second")["Provisioned"]["status"] == "True"


def test_a_request_that_does_not_fit_leaves_the_room_to_others() -> None:
    view = MemoryView([node("a", cpu="2"), *request("large", "1500m", 2), *request("small", "2")])
    assert answer(view, "small")["Provisioned"]["status"] == "True"


def test_without_retry_it_fails() -> None:
    view = MemoryView([node("a", cpu="2"), *request("r", "3", noRetry="true")])
    found = answer(view, "r")
    assert (found["Failed"]["status"], found["Failed"]["reason"]) == ("True", "CapacityIsNotFound")


def test_other_classes_are_left_to_others() -> None:
    template, body = request("r", "1")
    body["spec"]["provisioningClassName"] = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
    assert answer(MemoryView([node("a", cpu="2"), template, body]), "r") == {}
