"""
Asks the supervisor of a pod to run a command or to open a connection, and holds the other ends of their streams.

Called by: processes.py. Asks: execs.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import socket
import struct
import termios
from collections.abc import Iterable
from dataclasses import dataclass, field

from kyu.api.meta import Json
from kyu.runtime.interactive import execs
from kyu.runtime.interactive.pipes import Descriptor

# The exit code of a process that was killed.
KILLED = 137
# A terminal hands over its last output a moment after its last process has ended.
LAST_OUTPUT_SECONDS = 1.0
CONNECT_SECONDS = 10.0
LONGEST_ANSWER = 64 * 1024
# Columns and rows of a terminal, until its client tells another size.
USUAL_SIZE = (80, 24)
END_OF_TRANSMISSION = b"\x04"


class NoCommand(Exception):
    """The pod cannot do it: the container does not run, or the program cannot be started."""

    def __init__(self, message: str, exit_code: int = 0) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(slots=True)
class RunningCommand:
    """A command in a pod. ``stderr`` is missing on a terminal, where all output is one stream."""

    connection: Descriptor
    stdin: Descriptor | None
    stdout: Descriptor | None
    stderr: Descriptor | None
    is_terminal: bool
    # The terminal is the container's own, so its supervisor sets the size.
    is_attached: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def write(self, data: bytes) -> None:
        """Write to standard input; what a program does not read any more is dropped."""
        if self.stdin is not None:
            await self.stdin.write(data)

    async def close_stdin(self) -> None:
        if self.stdin is None:
            return
        if self.is_terminal:
            await self.stdin.write(END_OF_TRANSMISSION)
        else:
            self.stdin.close()

    def resize(self, width: int, height: int) -> None:
        if self.is_attached:
            with contextlib.suppress(OSError):
                os.write(self.connection.number, json.dumps({"resize": [width, height]}).encode())
        elif self.is_terminal and self.stdout is not None and self.stdout.number >= 0:
            resize_terminal(self.stdout.number, width, height)

    async def read(self, name: str) -> bytes:
        """Return the next bytes of ``stdout`` or ``stderr``; none when the command has ended and all is read."""
        stream = self.stdout if name == "stdout" else self.stderr
        while stream is not None and stream.number >= 0:
            try:
                return stream.read_now()
            except BlockingIOError:
                pass
            if self.ended.is_set():
                # A process that the command left behind may keep the pipe open for ever.
                return await self._read_rest(stream)
            await self._readable_or_ended(stream)
        return b""

    async def _readable_or_ended(self, stream: Descriptor) -> None:
        waits = [asyncio.ensure_future(stream.readable()), asyncio.ensure_future(self.ended.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _read_rest(self, stream: Descriptor) -> bytes:
        if not self.is_terminal:
            return b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_OUTPUT_SECONDS):
                return await stream.read()
        return b""

    async def wait(self) -> int:
        """Return the exit code. A command that ended with its pod was killed."""
        data = await self.connection.read()
        self.ended.set()
        return int(json.loads(data)["exitCode"]) if data else KILLED

    def close(self) -> None:
        """Let go. A command that still runs gets SIGHUP from its supervisor."""
        close_all((self.connection, self.stdin, self.stdout, self.stderr))


def resize_terminal(terminal: int, width: int, height: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))


@dataclass(frozen=True, slots=True)
class CommandStreams:
    """The streams that a client wants of a command."""

    stdin: bool = False
    stdout: bool = True
    stderr: bool = True
    tty: bool = False


async def start(
    folder: str, container: str, argv: list[str], wanted: CommandStreams, user: int | None
) -> RunningCommand:
    """Start a command in a container of the pod in this folder. ``user`` owns its terminal."""
    request = {"do": "exec", "container": container, "argv": argv, "tty": wanted.tty}
    theirs: list[int] = []
    ours: list[Descriptor | None] = []
    try:
        if wanted.tty:
            open_terminal(wanted, user, ours, theirs)
        else:
            open_pipes(wanted, ours, theirs)
        connection, _ = await ask(folder, request, theirs)
    except BaseException:
        close_all(ours)
        raise
    finally:
        for descriptor in theirs:
            os.close(descriptor)
    stdin, stdout, stderr = ours
    return RunningCommand(connection, stdin, stdout, stderr, wanted.tty)


async def attach(folder: str, container: str, wanted: CommandStreams) -> RunningCommand:
    """Connect with the container's own program. The exit code of what is returned is always 0."""
    theirs: list[int] = []
    ours: list[Descriptor | None] = []
    open_pipes(wanted, ours, theirs)
    try:
        connection, _ = await ask(folder, {"do": "attach", "container": container, "stdin": wanted.stdin}, theirs)
    except BaseException:
        close_all(ours)
        raise
    finally:
        for descriptor in theirs:
            os.close(descriptor)
    stdin, stdout, stderr = ours
    return RunningCommand(connection, stdin, stdout, stderr, is_terminal=False, is_attached=True)


def close_all(streams: Iterable[Descriptor | None]) -> None:
    for stream in streams:
        if stream is not None:
            stream.close()


def open_terminal(wanted: CommandStreams, user: int | None, ours: list[Descriptor | None], theirs: list[int]) -> None:
    master, slave = os.openpty()
    theirs.append(slave)
    resize_terminal(slave, *USUAL_SIZE)
    terminal = Descriptor(master)
    ours += [terminal if wanted.stdin else None, terminal, None]
    if user is not None:
        os.fchown(slave, user, user)
        # The number of a user may be that of a group of other users.
        os.fchmod(slave, 0o600)


def open_pipes(wanted: CommandStreams, ours: list[Descriptor | None], theirs: list[int]) -> None:
    """Make a pipe for each stream that is wanted, and give the command nothing for the others."""
    for name in ("stdin", "stdout", "stderr"):
        if not getattr(wanted, name):
            theirs.append(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
            ours.append(None)
            continue
        reader, writer = os.pipe()
        own, other = (writer, reader) if name == "stdin" else (reader, writer)
        theirs.append(other)
        ours.append(Descriptor(own))


async def connect(folder: str, port: int) -> Descriptor:
    """Return a connection to a port of the pod's loopback interface."""
    failure = OSError()
    for family in execs.FAMILIES:
        request = {"do": "connect", "port": port, "family": family}
        connection, descriptors = await ask(folder, request, [], receives=True)
        connection.close()
        if not descriptors:
            continue
        stream = Descriptor(descriptors[0])
        async with asyncio.timeout(CONNECT_SECONDS):
            await stream.writable()
        with socket.socket(fileno=os.dup(stream.number)) as connected:
            number = connected.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not number:
            return stream
        stream.close()
        failure = OSError(number, os.strerror(number))
    raise failure


async def ask(
    folder: str, request: Json, descriptors: list[int], *, receives: bool = False
) -> tuple[Descriptor, list[int]]:
    """Send a request to the supervisor; return the connection and the descriptors of its answer."""
    asking = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        asking.setblocking(False)
        # Through a descriptor: the path of a pod's folder may be longer than the address of a socket.
        place = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            asking.connect(f"/proc/self/fd/{place}/{execs.SOCKET}")
        finally:
            os.close(place)
        socket.send_fds(asking, [json.dumps(request).encode()], descriptors)
    except (FileNotFoundError, ConnectionRefusedError) as error:
        asking.close()
        raise NoCommand("the pod does not run, or was started by an earlier version of Kyu") from error
    except OSError as error:
        asking.close()
        raise NoCommand(f"the pod does not answer: {error.strerror}") from error
    connection = Descriptor(asking.detach())
    try:
        return connection, await read_answer(connection, receives=receives)
    except BaseException:
        connection.close()
        raise


async def read_answer(connection: Descriptor, *, receives: bool) -> list[int]:
    await connection.readable()
    data, descriptors = b"", list[int]()
    # A supervisor that ends before it has read the request resets the connection.
    with socket.socket(fileno=os.dup(connection.number)) as asking, contextlib.suppress(ConnectionError):
        data, descriptors, _, _ = socket.recv_fds(asking, LONGEST_ANSWER, 1)
    if not data:
        raise NoCommand("the pod has ended")
    answer = json.loads(data)
    if "refused" in answer and not receives:
        raise NoCommand(answer["refused"], answer["exitCode"])
    return descriptors
