"""Nothing is left behind, and control planes do not get in each other's way."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster.conftest import require
from tests.cluster.controlplane import EVERYTHING, ControlPlane
from tests.cluster.processes import ProcessEnded, Processes

MEMORY_LIMIT_BYTES = 4 * 2**30
# A test run that starts an API server, says what it started, and hangs.
RUN = """
import json, signal
from tests.cluster.controlplane import ControlPlane
plane = ControlPlane.start()
pids = [plane.processes.keeper.pid, *plane.processes.pid_by_name.values()]
print(json.dumps({"pids": pids, "folder": str(plane.layout.folder)}), flush=True)
signal.pause()
"""


def test_a_killed_test_run_leaves_no_process_and_no_folder() -> None:
    require()
    with subprocess.Popen([sys.executable, "-c", RUN], stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        started = json.loads(run.stdout.readline())
        descriptors = [os.pidfd_open(pid) for pid in started["pids"]]
        assert len(descriptors) == 3

        run.send_signal(signal.SIGKILL)

        try:
            for descriptor in descriptors:
                assert has_ended(descriptor, seconds=20)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
    assert not Path(started["folder"]).exists()


def test_a_killed_guard_takes_its_processes_with_it() -> None:
    processes = Processes.begin()
    processes.start("sleeper", ["sleep", "600"])
    descriptor = os.pidfd_open(processes.pid_by_name["sleeper"])
    try:
        processes.keeper.kill()
        assert has_ended(descriptor, seconds=20)
        with pytest.raises(ProcessEnded, match=r"the guard .* is gone"):
            processes.require_running("sleeper")
    finally:
        os.close(descriptor)
        processes.end()
        shutil.rmtree(processes.folder)


def test_a_part_that_dies_is_reported_with_the_end_of_its_log() -> None:
    require()
    with ControlPlane.start() as plane:
        plane.processes.start("kube-scheduler", ["/bin/sh", "-c", "echo the reason; exit 7"])
        with pytest.raises(ProcessEnded, match=r"exit code 7.*\n.*the reason"):
            plane.wait("kube-scheduler", lambda: False)


def test_three_control_planes_run_at_once_in_four_gigabytes() -> None:
    require(*EVERYTHING)
    planes: list[ControlPlane] = []
    try:
        with ThreadPoolExecutor(3) as pool:
            futures = [pool.submit(ControlPlane.start, *EVERYTHING) for _ in range(3)]
            planes.extend(future.result() for future in futures)
        for number, plane in enumerate(planes):
            plane.add_nodes([f"only-in-{number}"], {"cpu": "1", "memory": "1Gi"})
        for number, plane in enumerate(planes):
            assert [node["metadata"]["name"] for node in plane.admin.list("v1", "Node")] == [f"only-in-{number}"]
        used = sum(sum(plane.processes.resident_bytes().values()) for plane in planes)
        assert used < MEMORY_LIMIT_BYTES
    finally:
        for plane in planes:
            plane.stop()


def has_ended(descriptor: int, seconds: float) -> bool:
    """Whether the process behind a pidfd ends within this time."""
    readable, _, _ = select.select([descriptor], [], [], seconds)
    return bool(readable)
