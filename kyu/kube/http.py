"""
The transport over a socket. The only file that imports aiohttp.

Called by: kube/client.py through the Transport protocol; made by ``connect`` from a kubeconfig.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
from yarl import URL

from kyu.kube import errors
from kyu.kube.kubeconfig import Credentials
from kyu.kube.requests import Answer, Call

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0
# A watch is silent for a minute at most: the server sends bookmarks.
SILENCE_SECONDS = 150.0
LARGE_BODY_BYTES = 2**20
LONGEST_LINE_BYTES = 16 * 1024 * 1024


async def connect(credentials: Credentials, user_agent: str = "kyu") -> Http:
    """A transport to the server of the credentials; a credential plugin is asked before the first connection."""
    await asyncio.to_thread(credentials.headers)
    return Http(credentials, user_agent)


class Http:
    def __init__(self, credentials: Credentials, user_agent: str) -> None:
        self._credentials = credentials
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=credentials.ssl_context(), keepalive_timeout=60),
            headers={"user-agent": user_agent},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=ANSWER_SECONDS),
            read_bufsize=2**20,
        )

    async def send(self, call: Call) -> Answer:
        answer = await self._send(call)
        if answer.status == 401 and await asyncio.to_thread(self._credentials.refresh):
            return await self._send(call)
        return answer

    async def _send(self, call: Call) -> Answer:
        try:
            async with self._session.request(
                call.method, self._url(call), data=_data(call.body), headers=await self._headers(call), **self._tls()
            ) as response:
                return Answer(response.status, await response.read(), _lowered(response.headers))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(error) from error

    async def lines(self, call: Call) -> AsyncIterator[bytes]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS)
        try:
            async with self._session.request(
                call.method, self._url(call), headers=await self._headers(call), timeout=timeout, **self._tls()
            ) as response:
                if response.status >= 400:
                    raise errors.from_answer(response.status, await response.read(), _lowered(response.headers))
                async for line in _lines(response.content):
                    yield line
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(error) from error

    async def close(self) -> None:
        await self._session.close()

    def _url(self, call: Call) -> URL:
        return URL(self._credentials.server.rstrip("/") + call.target, encoded=True)

    async def _headers(self, call: Call) -> dict[str, str]:
        credentials = self._credentials
        own = await asyncio.to_thread(credentials.headers) if credentials.needs_plugin else credentials.headers()
        return {**call.headers, **own}

    def _tls(self) -> dict[str, Any]:
        """The name that the server's certificate must have, where it is not that of the address."""
        name = self._credentials.server_name
        return {"server_hostname": name} if name else {}

    def _unreachable(self, error: Exception) -> errors.Unreachable:
        return errors.Unreachable(f"{self._credentials.server}: {str(error) or type(error).__name__}")


def _data(body: bytes) -> bytes | io.BytesIO | None:
    """A large body is sent in pieces, so that others get their turn."""
    return io.BytesIO(body) if len(body) > LARGE_BODY_BYTES else body or None


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Objects can be longer than the line limit of the reader, so lines are cut here."""
    rest = b""
    async for part in content.iter_any():
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            if line:
                yield line
        if len(rest) > LONGEST_LINE_BYTES:
            raise errors.Unreachable("a line of the answer is too long")
    if rest:
        yield rest


def _lowered(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
