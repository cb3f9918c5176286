"""
The HTTP server: listens, keeps track of the connections, and stops without cutting anyone off.

Called by: app.py. What is said on a connection is in http_connection.py; no rule of Kubernetes is here.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from pathlib import Path

from kyu.server import auth
from kyu.server.exchange import Handler
from kyu.server.http_connection import Connection, Site

# Longer than the idle time of the usual clients, so that they close first and never write to a closed connection.
KEEP_ALIVE_SECONDS = 120.0
GRACE_SECONDS = 5.0
BACKLOG = 1024


class Server:
    """Listens on a socket that is bound already, until it is stopped."""

    def __init__(
        self,
        handler: Handler,
        authenticate: auth.Authenticate,
        listener: socket.socket,
        *,
        certificate: Path,
        key: Path,
    ) -> None:
        self._site = Site(handler, authenticate)
        self._listener = listener
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.use(certificate, key)
        self._listening = asyncio.Event()
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()

    def use(self, certificate: Path, key: Path) -> None:
        """For connections that are made from now on."""
        self._tls.load_cert_chain(certificate, key)

    async def serve(self) -> None:
        """Until it is stopped, or cancelled."""
        loop = asyncio.get_running_loop()
        listening = await loop.create_server(
            lambda: Connection(self._site), sock=self._listener, ssl=self._tls, backlog=BACKLOG
        )
        try:
            self._listening.set()
            await self._close_idle_until_stopped()
            listening.close()
            await self._site.emptied(GRACE_SECONDS)
        finally:
            listening.close()
            self._site.abort()
            self._ended.set()

    async def _close_idle_until_stopped(self) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(KEEP_ALIVE_SECONDS / 2):
                    await self._stopping.wait()
            self._site.close_idle(KEEP_ALIVE_SECONDS)

    async def started(self) -> None:
        """Wait until requests are answered."""
        await self._listening.wait()

    async def stopped(self) -> None:
        """Wait until the last request is answered."""
        await self._ended.wait()

    def stop(self) -> None:
        """Take no more connections, end the watches, let the other requests finish."""
        self._stopping.set()
        self._site.stop()
