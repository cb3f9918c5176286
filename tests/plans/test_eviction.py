"""How a Workload loses its quota and gets it again: what each write says, and what it leaves for the next round."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kyu.api import codec
from kyu.api.config.config import Configuration
from kyu.api.config.features import DEFAULT_GATES
from kyu.api.kueue import ClusterQueue, Workload
from kyu.api.meta import Json, Key
from kyu.engine.decisions import Admit, Preempt, Wait
from kyu.engine.reasons import Untried
from kyu.engine.topology.types import Domain, Placement
from kyu.engine.workloads import AssignedPodSet
from kyu.plans.queues import activity
from kyu.plans.status import StatusEdit
from kyu.plans.workload import admission, checks
from kyu.plans.workload.eviction import clear_reservation, evict, release
from kyu.plans.workload.lifecycle import plan as plan_workload
from tests.support.manifests import condition
from tests.support.memory_view import MemoryView

NOW = datetime(2026, 1, 1, 10, tzinfo=UTC)
EARLIER, LATER = "2026-01-01T09:00:00Z", "2026-01-01T10:00:00Z"
KUEUE = "kueue.x-k8s.io/v1beta2"


def workload(*conditions: Json, metadata: Json | None = None, **status: Any) -> Json:
    held = {"clusterQueue": "main", "podSetAssignments": [{"name": "main", "count": 1, "flavors": {"cpu": "f"}}]}
    return {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {"name": "wl", "namespace": "team", "uid": "u", **(metadata or {})},
        "spec": {"queueName": "q", "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": []}}}]},
        "status": {"admission": held, "conditions": list(conditions), **status},
    }


def typed(obj: Json) -> Workload:
    return codec.decode_as(Workload, obj)


def conditions(edit: StatusEdit) -> dict[str, str]:
    return {c["type"]: f"{c['status']}/{c['reason']}" for c in edit.status["conditions"]}


# Eviction


def test_an_eviction_says_why_and_keeps_the_quota() -> None:
    edit = StatusEdit(workload(condition("QuotaReserved"), condition("Admitted")), NOW)
    evict(edit, "Preempted", "for another", cause="InClusterQueue")
    assert conditions(edit) == {
        "QuotaReserved": "True/QuotaReserved",
        "Admitted": "True/Admitted",
        "Evicted": "True/Preempted",
    }
    assert edit.status["admission"]["clusterQueue"] == "main"


def test_an_eviction_forgets_what_was_for_this_round_only() -> None:
    gates = [
        {"name": "open", "position": "Open", "lastTransitionTime": EARLIER},
        {"name": "closed", "position": "Closed", "lastTransitionTime": EARLIER},
    ]
    raw = workload(
        condition("BlockedOnPreemptionGates"),
        clusterName="c",
        nominatedClusterNames=["c"],
        unhealthyNodes=[{"name": "n"}],
        preemptionGates=gates,
    )
    edit = StatusEdit(raw, NOW)
    evict(edit, "NodeFailures", "")
    assert not {"clusterName", "nominatedClusterNames", "unhealthyNodes"} & set(edit.status)
    assert conditions(edit)["BlockedOnPreemptionGates"].startswith("False/")
    assert edit.status["preemptionGates"] == [
        {"name": "open", "position": "Closed", "lastTransitionTime": LATER},
        {"name": "closed", "position": "Closed", "lastTransitionTime": EARLIER},
    ]


def test_checks_start_over_and_remember_how_often_they_asked_for_a_retry() -> None:
    def check(name: str, state: str, **fields: Any) -> Json:
        return {"name": name, "state": state, "message": "m", "lastTransitionTime": EARLIER, **fields}

    raw = workload(
        admissionChecks=[
            check("pending", "Pending", retryCount=4),
            check("ready", "Ready", retryCount=4, podSetUpdates=[{"name": "main"}]),
            check("retry", "Retry", retryCount=1, requeueAfterSeconds=30),
            check("first", "Retry"),
            check("rejected", "Rejected"),
        ]
    )
    edit = StatusEdit(raw, NOW)
    evict(edit, "AdmissionCheck", "")
    found = {check["name"]: check for check in edit.status["admissionChecks"]}
    assert {check["state"] for check in found.values()} == {"Pending"}
    assert {name: check.get("retryCount") for name, check in found.items()} == {
        "pending": 4,
        "ready": None,
        "retry": 2,
        "first": 1,
        "rejected": None,
    }
    assert found["pending"]["message"] == "m"
    assert found["ready"]["message"] == "Reset to Pending after eviction. Previously: Ready"
    assert "podSetUpdates" not in found["ready"]
    assert found["retry"]["requeueAfterSeconds"] == 30


def test_evictions_are_counted_by_reason_and_cause() -> None:
    edit = StatusEdit(workload(), NOW)
    for cause in ("WaitForStart", "WaitForStart", "WaitForRecovery"):
        evict(edit, "PodsReadyTimeout", "", cause=cause)
    for reason in ("Preempted", "NodeFailures"):
        evict(edit, reason, "")
    assert edit.status["schedulingStats"]["evictions"] == [
        {"reason": "PodsReadyTimeout", "underlyingCause": "WaitForStart", "count": 2},
        {"reason": "PodsReadyTimeout", "underlyingCause": "WaitForRecovery", "count": 1},
        {"reason": "Preempted", "underlyingCause": "", "count": 1},
        {"reason": "NodeFailures", "underlyingCause": "", "count": 1},
    ]


@pytest.mark.parametrize(
    ("known", "asked", "expected"),
    [
        (None, [30], "2026-01-01T10:00:30Z"),
        (None, [30, 60, 0], "2026-01-01T10:01:00Z"),
        ("2026-01-01T10:00:45Z", [30], "2026-01-01T10:00:45Z"),
        ("2026-01-01T10:00:45Z", [60], "2026-01-01T10:01:00Z"),
        (None, [0], None),
        (None, [], None),
        # What is over already needs no waiting for.
        (None, [-1], None),
    ],
)
def test_a_retry_waits_for_the_latest_time_that_a_check_named(
    known: str | None, asked: list[int], expected: str | None
) -> None:
    checks_ = [
        {"name": str(n), "state": "Retry", "requeueAfterSeconds": seconds, "lastTransitionTime": LATER}
        for n, seconds in enumerate(asked)
    ]
    raw = workload(admissionChecks=checks_, **({"requeueState": {"requeueAt": known}} if known else {}))
    edit = StatusEdit(raw, NOW)
    checks.delay_requeue(edit, typed(raw).status.admission_checks, NOW)
    assert (edit.status.get("requeueState") or {}).get("requeueAt") == expected


# Release

POD = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p"}


@pytest.mark.parametrize(
    ("reason", "metadata", "requeued"),
    [
        ("Preempted", {}, "True"),
        ("NodeFailures", {}, "True"),
        ("PodsReadyTimeout", {}, "False"),
        ("AdmissionCheck", {}, "False"),
        ("ClusterQueueStopped", {}, "False"),
        ("Deactivated", {}, "False"),
        ("Preempted", {"ownerReferences": [POD]}, "False"),
        ("Preempted", {"ownerReferences": [POD, {**POD, "uid": "q"}]}, "True"),
        ("Preempted", {"ownerReferences": [{**POD, "kind": "Other"}]}, "True"),
        ("Preempted", {"ownerReferences": [{**POD, "apiVersion": "example.com/v1"}]}, "True"),
        (
            "Preempted",
            {"ownerReferences": [POD], "annotations": {"kueue.x-k8s.io/is-group-workload": "true"}},
            "True",
        ),
    ],
)
def test_who_may_queue_again_at_once(reason: str, metadata: Json, requeued: str) -> None:
    """A single pod that was stopped is gone; there is nothing to queue."""
    evicted = condition("Evicted", reason=reason, message="why")
    raw = workload(condition("QuotaReserved"), condition("Admitted"), evicted, metadata=metadata)
    edit = StatusEdit(raw, NOW)
    release(edit, typed(raw), DEFAULT_GATES)
    assert conditions(edit) == {
        "QuotaReserved": "False/Pending",
        "Admitted": "False/NoReservation",
        "Evicted": f"True/{reason}",
        "Requeued": f"{requeued}/{reason}",
    }
    assert "admission" not in edit.status
    assert {c["message"] for c in edit.status["conditions"] if c["type"] in ("QuotaReserved", "Requeued")} == {"why"}


@pytest.mark.parametrize(("admitted", "seconds"), [("True", 3607), ("False", 7)])
def test_time_as_an_admitted_workload_adds_up(admitted: str, seconds: int) -> None:
    raw = workload(condition("Admitted", admitted), accumulatedPastExecutionTimeSeconds=7)
    edit = StatusEdit(raw, NOW)
    clear_reservation(edit, "PendingEvaluation", "", DEFAULT_GATES)
    assert edit.status["accumulatedPastExecutionTimeSeconds"] == seconds


# Reservation

QUEUE = {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": "main"}, "spec": {"namespaceSelector": {}}}
PLACED = AssignedPodSet("main", 1, {"cpu": "f"}, {"cpu": 1000}, Placement(("host",), (Domain(("n1",), 1),)))


def reserved(raw: Json, *pod_sets: AssignedPodSet, second_pass: bool = False) -> Json:
    view = MemoryView([raw, dict(QUEUE)])
    decision = Admit(Key("team", "wl"), "main", pod_sets, second_pass=second_pass)
    for action in admission.plan_admit(view, decision, NOW) or ():
        view.carry_out(action)
    return view.objects["kueue.x-k8s.io", "Workload", Key("team", "wl")]["status"]


def test_a_new_reservation_ends_what_was_said_about_the_last() -> None:
    marks = ("Evicted", "Preempted", "BlockedOnPreemptionGates")
    status = reserved(workload(*(condition(mark, message=f"old {mark}") for mark in marks)), PLACED)
    found = {c["type"]: c for c in status["conditions"]}
    for mark in marks:
        assert (found[mark]["status"], found[mark]["reason"]) == ("False", "QuotaReserved")
        assert found[mark]["message"] == f"Previously: old {mark}"
    assert found["Admitted"]["status"] == "True"


def test_what_was_not_said_is_not_taken_back() -> None:
    status = reserved(workload(condition("Evicted", "False", "Other", "older")), PLACED)
    found = {c["type"]: c for c in status["conditions"]}
    assert (found["Evicted"]["reason"], found["Evicted"]["message"]) == ("Other", "older")
    assert "Preempted" not in found


@pytest.mark.parametrize(("before", "after"), [("Pending", "Ready"), ("Ready", "Ready"), (None, None)])
def test_only_a_place_that_was_put_off_is_told_to_be_ready(before: str | None, after: str | None) -> None:
    """A workload that leaves a failed node was never delayed."""
    raw = workload(condition("QuotaReserved"), condition("Admitted"), unhealthyNodes=[{"name": "n0"}])
    if before:
        raw["status"]["admission"]["podSetAssignments"][0]["delayedTopologyRequest"] = before
    status = reserved(raw, PLACED, second_pass=True)
    (assignment,) = status["admission"]["podSetAssignments"]
    assert assignment.get("delayedTopologyRequest") == after
    assert "topologyAssignment" in assignment
    assert "unhealthyNodes" not in status


def test_a_place_that_is_put_off_delays_admission() -> None:
    later = AssignedPodSet("main", 1, {"cpu": "f"}, {"cpu": 1000}, delayed=True)
    raw = workload()
    del raw["status"]["admission"]
    status = reserved(raw, later)
    assert status["admission"]["podSetAssignments"][0]["delayedTopologyRequest"] == "Pending"
    assert {c["type"]: c["status"] for c in status["conditions"]} == {"QuotaReserved": "True"}


@pytest.mark.parametrize("mark", ["Evicted", "Finished"])
def test_who_is_on_the_way_out_is_not_preempted_once_more(mark: str) -> None:
    view = MemoryView([workload(condition("QuotaReserved"), condition(mark))])
    decision = Preempt(Key("team", "wl"), Key("team", "x"), "InClusterQueue", "u", "main", "/main", "/main")
    assert admission.plan_preempt(view, decision, NOW) == []


# Queues


def check(name: str, controller: str = "example.com/check", active: str = "True") -> Json:
    return {
        "apiVersion": KUEUE,
        "kind": "AdmissionCheck",
        "metadata": {"name": name},
        "spec": {"controllerName": controller},
        "status": {"conditions": [condition("Active", active)]},
    }


FLAVOR = {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "f"}, "spec": {"topologyName": "t"}}
TOPOLOGY = {"apiVersion": KUEUE, "kind": "Topology", "metadata": {"name": "t"}, "spec": {"levels": []}}
AWAY, FARTHER = (check(name, "kueue.x-k8s.io/multikueue") for name in ("away", "farther"))
NODES = check("nodes", "kueue.x-k8s.io/provisioning-request")


@pytest.mark.parametrize(
    ("objects", "rules", "metadata", "policy", "expected"),
    [
        ([FLAVOR, TOPOLOGY], [], {}, "None", None),
        ([], [{"name": "missing"}], {"deletionTimestamp": EARLIER}, "Hold", "Terminating"),
        ([], [{"name": "missing"}], {}, "Hold", "Stopped"),
        ([], [{"name": "missing"}], {}, "None", "FlavorNotFound"),
        ([FLAVOR], [{"name": "missing"}, {"name": "away"}], {}, "None", "AdmissionCheckNotFound"),
        ([FLAVOR, check("idle", active="False")], [{"name": "idle"}], {}, "None", "AdmissionCheckInactive"),
        (
            [FLAVOR, AWAY, FARTHER],
            [{"name": "away"}, {"name": "farther"}],
            {},
            "None",
            "MultipleMultiKueueAdmissionChecks",
        ),
        (
            [FLAVOR, AWAY, NODES],
            [{"name": "away", "onFlavors": ["f"]}, {"name": "nodes"}],
            {},
            "None",
            "MultiKueueAdmissionCheckAppliedPerFlavor",
        ),
        ([FLAVOR, AWAY, NODES], [{"name": "away"}, {"name": "nodes"}], {}, "None", "MultiKueueWithProvisioningRequest"),
        ([FLAVOR, check("fine")], [{"name": "fine"}], {}, "None", "TopologyNotFound"),
    ],
)
def test_the_first_thing_that_keeps_a_queue_from_admitting_is_told(
    objects: list[Json], rules: list[Json], metadata: Json, policy: str, expected: str | None
) -> None:
    quota = {"name": "f", "resources": [{"name": "cpu", "nominalQuota": 1}]}
    spec = {
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}],
        "admissionChecksStrategy": {"admissionChecks": rules},
        "stopPolicy": policy,
    }
    found = codec.decode_as(ClusterQueue, {**QUEUE, "metadata": {"name": "main", **metadata}, "spec": spec})
    problem = activity.why_inactive(MemoryView(objects), found)
    assert (problem.reason if problem else None) == expected


OWNED = {"ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}]}
UNTRIED = Wait(Key("team", "wl"), "main", Untried(), inadmissible=True)


@pytest.mark.parametrize(
    ("metadata", "configuration", "said"),
    [
        (OWNED, Configuration(), "False/WaitForStart"),
        # Nobody knows of pods, or nobody waits for them.
        ({}, Configuration(), None),
        (OWNED, Configuration(wait_for_pods_ready=None), None),
    ],
)
def test_a_workload_that_waits_for_quota_says_that_its_pods_have_not_started(
    metadata: Json, configuration: Configuration, said: str | None
) -> None:
    waiting = workload(metadata=metadata)
    del waiting["status"]["admission"]
    view = MemoryView([waiting], configuration)
    (told, *_) = admission.plan_wait(view, UNTRIED, None, NOW)
    view.carry_out(told)
    held = view.find_json(Workload.KIND, Key("team", "wl"))
    assert held is not None
    assert conditions(StatusEdit(held, NOW)).get("PodsReady") == said
    assert admission.plan_wait(view, UNTRIED, None, NOW) == []


@pytest.mark.parametrize("annotations", [{}, {"kueue.x-k8s.io/admission-gated-by": "example.com/gate"}])
def test_so_does_one_that_cannot_queue_at_all(annotations: Json) -> None:
    waiting = workload(metadata={**OWNED, "annotations": annotations})
    del waiting["status"]["admission"]
    view = MemoryView([waiting])
    for action in plan_workload(view, Key("team", "wl"), NOW):
        view.carry_out(action)
    held = view.find_json(Workload.KIND, Key("team", "wl"))
    assert held is not None
    assert conditions(StatusEdit(held, NOW))["PodsReady"] == "False/WaitForStart"
