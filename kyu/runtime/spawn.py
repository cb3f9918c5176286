"""
Starts one container: a process in its own session, with its environment, mounts, user and limits, and nothing else.

The child waits until its parent has written down its pid; so no process ever runs that the records do not know. What
goes wrong before the program runs comes back through a pipe that closes by itself when the program starts.

Called by: supervisor.py. Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from dataclasses import dataclass
from typing import Any

from kyu.runtime import mounts

NOT_FOUND_EXIT_CODE = 127
NOT_RUNNABLE_EXIT_CODE = 126


@dataclass(frozen=True, slots=True)
class Child:
    pid: int
    stdout: int
    stderr: int
    # Write a byte here to let it run; read here why it could not.
    go: int
    failure: int


class StartFailed(Exception):
    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def fork(container: dict[str, Any], user: int | None) -> Child:
    stdout_reader, stdout_writer = os.pipe()
    stderr_reader, stderr_writer = os.pipe()
    go_reader, go_writer = os.pipe()
    failure_reader, failure_writer = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            # A copy of the parent's end would keep the pipe open after the parent's death.
            os.close(go_writer)
            prepare(stdout_writer, stderr_writer)
            if os.read(go_reader, 1):
                become(container, user, parent)
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.write(failure_writer, why_failed(container, error))
        finally:
            os._exit(NOT_FOUND_EXIT_CODE)
    for descriptor in (stdout_writer, stderr_writer, go_reader, failure_writer):
        os.close(descriptor)
    os.set_blocking(stdout_reader, False)
    os.set_blocking(stderr_reader, False)
    return Child(pid, stdout_reader, stderr_reader, go_writer, failure_reader)


def release(child: Child) -> None:
    """Let the child run its program. Raises StartFailed if it could not; the child is reaped as any other."""
    try:
        with contextlib.suppress(BrokenPipeError):
            os.write(child.go, b"g")
        failure = b""
        while chunk := os.read(child.failure, 65536):
            failure += chunk
    finally:
        os.close(child.go)
        os.close(child.failure)
    if failure:
        code, _, message = failure.decode(errors="replace").partition(" ")
        raise StartFailed(int(code), message)


def prepare(stdout: int, stderr: int) -> None:
    """In the child: be a session of its own, with the container's output and default signals."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)


def become(container: dict[str, Any], user: int | None, parent: int) -> None:
    """In the child: turn to the container's program. Returns only if the parent has died."""
    if container["mounts"]:
        mounts.enter([mounts.Mount(*mount) for mount in container["mounts"]], container["scratch"])
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    # After the change of user, which clears it.
    mounts.die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        # It died before that, so no signal will come.
        return
    os.umask(0o022)
    try:
        os.chdir(container["workingDir"])
    except OSError as error:
        whose = f", for user {user}, whom pods of this namespace run as" if user is not None else ""
        message = f"workingDir {container['workingDir']}: {error.strerror}{whose}"
        raise StartFailed(NOT_RUNNABLE_EXIT_CODE, message) from error
    os.execvpe(container["argv"][0], container["argv"], container["env"])


def why_failed(container: dict[str, Any], error: BaseException) -> bytes:
    """An exit code and a sentence, as ``release`` reads them."""
    command, image = container["argv"][0], container["image"]
    match error:
        case StartFailed():
            return f"{error.exit_code} {error}".encode()
        case mounts.MountFailed():
            return f"{NOT_RUNNABLE_EXIT_CODE} {error}".encode()
        case OSError(errno=errno.ENOENT | errno.ENOTDIR):
            reason = f'command "{command}" is not on this machine; the image "{image}" is not pulled'
            return f"{NOT_FOUND_EXIT_CODE} {reason}".encode()
        case PermissionError() if closed := closed_folders(command, container["env"].get("PATH", "")):
            reason = f'command "{command}" is not found; user {os.getuid()} may not look into {", ".join(closed)}'
            return f"{NOT_FOUND_EXIT_CODE} {reason}".encode()
        case OSError():
            return f'{NOT_RUNNABLE_EXIT_CODE} command "{command}" cannot be run: {error.strerror}'.encode()
        case _:
            return f"{NOT_RUNNABLE_EXIT_CODE} {type(error).__name__}: {error}".encode()


def closed_folders(command: str, path: str) -> list[str]:
    """The folders of the search path that kept us from finding the command; none if it was found somewhere."""
    closed = []
    for folder in path.split(os.pathsep) if "/" not in command else ():
        try:
            os.stat(os.path.join(folder, command))
        except PermissionError:
            closed.append(folder)
        except OSError:
            continue
        else:
            return []
    return closed
