"""
The state that all connections of a server share: their owners, and the memory that their requests hold.

A full server serves new callers all the same: a new connection without a token takes the place of the oldest one from
the largest address.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from kyu import log
from kyu.server import errors
from kyu.server.auth import auth
from kyu.server.exchange import Handler, Request
from kyu.server.http.limits import ByteAccount, ConnectionLimits, Members

SWEEP_SECONDS = 1.0


class SiteMember(Protocol):
    """A connection, as the site sees it."""

    owner: str

    def finish(self) -> None:
        """Close as soon as the last request is answered."""

    def abort(self) -> None:
        """Close now."""

    def close_if_idle(self) -> bool:
        """Close unless a request is being read or answered; return whether it was closed."""

    def check_deadline(self, now: float) -> None:
        """Close if its client has taken longer than it may."""


class RequestLog(Protocol):
    """A log of the requests and their answers."""

    def note(self, request: Request, code: int, seconds: float) -> None: ...


class NoAudit:
    """An audit log that keeps nothing: for servers without users."""

    def note(self, request: Request, code: int, seconds: float) -> None:
        """Keep nothing."""


class Site:
    """The connections of one server, with their limits.

    ``check_guest`` raises if a caller without a token may not make the request: its body is then never read.
    """

    def __init__(
        self,
        handler: Handler,
        authenticate: auth.Authenticate,
        *,
        limits: ConnectionLimits | None = None,
        check_guest: Callable[[Request], None] = lambda request: None,
        audit: RequestLog | None = None,
    ) -> None:
        self.handler = handler
        self.authenticate = authenticate
        self.limits = limits or ConnectionLimits()
        self.check_guest = check_guest
        self.audit: RequestLog = audit or NoAudit()
        self.failures = auth.FailedLogins()
        self.bodies = ByteAccount(self.limits.body_bytes)
        self.answers = ByteAccount(self.limits.answer_bytes)
        self.connections: dict[SiteMember, None] = {}
        self.is_stopping = False
        self._guests: Members[SiteMember] = Members(self.limits.guests, self.limits.guests_per_address)
        self._users: Members[SiteMember] = Members(self.limits.users, self.limits.connections_per_user)
        self._empty = asyncio.Event()

    def enter(self, connection: SiteMember) -> None:
        """Count a new connection for its address."""
        self.connections[connection] = None
        if (oldest := self._guests.join(connection.owner, connection)) is not None:
            oldest.abort()

    def promote(self, connection: SiteMember, owner: str) -> None:
        """Count a connection for the user whose token it has sent; raise if the user has too many."""
        if self._users.is_full_for(owner) and not any(each.close_if_idle() for each in self._users.of(owner)):
            raise errors.too_many_requests("too many connections of this user are open")
        self._remove(connection)
        connection.owner = owner
        self._users.join(owner, connection)

    def leave(self, connection: SiteMember) -> None:
        self.connections.pop(connection, None)
        self._remove(connection)
        if self.is_stopping and not self.connections:
            self._empty.set()

    def _remove(self, connection: SiteMember) -> None:
        self._guests.leave(connection.owner, connection)
        self._users.leave(connection.owner, connection)

    def stop(self) -> None:
        """End streams and idle connections; requests in progress still get their answer."""
        self.is_stopping = True
        if not self.connections:
            self._empty.set()
        for connection in list(self.connections):
            connection.finish()

    async def emptied(self, seconds: float) -> None:
        """Wait until all connections are closed, at most for so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            log.warning("connections cut off", count=len(self.connections))

    async def sweep_forever(self) -> None:
        """Close connections past their deadlines, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.sweep(time.monotonic())

    def sweep(self, now: float) -> None:
        for connection in list(self.connections):
            connection.check_deadline(now)

    def abort(self) -> None:
        for connection in list(self.connections):
            connection.abort()
