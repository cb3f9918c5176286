"""
Reads and writes descriptors in the event loop: pipes, terminals and sockets.

A read takes what is there, at most one block; a write waits until all is taken. Nothing is buffered here, so the two
ends hold each other back.

Called by: commands.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Callable

BLOCK = 64 * 1024


class Descriptor:
    """A descriptor that does not block. It is closed once."""

    def __init__(self, number: int) -> None:
        os.set_blocking(number, False)
        self.number = number

    async def read(self) -> bytes:
        """Return the next bytes; none at the end."""
        while self.number >= 0:
            try:
                return self.read_now()
            except BlockingIOError:
                await self.readable()
        return b""

    def read_now(self) -> bytes:
        """Return bytes that are there, or none at the end. Raise BlockingIOError if there are none yet."""
        if self.number < 0:
            return b""
        try:
            return os.read(self.number, BLOCK)
        except OSError as error:
            # A terminal whose last process has gone, or a connection that was reset.
            if error.errno in (errno.EIO, errno.ECONNRESET):
                return b""
            raise

    async def write(self, data: bytes) -> bool:
        """Write all; return False if the other end is closed."""
        while data:
            if self.number < 0:
                return False
            try:
                data = data[os.write(self.number, data) :]
            except BlockingIOError:
                await self.writable()
            except OSError:
                return False
        return True

    async def readable(self) -> None:
        loop = asyncio.get_running_loop()
        await self._wait(loop.add_reader, loop.remove_reader)

    async def writable(self) -> None:
        loop = asyncio.get_running_loop()
        await self._wait(loop.add_writer, loop.remove_writer)

    async def _wait(self, add: Callable[..., None], remove: Callable[[int], object]) -> None:
        ready = asyncio.Event()
        number = self.number
        add(number, ready.set)
        try:
            await ready.wait()
        finally:
            if self.number == number:
                remove(number)

    def end(self) -> None:
        """Send no more through a socket; its other direction stays."""
        if self.number >= 0:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.number)) as connected:
                connected.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        if self.number >= 0:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self.number)
            loop.remove_writer(self.number)
            with contextlib.suppress(OSError):
                os.close(self.number)
            self.number = -1
