"""How an attempt is described: from its Workload at the start, from its status at the end."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kyu.api.meta import Json
from kyu.plans import accounting
from tests.support.memory_view import MemoryView

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)
POD: Json = {
    "metadata": {
        "name": "train-x", "namespace": "team", "uid": "pod-1", "creationTimestamp": "2026-11-18T10:00:05Z",
        "annotations": {"kueue.x-k8s.io/workload": "job-train", "kyu.dev/task": "8"},
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job-1"}],
    },
    "spec": {
        "nodeName": "here",
        "containers": [{"name": "main", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}],
    },
}  # fmt: skip


def workload(**conditions: tuple[str, str]) -> Json:
    listed = [
        {"type": type_, "status": status, "reason": reason, "lastTransitionTime": "2026-11-18T10:00:03Z"}
        for type_, (status, reason) in conditions.items()
    ]
    assignment = {"name": "main", "flavors": {"cpu": "spot"}, "count": 1}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": "job-train", "namespace": "team", "creationTimestamp": "2026-11-18T10:00:00Z",
            "annotations": {"kyu.dev/submitted-by": "ana"},
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job-1", "controller": True}
            ],
        },
        "spec": {"queueName": "q", "priority": 5, "podSets": []},
        "status": {"conditions": listed, "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]}},
    }  # fmt: skip


def job(**metadata: str) -> Json:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "team", "uid": "job-1", **metadata},
    }


def status(phase: str, code: int, reason: str = "Error", **fields: str) -> Json:
    ended = {"exitCode": code, "reason": reason, "finishedAt": "2026-11-18T10:01:10Z"}
    container = {"name": "main", "restartCount": 1, "state": {"terminated": ended}}
    return {"phase": phase, "startTime": "2026-11-18T10:00:10Z", "containerStatuses": [container], **fields}


def test_an_attempt_is_described_by_its_workload() -> None:
    account = accounting.describe_start(MemoryView([workload(), job()]), POD)
    line = accounting.describe_end(
        MemoryView(), account, status("Succeeded", 0), NOW, stopped=False,
        usage={"seconds": 60.25, "cpuSeconds": 12.5, "peakBytes": 1000},
    )  # fmt: skip
    assert (line.job, line.kind, line.task, line.submitter, line.queue) == ("train", "Job", "8", "ana", "q")
    assert (line.cluster_queue, line.flavors, line.priority) == ("cq", {"cpu": "spot"}, 5)
    assert line.requests == {"cpu": 0.5, "memory": 1024**3}
    assert (line.queued, line.started, line.ended) == (
        "2026-11-18T10:00:00Z", "2026-11-18T10:00:10Z", "2026-11-18T10:01:10Z",
    )  # fmt: skip
    assert (line.seconds, line.cpu_seconds, line.peak_bytes) == (60.25, 12.5, 1000)
    assert (line.state, line.exit_code, line.restarts, line.node) == ("Succeeded", 0, 1, "here")


def test_an_evicted_job_waits_from_its_eviction_on() -> None:
    view = MemoryView([workload(Evicted=("False", "QuotaReserved"))])
    assert accounting.describe_start(view, POD)["queued"] == "2026-11-18T10:00:03Z"


@pytest.mark.parametrize(
    ("objects", "ended", "stopped", "state"),
    [
        ([workload(), job()], status("Failed", 1), False, "Failed"),
        ([workload(), job()], status("Failed", 137, "OOMKilled"), False, "OOMKilled"),
        ([workload(), job()], status("Failed", 137, reason="Error") | {"reason": "SupervisorLost"}, False, "Lost"),
        ([workload(), job()], status("Failed", 143), True, "Stopped"),
        ([workload(Evicted=("True", "Preempted")), job()], status("Failed", 143), True, "Preempted"),
        ([workload(Evicted=("True", "Preempted")), job()], status("Succeeded", 0), True, "Succeeded"),
        ([workload(Evicted=("True", "ClusterQueueStopped")), job()], status("Failed", 143), True, "Evicted"),
        (
            [workload(Evicted=("True", "DeactivatedDueToMaximumExecutionTimeExceeded")), job()],
            status("Failed", 143), True, "TimeLimit",
        ),
        ([], status("Failed", 143), True, "Cancelled"),
        ([workload()], status("Failed", 143), True, "Cancelled"),
        ([workload(), job(deletionTimestamp="2026-11-18T10:01:00Z")], status("Failed", 143), True, "Cancelled"),
    ],
)  # fmt: skip
def test_how_an_attempt_ended(objects: list[Json], ended: Json, stopped: bool, state: str) -> None:
    account = accounting.describe_start(MemoryView([workload(), job()]), POD)
    line = accounting.describe_end(MemoryView(objects), account, ended, NOW, stopped=stopped, usage={})
    assert line.state == state
    assert (line.seconds, line.cpu_seconds, line.peak_bytes) == (60.0, None, None)


@pytest.mark.parametrize("value", [-1, "12", True, None, float("nan"), float("inf"), 1e300, [1]])
def test_a_record_that_was_tampered_with_counts_for_nothing(value: object) -> None:
    account = accounting.describe_start(MemoryView([workload(), job()]), POD)
    ended = status("Failed", 1) | {"startTime": "soon"}
    ended["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = "2999-01-01T00:00:00Z"
    usage = {"seconds": value, "cpuSeconds": value, "peakBytes": value}
    line = accounting.describe_end(MemoryView(), account, ended, NOW, stopped=False, usage=usage)
    assert (line.started, line.ended, line.seconds) == ("2026-11-18T12:00:00Z", "2026-11-18T12:00:00Z", 0.0)
    assert (line.cpu_seconds, line.peak_bytes) == (None, None)


def test_a_pod_without_a_queue_is_its_own_job() -> None:
    pod = {"metadata": {"name": "alone", "namespace": "team", "uid": "u"}, "spec": {"containers": []}}
    account = accounting.describe_start(MemoryView(), pod)
    assert (account["job"], account["kind"], account["job_uid"], account["submitter"]) == ("alone", "Pod", "u", "")
