"""The conditions of Workloads without quota, with and without the gate UnadmittedWorkloadsObservability."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kyu.api.config.features import DEFAULT_GATES, feature_gates
from kyu.api.meta import Json
from kyu.plans.status import StatusEdit
from kyu.plans.workload import unadmitted
from tests.support.manifests import condition, workload

NOW = datetime(2026, 1, 1, 10, tzinfo=UTC)
FINE = feature_gates({unadmitted.GATE: True})


@pytest.mark.parametrize(
    ("word", "message", "coarse"),
    [
        ("WaitingForQuota", "couldn't assign flavors", "Pending"),
        ("PendingEvaluation", "", "Pending"),
        ("WaitingForPodsReady", "", "Waiting"),
        ("Suspended", "ClusterQueue main is inactive", "Inadmissible"),
        ("Misconfigured", "LocalQueue main doesn't exist", "Inadmissible"),
        ("Misconfigured", "no queue name is set", "Inadmissible"),
        ("Misconfigured", "workload namespace doesn't match ClusterQueue selector", "Pending"),
        ("AdmissionGated", "Admission is gated by: a", "AdmissionGated"),
        ("AdmissionGated", "Workload requires preemption, but it's gated", "Pending"),
    ],
)
def test_the_reason_is_coarse_unless_the_gate_is_on(word: str, message: str, coarse: str) -> None:
    assert unadmitted.reason_word(word, message, DEFAULT_GATES) == coarse
    assert unadmitted.reason_word(word, message, FINE) == word


def written(status: Json, *, fine: bool) -> dict[str, str]:
    edit = StatusEdit(workload(status=status), NOW)
    unadmitted.set_no_quota(edit, "WaitingForQuota", "why", FINE if fine else DEFAULT_GATES)
    return {one["type"]: f"{one['status']}/{one['reason']}" for one in edit.status["conditions"]}


def test_admitted_is_written_if_it_was_true_or_the_gate_is_on() -> None:
    assert written({}, fine=False) == {"QuotaReserved": "False/Pending"}
    assert written({}, fine=True) == {"QuotaReserved": "False/WaitingForQuota", "Admitted": "False/NoReservation"}
    admitted = {"conditions": [condition("Admitted")]}
    assert written(admitted, fine=False)["Admitted"] == "False/NoReservation"
    unchecked = {**admitted, "admissionChecks": [{"name": "c", "state": "Pending"}]}
    assert written(unchecked, fine=False)["Admitted"] == "False/NoReservationUnsatisfiedChecks"
    assert written(unchecked, fine=True)["Admitted"] == "False/NoReservation"
