"""
Starts one container: a process in its own session, with its environment, mounts and limits, and nothing else.

The child waits until its parent has written down its pid; so no process ever runs that the records do not know. A
failure before the program runs comes back through a pipe that closes by itself when the program starts.

Called by: supervisor.py. Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import termios
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kyu.runtime import user_files
from kyu.runtime.sandbox import kernel, mounts, namespaces
from kyu.runtime.sandbox.namespaces import Sandbox

NOT_FOUND_EXIT_CODE = 127
NOT_RUNNABLE_EXIT_CODE = 126
# Less than a pipe holds, so that the child never waits for its parent to read.
LONGEST_FAILURE = 4096
START_SECONDS = 60.0
# Rows and columns of a terminal.
USUAL_SIZE = (24, 80)


@dataclass(frozen=True, slots=True)
class Child:
    """A container's process that waits for its permission to run."""

    pid: int
    # Write a byte here to let it run; read here why it could not.
    go: int
    failure: int
    # The other ends of its streams, or -1.
    stdin: int = -1
    stdout: int = -1
    stderr: int = -1
    # Gives the files of the user that get the output as well, if it has any.
    user_files: socket.socket | None = None


class StartFailed(Exception):
    """The program of a container could not be run."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def fork(container: dict[str, Any], sandbox: Sandbox) -> Child:
    """Start a child that turns to the container's program when it is released.

    Its output comes through pipes, or through a terminal. It has standard input only if its manifest says so.
    """
    ours, theirs = open_streams(container)
    receiver, sender = socket.socketpair() if container["outputFiles"] else (None, None)
    try:
        child = fork_with(container, sandbox, theirs, is_terminal=bool(container.get("tty")), files_to=sender)
    except OSError:
        for descriptor in {*ours} - {-1}:
            os.close(descriptor)
        raise
    finally:
        for descriptor in {*theirs}:
            os.close(descriptor)
        if sender is not None:
            sender.close()
    for descriptor in {*ours} - {-1}:
        os.set_blocking(descriptor, False)
    stdin, stdout, stderr = ours
    return replace(child, stdin=stdin, stdout=stdout, stderr=stderr, user_files=receiver)


def open_streams(container: dict[str, Any]) -> tuple[list[int], list[int]]:
    """Return the ends of the supervisor and those of the child: standard input, output and error; -1 for none."""
    if container.get("tty"):
        master, slave = os.openpty()
        # The size until a client tells its own.
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *USUAL_SIZE, 0, 0))
        stdin = os.dup(master) if container.get("stdin") else -1
        return [stdin, master, -1], [slave, slave, slave]
    if container.get("stdin"):
        stdin_reader, stdin_writer = os.pipe()
    else:
        stdin_reader, stdin_writer = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), -1
    stdout_reader, stdout_writer = os.pipe()
    stderr_reader, stderr_writer = os.pipe()
    return [stdin_writer, stdout_reader, stderr_reader], [stdin_reader, stdout_writer, stderr_writer]


def fork_with(
    container: dict[str, Any],
    sandbox: Sandbox,
    streams: Sequence[int],
    *,
    is_terminal: bool = False,
    files_to: socket.socket | None = None,
) -> Child:
    """Start a child as ``fork`` does, with these streams. They stay open here; the caller closes them."""
    go_reader, go_writer = os.pipe()
    failure_reader, failure_writer = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        for descriptor in (go_reader, go_writer, failure_reader, failure_writer):
            os.close(descriptor)
        raise
    if pid == 0:
        try:
            # A copy of the parent's end would keep a pipe open after the parent's death.
            os.close(go_writer)
            os.close(failure_reader)
            prepare(streams, is_terminal=is_terminal)
            if os.read(go_reader, 1):
                become(container, sandbox, failure_writer, files_to)
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.write(failure_writer, why_failed(container, error)[:LONGEST_FAILURE])
        finally:
            os._exit(NOT_FOUND_EXIT_CODE)
    os.close(go_reader)
    os.close(failure_writer)
    return Child(pid, go_writer, failure_reader)


def release(child: Child) -> None:
    """Let the child run its program. Raise StartFailed if it could not; the child is reaped as any other."""
    try:
        with contextlib.suppress(BrokenPipeError):
            os.write(child.go, b"g")
        failure = read_failure(child)
    finally:
        os.close(child.go)
        os.close(child.failure)
    if failure:
        code, _, message = failure.decode(errors="replace").partition(" ")
        raise StartFailed(int(code), message)


def read_failure(child: Child) -> bytes:
    """Wait until the program runs, or could not be run. A folder on a broken network drive may keep it from both."""
    poll = select.poll()
    poll.register(child.failure, select.POLLIN)
    failure, until = b"", time.monotonic() + START_SECONDS
    while poll.poll(max(0.0, until - time.monotonic()) * 1000):
        chunk = os.read(child.failure, LONGEST_FAILURE)
        if not chunk:
            return failure
        failure += chunk
    return f"{NOT_RUNNABLE_EXIT_CODE} the program did not start within {START_SECONDS:.0f} seconds".encode()


def prepare(streams: Sequence[int], *, is_terminal: bool) -> None:
    """Make the child a session of its own, with the container's streams and default signals."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    # None of them may lie where another one belongs.
    copies = [fcntl.fcntl(stream, fcntl.F_DUPFD_CLOEXEC, 3) for stream in streams]
    for place, copy in enumerate(copies):
        os.dup2(copy, place)
    if is_terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def become(container: dict[str, Any], sandbox: Sandbox, failure: int, files_to: socket.socket | None) -> None:
    """Turn to the container's program, in the child. Returns only if the parent has died."""
    namespaces.load_nothing_more()
    leave_supervisor(failure, files_to)
    try:
        isolate(container, sandbox)
    except OSError as error:
        message = f"the container cannot be isolated: {error.strerror}"
        raise StartFailed(NOT_RUNNABLE_EXIT_CODE, message) from error
    if is_abandoned(failure):
        # The parent died before that, so no signal will come.
        return
    os.umask(container["umask"])
    enter_working_dir(container, sandbox, files_to)
    os.execvpe(container["argv"][0], container["argv"], container["env"])


def enter_working_dir(container: dict[str, Any], sandbox: Sandbox, files_to: socket.socket | None) -> None:
    """Change to the working directory, and open the files of the user in it."""
    folder = container["workingDir"]
    what = f"workingDir {folder}"
    try:
        os.chdir(folder)
        what = "output file"
        if files_to is not None:
            user_files.send_opened(files_to, container["outputFiles"], folder)
            files_to.close()
    except OSError as error:
        what = what if error.filename in (None, folder) else f"{what} {error.filename}"
        suffix = f", for user {sandbox.user}, the user of this pod" if sandbox.user is not None else ""
        raise StartFailed(NOT_RUNNABLE_EXIT_CODE, f"{what}: {error.strerror}{suffix}") from error


def leave_supervisor(failure: int, files_to: socket.socket | None) -> None:
    """Let go of the pod's folder and of all descriptors of the supervisor.

    Paths of the manifest are used next. One such as ``/proc/self/cwd`` would lead to the supervisor's own files.
    """
    namespaces.close_descriptors(failure, files_to.fileno() if files_to is not None else failure)
    os.chdir("/")


def isolate(container: dict[str, Any], sandbox: Sandbox) -> None:
    """Put the volumes in place and give up all privileges."""
    if container["mounts"]:
        if sandbox.namespaces:
            kernel.unshare(kernel.CLONE_NEWNS)
        else:
            mounts.enter_namespaces()
        wanted = [mounts.Mount(**mount) for mount in container["mounts"]]
        mounts.enter(wanted, container["scratch"], container["mayCover"])
    if not sandbox.images:
        # Podman does this for its containers.
        namespaces.drop_privileges(sandbox)
    kernel.die_with_parent(signal.SIGKILL)


def is_abandoned(failure: int) -> bool:
    """Return whether the supervisor, which alone reads this pipe, is gone."""
    poll = select.poll()
    poll.register(failure, 0)
    return bool(poll.poll(0))


def why_failed(container: dict[str, Any], error: BaseException) -> bytes:
    """Return an exit code and a sentence, as ``release`` reads them."""
    code, message = explain(container, error)
    return f"{code} {message}".encode(errors="replace")


def explain(container: dict[str, Any], error: BaseException) -> tuple[int, str]:
    command, image = container["argv"][0], container["image"]
    match error:
        case StartFailed():
            return error.exit_code, str(error)
        case mounts.MountFailed():
            return NOT_RUNNABLE_EXIT_CODE, str(error)
        case OSError(errno=errno.ENOENT | errno.ENOTDIR):
            reason = f'command "{command}" is not on this machine; the image "{image}" is not pulled'
            return NOT_FOUND_EXIT_CODE, reason
        case PermissionError() if closed := closed_folders(command, container["env"].get("PATH", "")):
            reason = f'command "{command}" is not found; user {os.getuid()} may not look into {", ".join(closed)}'
            return NOT_FOUND_EXIT_CODE, reason
        case OSError():
            return NOT_RUNNABLE_EXIT_CODE, f'command "{command}" cannot be run: {error.strerror}'
        case _:
            return NOT_RUNNABLE_EXIT_CODE, f"{type(error).__name__}: {error}"


def closed_folders(command: str, path: str) -> list[str]:
    """Return the folders of the search path that hid the command; none if it was found in another."""
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
