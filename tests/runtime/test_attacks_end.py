"""
The end of a pod is its end: server, launcher and supervisors are killed in any order, and no process survives.

The pods hide as well as they can: they leave their session, ignore signals, drop their environment and fork again. This
file is also the program that is killed: ``python -m tests.runtime.test_attacks_end FOLDER KIND WORD``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kyu.api.meta import Json
from kyu.runtime import podplan, records
from kyu.runtime.processes import Machine, Runtime
from kyu.runtime.sandbox.namespaces import Sandbox
from tests.runtime.test_crash import NoObjects
from tests.runtime.test_processes import opened, pod, shell

ROOT = Path(__file__).parent.parent.parent
COUNT = 3
EACH = 4
# Every process of a pod of this test run has it on its command line: the seconds that it sleeps.
WORD = str(30_000_000 + os.getpid())
HIDDEN = (
    "setsid sh -c 'trap \"\" TERM INT HUP; exec sleep WORD' & env -i setsid -f /bin/sleep WORD;"
    " (setsid setsid sleep WORD &); sleep WORD; true"
)
# Without namespaces, a process that leaves its session and drops its environment cannot be found again.
MARKED = "setsid sleep WORD & (setsid setsid sleep WORD &); trap '' TERM; sleep WORD; true"


def options(folder: Path, kind: str) -> podplan.RuntimeOptions:
    return podplan.RuntimeOptions(tenants=kind == "tenants", user_ids=str(folder / "user-ids.json"))


def hidden(kind: str, word: str = WORD) -> Json:
    return shell((MARKED if kind == "no namespaces" else HIDDEN).replace("WORD", word))


async def run(folder: Path, kind: str, word: str) -> None:
    """Start the pods, print the processes that run them, and wait to be killed."""
    if kind == "no namespaces":
        Runtime._sandboxes = lambda _: [Sandbox()]  # type: ignore[method-assign]
    runtime = Runtime(str(folder), Machine("n"), lambda *_: None, options(folder, kind))
    await runtime.open()
    for number in range(COUNT):
        runtime.start(pod(f"p{number}", hidden(kind, word)), NoObjects())
    await until(lambda: len(sleepers(word)) >= COUNT * EACH)
    assert runtime._launching.process is not None
    claims = [records.find(f"{runtime.folder(uid)}/{records.CLAIM}") for uid in runtime.uids()]
    print(os.getpid(), runtime._launching.process.pid, *(claim["pid"] for claim in claims if claim), flush=True)
    await asyncio.sleep(1000)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until processes of other programs have got so far."""

    def look() -> None:
        end = time.monotonic() + 60
        while not is_so():
            assert time.monotonic() < end
            time.sleep(0.02)

    await asyncio.to_thread(look)


def sleepers(word: str = WORD) -> list[int]:
    """Return the processes of pods, all over the machine."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
            if any(word.encode() in part for part in words) and words[0] in (b"sleep", b"/bin/sleep", b"sh"):
                found.append(int(entry))
    return found


KINDS = ["tenants", "one user", "no namespaces"]
ORDERS = ["server, launcher, supervisors", "supervisors, launcher, server", "launcher, supervisors, server"]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", KINDS)
async def test_no_process_survives_in_whatever_order_all_are_killed(tmp_path: Path, kind: str, order: str) -> None:
    if kind == "tenants" and os.geteuid() != 0:
        pytest.skip("only root serves tenants")
    server, launcher, *supervisors = await asyncio.to_thread(start, tmp_path, kind)
    pids = {"server": [server], "launcher": [launcher], "supervisors": supervisors}
    for which in order.split(", "):
        for pid in pids[which]:
            os.kill(pid, signal.SIGKILL)
    async with opened(tmp_path, options(tmp_path, kind)) as watched:
        for number in range(COUNT):
            status = await watched.over(f"p{number}")
            assert (status["phase"], status["reason"]) == ("Failed", "SupervisorLost")
        # The quota of the pods is given back with these statuses.
        assert sleepers() == []


def start(folder: Path, kind: str) -> list[int]:
    command = [sys.executable, "-m", "tests.runtime.test_attacks_end", str(folder), kind, WORD]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        pids = [int(word) for word in process.stdout.readline().split()]
    assert len(pids) == 2 + COUNT
    threading.Thread(target=process.wait).start()
    return pids


async def test_a_killed_supervisor_takes_its_pod_along_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as watched:
        if not watched.runtime.isolation.sandbox.namespaces:
            pytest.skip("needs namespaces")
        watched.start(pod("a", hidden("one user")))
        await until(lambda: len(sleepers()) >= EACH)
        claim = records.find(f"{watched.runtime.folder('uid-a')}/{records.CLAIM}")
        assert claim is not None
        os.kill(claim["pid"], signal.SIGKILL)
        status = await watched.over("a")
        assert status["reason"] == "SupervisorLost"
        assert sleepers() == []


async def test_a_deleted_pod_is_over_when_its_processes_are_gone(tmp_path: Path) -> None:
    async with opened(tmp_path) as watched:
        watched.start(pod("a", hidden("one user")))
        await until(lambda: len(sleepers()) >= EACH)
        watched.runtime.stop("uid-a", 0)
        await watched.over("a")
        assert sleepers() == []


async def test_a_supervisor_that_does_not_end_its_pod_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kyu.runtime.processes.SLOW_END_SECONDS", 0.05)
    async with opened(tmp_path) as watched:
        if not watched.runtime.isolation.sandbox.namespaces:
            pytest.skip("needs namespaces")
        watched.start(pod("a", hidden("one user")))
        await watched.until("a", "Running")
        claim = records.find(f"{watched.runtime.folder('uid-a')}/{records.CLAIM}")
        assert claim is not None
        os.kill(claim["pid"], signal.SIGSTOP)
        watched.runtime.stop("uid-a", 0)
        assert (await watched.over("a"))["reason"] == "SupervisorLost"
        assert sleepers() == []


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]), *sys.argv[2:]))
