"""
The transport without a socket: a server in the same process is simply called.

Called by: kube/client.py through the Transport protocol; made by app.py, which gives the function to call.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping

from kyu.kube import errors
from kyu.kube.requests import Answer, Call

# (method, path, query, headers, body) -> (status, headers, body or its parts as they come)
Serve = Callable[
    [str, str, Mapping[str, str], Mapping[str, str], bytes],
    Awaitable[tuple[int, Mapping[str, str], bytes | AsyncGenerator[bytes, None]]],
]


class Direct:
    def __init__(self, serve: Serve) -> None:
        self._serve = serve

    async def send(self, call: Call) -> Answer:
        status, headers, body = await self._serve(call.method, call.path, call.query, call.headers, call.body)
        if not isinstance(body, bytes):
            body = b"".join([part async for part in body])
        return Answer(status, body, headers)

    async def lines(self, call: Call) -> AsyncIterator[bytes]:
        status, headers, body = await self._serve(call.method, call.path, call.query, call.headers, call.body)
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

    async def close(self) -> None:
        """Nothing is held."""
