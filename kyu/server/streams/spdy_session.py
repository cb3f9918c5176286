"""
The server's side of a SPDY connection: answers pings and new streams, and passes the rest on.

Called by: channels.py, portforward.py.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from kyu.server.exchange import TunnelBytes
from kyu.streams import spdy

# One frame has at most 16 MiB; smaller ones let streams take turns.
LONGEST_DATA = 64 * 1024


class SpdySession:
    """The streams that the client opens; at most ``most_streams`` at a time."""

    def __init__(self, wire: TunnelBytes, most_streams: int) -> None:
        self._wire = wire
        self._most_streams = most_streams
        self._decoder = spdy.SpdyDecoder()
        self._encoder = spdy.SpdyEncoder()
        self._open: set[int] = set()
        self._last = 0
        self._pending: list[spdy.SpdyEvent] = []

    async def events(self) -> AsyncGenerator[spdy.SpdyEvent, None]:
        """Yield what the client sends, until it has gone. May be called again after a break."""
        while True:
            while self._pending:
                event = self._pending.pop(0)
                if await self._is_for_user(event):
                    yield event
            data = await self._wire.read()
            if not data:
                return
            try:
                self._pending += self._decoder.feed(data)
            except spdy.BadSpdy as error:
                await self._wire.write(spdy.go_away(self._last))
                raise ConnectionAbortedError(str(error)) from error

    async def _is_for_user(self, event: spdy.SpdyEvent) -> bool:
        """Answer an event of the protocol itself; return whether it concerns the streams."""
        match event:
            case spdy.Ping(number):
                # Clients have the odd numbers, as for streams.
                if number % 2:
                    await self._wire.write(spdy.ping(number))
                return False
            case spdy.StreamOpened(stream):
                if event.is_reply or not stream % 2 or stream <= self._last:
                    return False
                self._last = stream
                if len(self._open) >= self._most_streams:
                    await self._wire.write(spdy.reset(stream, spdy.REFUSED_STREAM))
                    return False
                self._open.add(stream)
                await self._wire.write(self._encoder.reply(stream))
            case spdy.Data(stream) | spdy.Reset(stream):
                return stream in self._open
            case spdy.GoAway():
                return False
        return True

    async def send(self, stream: int, data: bytes, *, is_last: bool = False) -> None:
        for position in range(0, len(data), LONGEST_DATA):
            await self._wire.write(spdy.data(stream, data[position : position + LONGEST_DATA]))
        if is_last:
            await self._wire.write(spdy.data(stream, b"", is_last=True))

    async def reset(self, stream: int, status: int = spdy.CANCEL) -> None:
        self.forget(stream)
        await self._wire.write(spdy.reset(stream, status))

    def forget(self, stream: int) -> None:
        """Let a stream go that both sides have ended."""
        self._open.discard(stream)
