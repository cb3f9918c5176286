"""Arrays as a user of Slurm knows them: failed tasks, numbers with gaps, retries, dependencies."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kyu.api.meta import Key
from kyu.cli.batch.jobs_pods import POD
from kyu.kinds.job import JOB
from tests.support.local_kyu import LocalKyu, local_kyu

SCRIPT = 'echo "task $KYU_TASK_ID"; test "$KYU_TASK_ID" != 4 -a "$KYU_TASK_ID" != 6'


@pytest.fixture(scope="module")
def kyu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKyu]:
    with local_kyu(tmp_path_factory.mktemp("kyu"), "--cpu", "4") as running:
        yield running


@pytest.fixture(scope="module")
def sweep(kyu: LocalKyu) -> str:
    """An array of ten tasks, of which two fail, and a singleton that waits for a job of its name."""
    command = ("--cpu", "100m", "--array", "0-18:2%3", "--", "sh", "-c", SCRIPT)
    kyu.kyu("submit", "--name", "sweep", *command)
    kyu.wait_for("sweep", "Failed")
    return "sweep"


def test_a_failed_task_does_not_end_the_others(kyu: LocalKyu, sweep: str) -> None:
    assert kyu.kyu("wait", sweep, check=False).returncode == 1
    lines = [line.split() for line in kyu.kyu("tasks", sweep).stdout.splitlines()]
    assert lines[1:] == [["Succeeded", "8", "0,2,8,10,12,14,16,18"], ["Failed", "2", "4,6"]]
    rows = json.loads(kyu.kyu("tasks", sweep, "--state", "Failed", "-o", "json").stdout)
    assert [(row["task"], row["attempts"], row["exit_code"]) for row in rows] == [(4, 1, 1), (6, 1, 1)]
    assert kyu.kyu("tasks", sweep, "--state", "Failed", "-o", "name").stdout.split() == ["4", "6"]


def test_logs_know_the_users_numbers(kyu: LocalKyu, sweep: str) -> None:
    assert kyu.kyu("logs", sweep, "--task", "14").stdout == "task 14\n"
    assert kyu.kyu("logs", sweep, "--task", "6").stdout == "task 6\n"
    missing = kyu.kyu("logs", sweep, "--task", "3", check=False)
    assert (missing.returncode, missing.stderr) == (
        1, "kyu logs: sweep has no output of task 3; it has tasks 0 to 18\n",
    )  # fmt: skip
    for words in ((sweep,), ("-f", sweep)):
        shown = sorted(int(line.split()[-1]) for line in kyu.kyu("logs", *words).stdout.splitlines())
        assert shown == list(range(0, 20, 2))


def test_a_pod_exists_only_while_its_task_runs(kyu: LocalKyu, sweep: str) -> None:
    def left() -> list[str]:
        found = kyu.client.list(POD, "default", labels=f"batch.kubernetes.io/job-name={sweep}")
        return sorted(pod["metadata"]["annotations"]["kyu.dev/task"] for pod in found)

    # Those of failed tasks stay, for a look at their end.
    kyu.wait("pods of tasks that succeeded are gone", lambda: left() == ["4", "6"])


def test_failed_tasks_run_again_under_their_numbers(kyu: LocalKyu, sweep: str) -> None:
    again = kyu.kyu("retry", sweep, "--failed").stdout.strip()
    kyu.wait_for(again, "Failed")
    job = kyu.client.get(JOB, Key("default", again))
    assert job["metadata"]["annotations"]["kyu.dev/retry-of"] == sweep
    assert (job["spec"]["completions"], job["metadata"]["annotations"]["kyu.dev/array"]) == (2, "4,6")
    assert kyu.kyu("tasks", again, "-o", "name").stdout.split() == ["4", "6"]
    one = kyu.kyu("retry", sweep, "--task", "8", "--name", "eight").stdout.strip()
    kyu.wait_for("eight", "Succeeded")
    assert (one, kyu.kyu("logs", "eight").stdout) == ("eight", "task 8\n")
    refused = kyu.kyu("retry", "eight", "--failed", check=False)
    assert (refused.returncode, refused.stderr) == (
        1, "kyu retry: eight has no failed tasks; without --failed all of its tasks run again\n",
    )  # fmt: skip
    unknown = kyu.kyu("retry", sweep, "--task", "5", check=False)
    assert (unknown.returncode, unknown.stderr) == (2, "kyu retry: sweep has no task 5; it has 0-18:2\n")


def test_jobs_start_after_others_as_they_ask(kyu: LocalKyu, sweep: str) -> None:
    for name, after in (("report", "ok:sweep"), ("alarm", "notok:sweep"), ("clean", "any:sweep")):
        kyu.kyu("submit", "--name", name, "--cpu", "100m", "--after", after, "--", "true")
    kyu.wait_for("alarm", "Succeeded")
    kyu.wait_for("clean", "Succeeded")
    line = next(line for line in kyu.kyu("jobs").stdout.splitlines() if line.startswith("report"))
    assert "waits for sweep, which has failed" in line


def test_one_job_of_a_name_runs_at_a_time(kyu: LocalKyu) -> None:
    words = ("submit", "--generate-name", "nightly", "--cpu", "100m")
    first = kyu.kyu(*words, "--", "sleep", "600").stdout.strip()
    kyu.wait_for(first, "Running")
    second = kyu.kyu(*words, "--after", "singleton", "--", "true").stdout.strip()
    kyu.wait_for(second, "Queued")
    line = next(line for line in kyu.kyu("jobs").stdout.splitlines() if line.startswith(second))
    assert "waits for earlier jobs named nightly" in line
    kyu.kyu("cancel", first)
    kyu.wait_for(second, "Succeeded")
