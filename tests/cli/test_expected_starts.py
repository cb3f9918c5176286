"""The expected start of a waiting job: run times of the ledger by LocalQueue, and the words for it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import get_args

from kyu.api.accounting import AttemptState, JobAttempt
from kyu.api.meta import Key
from kyu.cli.batch import expected_starts
from kyu.engine.what_if.forecast import ExpectedStart

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON = NOW.timestamp()


def attempt(job: str, seconds: float, state: AttemptState = "Succeeded", queue: str = "main") -> JobAttempt:
    return JobAttempt(f"{job}-{seconds}", "team", job, state, "", "", "", seconds, job_uid=job, queue=queue)


def test_a_job_runs_as_long_as_its_longest_attempt() -> None:
    found = [attempt("a", 5), attempt("a", 9), attempt("b", 3), attempt("c", 7, queue="other")]
    assert expected_starts.past_run_times(found).by_queue == {Key("team", "main"): [3, 9], Key("team", "other"): [7]}


def test_attempts_that_did_not_end_by_themselves_tell_no_run_time() -> None:
    states = [state for state in get_args(AttemptState) if state not in expected_starts.UNKNOWN]
    assert states == ["Succeeded", "Failed", "OOMKilled", "TimeLimit"]
    assert expected_starts.past_run_times([attempt("a", 5, "Preempted"), attempt("b", 2, "Cancelled")]).by_queue == {}


def test_an_estimate_is_told_in_words_and_its_absence_too() -> None:
    hour = 3600
    words = {
        expected_starts.describe(ExpectedStart(*(None if h is None else NOON + h * hour for h in hours)), NOW)
        for hours in ((0, 0), (2, 3), (2, None), (None, None), (13, 14))
    }
    assert words == {
        "about now",
        "about 14:00 UTC, if jobs run long 15:00 UTC",
        "about 14:00 UTC, if jobs run long unknown",
        "about 2026-01-02 01:00 UTC, if jobs run long 2026-01-02 02:00 UTC",
        "no estimate",
    }
    assert expected_starts.describe(None, NOW) == "no estimate"
