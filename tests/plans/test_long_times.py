"""Deadlines and times to live of any length: a plan waits for them, and never fails on them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kyu.api.actions import WakeAt
from kyu.api.meta import Json, Key, Kind
from kyu.kinds import conditions, table
from kyu.plans.pods import cron_jobs, jobs, operators
from tests.support.memory_view import MemoryView

NOW = datetime(2026, 1, 1, 10, tzinfo=UTC)
STARTED = "2026-01-01T09:00:00Z"
ENDLESS = 2**63 - 1
TEMPLATE: Json = {"spec": {"containers": [{"name": "main", "image": "a"}]}}


def job(spec: Json, status: Json) -> Json:
    body = {"parallelism": 1, "completions": 1, "template": TEMPLATE, **spec}
    meta = {"name": "j", "namespace": "team", "creationTimestamp": STARTED}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": body, "status": status}


@pytest.mark.parametrize("status", [{}, {"startTime": STARTED}])
def test_a_job_with_an_endless_deadline_runs(status: Json) -> None:
    actions = jobs.plan(MemoryView([job({"activeDeadlineSeconds": ENDLESS}, status)]), Key("team", "j"), NOW)
    assert [action.at for action in actions if isinstance(action, WakeAt)] == [conditions.LAST_MOMENT]


def test_a_job_that_is_kept_for_ever_is_not_deleted() -> None:
    ended = {"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": STARTED}]}
    view = MemoryView([job({"ttlSecondsAfterFinished": ENDLESS}, ended)])
    assert jobs.plan(view, Key("team", "j"), NOW) == [WakeAt(conditions.LAST_MOMENT)]


@pytest.mark.parametrize("seconds", [ENDLESS, 10**12])
def test_a_cron_job_with_an_endless_starting_deadline_runs(seconds: int) -> None:
    spec = {"schedule": "30 9 * * *", "startingDeadlineSeconds": seconds, "jobTemplate": {"spec": {}}}
    meta = {"name": "c", "namespace": "team", "creationTimestamp": STARTED}
    cron_job = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta, "spec": spec}
    assert cron_jobs.earliest(cron_job, NOW) == conditions.parse_timestamp(STARTED)
    assert cron_jobs.plan(MemoryView([cron_job]), Key("team", "c"), NOW)


@pytest.mark.parametrize(
    ("kind", "spec", "status"),
    [
        ("PyTorchJob", {"runPolicy": {"activeDeadlineSeconds": ENDLESS}}, {"startTime": STARTED}),
        (
            "PyTorchJob",
            {"runPolicy": {"ttlSecondsAfterFinished": ENDLESS}},
            {"completionTime": STARTED, "conditions": [{"type": "Succeeded", "status": "True"}]},
        ),
        ("RayJob", {"activeDeadlineSeconds": ENDLESS, "rayClusterSpec": {}}, {"startTime": STARTED}),
        (
            "SparkApplication",
            {"restartPolicy": {"type": "Always", "onFailureRetryInterval": ENDLESS}},
            {"applicationState": {"state": "PENDING_RERUN"}, "terminationTime": STARTED, "executionAttempts": 3},
        ),
    ],
)
def test_other_kinds_wait_as_long(kind: str, spec: Json, status: Json) -> None:
    found: Kind = next(one.kind for one in table.KINDS if one.kind.kind == kind)
    meta = {"name": "o", "namespace": "team"}
    obj = {"apiVersion": found.api_version, "kind": kind, "metadata": meta, "spec": spec, "status": status}
    assert WakeAt(conditions.LAST_MOMENT) in operators.plan(found, MemoryView([obj]), Key("team", "o"), NOW)
