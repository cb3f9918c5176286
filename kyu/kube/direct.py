"""
The transport without a socket: a server in the same process is simply called.

Requests and answers are bytes, so that neither side can change what the other holds; of what is added or merged the
server takes a copy. Who follows a kind is called by the server as soon as a change is on disk, with an object that is
not copied: all who follow the kind get the same one, and none of them may change it. Who adds or merges is answered
with that object, too.

Called by: kube/client.py through Transport. Made by: app.py, which gives the server to call.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Protocol

from kyu.api.meta import Json, Key, Kind
from kyu.kube import errors, requests
from kyu.kube.requests import Answer, Call, Part, Tell
from kyu.turns import Begun


class Server(Protocol):
    """Status, headers, and the body: as bytes, or bit by bit as it comes."""

    async def serve(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes | AsyncGenerator[bytes, None]]: ...

    async def follow(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str], tell: Tell
    ) -> tuple[int, Mapping[str, str], bytes] | None:
        """A watch: tell of its events until it ends; or status, headers and body of a refusal."""

    def add(self, kind: Kind, body: Json, manager: str) -> Awaitable[tuple[int, Json]]:
        """A create, which has begun when this returns: its code, and the object, or the Status of a refusal."""

    def merge(self, kind: Kind, key: Key, body: Json, subresource: Part, manager: str) -> Awaitable[tuple[int, Json]]:
        """A merge patch: the same."""


class Direct:
    # A call that waits is a future; what counts is that many share a transaction.
    parallel = 4096

    def __init__(self, server: Server, turn: Callable[[], Awaitable[None]] | None = None) -> None:
        """``turn`` is waited for before each call, by those who take turns."""
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
        """Nothing is held."""


async def _in_turn(turn: Callable[[], Awaitable[None]], begin: Callable[[], Awaitable[tuple[int, Json]]]) -> Json:
    await turn()
    return await _judged(begin())


async def _judged(answer: Awaitable[tuple[int, Json]]) -> Json:
    code, obj = await answer
    if code >= 400:
        raise errors.of_status(obj)
    return obj
