"""
CPU and memory limits of containers, through control groups (version 2) where the system lets Kyu make them.

A pod has a group, each of its containers one below it. Where groups cannot be made, containers run without limits
and the node's conditions say so and why.

Called by: processes.py (is it possible?), supervisor.py (makes and removes the groups). Standard library only.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

CONTROLLERS = ("cpu", "memory")
CPU_PERIOD_MICROSECONDS = 100_000


@dataclass(frozen=True, slots=True)
class Root:
    """Where the groups of pods are made; with an empty path there are none, for the reason given."""

    path: str = ""
    reason: str = ""


def find_root(mount_info: str = "/proc/self/mountinfo") -> Root:
    """The folder for our groups, made and ready, or the reason why limits cannot be enforced."""
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
    """The files to write for these limits."""
    files = {}
    if milli_cpu is not None:
        quota = max(1000, milli_cpu * CPU_PERIOD_MICROSECONDS // 1000)
        files["cpu.max"] = f"{quota} {CPU_PERIOD_MICROSECONDS}"
    if memory_bytes is not None:
        files["memory.max"] = str(memory_bytes)
        files["memory.swap.max"] = "0"
    return files


def enter(path: str, files: dict[str, str], pid: int) -> None:
    """Make the group, set its limits and move the process there."""
    parent = os.path.dirname(path)
    os.makedirs(parent, exist_ok=True)
    enable(parent)
    os.makedirs(path, exist_ok=True)
    for name, text in files.items():
        write(path, name, text)
    write(path, "cgroup.procs", str(pid))


def was_killed_for_memory(path: str) -> bool:
    try:
        with open(os.path.join(path, "memory.events")) as file:
            counts = dict(line.split() for line in file)
    except OSError:
        return False
    return int(counts.get("oom_kill", "0")) > 0


def kill(path: str) -> None:
    """End every process in the group, also those that left the session."""
    with contextlib.suppress(OSError):
        write(path, "cgroup.kill", "1")


def remove(path: str) -> None:
    """Remove the pod's group with those below it. A group that is still in use stays; it is empty soon."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(path):
            if entry.is_dir():
                with contextlib.suppress(OSError):
                    os.rmdir(entry.path)
        os.rmdir(path)


def write(path: str, name: str, text: str) -> None:
    with open(os.path.join(path, name), "w") as file:
        file.write(text)
