"""Functions and commands as jobs: results, exceptions, states, output, on a control plane of the tests' own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import traceback
from concurrent.futures import CancelledError
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import kyu
from kyu.sdk import exchange
from kyu.sdk.submitter import Submitter

LONG = 120.0


class Overflow(Exception):
    """An exception that only this module knows."""


def add(first: int, second: int = 0) -> int:
    print("adding", first, second)
    return first + second


def overflow(size: int) -> None:
    raise Overflow(f"{size} is too much", size)


def test_a_function_runs_and_returns_its_value(kyu_local: Submitter) -> None:
    future = kyu.submit(add, 2, kwargs={"second": 3}, cpu="100m")
    assert future.result(LONG) == 5
    assert future.state == "Succeeded"
    assert future.logs() == "adding 2 3\n"


def test_a_function_travels_with_its_closure_folder_and_interpreter(kyu_local: Submitter, tmp_path: Path) -> None:
    factor = 3
    future = kyu.submit(lambda x: (x * factor, os.getcwd(), sys.executable), 2, cpu=0.1, cwd=tmp_path)
    assert future.result(LONG) == (6, str(tmp_path), sys.executable)


def test_an_exception_comes_back_with_its_traceback(kyu_local: Submitter) -> None:
    error = kyu.submit(overflow, 9, cpu=0.1).exception(LONG)
    assert isinstance(error, Overflow)
    assert error.args == ("9 is too much", 9)
    told = "".join(traceback.format_exception(error))
    assert 'raise Overflow(f"{size} is too much", size)' in told
    assert "worker.py" not in told


@pytest.mark.parametrize("folder", [None, False], ids=["files", "objects"])
def test_values_and_exceptions_travel_both_ways(kyu_local: Submitter, folder: Any) -> None:
    options: dict[str, Any] = {"cpu": 0.1} if folder is None else {"cpu": 0.1, "folder": folder}
    data = {"text": "ü\n", "bytes": bytes(range(256)) * 100, "set": {1, 2}, "module": Overflow}
    echo = kyu.submit(lambda value: print("no line feed", end="") or value, data, **options)
    failing = kyu.submit(overflow, 1, **options)
    assert echo.result(LONG) == data
    assert echo.logs().strip() == "no line feed"
    assert isinstance(failing.exception(LONG), Overflow)
    assert "kyu-outcome" not in failing.logs()


def test_a_result_has_a_bounded_size(kyu_local: Submitter) -> None:
    future = kyu.submit(bytes, exchange.MOST_LOG_BYTES + 1, cpu=0.1, folder=False)
    with pytest.raises(ValueError, match="at most 1048576 come back"):
        future.result(LONG)
    with pytest.raises(kyu.NotCarried, match="KYU_FOLDER"):
        kyu.submit(len, bytes(exchange.MOST_OBJECT_BYTES), cpu=0.1, folder=False)


def test_what_cannot_be_pickled_is_refused_at_once(kyu_local: Submitter) -> None:
    with pytest.raises(kyu.NotCarried, match="the arguments of task 0"):
        kyu.submit(print, threading.Lock(), cpu=0.1)


def test_a_job_that_is_killed_says_so(kyu_local: Submitter) -> None:
    future = kyu.submit(lambda: os.kill(os.getpid(), signal.SIGKILL), cpu=0.1)
    with pytest.raises(kyu.JobFailed, match="137") as caught:
        future.result(LONG)
    assert (caught.value.job, caught.value.exit_code) == (future.job, 137)


def test_a_time_limit_ends_the_future(kyu_local: Submitter) -> None:
    future = kyu.run(["sleep", "600"], cpu=0.1, time=timedelta(seconds=1))
    with pytest.raises(kyu.JobFailed, match="stopped"):
        future.result(LONG)
    future.cancel()


def test_a_command_returns_its_output(kyu_local: Submitter) -> None:
    assert kyu.run(["sh", "-c", "echo $WORD"], cpu=0.1, env={"WORD": "seen"}).result(LONG) == "seen\n"
    with pytest.raises(kyu.JobFailed, match="broken") as caught:
        kyu.run(["sh", "-c", "echo broken; exit 4"], cpu=0.1).result(LONG)
    assert caught.value.exit_code == 4
    with pytest.raises(TypeError, match="list of words"):
        kyu.run("sleep 3")


def test_secrets_are_not_in_the_job(kyu_local: Submitter) -> None:
    future = kyu.run(["sh", "-c", "echo $TOKEN"], cpu=0.1, secrets={"TOKEN": "hidden"})
    assert future.result(LONG) == "hidden\n"
    shown = subprocess.run(
        [sys.executable, "-m", "kyu", "get", "job", future.job, "-o", "yaml"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "TOKEN" in shown.stdout
    assert "hidden" not in shown.stdout


def test_a_manifest_of_any_kind_is_a_future(kyu_local: Submitter) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x", "command": ["echo", "from a pod"]}]}
    labels = {"kueue.x-k8s.io/queue-name": "local"}
    future = kyu.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": labels}, "spec": pod})
    assert future.result(LONG) == "from a pod\n"
    with pytest.raises(ValueError, match="no kind of job"):
        kyu.create("{apiVersion: v1, kind: Service, metadata: {name: x}}")


def test_a_waiting_job_explains_itself_and_can_be_cancelled(kyu_local: Submitter) -> None:
    future = kyu.submit(add, 1, cpu=5000)
    assert not future.done()
    assert "can never fit" in future.why()
    assert future.state == "Queued"
    assert repr(future) == f"<kyu.Future {future.job} Queued>"
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result()
    assert future.state == "Cancelled"


def test_a_job_that_others_cancel_ends_its_future(kyu_local: Submitter) -> None:
    future = kyu.run(["sleep", "600"], cpu=0.1)
    subprocess.run([sys.executable, "-m", "kyu", "cancel", future.job], check=True, capture_output=True)
    with pytest.raises(CancelledError):
        future.result(LONG)


def test_a_job_waits_for_others(kyu_local: Submitter, tmp_path: Path) -> None:
    first = kyu.submit((tmp_path / "made").write_text, "1", cpu=0.1)
    second = kyu.submit((tmp_path / "made").read_text, cpu=0.1, after=[first])
    assert second.result(LONG) == "1"


def test_options_are_checked_before_anything_is_sent(kyu_local: Submitter) -> None:
    with pytest.raises(ValueError, match="cpu=much: "):
        kyu.submit(add, 1, cpu="much")
    with pytest.raises(ValueError, match="has no queue 'elsewhere'"):
        kyu.submit(add, 1, queue="elsewhere")
    with pytest.raises(ValueError, match="WorkloadPriorityClass"):
        kyu.submit(add, 1, priority="none")
    future = kyu.submit(add, 1, cpu=0.1, name="only-once")
    with pytest.raises(ValueError, match="name=only-once: a Job of this name exists"):
        kyu.submit(add, 1, cpu=0.1, name="only-once")
    assert future.result(LONG) == 1


def test_folders_of_finished_calls_are_removed(kyu_local: Submitter) -> None:
    base = Path(os.environ["KYU_FOLDER"])
    future = kyu.submit(add, 1, cpu=0.1, name="traceless")
    assert future.result(LONG) == 1
    kyu.submit(add, 1, cpu=0.1).result(LONG)
    assert [path for path in base.iterdir() if path.name.startswith("traceless")] == []


def test_without_a_server_the_message_names_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KYU_DATA", "XDG_DATA_HOME", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(kyu.NoServer, match="kyu up -d"):
        kyu.submit(add, 1)
