"""
Connects this terminal with a process in a pod: keys and pipes to it, its output back, its exit code at the end.

With a terminal, keys go to the process as they are typed, Ctrl-C too, and the process learns each new size of the
window. The terminal is put back as it was, however the session ends.

Called by: exec.py, attach.py, run.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kyu.api.meta import Key
from kyu.cli.main import Failed
from kyu.kube.interactive import ERROR, RESIZE, STDERR, STDIN, STDOUT, StreamConnection, open_stream
from kyu.kube.kubeconfig import Credentials

READ_BYTES = 32 * 1024
# Blocks of standard input that are read before the server has taken them.
MOST_BLOCKS = 4
LONGEST_STATUS = 64 * 1024


class ConnectionBroke(Failed):
    """The connection was lost. The program may still run."""


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """The subresource of a Pod, with the streams that are wanted."""

    key: Key
    subresource: str
    container: str = ""
    stdin: bool = False
    tty: bool = False
    command: Sequence[str] = ()
    # The input ends at once.
    ends_stdin: bool = False

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.key.namespace}/pods/{self.key.name}/{self.subresource}"

    @property
    def query(self) -> list[tuple[str, str]]:
        flags = {"stdin": self.stdin, "stdout": True, "stderr": not self.tty, "tty": self.tty}
        query = [("command", word) for word in self.command]
        query += [("container", self.container)] if self.container else []
        return query + [(name, "true") for name, is_wanted in flags.items() if is_wanted]


def has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def run_session(credentials: Credentials, request: SessionRequest) -> int:
    """Run a session to its end, and return the exit code of the process."""
    return asyncio.run(_run(credentials, request))


async def _run(credentials: Credentials, request: SessionRequest) -> int:
    connection = await open_stream(credentials, request.path, request.query)
    sender: asyncio.Task[None] | None = None
    try:
        with raw_terminal() if request.tty and sys.stdin.isatty() else contextlib.nullcontext():
            if request.tty:
                await follow_size(connection)
            if request.ends_stdin:
                await connection.end_stdin()
            elif request.stdin:
                sender = asyncio.create_task(send_input(connection))
            return await receive(connection)
    except ConnectionError as error:
        raise ConnectionBroke(f"the connection broke: {error}") from error
    finally:
        if sender is not None:
            sender.cancel()
        connection.close()


async def receive(connection: StreamConnection) -> int:
    """Print the output until the end; return the exit code."""
    status = b""
    async with contextlib.aclosing(connection.messages()) as messages:
        async for stream, data in messages:
            if stream == STDOUT:
                write_all(sys.stdout.fileno(), data)
            elif stream == STDERR:
                write_all(sys.stderr.fileno(), data)
            elif stream == ERROR:
                status = (status + data)[:LONGEST_STATUS]
    if not status:
        raise ConnectionBroke("the connection ended before the program did")
    return exit_code(json.loads(status))


def write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def exit_code(status: dict[str, object]) -> int:
    """Return the exit code of a Status, or raise Failed with its message."""
    if status.get("status") == "Success":
        return 0
    details = status.get("details")
    causes = details.get("causes") or () if isinstance(details, dict) else ()
    for cause in causes:
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise Failed(str(status.get("message", "the command failed")))


async def send_input(connection: StreamConnection) -> None:
    """Send standard input until its end. A thread reads it: files and terminals cannot be waited for alike."""
    blocks: asyncio.Queue[bytes] = asyncio.Queue(MOST_BLOCKS)
    loop = asyncio.get_running_loop()
    threading.Thread(target=read_input, args=(blocks, loop), daemon=True).start()
    while data := await blocks.get():
        await connection.send(STDIN, data)
    await connection.end_stdin()


def read_input(blocks: asyncio.Queue[bytes], loop: asyncio.AbstractEventLoop) -> None:
    data = b"-"
    # The loop ends with the session, while this thread still waits for a key.
    with contextlib.suppress(OSError, RuntimeError, asyncio.CancelledError):
        while data:
            data = os.read(sys.stdin.fileno(), READ_BYTES)
            asyncio.run_coroutine_threadsafe(blocks.put(data), loop).result()


async def follow_size(connection: StreamConnection) -> None:
    """Tell the size of the window now, and after each change."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    def changed() -> None:
        task = loop.create_task(send_size(connection))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    loop.add_signal_handler(signal.SIGWINCH, changed)
    await send_size(connection)


async def send_size(connection: StreamConnection) -> None:
    # Not shutil.get_terminal_size, which prefers the variables COLUMNS and LINES of an earlier size.
    size = os.get_terminal_size(sys.stdin.fileno())
    with contextlib.suppress(ConnectionError):
        await connection.send(RESIZE, json.dumps({"Width": size.columns, "Height": size.lines}).encode())


@contextlib.contextmanager
def raw_terminal() -> Iterator[None]:
    """Pass keys on as they are typed."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        # Keys that were typed early are kept.
        tty.setraw(terminal, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
