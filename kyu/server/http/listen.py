"""
The HTTP server: accepts connections, keeps their deadlines, and stops without cutting off a request.

The bytes of a connection are read in connection.py; no rule of Kubernetes is here.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from pathlib import Path

from kyu import log
from kyu.server.http.connection import Connection
from kyu.server.http.site import Site

GRACE_SECONDS = 5.0
BACKLOG = 1024
# Bytes of a connection that the kernel keeps. A burst of that size is what a TLS session has in memory from then on.
RECEIVE_BYTES = 32 * 1024
# Connections that are accepted before other work of the loop is done.
ACCEPTED_AT_ONCE = 16
# After the process has run out of descriptors.
RETRY_SECONDS = 0.1
# A client that does not confirm the end of its TLS session is not waited for longer.
SHUTDOWN_SECONDS = 2.0


class Server:
    """A server on a socket that is bound already."""

    def __init__(self, site: Site, listener: socket.socket, *, certificate: Path, key: Path) -> None:
        self._site = site
        self._listener = listener
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.use(certificate, key)
        self._listening = asyncio.Event()
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()

    def use(self, certificate: Path, key: Path) -> None:
        """Show this certificate to new connections."""
        self._tls.load_cert_chain(certificate, key)

    async def serve(self) -> None:
        """Serve until stopped or cancelled."""
        self._listener.setblocking(False)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        self._listener.listen(BACKLOG)
        tasks = [asyncio.create_task(self._accept_forever()), asyncio.create_task(self._site.sweep_forever())]
        try:
            self._listening.set()
            await self._stopping.wait()
            tasks[0].cancel()
            await asyncio.wait(tasks[:1])
            self._listener.close()
            await self._site.emptied(GRACE_SECONDS)
        finally:
            for task in tasks:
                task.cancel()
            self._listener.close()
            self._site.abort()
            self._ended.set()

    async def _accept_forever(self) -> None:
        """Accept connections here and not by ``create_server``: one in its handshake already counts."""
        loop = asyncio.get_running_loop()
        accepted = 0
        while True:
            try:
                connected, address = await loop.sock_accept(self._listener)
            except OSError as error:
                # Too many descriptors, or a client that has gone already.
                log.warning("connection not accepted", error=error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            connection = Connection(self._site, address[0])
            connection.handshake = asyncio.create_task(self._shake_hands(connection, connected))
            accepted += 1
            if accepted % ACCEPTED_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _shake_hands(self, connection: Connection, connected: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                connected,
                ssl=self._tls,
                ssl_handshake_timeout=self._site.limits.handshake_seconds,
                ssl_shutdown_timeout=SHUTDOWN_SECONDS,
            )
        except (OSError, ssl.SSLError, asyncio.CancelledError):
            # Scanners, clients that do not trust the certificate, and the oldest ones of a flood.
            with contextlib.suppress(OSError):
                connected.close()
            self._site.leave(connection)
        finally:
            connection.handshake = None

    async def started(self) -> None:
        """Wait until requests are answered."""
        await self._listening.wait()

    async def stopped(self) -> None:
        """Wait until the last request is answered."""
        await self._ended.wait()

    def stop(self) -> None:
        """Accept no more connections, end the watches, let the other requests finish."""
        self._stopping.set()
        self._site.stop()
