"""
A connection to a NATS server as the rest of Kyu knows it: where it leads, whether it is there, what can be asked of it.

Called by: controllers/pools.py, pools/. Made by: bus/nats.py, which needs the library; this file does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

# (subject, body, where to answer)
OnMessage = Callable[[str, bytes, str], None]


class Unanswered(Exception):
    """Nobody answered in time, or nobody listens, or there is no connection."""


class BadConnector(ValueError):
    """The connector cannot be used; the message names no credentials."""


@dataclass(frozen=True, slots=True)
class Connector:
    """Where the server is, and how to get in. Equal connectors share a connection; the secret parts are not shown."""

    url: str = field(repr=False)
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    credentials: str = field(default="", repr=False)
    nkey_seed: str = field(default="", repr=False)
    authority: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    private_key: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in ("nats", "tls", "ws", "wss"):
            raise BadConnector("a NATS connector starts with nats://, tls://, ws:// or wss://")

    @property
    def address(self) -> str:
        """The URL without user and password."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def is_private(self) -> bool:
        """What is said cannot be read by others on the way: encrypted, or it never leaves this machine."""
        parts = urlsplit(self.url)
        return parts.scheme in ("tls", "wss") or parts.hostname in ("127.0.0.1", "::1", "localhost")

    def clean(self, text: str) -> str:
        """A text about this connection without its secrets."""
        parts = urlsplit(self.url)
        for secret in (self.url, parts.password, parts.username, self.password, self.token, self.nkey_seed):
            if secret:
                text = text.replace(secret, "***")
        return text


@dataclass(frozen=True, slots=True)
class State:
    connected: bool
    error: str = ""


class Bus(Protocol):
    """A connection; see bus/nats.py."""

    state: State

    @property
    def is_private(self) -> bool: ...

    async def run(self) -> None:
        """Until cancelled."""

    async def connected(self) -> None:
        """Wait until it is."""

    def listen(
        self, subject: str, on_message: OnMessage, on_missed: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """Hand over what comes for the subject; the answer ends it."""

    async def publish(self, subject: str, body: bytes) -> None:
        """Returns when the server has it."""

    async def send(self, subject: str, body: bytes) -> None:
        """Publish without waiting: it is lost if the connection is."""

    async def request(self, subject: str, body: bytes, timeout_seconds: float) -> bytes: ...


# The connector, a name for the server's list of clients, and who is told when the connection comes and goes.
Connect = Callable[[Connector, str, Callable[[State], None]], Bus]
