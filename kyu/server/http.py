"""
The HTTP server: bytes of a socket to a Request, a Response to bytes. No rule of Kubernetes is here.

Called by: app.py. The only file that imports uvicorn.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import traceback
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

import uvicorn

from kyu import log
from kyu.server import auth, errors
from kyu.server.exchange import Handler, Request, Response, Stream, error_response, parse_query

# As kube-apiserver: larger bodies are refused before they are read to the end.
MAXIMAL_BODY_BYTES = 3 * 1024 * 1024
# Longer than the idle time of the usual clients, so that they close first and never write to a closed connection.
KEEP_ALIVE_SECONDS = 120
GRACE_SECONDS = 5

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


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
        self._handler = handler
        self._authenticate = authenticate
        self._listener = listener
        self._streams: set[Stream] = set()
        config = uvicorn.Config(
            self._application,
            http="httptools",
            ws="none",
            lifespan="off",
            interface="asgi3",
            proxy_headers=False,
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            ssl_certfile=certificate,
            ssl_keyfile=key,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
            backlog=1024,
        )
        self._uvicorn = _Uvicorn(config)
        self._ended = asyncio.Event()

    async def serve(self) -> None:
        try:
            await self._uvicorn.serve(sockets=[self._listener])
        finally:
            self._ended.set()

    async def started(self) -> None:
        """Wait until requests are answered."""
        await self._uvicorn.listening.wait()

    async def stopped(self) -> None:
        """Wait until the last request is answered."""
        await self._ended.wait()

    def stop(self) -> None:
        """Take no more connections, end the watches, let the other requests finish."""
        self._uvicorn.should_exit = True
        for stream in list(self._streams):
            stream.close()

    async def _application(self, scope: Message, receive: Receive, send: Send) -> None:
        request, response = await self._respond(scope, receive)
        if isinstance(response.body, bytes):
            await send(_start(response, len(response.body)))
            await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else response.body})
        else:
            await self._send_stream(response, response.body, receive, send)

    async def _respond(self, scope: Message, receive: Receive) -> tuple[Request, Response]:
        headers = _headers(scope["headers"])
        path = scope["path"] if "%" not in scope["path"] else unquote(scope["path"])
        query = parse_query(scope["query_string"].decode("latin-1"))
        request = Request(scope["method"], path, query, headers)
        try:
            user = self._authenticate(headers.get("authorization", ""))
            body = await _read(receive)
            request = Request(scope["method"], path, query, headers, body, user)
            return request, await self._handler(request)
        except errors.ApiError as error:
            return request, error_response(error)
        except Exception as error:
            # A fault of ours: the client gets a Status, the log gets the whole story.
            log.error("request failed", method=request.method, path=path, trace=traceback.format_exc())
            return request, error_response(errors.ApiError(500, "InternalError", f"Internal error occurred: {error!r}"))

    async def _send_stream(self, response: Response, stream: Stream, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_disconnected(receive))
        gone.add_done_callback(lambda _: stream.close())
        self._streams.add(stream)
        try:
            await send(_start(response, None))
            # An empty part makes the headers leave now: the client waits for them before anything happens.
            await send({"type": "http.response.body", "body": b"", "more_body": True})
            async for part in stream.parts():
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._streams.discard(stream)
            stream.close()
            gone.cancel()


class _Uvicorn(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the business of the composition root, which also stops what uvicorn does not know."""
        yield


def _headers(raw: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """By name; the values of a header that is sent several times are joined by commas."""
    headers: dict[str, str] = {}
    for name_bytes, value_bytes in raw:
        name, value = name_bytes.decode("latin-1"), value_bytes.decode("latin-1")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers


def _start(response: Response, length: int | None) -> Message:
    headers = [(b"content-type", response.content_type.encode())] if response.content_type else []
    if length is not None:
        headers.append((b"content-length", b"%d" % length))
    headers += [(b"warning", warning.encode()) for warning in response.warnings]
    headers += [(name.lower().encode(), value.encode()) for name, value in response.headers.items()]
    headers.append((b"cache-control", b"no-cache, private"))
    return {"type": "http.response.start", "status": response.status, "headers": headers}


async def _read(receive: Receive) -> bytes:
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body"):
        return body
    parts = [body]
    size = len(body)
    while message.get("more_body"):
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MAXIMAL_BODY_BYTES:
            raise errors.too_large(f"the body of the request is larger than {MAXIMAL_BODY_BYTES} bytes")
    return b"".join(parts)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
