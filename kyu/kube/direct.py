"""
The transport without a socket, to a server in the same process.

Requests and answers are bytes, so that neither side can change an object of the other; the server copies added and
merged bodies. Watchers are called as soon as a change is on disk, and share one object with each other and with the
answers of ``add`` and ``merge``. None of them may change it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Protocol

from kyu.api.meta import Json, Key, Kind
from kyu.kube import errors, requests
from kyu.kube.requests import Answer, Call, Part, Tell
from kyu.write_fairness import Begun


class InProcessServer(Protocol):
    """A server in this process. It answers with status, headers, and a body of bytes or a stream."""

    async def serve(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes | AsyncGenerator[bytes, None]]: ...

    async def follow(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str], tell: Tell
    ) -> tuple[int, Mapping[str, str], bytes] | None:
        """Tell the events of a watch until it ends, or return status, headers and body of a refusal."""

    def add(self, kind: Kind, body: Json, manager: str) -> Awaitable[tuple[int, Json]]:
        """Begin a create; return its code, and the object or the Status of a refusal."""

    def merge(self, kind: Kind, key: Key, body: Json, subresource: Part, manager: str) -> Awaitable[tuple[int, Json]]:
        """Begin a merge patch, like ``add``."""


class Direct:
    # A waiting call is only a future, and calls that wait together share a transaction.
    parallel = 4096

    def __init__(self, server: InProcessServer, turn: Callable[[], Awaitable[None]] | None = None) -> None:
        """``turn``, if given, is awaited before each call (write_fairness.py)."""
        self._server = server
        self._turn = turn

    async def send(self, call: Call) -> Answer:
        if self._turn is not None:
            await self._turn()
        status, headers, body = await self._server.serve(call.method, call.path, call.query, call.headers, call.body)
        if not isinstance(body, bytes):
            body = b"".join([part async for part in body])
        return Answer(status, body, headers)

    def add(self, kind: Kind, body: Json, manager: str) -> Awaitable[Json]:
        return self._begun(partial(self._server.add, kind, body, manager))

    def merge(self, kind: Kind, key: Key, body: Json, subresource: Part, manager: str) -> Awaitable[Json]:
        return self._begun(partial(self._server.merge, kind, key, body, subresource, manager))

    def _begun(self, begin: Callable[[], Awaitable[tuple[int, Json]]]) -> Awaitable[Json]:
        return Begun(partial(_judged, begin()) if self._turn is None else partial(_in_turn, self._turn, begin))

    async def lines(self, call: Call) -> AsyncIterator[bytes]:
        status, headers, body = await self._server.serve(call.method, call.path, call.query, call.headers, call.body)
        if isinstance(body, bytes):
            if status >= 400:
                raise errors.from_answer(status, body, headers)
            for line in body.splitlines():
                yield line
            return
        rest = b""
        async with contextlib.aclosing(body):
            async for part in body:
                *whole, rest = (rest + part).split(b"\n") if rest else part.split(b"\n")
                for line in whole:
                    yield line
        if rest:
            yield rest

    async def follow(self, call: Call, tell: Tell) -> None:
        def tell_change(type_: str, obj: Json) -> None:
            requests.refuse_error(type_, obj)
            tell(type_, obj)

        refusal = await self._server.follow(call.path, call.query, call.headers, tell_change)
        if refusal is not None:
            status, headers, body = refusal
            raise errors.from_answer(status, body, headers)

    async def close(self) -> None:
        """Do nothing: there is no connection."""


async def _in_turn(turn: Callable[[], Awaitable[None]], begin: Callable[[], Awaitable[tuple[int, Json]]]) -> Json:
    await turn()
    return await _judged(begin())


async def _judged(answer: Awaitable[tuple[int, Json]]) -> Json:
    code, obj = await answer
    if code >= 400:
        raise errors.of_status(obj)
    return obj
