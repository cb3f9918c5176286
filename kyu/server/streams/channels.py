"""
The streams of a command over one connection: input and sizes of the terminal come, output and the end go.

Over WebSocket, the first byte of a message names its stream; version 5 can also end one. Over SPDY, each is a stream
of its own, opened by the client with a header that names it.

Kubernetes: apimachinery/pkg/util/remotecommand/constants.go, kubelet/pkg/cri/streaming/remotecommand.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import Protocol

import msgspec

from kyu.api.meta import Json
from kyu.server.exchange import TunnelBytes, encode
from kyu.server.streams.spdy_session import SpdySession
from kyu.streams import spdy, websocket

STREAMS = ("stdin", "stdout", "stderr", "error", "resize")
STDIN, ERROR, RESIZE, CLOSE_STREAM = 0, 3, 4, 255
# More than a size of a terminal takes.
LONGEST_NOTE = 1024
OPEN_SECONDS = 30.0
# How long the client may take to close after the end of the command.
CLOSE_SECONDS = 2.0


class _Size(msgspec.Struct, rename="pascal"):
    width: int = 0
    height: int = 0


@dataclass(frozen=True, slots=True)
class Resized:
    """The client's terminal has another size now."""

    width: int
    height: int


class InputEnd:
    """The client sends no more standard input."""


class CommandChannels(Protocol):
    """The client's side of a command."""

    async def open(self) -> None:
        """Wait until all streams are there. Raise ConnectionError if they do not come."""

    def inputs(self) -> AsyncGenerator[bytes | Resized | InputEnd, None]:
        """Yield what the client sends, until it has gone."""

    async def send(self, stream: str, data: bytes) -> None:
        """Send output."""

    async def finish(self, status: Json) -> None:
        """Send the end of the command, and end the connection in an orderly way."""


class WebSocketChannels:
    """All streams in the messages of one WebSocket."""

    def __init__(self, wire: TunnelBytes) -> None:
        self._wire = wire
        self._decoder = websocket.FrameDecoder(is_masked=True)
        self._stream = -1
        self._note = b""
        self._is_closed = False

    async def open(self) -> None:
        """Nothing is opened: all streams are there with the connection."""

    async def inputs(self) -> AsyncGenerator[bytes | Resized | InputEnd, None]:
        while not self._is_closed and (data := await self._wire.read()):
            try:
                pieces = list(self._decoder.feed(data))
            except websocket.BadFrame as error:
                await self._wire.write(websocket.close_frame(websocket.PROTOCOL_ERROR, str(error)))
                return
            for piece in pieces:
                if piece.opcode == websocket.PING:
                    await self._wire.write(websocket.frame(websocket.PONG, piece.data))
                elif piece.opcode == websocket.CLOSE:
                    self._is_closed = True
                    await self._wire.write(websocket.frame(websocket.CLOSE, piece.data[:2]))
                    return
                elif piece.opcode != websocket.PONG:
                    for given in self._read_piece(piece):
                        yield given

    def _read_piece(self, piece: websocket.MessagePiece) -> Iterator[bytes | Resized | InputEnd]:
        data = piece.data
        if piece.is_first:
            self._stream, self._note = -1, b""
        if self._stream < 0 and data:
            self._stream, data = data[0], data[1:]
        if self._stream == STDIN:
            if data:
                yield data
            return
        self._note = (self._note + data)[:LONGEST_NOTE]
        if not piece.is_last:
            return
        if self._stream == CLOSE_STREAM and self._note[:1] == bytes([STDIN]):
            yield InputEnd()
        elif self._stream == RESIZE and (size := read_size(self._note)) is not None:
            yield size

    async def send(self, stream: str, data: bytes) -> None:
        await self._wire.write(websocket.frame(websocket.BINARY, bytes([STREAMS.index(stream)]) + data))

    async def finish(self, status: Json) -> None:
        await self.send("error", encode(status))
        if not self._is_closed:
            self._is_closed = True
            await self._wire.write(websocket.close_frame(websocket.NORMAL))
            await drained(self._wire)


class SpdyChannels:
    """Each stream in a stream of SPDY."""

    def __init__(self, wire: TunnelBytes, expected: frozenset[str]) -> None:
        self._session = SpdySession(wire, most_streams=len(STREAMS))
        self._wire = wire
        self._expected = expected
        self._names: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._early: list[spdy.SpdyEvent] = []
        self._sizes = b""

    async def open(self) -> None:
        events = self._session.events()
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                while self._expected - set(self._numbers):
                    event = await anext(events)
                    if isinstance(event, spdy.StreamOpened):
                        name = event.headers.get("streamtype", "")
                        self._names[event.stream], self._numbers[name] = name, event.stream
                    else:
                        self._early.append(event)
        except (StopAsyncIteration, TimeoutError) as error:
            raise ConnectionAbortedError("the streams were not opened") from error

    async def inputs(self) -> AsyncGenerator[bytes | Resized | InputEnd, None]:
        early, self._early = self._early, []
        for event in early:
            for given in self._read_event(event):
                yield given
        async for event in self._session.events():
            for given in self._read_event(event):
                yield given

    def _read_event(self, event: spdy.SpdyEvent) -> Iterator[bytes | Resized | InputEnd]:
        if not isinstance(event, spdy.Data | spdy.Reset):
            return
        name = self._names.get(event.stream, "")
        if name == "stdin":
            if isinstance(event, spdy.Data) and event.data:
                yield event.data
            if isinstance(event, spdy.Reset) or event.is_last:
                yield InputEnd()
        elif name == "resize" and isinstance(event, spdy.Data):
            # Sizes follow each other, each a JSON object.
            *whole, rest = (self._sizes + event.data).split(b"}")
            self._sizes = rest[:LONGEST_NOTE]
            for text in whole:
                if (size := read_size(text + b"}")) is not None:
                    yield size

    async def send(self, stream: str, data: bytes) -> None:
        await self._session.send(self._numbers[stream], data)

    async def finish(self, status: Json) -> None:
        await self.send("error", encode(status))
        for number in self._numbers.values():
            await self._session.send(number, b"", is_last=True)
        await drained(self._wire)


def read_size(text: bytes) -> Resized | None:
    try:
        size = msgspec.json.decode(text, type=_Size)
    except msgspec.DecodeError:
        return None
    is_possible = 0 < size.width < 1 << 16 and 0 < size.height < 1 << 16
    return Resized(size.width, size.height) if is_possible else None


async def drained(wire: TunnelBytes) -> None:
    """Give the client a moment to read the end and to close first."""
    with contextlib.suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(CLOSE_SECONDS):
            while await wire.read():
                pass
