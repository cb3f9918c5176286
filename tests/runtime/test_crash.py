"""
Kyu is killed with kill -9 at any moment: every pod runs exactly once, its exit code is known, no process is left.

This file is also the program that is killed: ``python -m tests.runtime.test_crash FOLDER COUNT`` runs so many pods.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from kyu.api.meta import Json
from kyu.runtime import records, spawn
from kyu.runtime.processes import Machine, Runtime
from kyu.runtime.sandbox.namespaces import Sandbox

ROOT = Path(__file__).parent.parent.parent


class NoObjects:
    def config_map(self, namespace: str, name: str) -> Json | None:
        return None

    def secret(self, namespace: str, name: str) -> Json | None:
        return None


def pod(number: int, folder: Path) -> Json:
    """Return a pod that leaves a line in a file when it runs, and ends with a code of its own."""
    script = f"echo {number} >> {folder}/ran; sleep 0.{number % 4}; exit {number % 3}"
    main = {"name": "main", "image": "any", "command": ["sh", "-c", script]}
    meta = {"name": f"p{number}", "namespace": "team", "uid": f"u{number}"}
    return {"metadata": meta, "spec": {"restartPolicy": "Never", "containers": [main]}}


async def run(folder: Path, count: int) -> dict[str, int]:
    """Start all pods that were not started yet, one after the other, and wait for all. The exit code of each."""
    exit_code_by_name: dict[str, int] = {}
    done = asyncio.Event()

    def tell(pod: Json, status: Json) -> None:
        if status["phase"] in ("Succeeded", "Failed"):
            name = pod["metadata"]["name"]
            exit_code_by_name[name] = status["containerStatuses"][0]["state"]["terminated"]["exitCode"]
            if len(exit_code_by_name) == count:
                done.set()

    runtime = Runtime(str(folder), Machine("node-1"), tell)
    await runtime.open()
    for number in range(count):
        runtime.start(pod(number, folder), NoObjects())
        print(number, flush=True)
        await asyncio.sleep(0)
    await asyncio.wait_for(done.wait(), 60)
    await runtime.close()
    return exit_code_by_name


def kill_after(folder: Path, count: int, lines: int) -> None:
    """Run Kyu until it has said so many lines, then kill it."""
    command = [sys.executable, "-m", "tests.runtime.test_crash", str(folder), str(count)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(lines):
            process.stdout.readline()
        process.kill()


def test_every_pod_runs_exactly_once_whenever_kyu_is_killed(tmp_path: Path) -> None:
    count = 40
    for lines in (1, 9, 17, 33, 40):
        kill_after(tmp_path, count, lines)
    exit_code_by_name = asyncio.run(run(tmp_path, count))
    ran = sorted(int(line) for line in (tmp_path / "ran").read_text().split())
    assert ran == list(range(count))
    assert exit_code_by_name == {f"p{number}": number % 3 for number in range(count)}
    # A supervisor ends a little after its last word.
    for process in left_over(tmp_path):
        asyncio.run(wait_gone(process))


async def test_a_pod_whose_supervisor_was_killed_fails_and_leaves_no_process(tmp_path: Path) -> None:
    told: asyncio.Queue[Json] = asyncio.Queue()
    runtime = Runtime(str(tmp_path), Machine("node-1"), lambda _, status: told.put_nowait(status))
    await runtime.open()
    sleeper = pod(1, tmp_path)
    sleeper["spec"]["containers"][0]["command"] = ["sleep", "1000"]
    runtime.start(sleeper, NoObjects())
    assert (await told.get())["phase"] == "Running"
    claim = records.find(f"{runtime.folder('u1')}/{records.CLAIM}")
    assert claim is not None
    os.kill(claim["pid"], signal.SIGKILL)
    status = await asyncio.wait_for(told.get(), 30)
    assert (status["phase"], status["reason"]) == ("Failed", "SupervisorLost")
    assert status["containerStatuses"][0]["state"]["terminated"]["reason"] == "ContainerStatusUnknown"
    assert processes_of("u1") == []
    await runtime.close()


def test_a_container_does_not_begin_without_its_supervisor(tmp_path: Path) -> None:
    """Its supervisor lets it run and dies, before the container could ask to die with it."""
    ran = tmp_path / "ran"
    plan = {
        "argv": ["touch", str(ran)],
        "env": dict(os.environ),
        "image": "any",
        "mounts": [],
        "workingDir": "/",
        "umask": 0o022,
        "outputFiles": [],
    }
    reader, writer = os.pipe()
    if (supervisor := os.fork()) == 0:
        # After an error, a second process of pytest would go on here.
        with contextlib.suppress(Exception):
            child = spawn.fork(plan, Sandbox())
            os.write(writer, str(child.pid).encode())
            os.kill(child.pid, signal.SIGSTOP)
            os.write(child.go, b"g")
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(writer)
    container = records.find_process(int(os.read(reader, 10)))
    assert container is not None
    os.waitpid(supervisor, 0)
    os.close(reader)
    os.kill(container.pid, signal.SIGCONT)
    asyncio.run(wait_gone(container))
    assert not ran.exists()


async def test_a_pod_of_an_earlier_boot_is_not_run_again(tmp_path: Path) -> None:
    told: asyncio.Queue[Json] = asyncio.Queue()
    runtime = Runtime(str(tmp_path), Machine("node-1"), lambda _, status: told.put_nowait(status))
    await runtime.open()
    runtime.start(pod(1, tmp_path), NoObjects())
    while (await told.get())["phase"] == "Running":
        pass
    await runtime.close()
    folder = runtime.folder("u1")
    plan = records.find(f"{folder}/{records.PLAN}")
    assert plan is not None
    # As after a power cut that kept the folder and lost what was not written through.
    records.write(f"{folder}/{records.PLAN}", plan | {"bootId": "an-earlier-one"})
    os.unlink(f"{folder}/{records.CLAIM}")
    os.unlink(f"{folder}/{records.RECORD}")
    again = Runtime(str(tmp_path), Machine("node-1"), lambda _, status: told.put_nowait(status))
    await again.open()
    status = await asyncio.wait_for(told.get(), 30)
    assert (status["phase"], status["reason"]) == ("Failed", "NodeRestarted")
    assert again.start(pod(1, tmp_path), NoObjects()) is None
    await again.close()
    assert (tmp_path / "ran").read_text() == "1\n"


def processes_of(uid: str) -> list[int]:
    """Return the processes that have the variable of this pod, all over the machine."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if f"{records.MARK}={uid}".encode() in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                found.append(int(entry))
    return found


async def wait_gone(process: records.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(process.pid)
        gone = asyncio.Event()
        asyncio.get_running_loop().add_reader(descriptor, gone.set)
        await asyncio.wait_for(gone.wait(), 60)
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
    assert not records.is_alive(process)


def left_over(folder: Path) -> list[records.Process]:
    """Processes that still have to do with this folder."""
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit() and str(folder).encode() in Path(f"/proc/{entry}/cmdline").read_bytes():
                found.append(records.find_process(int(entry)))
    return [process for process in found if process is not None]


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]), int(sys.argv[2])))
