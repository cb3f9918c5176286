"""What the commands tell a user of `kyu user add`, who may see one namespace and nothing of the cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kyu.api.core import Namespace
from kyu.api.kueue import LocalQueue
from tests.support.local_kyu import LocalKyu, local_kyu

Ana = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def kyu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKyu]:
    with local_kyu(tmp_path_factory.mktemp("kyu") / "data", "--trust-users", "--cpu", "2") as running:
        running.client.create(Namespace.KIND, {"metadata": {"name": "team-a"}})
        queue = {"metadata": {"name": "main", "namespace": "team-a"}, "spec": {"clusterQueue": "local"}}
        running.client.create(LocalQueue.KIND, queue)
        yield running


@pytest.fixture(scope="module")
def ana(kyu: LocalKyu) -> Ana:
    """Runs a command as the user ana."""
    config = kyu.data / "ana.kubeconfig"
    config.write_text(kyu.kyu("user", "add", "ana", "--namespace", "team-a").stdout)

    def run(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "KUBECONFIG": str(config)}
        command = [sys.executable, "-m", "kyu", *words]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=90)
        assert not check or done.returncode == 0, f"kyu {' '.join(words)}: {done.stdout}{done.stderr}"
        return done

    return run


def test_a_batch_user_sees_what_the_queue_uses_without_its_quota(kyu: LocalKyu, ana: Ana) -> None:
    ana("submit", "--name", "busy", "--cpu", "1", "--", "sleep", "600")
    kyu.wait_for("busy", "Running")

    def used() -> str:
        header, line = ana("queues", "-o", "wide").stdout.splitlines()
        at = header.index("USED")
        return line[at : header.index("STATE")].strip()

    kyu.wait("the queue knows of it", lambda: used().startswith("cpu 1"))
    assert "/" not in used()
    assert "cpu 1/2" in kyu.kyu("queues", "-n", "team-a", "-o", "wide").stdout
    ana("cancel", "busy")


def test_a_batch_user_gets_along_with_the_commands_for_jobs(kyu: LocalKyu, ana: Ana) -> None:
    ana("submit", "--name", "three", "--", "sh", "-c", "echo hello; exit 3")
    assert ana("wait", "three", check=False).returncode == 3
    assert ana("logs", "three").stdout == "hello\n"
    assert "three" in ana("jobs", "--all").stdout
    assert "exit code 3" in ana("why", "three").stdout
    assert "three" in ana("get", "jobs").stdout
    assert "Events:" in ana("describe", "job", "three").stdout
    assert ana("cancel", "three").stdout == "three\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["top", "--once"], "`kyu jobs` and `kyu queues` show namespace team-a"),
        (["jobs", "-A"], "without -A you see those of namespace team-a"),
        (["queues", "-A"], "without -A you see those of namespace team-a"),
        (["jobs", "-n", "default"], "without -n you see those of namespace team-a"),
        (["submit", "-n", "default", "--", "true"], "without -n you see those of namespace team-a"),
        (["get", "clusterqueues"], "`kyu queues` and `kyu jobs` show"),
        (["get", "clusterqueue", "local", "-o", "yaml"], "`kyu queues` and `kyu jobs` show"),
        (["describe", "clusterqueue", "local"], "`kyu queues` and `kyu jobs` show"),
        (["ctl", "list", "clusterqueue"], "`kyu queues` and `kyu jobs` show"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_a_batch_user_may_not_do_is_told_in_one_line_with_what_to_use(
    ana: Ana, words: list[str], told: str
) -> None:
    refused = ana(*words, check=False)
    assert (refused.returncode, refused.stdout) == (1, "")
    (line,) = refused.stderr.splitlines()
    assert line.startswith(f"kyu {words[0]}: you may not see")
    assert told in line


def test_a_decision_that_depends_on_others_is_not_for_batch_users(ana: Ana, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(ana("submit", "--dry-run", "-q", "main", "--name", "d", "--print", "json", "--", "true").stdout)
    assert json.loads(file.read_text())["kind"] == "Job"
    refused = ana("decide", "--live", "-f", str(file), check=False)
    assert (refused.returncode, refused.stdout) == (1, "")
    (line,) = refused.stderr.splitlines()
    assert "`kyu why JOB` explains why it waits" in line


def test_a_priority_class_that_does_not_exist_is_told_to_who_may_not_see_classes(kyu: LocalKyu, ana: Ana) -> None:
    told = "WorkloadPriorityClass 'nosuch' doesn't exist"
    submitted = ana("submit", "--name", "urgent", "--priority", "nosuch", "--", "true")
    assert submitted.stdout == "urgent\n"
    assert told in submitted.stderr
    assert "`kyu cancel urgent` deletes the job" in submitted.stderr
    assert told in ana("jobs", "-o", "wide").stdout
    for command in ("why", "wait", "logs"):
        refused = ana(command, "urgent", check=False)
        assert (refused.returncode, told in refused.stderr) == (1, True)
    # Who may see the classes is told by them, however old the job is.
    assert "there is no WorkloadPriorityClass 'nosuch'" in kyu.kyu("jobs", "-n", "team-a", "-o", "wide").stdout
    assert ana("cancel", "urgent").stdout == "urgent\n"
    assert ana("jobs").stdout == ""


def test_a_job_without_a_workload_is_among_all_that_are_cancelled(kyu: LocalKyu, ana: Ana) -> None:
    ana("submit", "--name", "urgent", "--priority", "nosuch", "--", "true")
    ana("submit", "--name", "long", "--", "sleep", "600")
    kyu.wait_for("long", "Running")
    assert sorted(ana("cancel", "--all").stdout.split()) == ["long", "urgent"]
