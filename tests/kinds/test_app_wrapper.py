"""An AppWrapper without its operator: its phase and conditions follow from the objects in it; who goes at the end."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kyu.api.meta import Json
from kyu.kinds import table
from tests.support.manifests import job

NOW = datetime(2026, 1, 1, tzinfo=UTC)
COMPLETE = {"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}
FAILED = {"conditions": [{"type": "Failed", "status": "True"}]}
READY = {"active": 1, "ready": 1}


def wrapper(status: Json | None = None, *, suspend: bool = False) -> Json:
    """It wraps two Jobs."""
    components = [{"template": job(name)} for name in ("a", "b")]
    meta = {"name": "w", "namespace": "team", "uid": "u"}
    spec = {"suspend": suspend, "components": components}
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": meta,
        "spec": spec,
        "status": status or {},
    }


KIND = table.find(wrapper())
assert KIND is not None


@pytest.mark.parametrize(
    ("children", "phase", "deployed", "ready"),
    [
        ([], "Resuming", True, False),
        ([job("a", status=READY)], "Resuming", True, False),
        ([job("a", status=READY), job("b")], "Running", True, False),
        ([job("a", status=READY), job("b", status=READY)], "Running", True, True),
        ([job("a", status=COMPLETE)], "Resuming", True, False),
        ([job("a", status=COMPLETE), job("b", status=READY)], "Running", True, True),
        ([job("a", status=COMPLETE), job("b", status=COMPLETE)], "Succeeded", False, False),
        ([job("a", status=COMPLETE), job("b", status=FAILED)], "Failed", False, False),
        ([job("a", status=FAILED)], "Failed", False, False),
    ],
)
def test_its_phase_follows_from_what_it_wraps(children: list[Json], phase: str, *, deployed: bool, ready: bool) -> None:
    status = KIND.status_of(wrapper(), children, NOW)
    holds = {c["type"]: c["status"] == "True" for c in status["conditions"]}
    assert (status["phase"], holds["QuotaReserved"], holds["PodsReady"]) == (phase, deployed, ready)


def test_while_suspended_it_holds_quota_as_long_as_something_is_there() -> None:
    for children, deployed in (([job("a")], "True"), ([], "False")):
        status = KIND.status_of(wrapper(suspend=True), children, NOW)
        assert status["phase"] == "Suspended"
        assert {c["type"]: c["status"] for c in status["conditions"]}["QuotaReserved"] == deployed


def test_what_still_runs_goes_when_it_has_failed_and_nothing_when_it_has_succeeded() -> None:
    children = [job("a", status=FAILED), job("b", status=READY)]
    assert [ref.key.name for ref in KIND.surplus_children(wrapper({"phase": "Failed"}), children)] == ["b"]
    assert KIND.surplus_children(wrapper({"phase": "Succeeded"}), children) == []
    assert KIND.surplus_children(wrapper(), children) == []
    assert len(KIND.surplus_children(wrapper(suspend=True), children)) == 2


def test_a_component_may_say_where_its_pods_are() -> None:
    obj = wrapper()
    other = {"apiVersion": "example.com/v1", "kind": "Gang", "spec": {"groups": [{}, {"pod": {"spec": {}}}]}}
    obj["spec"]["components"] = [
        {"template": other, "podSets": [{"path": "template.spec.groups[1].pod", "replicas": 3}]}
    ]
    assert [(s.template[-4:], s.count) for s in KIND.slots(obj)] == [(("spec", "groups", 1, "pod"), 3)]


@pytest.mark.parametrize(
    ("wrapped", "declared", "refused"),
    [
        ({"kind": "Job", "apiVersion": "batch/v1", "spec": {"parallelism": 10}}, None, ""),
        ({"kind": "Job", "apiVersion": "batch/v1", "spec": {"parallelism": 10}}, 10, ""),
        ({"kind": "Job", "apiVersion": "batch/v1", "spec": {"parallelism": 10}}, 1, "template.spec.template: 10"),
        ({"kind": "ReplicaSet", "apiVersion": "apps/v1", "spec": {"replicas": 10}}, 1, "template.spec.template: 10"),
        ({"kind": "Deployment", "apiVersion": "apps/v1", "spec": {"replicas": 10}}, 1, "template.spec.template: 10"),
        ({"kind": "Unknown", "apiVersion": "example.com/v1", "spec": {"replicas": 10}}, 1, ""),
        ({"kind": "TrainJob", "apiVersion": "trainer.kubeflow.org/v1alpha1"}, None, "follow from another object"),
    ],
)
def test_declared_pod_sets_are_those_of_the_wrapped_object(wrapped: Json, declared: int | None, refused: str) -> None:
    template = {"spec": {"containers": [{"name": "main"}]}}
    component: Json = {"template": {**wrapped, "spec": {**wrapped.get("spec", {}), "template": template}}}
    if declared is not None:
        component["podSets"] = [{"path": "template.spec.template", "replicas": declared}]
    obj = wrapper()
    obj["spec"]["components"].append(component)
    assert KIND is not None
    found = KIND.own_errors(obj, None)
    assert (refused in str(found[0])) if refused else not found
