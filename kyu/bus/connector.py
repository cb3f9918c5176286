"""
The interface of a connection to a NATS server: address and credentials, state, and operations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

# (subject, body, reply subject)
OnMessage = Callable[[str, bytes, str], None]


class Unanswered(Exception):
    """There was no answer in time, no responder, or no connection."""


class BadConnector(ValueError):
    """The connector cannot be used; the message names no credentials."""


@dataclass(frozen=True, slots=True)
class Connector:
    """The address and credentials of a server. Equal connectors share a connection; ``repr`` hides the secrets."""

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
        """Whether no third party can read the messages: encrypted, or within this machine."""
        parts = urlsplit(self.url)
        return parts.scheme in ("tls", "wss") or parts.hostname in ("127.0.0.1", "::1", "localhost")

    def clean(self, text: str) -> str:
        """Return the text without the secrets of this connection."""
        parts = urlsplit(self.url)
        for secret in (self.url, parts.password, parts.username, self.password, self.token, self.nkey_seed):
            if secret:
                text = text.replace(secret, "***")
        return text


@dataclass(frozen=True, slots=True)
class ConnectionState:
    connected: bool
    error: str = ""


class Bus(Protocol):
    """A connection; implemented in bus/nats.py."""

    state: ConnectionState

    @property
    def is_private(self) -> bool: ...

    async def run(self) -> None:
        """Stay connected until cancelled."""

    async def connected(self) -> None:
        """Wait for the connection."""

    def listen(
        self, subject: str, on_message: OnMessage, on_missed: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """Subscribe to a subject, and return a function that ends the subscription."""

    async def publish(self, subject: str, body: bytes) -> None:
        """Publish, and return when the server has the message."""

    async def send(self, subject: str, body: bytes) -> None:
        """Publish without waiting; the message is lost if the connection breaks."""

    async def request(self, subject: str, body: bytes, timeout_seconds: float) -> bytes: ...


# From a connector, a client name for the server, and a callback for changes of the connection's state.
Connect = Callable[[Connector, str, Callable[[ConnectionState], None]], Bus]
