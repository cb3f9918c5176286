"""
The bytes of a connection that has turned to another protocol.

What the client sends waits here until it is read, up to a bound; then the connection is not read from.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time

MOST_BYTES = 128 * 1024
# A client whose machine has vanished is noticed after a few minutes.
KEEP_ALIVE_SECONDS = 60


class TunnelWire:
    """A TunnelBytes of exchange.py. Before ``begin``, bytes are only kept."""

    def __init__(self, transport: asyncio.Transport, writable: asyncio.Event) -> None:
        self._transport = transport
        self._writable = writable
        self._buffer = bytearray()
        self._changed = asyncio.Event()
        self._is_paused = False
        self._has_ended = False
        self.is_used = False
        self.used_at = 0.0

    def begin(self) -> None:
        self.is_used = True
        self.used_at = time.monotonic()
        connected = self._transport.get_extra_info("socket")
        with contextlib.suppress(OSError, AttributeError):
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEP_ALIVE_SECONDS)

    def feed(self, data: bytes) -> None:
        self._buffer += data
        self._changed.set()
        if len(self._buffer) > MOST_BYTES and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def end(self) -> None:
        """Take note that the client has gone."""
        self._has_ended = True
        self._changed.set()

    async def read(self) -> bytes:
        while not self._buffer and not self._has_ended:
            self._changed.clear()
            await self._changed.wait()
        data = bytes(self._buffer)
        self._buffer.clear()
        self.used_at = time.monotonic()
        if self._is_paused and not self._has_ended:
            self._is_paused = False
            self._transport.resume_reading()
        return data

    async def write(self, data: bytes) -> None:
        if self._has_ended:
            raise ConnectionResetError("the client has gone")
        self.used_at = time.monotonic()
        self._transport.write(data)
        if not self._writable.is_set():
            await self._writable.wait()
