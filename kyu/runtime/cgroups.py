"""
CPU and memory limits of containers, through control groups (version 2) where the system lets Kyu make them.

A pod has a group, each of its containers one below it. If groups cannot be made, containers run without limits, and
the node's conditions say so and why. A supervisor opens the files of its groups before it becomes the pod's user.

Called by: processes.py (finds the root, removes groups), supervisor.py (makes and enters them). Standard library only.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

CONTROLLERS = ("cpu", "memory")
CPU_PERIOD_MICROSECONDS = 100_000
LEAST_SHARES, MOST_SHARES = 2, 262144


@dataclass(frozen=True, slots=True)
class Root:
    """The group that those of pods are made in; with an empty path there are none, for the reason given."""

    path: str = ""
    reason: str = ""


def find_root(mount_info: str = "/proc/self/mountinfo") -> Root:
    """Return the folder for Kyu's groups, made and ready, or the reason why limits cannot be enforced."""
    base = find_mount(mount_info)
    if base is None:
        return Root(reason="no cgroup v2 file system is mounted")
    try:
        with open(os.path.join(base, "cgroup.controllers")) as file:
            present = file.read().split()
    except OSError as error:
        return Root(reason=f"{base}: {error.strerror}")
    if missing := [name for name in CONTROLLERS if name not in present]:
        return Root(reason=f"the cgroup v2 file system at {base} has no {' and '.join(missing)} controller")
    path = os.path.join(base, "kyu")
    try:
        enable(base)
        os.makedirs(path, exist_ok=True)
        enable(path)
    except OSError as error:
        return Root(reason=f"{error.filename or path}: {error.strerror}")
    return Root(path)


def find_mount(mount_info: str) -> str | None:
    with open(mount_info) as file:
        for line in file:
            fields, _, rest = line.partition(" - ")
            if rest.startswith("cgroup2 "):
                return fields.split()[4]
    return None


def enable(path: str) -> None:
    write(path, "cgroup.subtree_control", " ".join(f"+{name}" for name in CONTROLLERS))


def limits(milli_cpu: int | None, memory_bytes: int | None) -> dict[str, str]:
    """Return the text of each file of a group with these limits."""
    files = {}
    if milli_cpu is not None:
        quota = max(1000, milli_cpu * CPU_PERIOD_MICROSECONDS // 1000)
        files["cpu.max"] = f"{quota} {CPU_PERIOD_MICROSECONDS}"
    if memory_bytes is not None:
        files["memory.max"] = str(memory_bytes)
        files["memory.swap.max"] = "0"
    return files


def weight(milli_cpu: int) -> str:
    """Return the share of a busy CPU for a request, by the formula of the kubelet and container engines."""
    shares = min(max(milli_cpu * 1024 // 1000, LEAST_SHARES), MOST_SHARES)
    return str(1 + (shares - LEAST_SHARES) * 9999 // (MOST_SHARES - LEAST_SHARES))


def weigh(path: str, text: str) -> None:
    """Set the share of a group that was made."""
    write(path, "cpu.weight", text)


@dataclass(frozen=True, slots=True)
class Group:
    """The group of a container, with its files open for the supervisor."""

    path: str
    processes: int
    kill: int

    def enter(self, pid: int) -> None:
        os.write(self.processes, str(pid).encode())

    def end(self) -> None:
        """End every process in the group, also those that left the session."""
        with contextlib.suppress(OSError):
            os.write(self.kill, b"1")


def make(path: str, files: dict[str, str]) -> Group:
    """Make the group and set its limits."""
    parent = os.path.dirname(path)
    os.makedirs(parent, exist_ok=True)
    enable(parent)
    os.makedirs(path, exist_ok=True)
    for name, text in files.items():
        write(path, name, text)
    flags = os.O_WRONLY | os.O_CLOEXEC
    processes = os.open(os.path.join(path, "cgroup.procs"), flags)
    return Group(path, processes, os.open(os.path.join(path, "cgroup.kill"), flags))


def was_killed_for_memory(path: str) -> bool:
    try:
        with open(os.path.join(path, "memory.events")) as file:
            counts = dict(line.split() for line in file)
    except OSError:
        return False
    return int(counts.get("oom_kill", "0")) > 0


def peak_memory(path: str) -> int | None:
    """Return the most memory that a group has used, or None if the kernel does not count it."""
    try:
        with open(os.path.join(path, "memory.peak")) as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def kill_pod(path: str) -> None:
    """End every process in the groups of a pod."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(path):
            if entry.is_dir():
                with contextlib.suppress(OSError):
                    write(entry.path, "cgroup.kill", "1")


def processes(path: str) -> set[int]:
    """Return the pids in the groups of a pod."""
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir(path) if path else ():
            with contextlib.suppress(OSError), open(os.path.join(entry.path, "cgroup.procs")) as file:
                found.update(map(int, file.read().split()))
    return found


def remove(path: str) -> None:
    """Remove the pod's group with those below it, if it has one."""
    if not path:
        return
    with contextlib.suppress(OSError):
        for entry in os.scandir(path):
            if entry.is_dir():
                with contextlib.suppress(OSError):
                    os.rmdir(entry.path)
        os.rmdir(path)


def write(path: str, name: str, text: str) -> None:
    with open(os.path.join(path, name), "w") as file:
        file.write(text)
