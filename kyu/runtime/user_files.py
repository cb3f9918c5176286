"""
Writes the output of a container to files of its user as well, as ``kyu submit --output`` asks.

An annotation of the pod names the file by a pattern. The path must lie below the container's working directory. The
container's own process opens the file before it runs its program, with its rights, its volumes and its view of the
machine, and sends the open file to the supervisor. So a path of a tenant leads only to places that its program reaches.

Called by: podplan.py, output.py, spawn.py (in the child), supervisor.py. Imports nothing beyond the standard library
and one constant.
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


def send_opened(connection: socket.socket, paths: Mapping[str, str], folder: str) -> None:
    """Open the files of a container, from inside it, and send their descriptors in the order of the streams."""
    socket.send_fds(connection, [b"f"], [open_below(folder, path) for path in paths.values()])


def receive(connection: socket.socket, paths: Mapping[str, str]) -> dict[str, int]:
    """Return the descriptors that ``send_opened`` has sent, by stream; none if the sender was killed."""
    _, descriptors, _, _ = socket.recv_fds(connection, 1, len(paths), socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT)
    return dict(zip(paths, descriptors, strict=False))


def open_below(folder: str, path: str) -> int:
    """Open a regular file below the folder for appending; make the folders between. Root follows no link.

    An error has the path as its file name.
    """
    try:
        return _open_below(folder, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def _open_below(folder: str, path: str) -> int:
    if why_not_below(path, folder):
        raise PermissionError(1, f"it is not below {folder}")
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
        raise PermissionError(1, "it is not a regular file")
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
