"""Output that outlives its pods: attempts, tasks, deleted jobs, and files of the user."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kyu.api.core import Namespace
from kyu.api.kueue import LocalQueue, Workload
from kyu.api.meta import Json, Key, key_of
from kyu.cli.batch import attempts
from kyu.cli.batch.attempts import JobPod
from kyu.cli.batch.jobs_pods import POD
from kyu.kinds.job import JOB
from tests.support.local_kyu import LocalKyu, local_kyu


@pytest.fixture(scope="module")
def kyu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKyu]:
    with local_kyu(tmp_path_factory.mktemp("kyu"), "--cpu", "4") as running:
        yield running


def printed(kyu: LocalKyu, *words: str) -> str:
    return kyu.kyu("logs", *words).stdout


def pods(kyu: LocalKyu, job: str) -> list[Json]:
    return list(kyu.client.list(POD, "default", labels=f"batch.kubernetes.io/job-name={job}"))


def evict(kyu: LocalKyu, job: str) -> None:
    """Stop the job as a preemption does, and let it run again."""
    workload = kyu.workload(job)
    assert workload is not None
    for active in (False, True):
        kyu.client.patch(Workload.KIND, key_of(workload), {"spec": {"active": active}})
        if not active:
            kyu.wait("its pods are gone", lambda: not pods(kyu, job))


def test_output_is_kept_after_an_eviction_and_a_restart_of_the_server(kyu: LocalKyu, tmp_path: Path) -> None:
    script = f"echo first run; test -e {tmp_path}/again && echo second run && exit; touch {tmp_path}/again; sleep 600"
    kyu.kyu("submit", "--name", "twice", "--", "sh", "-c", script)
    kyu.wait("it runs", lambda: "first run" in kyu.kyu("logs", "twice", check=False).stdout)
    evict(kyu, "twice")
    kyu.wait_for("twice", "Succeeded")
    assert printed(kyu, "twice") == "first run\nsecond run\n"
    assert "the last of 2 attempts" in kyu.kyu("logs", "twice").stderr
    assert printed(kyu, "twice", "--attempt", "1") == "first run\n"
    missing = kyu.kyu("logs", "twice", "--attempt", "3", check=False)
    assert (missing.returncode, missing.stderr) == (1, "kyu logs: twice has no attempt 3; it has 2\n")
    kyu.kyu("cancel", "twice")
    kyu.wait("it is deleted", lambda: kyu.client.find(JOB, Key("default", "twice")) is None)
    kyu.wait("its logs are kept", lambda: "second run" in kyu.kyu("logs", "twice", check=False).stdout)
    assert printed(kyu, "twice", "--attempt", "1") == "first run\n"


def test_output_of_a_job_over_its_time_limit_is_kept(kyu: LocalKyu) -> None:
    kyu.kyu("submit", "--name", "slow", "--time", "2s", "--", "sh", "-c", "echo began; sleep 600")
    kyu.wait_for("slow", "Stopped")
    kyu.wait("its pods are gone", lambda: not pods(kyu, "slow"))
    kyu.wait("its output is kept", lambda: kyu.kyu("logs", "slow", check=False).stdout == "began\n")


def test_python_writes_its_output_at_once(kyu: LocalKyu) -> None:
    kyu.kyu("submit", "--name", "python", "--", "python3", "-c", "import time; print('step 1'); time.sleep(600)")
    kyu.wait("its output is there", lambda: kyu.kyu("logs", "python", check=False).stdout == "step 1\n")
    kyu.kyu("cancel", "python")


def test_the_output_of_one_task_is_shown(kyu: LocalKyu) -> None:
    script = "echo task $JOB_COMPLETION_INDEX"
    kyu.kyu("submit", "--name", "tasks", "--cpu", "500m", "--array", "3", "--", "sh", "-c", script)
    kyu.wait_for("tasks", "Succeeded")
    assert printed(kyu, "tasks", "--task", "2") == "task 2\n"
    (line,) = printed(kyu, "-f", "tasks", "--task", "1").splitlines()
    assert line.endswith("  task 1")
    refused = kyu.kyu("logs", "tasks", "--task", "9", check=False)
    assert refused.stderr == "kyu logs: tasks has no output of task 9; it has tasks 0 to 2\n"


def test_a_deleted_pod_is_found_by_its_name_and_by_followers(kyu: LocalKyu) -> None:
    kyu.kyu("submit", "--name", "gone", "--", "echo", "last words")
    kyu.wait_for("gone", "Succeeded")
    (pod,) = pods(kyu, "gone")
    kyu.kyu("cancel", "gone")
    kyu.wait("its output is kept", lambda: kyu.kyu("logs", "gone", check=False).stdout == "last words\n")
    assert printed(kyu, f"pod/{pod['metadata']['name']}") == "last words\n"
    assert printed(kyu, "-f", "gone") == "last words\n"


def test_the_kept_logs_of_a_deleted_namespace_are_not_shown(kyu: LocalKyu) -> None:
    for word in ("first", "second"):
        kyu.client.create(Namespace.KIND, {"metadata": {"name": "shared"}})
        queue = {"metadata": {"name": "queue", "namespace": "shared"}, "spec": {"clusterQueue": "local"}}
        kyu.client.create(LocalQueue.KIND, queue)
        # Logs of the second in which the namespace was made are not shown.
        time.sleep(1.1)
        if word == "first":
            kyu.kyu("submit", "-n", "shared", "--name", "private", "--", "echo", "private")
            kyu.wait("it is over", lambda: "private" in kyu.kyu("logs", "-n", "shared", "private", check=False).stdout)
            kyu.kyu("cancel", "-n", "shared", "private")
            kyu.wait("kept", lambda: kyu.kyu("logs", "-n", "shared", "private", check=False).stdout == "private\n")
        else:
            assert kyu.kyu("logs", "-n", "shared", "private", check=False).returncode == 1
        kyu.client.delete(Namespace.KIND, Key("", "shared"))
        kyu.wait("it is gone", lambda: kyu.client.find(Namespace.KIND, Key("", "shared")) is None)


def test_output_goes_to_a_file_of_the_user_as_well(kyu: LocalKyu, tmp_path: Path) -> None:
    script = "echo to output; echo to error >&2"
    words = ["--array", "2", "-o", "logs/%j-%a.out", "-e", "%j-%a.err", "--", "sh", "-c", script]
    kyu.kyu("submit", "--name", "files", "--cpu", "100m", *words, cwd=tmp_path)
    kyu.wait_for("files", "Succeeded")
    assert (tmp_path / "logs" / "files-1.out").read_text() == "to output\n"
    assert (tmp_path / "files-0.err").read_text() == "to error\n"
    assert printed(kyu, "files", "--task", "0") == "to output\nto error\n"


def test_an_output_file_that_cannot_be_opened_is_named(kyu: LocalKyu, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    kyu.kyu("submit", "--name", "nofile", "-o", "taken", "--", "true", cwd=tmp_path)
    kyu.wait_for("nofile", "Failed")
    assert f"output file {tmp_path}/taken: Is a directory" in kyu.kyu("why", "nofile").stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-o", "json"], "use --print json"),
        (["-o", "%N.out"], "%N is not known; use %j (job), %a (task), %u (user) or %%"),
        (["-o", "../out"], "it is not below"),
        (["-e", "/etc/passwd"], "it is not below"),
        (["-o", "out", "--image", "busybox"], "--output and --error have no effect with --image"),
    ],
)
def test_output_files_that_cannot_be_are_refused(kyu: LocalKyu, words: list[str], told: str) -> None:
    refused = kyu.kyu("submit", *words, "--", "true", check=False)
    assert refused.returncode == 2
    assert told in refused.stderr


def test_output_is_kept_when_the_server_is_killed_in_between(tmp_path: Path) -> None:
    with local_kyu(tmp_path) as kyu:
        kyu.kyu("submit", "--name", "survivor", "--", "sh", "-c", "echo before; sleep 600")
        kyu.wait("it writes", lambda: kyu.kyu("logs", "survivor", check=False).stdout == "before\n")
        kyu.kyu("cancel", "survivor")
        kyu.kill()
        kyu.start()
        kyu.wait("its output is kept", lambda: kyu.kyu("logs", "survivor", check=False).stdout == "before\n")


def job_pod(name: str, created: int, ended: int | None, *, task: str = "", succeeded: bool = False) -> JobPod:
    end = "" if ended is None else f"2026-01-01T00:00:{ended:02d}Z"
    return JobPod(name, Key("", name), task, f"2026-01-01T00:00:{created:02d}Z", end, succeeded)


def test_attempts_are_counted_per_task() -> None:
    pods = [
        job_pod("a", 1, 5, task="0"), job_pod("b", 1, 9, task="1", succeeded=True), job_pod("c", 6, None, task="0")
    ]  # fmt: skip
    numbered = attempts.numbered(pods)
    assert [(number, pod.name) for number, pod in numbered] == [(1, "a"), (1, "b"), (2, "c")]
    assert [pod.name for pod in attempts.last_attempts(numbered)] == ["b", "c"]


def test_pods_without_tasks_are_tried_again_together() -> None:
    pods = [
        job_pod("a", 1, 3, succeeded=True), job_pod("b", 4, 8), job_pod("c", 4, 8),
        job_pod("d", 8, None), job_pod("e", 9, None),
    ]  # fmt: skip
    assert [(number, pod.name) for number, pod in attempts.numbered(pods)] == [
        (1, "a"), (1, "b"), (1, "c"), (2, "d"), (2, "e")
    ]  # fmt: skip
