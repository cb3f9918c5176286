"""
Connects a client with a process in a pod: input to it, output from it, and its exit code at the end.

Called by: pods.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Any, Protocol, TypeAlias

from kyu.api.meta import Json
from kyu.server import errors
from kyu.server.exchange import TunnelBytes
from kyu.server.streams.channels import CommandChannels, InputEnd, Resized

# How long a command waits for the size of its terminal.
FIRST_SIZE_SECONDS = 1.0
ClientInput: TypeAlias = bytes | Resized | InputEnd
Inputs: TypeAlias = AsyncGenerator[ClientInput, None]


class PodProcess(Protocol):
    """A process in a pod, given by the runtime."""

    async def write(self, data: bytes) -> None:
        """Write to standard input."""

    async def close_stdin(self) -> None:
        """End standard input."""

    def resize(self, width: int, height: int) -> None:
        """Give its terminal a size."""

    async def read(self, name: str) -> bytes:
        """Return the next output of ``stdout`` or ``stderr``; none at the end."""

    async def wait(self) -> int:
        """Return the exit code when it has ended."""

    def close(self) -> None:
        """Let go of it."""


class CannotRun(Exception):
    """The command cannot be started; with an exit code if a shell would give one."""

    def __init__(self, message: str, exit_code: int = 0) -> None:
        super().__init__(message)
        self.exit_code = exit_code


Start = Callable[[], Awaitable[PodProcess]]


class CommandTunnel:
    """A connection that carries a command. ``done`` is called once, at the end."""

    def __init__(
        self,
        channels: Callable[[TunnelBytes], CommandChannels],
        start: Start,
        outputs: Iterable[str],
        done: Callable[[], None],
        *,
        has_terminal: bool = False,
    ) -> None:
        self._channels = channels
        self._start = start
        self._outputs = tuple(outputs)
        self._has_terminal = has_terminal
        self._done: Callable[[], None] | None = done
        self._task: asyncio.Task[None] | None = None

    async def run(self, wire: TunnelBytes) -> None:
        self._task = asyncio.create_task(self._run(self._channels(wire)))
        try:
            await self._task
        except asyncio.CancelledError:
            # By ``close``; a task that is cancelled itself goes on being cancelled.
            if (current := asyncio.current_task()) is not None and current.cancelling():
                raise

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        done, self._done = self._done, None
        if done is not None:
            done()

    async def _run(self, channels: CommandChannels) -> None:
        await channels.open()
        inputs = channels.inputs()
        first: asyncio.Future[ClientInput | None] = asyncio.ensure_future(anext(inputs, None))
        try:
            if self._has_terminal:
                # Clients tell the size of their terminal first. A program reads it once, when it starts.
                await asyncio.wait([first], timeout=FIRST_SIZE_SECONDS)
            await self._serve(channels, inputs, first)
        finally:
            await stop([first])
            await inputs.aclose()

    async def _serve(
        self, channels: CommandChannels, inputs: Inputs, first: asyncio.Future[ClientInput | None]
    ) -> None:
        try:
            process = await self._start()
        except CannotRun as error:
            if error.exit_code:
                output = "stderr" if "stderr" in self._outputs else "stdout"
                await channels.send(output, f"{error}\n".encode())
                await channels.finish(status_of(error.exit_code))
            else:
                await channels.finish(failure(str(error)))
            return
        try:
            if self._has_terminal and first.done() and isinstance(size := first.result(), Resized):
                process.resize(size.width, size.height)
            await self._carry(channels, inputs, first, process)
        finally:
            process.close()

    async def _carry(
        self, channels: CommandChannels, inputs: Inputs, first: asyncio.Future[ClientInput | None], process: PodProcess
    ) -> None:
        """Carry bytes until the process has ended and its output is sent, or the client has gone."""
        outputs = [asyncio.create_task(carry_output(channels, process, name)) for name in self._outputs]
        client = asyncio.create_task(carry_input(inputs, first, process))
        end = asyncio.create_task(process.wait())
        tasks = [*outputs, client, end]
        try:
            await asyncio.wait([client, end], return_when=asyncio.FIRST_COMPLETED)
            if not end.done():
                # The client has gone.
                return
            await asyncio.gather(*outputs)
            await stop([client])
            await channels.finish(status_of(end.result()))
        finally:
            await stop(tasks)


async def stop(tasks: Iterable[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def carry_output(channels: CommandChannels, process: PodProcess, name: str) -> None:
    while data := await process.read(name):
        await channels.send(name, data)


async def carry_input(inputs: Inputs, first: Awaitable[ClientInput | None], process: PodProcess) -> None:
    """Pass on what the client sends, until it has gone."""
    given = await first
    while given is not None:
        match given:
            case Resized(width, height):
                process.resize(width, height)
            case InputEnd():
                await process.close_stdin()
            case bytes():
                await process.write(given)
        given = await anext(inputs, None)


def status_of(exit_code: int) -> Json:
    """Return the end of a command, in the words of the kubelet."""
    if not exit_code:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {exit_code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [errors.cause("ExitCode", str(exit_code))]},
    }


def failure(message: str) -> Json:
    """Return the status of a command that could not be started."""
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"Internal error occurred: {message}",
        "reason": "InternalError",
        "details": {"causes": [{"message": message}]},
        "code": 500,
    }
