"""
Ends what is left of a pod whose supervisor was killed.

In a pod with namespaces the kernel has ended all processes before the supervisor is gone, so none is left. Without
namespaces, processes are known by their control group, by the process that the record names with its group and
session, and by a variable of their environment.

Called by: processes.py. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from typing import Any

from kyu.runtime import cgroups, records

LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Remains:
    """All that is known of the processes of a pod."""

    uid: str
    # The user of the pod's processes, if it is not that of Kyu.
    user: int | None
    cgroup: str
    # Whether the kernel ends all processes with the supervisor.
    has_namespaces: bool
    containers: tuple[records.Process, ...]

    @classmethod
    def of(cls, uid: str, plan: dict[str, Any], record: dict[str, Any] | None) -> Remains:
        record = record or {"containers": {}}
        found = [state.get("process") for state in record["containers"].values()]
        sandbox = plan.get("sandbox") or {}
        return cls(
            uid,
            sandbox.get("user"),
            plan.get("cgroup") or "",
            bool(sandbox.get("namespaces")),
            tuple(records.Process(*process) for process in found if process),
        )


def end(remains: Remains, seconds: float) -> bool:
    """Kill all processes and wait until they are gone. False if some are still there in the end."""
    until = time.monotonic() + seconds
    while True:
        found = find(remains)
        if not found:
            return True
        if time.monotonic() >= until:
            return False
        if remains.cgroup:
            cgroups.kill_pod(remains.cgroup)
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(LOOK_SECONDS)


def find(remains: Remains) -> set[int]:
    """Return the pids of the pod's processes."""
    found = {process.pid for process in remains.containers if records.is_alive(process)}
    if not remains.has_namespaces:
        found |= find_strays(remains)
    found |= cgroups.processes(remains.cgroup)
    # The record comes from a process of the pod's user. It can name no process of another user.
    user = os.geteuid() if remains.user is None else remains.user
    return {pid for pid in found if records.find_user(pid) == user}


def find_strays(remains: Remains) -> set[int]:
    """Return processes that belong to the sessions of the containers, or have the pod's variable."""
    # A session keeps its number until its last process ends. A live leader with another start is another session's.
    leaders = {
        process.pid
        for process in remains.containers
        if records.find_start_ticks(process.pid) in (None, process.start_ticks)
    }
    mark = f"{records.MARK}={remains.uid}".encode()
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return {pid for pid in pids if is_of_session(pid, leaders) or is_marked(pid, mark)}


def is_of_session(pid: int, leaders: set[int]) -> bool:
    with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
        return fields[0] not in (b"Z", b"X") and (int(fields[2]) in leaders or int(fields[3]) in leaders)
    return False


def is_marked(pid: int, mark: bytes) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        return mark in file.read().split(b"\0")
    return False
