"""Pods that are stuck on a node that cannot be reached: which are deleted by force, and when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kyu.api.actions import Delete, WakeAt
from kyu.api.config.config import Configuration
from kyu.api.meta import Json, Key
from kyu.kinds.pod import POD
from kyu.plans.workload import failure_recovery
from tests.support import manifests
from tests.support.memory_view import MemoryView

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
KEY = Key("team", "stuck")
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
GATE = Configuration(feature_gates={"FailureRecoveryPolicy": True})


def view_of(
    *,
    taint: Json | None = UNREACHABLE,
    allowed: str = "true",
    phase: str = "Running",
    age: int = 90,
    settings: Configuration = GATE,
) -> MemoryView:
    deleted = (NOW - timedelta(seconds=age)).isoformat().replace("+00:00", "Z")
    meta = {
        "annotations": {"kueue.x-k8s.io/safe-to-forcefully-delete": allowed},
        "deletionTimestamp": deleted,
        "deletionGracePeriodSeconds": 30,
        "finalizers": ["kueue.x-k8s.io/managed"],
    }
    pod = manifests.pod(KEY.name, node="a", phase=phase, metadata=meta)
    node = manifests.node("a")
    node["spec"] = {"taints": [taint] if taint else []}
    return MemoryView([pod, node], settings)


@pytest.mark.parametrize(("phase", "end"), [("Running", "Failed"), ("Succeeded", "Succeeded")])
def test_a_pod_that_allows_it_is_ended_and_deleted(phase: str, end: str) -> None:
    view = view_of(phase=phase)
    actions = failure_recovery.plan(view, KEY, NOW)
    view.carry_out(actions[0])
    pod = view.find_json(POD, KEY)
    assert pod is not None
    assert pod["status"]["phase"] == end
    (condition,) = (each for each in pod["status"]["conditions"] if each["type"] == "KueueFailureRecovery")
    assert condition["message"] == (
        "Pod forcefully terminated after 1m30s grace period due to unreachable node `a` "
        "(triggered by `kueue.x-k8s.io/safe-to-forcefully-delete` annotation)"
    )
    assert isinstance(actions[-1], Delete)
    assert actions[-1].grace_seconds == 0


@pytest.mark.parametrize("view", [view_of(taint=None), view_of(allowed="false")])
def test_other_pods_are_left_alone(view: MemoryView) -> None:
    assert failure_recovery.plan(view, KEY, NOW) == []


def test_the_node_has_a_minute_to_come_back() -> None:
    assert failure_recovery.plan(view_of(age=20), KEY, NOW) == [WakeAt(NOW + timedelta(seconds=40))]


def test_the_gate_is_off_by_default() -> None:
    assert failure_recovery.plan(view_of(settings=Configuration()), KEY, NOW) == []
