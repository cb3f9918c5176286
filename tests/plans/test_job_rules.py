"""When a batch Job is over and when its next pod may start: each limit and policy on its own, without rounds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kyu.api.meta import Json
from kyu.kinds.job import INDEX
from kyu.plans.pods import job_rules as rules
from kyu.plans.pods import job_tally as tallies
from kyu.plans.pods.job_rules import Failure, Success

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def job(status: Json | None = None, **spec: Any) -> Json:
    return {"metadata": {"name": "j", "namespace": "team", "uid": "u"}, "spec": spec, "status": status or {}}


def indexed(completed: str = "", failed: str = "", **spec: Any) -> Json:
    status = {"completedIndexes": completed, "failedIndexes": failed}
    return job(status, completionMode="Indexed", **{"completions": 6, **spec})


def pod(code: int | None = None, at: datetime = NOW, index: int | None = None, **status: Any) -> Json:
    """A pod that runs, or has ended with this code."""
    name = f"p{index or 0}-{at:%H%M%S}-{code}"
    meta: Json = {"name": name, "namespace": "team", "uid": name, "finalizers": [tallies.FINALIZER]}
    if index is not None:
        meta["annotations"] = {INDEX: str(index)}
    if code is None:
        return {"metadata": meta, "status": {"phase": "Running", **status}}
    ended = {"name": "main", "state": {"terminated": {"exitCode": code, "finishedAt": at.isoformat()}}}
    phase = "Failed" if code else "Succeeded"
    return {"metadata": meta, "status": {"phase": phase, "containerStatuses": [ended], **status}}


def outcome(job: Json, *pods: Json) -> Success | Failure | None:
    return rules.find_outcome(job, tallies.tally(job, pods, rules.judge(job)), NOW)


def reason(job: Json, *pods: Json) -> str:
    found = outcome(job, *pods)
    return found.reason if found is not None else ""


@pytest.mark.parametrize(
    ("policy", "completed", "matched"),
    [
        ([{"succeededIndexes": "0-1"}], "0", None),
        ([{"succeededIndexes": "0-1"}], "0-1", 0),
        ([{"succeededIndexes": "5"}, {"succeededIndexes": "0-3", "succeededCount": 2}], "1,3", 1),
        ([{"succeededIndexes": "0-1", "succeededCount": 1}], "2-4", None),
        ([{"succeededCount": 3}], "0-1", None),
        ([{"succeededCount": 3}], "0-2", 0),
    ],
)
def test_the_first_rule_of_a_success_policy_that_holds_is_named(
    policy: list[Json], completed: str, matched: int | None
) -> None:
    found = outcome(indexed(completed, successPolicy={"rules": policy}))
    assert found == (None if matched is None else Success("SuccessPolicy", f"Matched rules at index {matched}"))


def test_what_was_decided_stands_and_what_was_not_does_not() -> None:
    failing = {"type": "FailureTarget", "status": "True", "reason": "R", "message": "m"}
    assert outcome(job({"conditions": [failing]}, completions=1), pod(0)) == Failure("R", "m")
    met = {"type": "SuccessCriteriaMet", "status": "True", "reason": "R", "message": "m"}
    assert outcome(job({"conditions": [met]}, completions=1, backoffLimit=0), pod(1)) == Success("R", "m")
    for condition in (failing, met):
        assert outcome(job({"conditions": [{**condition, "status": "False"}]}, completions=1)) is None


@pytest.mark.parametrize(
    ("spec", "failures", "expected"),
    [
        ({}, 6, ""),
        ({}, 7, "BackoffLimitExceeded"),
        ({"backoffLimit": 0}, 1, "BackoffLimitExceeded"),
        # Where each index has its own limit, all of them together have none.
        ({"backoffLimitPerIndex": 9}, 7, ""),
        ({"backoffLimitPerIndex": 9, "backoffLimit": 6}, 7, "BackoffLimitExceeded"),
    ],
)
def test_the_limit_of_all_failures(spec: Json, failures: int, expected: str) -> None:
    pods = [pod(1, NOW - timedelta(seconds=number), index=number) for number in range(failures)]
    assert reason(indexed(completions=20, **spec), *pods) == expected


@pytest.mark.parametrize(
    ("limit", "restarts", "expected"),
    [(0, 0, ""), (0, 1, "BackoffLimitExceeded"), (2, 1, ""), (2, 2, "BackoffLimitExceeded")],
)
def test_restarts_in_place_are_held_against_the_limit(limit: int, restarts: int, expected: str) -> None:
    running = pod(containerStatuses=[{"name": "main", "restartCount": restarts}])
    for policy, wanted in (("OnFailure", expected), ("Never", "")):
        spec = {"backoffLimit": limit, "completions": 1, "template": {"spec": {"restartPolicy": policy}}}
        assert reason(job(**spec), running) == wanted


def test_a_deadline_counts_from_the_start_and_not_while_suspended() -> None:
    started = {"startTime": (NOW - timedelta(seconds=60)).isoformat()}
    assert rules.active_deadline(job(started, activeDeadlineSeconds=60)) == NOW
    assert rules.active_deadline(job(started, activeDeadlineSeconds=60, suspend=True)) is None
    assert rules.active_deadline(job({}, activeDeadlineSeconds=60)) is None
    assert rules.active_deadline(job(started)) is None
    assert reason(job(started, activeDeadlineSeconds=60)) == "DeadlineExceeded"
    assert reason(job(started, activeDeadlineSeconds=61)) == ""


def test_failed_indexes_end_the_job_when_no_other_is_left_or_too_many_are() -> None:
    assert reason(indexed("0-3", "4")) == ""
    assert reason(indexed("0-4", "5")) == "FailedIndexes"
    assert reason(indexed("", "0-1", maxFailedIndexes=2)) == ""
    assert reason(indexed("", "0-2", maxFailedIndexes=2)) == "MaxFailedIndexesExceeded"


@pytest.mark.parametrize(
    ("exit_codes", "expected"),
    [
        ({"operator": "In", "values": [3]}, "PodFailurePolicy"),
        ({"operator": "In", "values": [4]}, ""),
        ({"operator": "NotIn", "values": [4]}, "PodFailurePolicy"),
        ({"operator": "NotIn", "values": [3]}, ""),
        ({"operator": "In", "values": [3], "containerName": "main"}, "PodFailurePolicy"),
        ({"operator": "In", "values": [3], "containerName": "other"}, ""),
    ],
)
def test_a_failure_policy_looks_at_exit_codes(exit_codes: Json, expected: str) -> None:
    policy = {"rules": [{"action": "FailJob", "onExitCodes": exit_codes}]}
    assert reason(job(completions=1, podFailurePolicy=policy), pod(3)) == expected


def test_the_rule_that_fails_the_job_is_named_by_its_place() -> None:
    ignored = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [1]}}
    disrupted = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}
    fatal = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}
    failing = job(completions=1, podFailurePolicy={"rules": [ignored, disrupted, fatal]})
    assert outcome(failing, pod(1)) is None
    by_code = outcome(failing, pod(3))
    assert by_code is not None
    assert by_code.message.endswith("failed with exit code 3 matching FailJob rule at index 2")
    by_condition = outcome(failing, pod(5, conditions=[{"type": "DisruptionTarget", "status": "True"}]))
    assert by_condition is not None
    assert by_condition.message.endswith("has a condition matching FailJob rule at index 1")


def test_an_index_that_fails_too_often_is_given_up() -> None:
    limited = indexed(backoffLimitPerIndex=1)
    once, twice = pod(1, index=2), pod(1, index=2)
    twice["metadata"]["annotations"][rules.FAILURE_COUNT] = "1"
    assert tallies.tally(limited, [once], rules.judge(limited)).failed_indexes == set()
    assert tallies.tally(limited, [twice], rules.judge(limited)).failed_indexes == {2}


def test_the_wait_doubles_with_each_failure_since_the_last_success() -> None:
    failures = [pod(1, NOW - timedelta(seconds=seconds)) for seconds in (40, 20, 0)]
    assert rules.back_off_end(failures[:1], ()) == NOW - timedelta(seconds=30)
    assert rules.back_off_end(failures, ()) == NOW + timedelta(seconds=40)
    assert rules.back_off_end(failures, [pod(0, NOW - timedelta(seconds=30))]) == NOW + timedelta(seconds=20)
    assert rules.back_off_end(failures, [pod(0, NOW)]) is None
    assert rules.back_off_end([pod(1)] * 40, ()) == NOW + timedelta(minutes=10)


def test_each_index_has_a_wait_of_its_own() -> None:
    failures = [pod(1, index=1), pod(1, NOW - timedelta(seconds=5), index=2), pod(1)]
    assert rules.back_off_by_index(failures) == {1: NOW + timedelta(seconds=10), 2: NOW + timedelta(seconds=5)}


def test_a_pod_that_was_deleted_ended_then() -> None:
    deleted = pod(1)
    deleted["status"].pop("containerStatuses")
    assert rules.back_off_end([deleted], ()) is None
    deleted["metadata"]["deletionTimestamp"] = NOW.isoformat()
    assert rules.back_off_end([deleted], ()) == NOW + timedelta(seconds=10)


def test_an_index_succeeds_once_and_only_if_it_is_wanted() -> None:
    limited = indexed("0", completions=2)
    found = tallies.tally(limited, [pod(0, index=0), pod(0, index=1), pod(0, index=2)], rules.judge(limited))
    assert found.completed_indexes == {0, 1}
    assert found.uncounted_succeeded == [pod(0, index=1)["metadata"]["uid"]]
    assert len(found.releases) == 3


def test_a_deleted_pod_counts_at_once_unless_its_end_is_waited_for() -> None:
    deleted = pod()
    deleted["metadata"]["deletionTimestamp"] = NOW.isoformat()
    for policy, failed in (("TerminatingOrFailed", 1), ("Failed", 0)):
        waiting = job(completions=1, podReplacementPolicy=policy)
        found = tallies.tally(waiting, [deleted], rules.judge(waiting))
        assert (found.failed, len(found.terminating), found.active) == (failed, 1, [])
