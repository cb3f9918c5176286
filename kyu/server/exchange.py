"""A request and its answer, as values: what the HTTP server and the in-process client both speak."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Protocol
from urllib.parse import parse_qsl

import msgspec

from kyu.api.meta import Json
from kyu.server import errors

JSON = "application/json"
encode = msgspec.json.Encoder().encode
# Longer queries are not remembered: the memo is bounded in bytes, too.
REMEMBERED_LENGTH = 512


@dataclass(frozen=True, slots=True)
class User:
    """The user of a request. The group ``system:masters`` has all rights."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""


ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


class Request(msgspec.Struct, frozen=True):
    """Header names are in lower case; of a query parameter that is repeated, the first counts."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    body: bytes = b""
    user: User = ANONYMOUS
    # The address of the client; empty within the process.
    host: str = ""
    # The query as it was sent: a command is a parameter that is repeated.
    query_text: str = ""

    @property
    def accept(self) -> str:
        return self.headers.get("accept", "")

    @property
    def content_type(self) -> str:
        """The media type without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip()


class ResponseStream(Protocol):
    """An answer without an end: a watch, or a log that is followed."""

    def parts(self) -> AsyncGenerator[bytes, None]:
        """Yield the bytes as they come, until the stream is closed."""

    def close(self) -> None:
        """End it soon; called when the client has gone or the server stops."""


class TunnelBytes(Protocol):
    """A connection that has turned to another protocol: plain bytes in both directions."""

    async def read(self) -> bytes:
        """Return the next bytes; none when the client has gone."""

    async def write(self, data: bytes) -> None:
        """Send bytes, as fast as the client reads. Raise ConnectionError when the client has gone."""


class Tunnel(Protocol):
    """An answer that takes the connection over after its head, with status 101."""

    async def run(self, wire: TunnelBytes) -> None:
        """Use the connection until either side ends it."""

    def close(self) -> None:
        """End it soon; called when the client has gone or the server stops."""


class Response(msgspec.Struct, frozen=True):
    status: int
    body: bytes | ResponseStream | Tunnel = b""
    content_type: str = JSON
    warnings: tuple[str, ...] = ()
    headers: Mapping[str, str] = {}


def json_response(status: int, body: Json, *, content_type: str = JSON, warnings: tuple[str, ...] = ()) -> Response:
    return Response(status, encode(body) + b"\n", content_type, warnings)


def text_response(status: int, text: str) -> Response:
    return Response(status, text.encode(), "text/plain; charset=utf-8")


def error_response(error: errors.StatusError) -> Response:
    headers = {}
    if error.details and "retryAfterSeconds" in error.details:
        headers["Retry-After"] = str(error.details["retryAfterSeconds"])
    return Response(error.code, encode(error.status()) + b"\n", warnings=error.warnings, headers=headers)


def parse_query(text: str) -> Mapping[str, str]:
    """Return the parameters of a query, which must not be changed: those of short queries are shared."""
    return _short_query(text) if len(text) <= REMEMBERED_LENGTH else _parse_query(text)


@lru_cache(maxsize=1024)
def _short_query(text: str) -> Mapping[str, str]:
    return _parse_query(text)


def _parse_query(text: str) -> Mapping[str, str]:
    query: dict[str, str] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        query.setdefault(name, value)
    return MappingProxyType(query)


class Handler(Protocol):
    async def __call__(self, request: Request) -> Response: ...
