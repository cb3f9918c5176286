"""
Writes the output of a container to files of its user as well, as ``kyu submit --output`` asks.

An annotation of the pod names the file by a pattern. The path must lie below the container's working directory. The
file is opened with the rights of the pod's user: a supervisor that runs as root asks a child that gives up its rights,
and gets the open file back. So a link of a tenant leads only to places that the tenant can reach anyway.

Called by: podplan.py, output.py, supervisor.py. Imports nothing beyond the standard library and one constant.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
from collections.abc import Mapping
from typing import Any

from kyu.api.labels import task_number

OUTPUT = "kyu.dev/output"
ERROR = "kyu.dev/error"
UMASK = "kyu.dev/umask"
DEFAULT_UMASK = 0o022
JOB_NAME = "batch.kubernetes.io/job-name"


def plan_files(container: Mapping[str, Any], pod: Mapping[str, Any], folder: str) -> dict[str, str]:
    """Return the file of each stream of a container. Only the first main container has files."""
    annotations = pod["metadata"].get("annotations") or {}
    if container["name"] != pod["spec"]["containers"][0]["name"]:
        return {}
    output = annotations.get(OUTPUT) or ""
    patterns = {"stdout": output, "stderr": annotations.get(ERROR) or output}
    return {stream: resolve(pattern, pod, folder) for stream, pattern in patterns.items() if pattern}


def umask_of(pod: Mapping[str, Any]) -> int:
    """Return the umask that the annotation of the pod names, or the usual one."""
    text = (pod["metadata"].get("annotations") or {}).get(UMASK, "")
    return int(text, 8) & 0o777 if re.fullmatch(r"[0-7]{1,4}", text) else DEFAULT_UMASK


def resolve(pattern: str, pod: Mapping[str, Any], folder: str) -> str:
    """Return the path of a file below the folder, with the name of the job and the number of its task filled in."""
    meta = pod["metadata"]
    annotations = meta.get("annotations") or {}
    words = {
        "%": "%",
        "j": (meta.get("labels") or {}).get(JOB_NAME) or meta["name"],
        "a": task_number(annotations) or "0",
    }
    return os.path.join(folder, re.sub(r"%(.)", lambda match: words.get(match[1], match[0]), pattern))


def why_not_below(path: str, folder: str) -> str:
    """Return why a path is not the path of a file below the folder, or an empty text."""
    inner = os.path.relpath(path, folder)
    if inner == "." or path.endswith("/"):
        return "it names no file"
    return f"it is not below {folder}" if inner.split("/")[0] == ".." or ".." in path.split("/") else ""


def open_as(user: int | None, folder: str, path: str, umask: int = DEFAULT_UMASK) -> int:
    """Open a file with the rights of a user, for appending, and return its descriptor."""
    try:
        return _open_as(user, folder, path, umask)
    except OSError as error:
        suffix = f", for user {user}, the user of pods of this namespace" if user is not None else ""
        raise OSError(error.errno, f"{error.strerror}{suffix}", path) from error


def _open_as(user: int | None, folder: str, path: str, umask: int) -> int:
    if user is None or os.geteuid() != 0:
        before = os.umask(umask)
        try:
            return open_below(folder, path)
        finally:
            os.umask(before)
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            os.umask(umask)
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            socket.send_fds(theirs, [b"\0"], [open_below(folder, path)])
        except OSError as error:
            theirs.send(bytes([error.errno or 1]))
        finally:
            os._exit(0)
    theirs.close()
    with ours:
        answer, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
    if not descriptors:
        number = answer[0] if answer else 1
        raise OSError(number, os.strerror(number), path)
    os.set_inheritable(descriptors[0], False)
    return descriptors[0]


def open_below(folder: str, path: str) -> int:
    """Open a regular file below the folder; make the folders between. Root follows no link."""
    if why_not_below(path, folder):
        raise PermissionError(1, f"it is not below {folder}", path)
    no_links = os.O_NOFOLLOW if os.geteuid() == 0 else 0
    *folders, name = os.path.relpath(path, folder).split("/")
    current = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for inner in folders:
            with contextlib.suppress(FileExistsError):
                os.mkdir(inner, dir_fd=current)
            inner_folder = os.open(inner, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | no_links, dir_fd=current)
            os.close(current)
            current = inner_folder
        # A pipe or device in its place must not block the supervisor.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC | no_links
        descriptor = os.open(name, flags, 0o666, dir_fd=current)
    finally:
        os.close(current)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise PermissionError(1, "it is not a regular file", path)
    return descriptor


def append(descriptor: int, data: bytes) -> None:
    """Write output to a file of the user, if there is one. On a full disk it is lost; the log has it."""
    while descriptor >= 0 and data:
        try:
            data = data[os.write(descriptor, data) :]
        except OSError:
            return


def close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)
