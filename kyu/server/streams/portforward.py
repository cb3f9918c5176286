"""
Forwards connections of a client to ports of a pod.

Over SPDY, the client opens two streams for each connection, one for data and one for an error, with the port in their
headers. Newer clients send the same SPDY through a WebSocket. Clients that know WebSocket only name all ports in the
query, and get two numbered channels for each.

Kubernetes: kubelet/pkg/cri/streaming/portforward.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from kyu.server.exchange import TunnelBytes
from kyu.server.streams.channels import drained
from kyu.server.streams.command import CannotRun, stop
from kyu.server.streams.spdy_session import SpdySession
from kyu.streams import spdy, websocket

# Each connection has two streams.
MOST_STREAMS = 128
# Blocks of data that wait for a connection, before the client is held back.
MOST_BLOCKS = 4


class PodConnection(Protocol):
    """A connection to a port of a pod, given by the runtime."""

    async def read(self) -> bytes:
        """Return the next bytes; none at the end."""

    async def write(self, data: bytes) -> bool:
        """Write all; return False if the other end is closed."""

    def end(self) -> None:
        """Send no more."""

    def close(self) -> None:
        """Close both directions."""


Connect = Callable[[int], Awaitable[PodConnection]]


class WebSocketBytes:
    """The bytes of another protocol in the messages of a WebSocket."""

    def __init__(self, wire: TunnelBytes) -> None:
        self._wire = wire
        self._decoder = websocket.FrameDecoder(is_masked=True)

    async def read(self) -> bytes:
        while data := await self._wire.read():
            try:
                pieces = list(self._decoder.feed(data))
            except websocket.BadFrame as error:
                raise ConnectionAbortedError(str(error)) from error
            received = b""
            for piece in pieces:
                if piece.opcode == websocket.CLOSE:
                    return received
                if piece.opcode == websocket.PING:
                    await self._wire.write(websocket.frame(websocket.PONG, piece.data))
                elif piece.opcode != websocket.PONG:
                    received += piece.data
            if received:
                return received
        return b""

    async def write(self, data: bytes) -> None:
        await self._wire.write(websocket.frame(websocket.BINARY, data))


@dataclass(slots=True)
class Forward:
    """A connection that is forwarded: its data and error streams, and what the client has sent. None ends it."""

    port: int
    data: int = 0
    error: int = 0
    blocks: asyncio.Queue[bytes | None] = field(default_factory=lambda: asyncio.Queue(MOST_BLOCKS))


class ForwardTunnel:
    """A connection that carries others. ``done`` is called once, at the end."""

    def __init__(self, run: Callable[[TunnelBytes], Awaitable[None]], done: Callable[[], None]) -> None:
        self._run = run
        self._done: Callable[[], None] | None = done
        self._task: asyncio.Future[None] | None = None

    async def run(self, wire: TunnelBytes) -> None:
        self._task = asyncio.ensure_future(self._run(wire))
        try:
            await self._task
        except asyncio.CancelledError:
            if (current := asyncio.current_task()) is not None and current.cancelling():
                raise

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        done, self._done = self._done, None
        if done is not None:
            done()


class SpdyForwards:
    """All connections of one SPDY session."""

    def __init__(self, wire: TunnelBytes, connect: Connect) -> None:
        self._session = SpdySession(wire, MOST_STREAMS)
        self._connect = connect
        self._by_request: dict[str, Forward] = {}
        self._by_stream: dict[int, Forward] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        try:
            async for event in self._session.events():
                match event:
                    case spdy.StreamOpened():
                        await self._open(event)
                    case spdy.Data(stream, data, is_last):
                        await self._take(stream, data, is_last=is_last)
                    case spdy.Reset(stream):
                        await self._take(stream, b"", is_last=True)
        finally:
            await stop(self._tasks)

    async def _open(self, event: spdy.StreamOpened) -> None:
        headers = event.headers
        port, kind = headers.get("port", ""), headers.get("streamtype", "")
        if not port.isdecimal() or not 0 < int(port) < 65536 or kind not in ("data", "error"):
            await self._session.reset(event.stream, spdy.PROTOCOL_ERROR)
            return
        # Clients without a number of requests open both streams one after the other.
        request = headers.get("requestid") or str(event.stream - (2 if kind == "data" else 0))
        forward = self._by_request.setdefault(request, Forward(int(port)))
        if kind == "error":
            forward.error = event.stream
        else:
            forward.data = event.stream
            self._by_stream[event.stream] = forward
        if forward.data and forward.error:
            del self._by_request[request]
            task = asyncio.create_task(self._carry(forward))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _take(self, stream: int, data: bytes, *, is_last: bool) -> None:
        forward = self._by_stream.get(stream)
        if forward is None:
            return
        if data:
            await forward.blocks.put(data)
        if is_last:
            await forward.blocks.put(None)

    async def _carry(self, forward: Forward) -> None:
        session = self._session
        try:
            connection = await self._connect(forward.port)
        except CannotRun as error:
            await session.send(forward.error, str(error).encode())
        else:
            try:
                await carry_both(connection, forward.blocks, lambda data: session.send(forward.data, data))
            finally:
                connection.close()
        del self._by_stream[forward.data]
        # A reader of the queue is gone; the client may still wait to put something.
        while not forward.blocks.empty():
            forward.blocks.get_nowait()
        for stream in (forward.data, forward.error):
            await session.send(stream, b"", is_last=True)
            session.forget(stream)


async def carry_both(
    connection: PodConnection, blocks: asyncio.Queue[bytes | None], send: Callable[[bytes], Awaitable[None]]
) -> None:
    """Carry bytes in both directions until the pod has ended its own."""

    async def carry_in() -> None:
        while (data := await blocks.get()) is not None:
            if not await connection.write(data):
                # The pod reads no more; what the client still sends is dropped.
                data = b""
        connection.end()

    incoming = asyncio.create_task(carry_in())
    try:
        while data := await connection.read():
            await send(data)
    finally:
        await stop([incoming])


class ChannelForwards:
    """Numbered channels of a WebSocket, two for each port: data, and error."""

    def __init__(self, wire: TunnelBytes, ports: list[int], connect: Connect) -> None:
        self._wire = wire
        self._connect = connect
        self._forwards = [Forward(port, 2 * place, 2 * place + 1) for place, port in enumerate(ports)]

    async def run(self) -> None:
        for forward in self._forwards:
            for channel in (forward.data, forward.error):
                # Each channel begins with its port.
                await self._send(channel, forward.port.to_bytes(2, "little"))
        tasks = [asyncio.create_task(self._carry(forward)) for forward in self._forwards]
        reader = asyncio.create_task(self._read())
        try:
            carried = asyncio.ensure_future(asyncio.gather(*tasks))
            waits: list[asyncio.Future[Any]] = [carried, reader]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if carried.done():
                await self._wire.write(websocket.close_frame(websocket.NORMAL))
                await stop([reader])
                await drained(self._wire)
        finally:
            await stop([*tasks, reader])

    async def _carry(self, forward: Forward) -> None:
        try:
            connection = await self._connect(forward.port)
        except CannotRun as error:
            await self._send(forward.error, str(error).encode())
            return
        try:
            await carry_both(connection, forward.blocks, lambda data: self._send(forward.data, data))
        finally:
            connection.close()

    async def _read(self) -> None:
        async with contextlib.aclosing(self._messages()) as messages:
            async for channel, data in messages:
                if channel % 2 == 0 and channel // 2 < len(self._forwards):
                    await self._forwards[channel // 2].blocks.put(data)

    async def _messages(self) -> AsyncGenerator[tuple[int, bytes], None]:
        decoder, channel = websocket.FrameDecoder(is_masked=True), -1
        while data := await self._wire.read():
            try:
                pieces = list(decoder.feed(data))
            except websocket.BadFrame as error:
                raise ConnectionAbortedError(str(error)) from error
            for piece in pieces:
                if piece.opcode == websocket.CLOSE:
                    return
                if piece.opcode == websocket.PING:
                    await self._wire.write(websocket.frame(websocket.PONG, piece.data))
                elif piece.opcode != websocket.PONG:
                    part = piece.data
                    channel = -1 if piece.is_first else channel
                    if channel < 0 and part:
                        channel, part = part[0], part[1:]
                    if part:
                        yield channel, part

    async def _send(self, channel: int, data: bytes) -> None:
        await self._wire.write(websocket.frame(websocket.BINARY, bytes([channel]) + data))
