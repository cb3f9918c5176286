"""
One connection of a client: bytes to Requests, Responses to bytes (HTTP/1.1).

Requests of a connection are answered one after the other, in their order. A long answer goes out in slices, and as fast
as the client reads, so that others get their turn. No rule of Kubernetes is here.

Called by: http.py. The only file that imports httptools.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import cast
from urllib.parse import unquote

import httptools

from kyu import log
from kyu.server import auth, errors
from kyu.server.exchange import ANONYMOUS, Handler, Request, Response, Stream, User, error_response, parse_query

# As kube-apiserver: larger bodies are refused before they are read to the end.
MAXIMAL_BODY_BYTES = 3 * 1024 * 1024
MAXIMAL_HEAD_BYTES = 64 * 1024
# Requests that may wait on one connection while an earlier one is answered.
MAXIMAL_WAITING = 16
# What is written before others get their turn.
SLICE_BYTES = 256 * 1024
# A client that is refused while it still sends must find the time to read why.
LINGER_SECONDS = 2.0
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Site:
    """What all connections of a server share."""

    def __init__(self, handler: Handler, authenticate: auth.Authenticate) -> None:
        self.handler = handler
        self.authenticate = authenticate
        self.connections: set[Connection] = set()
        self.is_stopping = False
        self._empty = asyncio.Event()

    def leave(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if self.is_stopping and not self.connections:
            self._empty.set()

    def stop(self) -> None:
        """End streams and idle connections; what is being answered still gets its answer."""
        self.is_stopping = True
        if not self.connections:
            self._empty.set()
        for connection in list(self.connections):
            connection.finish()

    async def emptied(self, seconds: float) -> None:
        """Wait until all have left, but no longer than this."""
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            log.warning("connections cut off", count=len(self.connections))

    def close_idle(self, seconds: float) -> None:
        limit = time.monotonic() - seconds
        for connection in list(self.connections):
            connection.close_if_idle_since(limit)

    def abort(self) -> None:
        for connection in list(self.connections):
            connection.abort()


@dataclass(slots=True)
class Asked:
    """A request as it was read; ``fault`` is why it cannot be answered otherwise."""

    request: Request
    keeps_alive: bool = False
    # HTTP/1.0 does not know how to end an answer of unknown length but by closing the connection.
    knows_chunks: bool = False
    fault: errors.ApiError | None = None


class Connection(asyncio.Protocol):
    def __init__(self, site: Site) -> None:
        self._site = site
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[Asked] = deque()
        self._task: asyncio.Task[None] | None = None
        self._stream: Stream | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._is_closing = False
        # Nothing that comes after a refused request is looked at.
        self._is_refused = False
        self._is_paused = False
        # Somebody waits with a body until what came before is answered.
        self._owes_continue = False
        self._seen = time.monotonic()
        # The parser calls the methods on_…, which collect one request.
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: dict[str, str] = {}
        self._is_in_head = False
        # Since the last request was complete.
        self._received_bytes = 0
        self._body: list[bytes] = []
        self._body_bytes = 0

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A server of streams gives no other transports; those of uvloop do not derive from the class.
        self._transport = cast(asyncio.Transport, transport)
        self._site.connections.add(self)
        if self._site.is_stopping:
            # Its handshake ended after everybody was told to finish.
            self.finish()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._is_closing = True
        self._waiting.clear()
        self._writable.set()
        if self._stream is not None:
            self._stream.close()
        self._site.leave(self)

    def data_received(self, data: bytes) -> None:
        self._seen = time.monotonic()
        if self._is_refused:
            return
        self._received_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # The request itself is complete: it is answered in plain HTTP, and is the last one.
            self._is_refused = True
        except httptools.HttpParserError:
            self._refuse(errors.bad_request("the request is no HTTP/1.1"))
        if self._is_in_head and self._received_bytes > MAXIMAL_HEAD_BYTES:
            self._refuse_head()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # The site's side.

    def finish(self) -> None:
        """Close as soon as nothing waits for an answer."""
        self._is_closing = True
        if self._stream is not None:
            self._stream.close()
        if self._task is None and self._transport is not None:
            self._transport.close()

    def close_if_idle_since(self, limit: float) -> None:
        if self._task is None and self._seen < limit and self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # The parser's side.

    def on_message_begin(self) -> None:
        self._url, self._headers, self._is_in_head = b"", {}, True
        self._body, self._body_bytes = [], 0

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_in_head:
            # What comes behind a body in chunks says nothing to us.
            return
        key, text = _header(name, value)
        headers = self._headers
        # The values of a header that is sent several times are joined by commas.
        headers[key] = f"{headers[key]},{text}" if key in headers else text

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        if self._received_bytes > MAXIMAL_HEAD_BYTES:
            # Much of it may be the body.
            headers = self._headers.items()
            if len(self._url) + sum(len(name) + len(text) for name, text in headers) > MAXIMAL_HEAD_BYTES:
                self._refuse_head()
        if "expect" in self._headers and self._is_waited_for():
            # Answers come in the order of the requests, and this one is a part of the last.
            self._owes_continue = True
            if self._task is None:
                self._continue()

    def _is_waited_for(self) -> bool:
        """Whether the client holds back a body until it is told to go on."""
        has_body = self._headers.get("content-length", "0") != "0" or "transfer-encoding" in self._headers
        is_asked = self._headers["expect"].lower() == "100-continue"
        return is_asked and has_body and self._parser.get_http_version() == "1.1"

    def _continue(self) -> None:
        if self._owes_continue and self._transport is not None:
            self._transport.write(CONTINUE)
        self._owes_continue = False

    def on_body(self, body: bytes) -> None:
        self._body.append(body)
        self._body_bytes += len(body)
        if self._body_bytes > MAXIMAL_BODY_BYTES:
            text = f"the body of the request is larger than {MAXIMAL_BODY_BYTES} bytes"
            self._refuse(errors.too_large(text))

    def on_message_complete(self) -> None:
        self._owes_continue = False
        self._received_bytes = 0
        if self._is_refused:
            return
        parser = self._parser
        knows_chunks = parser.get_http_version() == "1.1"
        keeps_alive = knows_chunks and parser.should_keep_alive() and not parser.should_upgrade()
        user, fault = ANONYMOUS, None
        try:
            user = self._site.authenticate(self._headers.get("authorization", ""))
        except errors.ApiError as error:
            fault = error
        self._put(Asked(self._request(user), keeps_alive, knows_chunks, fault))

    def _refuse_head(self) -> None:
        text = f"the head of the request is larger than {MAXIMAL_HEAD_BYTES} bytes"
        self._refuse(errors.ApiError(431, "RequestHeaderFieldsTooLarge", text))

    def _request(self, user: User) -> Request:
        """What was collected. A client that takes us for a proxy sends a whole URL: its path counts."""
        url = self._url if self._url.startswith(b"/") else httptools.parse_url(self._url).path or b"/"
        path, _, query = url.decode("latin-1").partition("?")
        return Request(
            self._parser.get_method().decode("latin-1"),
            unquote(path) if "%" in path else path,
            parse_query(query),
            self._headers,
            b"".join(self._body),
            user,
        )

    def _refuse(self, fault: errors.ApiError) -> None:
        """Answer with a fault after what came before, and read no more."""
        if not self._is_refused:
            self._is_refused = True
            self._put(Asked(Request("", ""), fault=fault))

    # Answering.

    def _put(self, asked: Asked) -> None:
        if self._is_closing:
            return
        self._waiting.append(asked)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._answer_all())
        elif len(self._waiting) > MAXIMAL_WAITING and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    async def _answer_all(self) -> None:
        try:
            while self._waiting:
                asked = self._waiting.popleft()
                response = await self._respond(asked)
                body = response.body
                if isinstance(body, bytes) and len(body) <= SLICE_BYTES:
                    self._send(asked, response, body)
                    if not self._writable.is_set():
                        await self._writable.wait()
                elif isinstance(body, bytes):
                    await self._send_slices(asked, response, body)
                else:
                    await self._send_stream(asked, response, body)
                if not asked.keeps_alive:
                    self._is_closing = True
                    self._waiting.clear()
        finally:
            self._task = None
            self._seen = time.monotonic()
            self._go_on()

    def _go_on(self) -> None:
        """After the last answer: close, or read again."""
        if self._transport is None:
            return
        self._continue()
        if self._is_refused:
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self._transport.close)
        elif self._is_closing:
            self._transport.close()
        elif self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    async def _respond(self, asked: Asked) -> Response:
        if asked.fault is not None:
            return error_response(asked.fault)
        request = asked.request
        try:
            return await self._site.handler(request)
        except errors.ApiError as error:
            return error_response(error)
        except Exception as error:
            # A fault of ours: the client gets a Status, the log gets the whole story.
            log.error("request failed", method=request.method, path=request.path, trace=traceback.format_exc())
            return error_response(errors.ApiError(500, "InternalError", f"Internal error occurred: {error!r}"))

    def _send(self, asked: Asked, response: Response, body: bytes) -> None:
        """An answer that is written at once."""
        if self._transport is not None:
            start = head(response, b"content-length: %d\r\n" % len(body), is_last=self._is_last(asked))
            self._transport.write(start if asked.request.method == "HEAD" else start + body)

    async def _send_slices(self, asked: Asked, response: Response, body: bytes) -> None:
        await self._write(head(response, b"content-length: %d\r\n" % len(body), is_last=self._is_last(asked)))
        if asked.request.method == "HEAD":
            return
        view = memoryview(body)
        for position in range(0, len(body), SLICE_BYTES):
            await self._write(view[position : position + SLICE_BYTES])
            await asyncio.sleep(0)

    def _is_last(self, asked: Asked) -> bool:
        return self._is_closing or not asked.keeps_alive

    async def _write(self, data: bytes | memoryview) -> None:
        if self._transport is not None:
            self._transport.write(data)
            if not self._writable.is_set():
                await self._writable.wait()

    async def _send_stream(self, asked: Asked, response: Response, stream: Stream) -> None:
        self._stream = stream
        if self._is_closing:
            stream.close()
        is_chunked = asked.knows_chunks
        try:
            # The headers leave at once: the client waits for them before anything happens.
            framing = b"transfer-encoding: chunked\r\n" if is_chunked else b""
            await self._write(head(response, framing, is_last=self._is_last(asked)))
            if asked.request.method == "HEAD":
                return
            async for part in stream.parts():
                if part:
                    await self._write(b"%x\r\n%b\r\n" % (len(part), part) if is_chunked else part)
                if self._transport is None:
                    return
            if is_chunked:
                await self._write(b"0\r\n\r\n")
        finally:
            self._stream = None
            stream.close()


def head(response: Response, framing: bytes, *, is_last: bool) -> bytes:
    """The status line and the headers."""
    start = _start(response.status, response.content_type) + framing
    if not (response.warnings or response.headers or is_last):
        return start + b"\r\n"
    headers = [("warning", warning) for warning in response.warnings]
    headers += [(name.lower(), value) for name, value in response.headers.items()]
    if is_last:
        headers.append(("connection", "close"))
    # A line break would end the header; no text of ours has one, but a field that somebody sent may be named so.
    lines = [f"{name}: {' '.join(value.splitlines())}\r\n" for name, value in headers]
    return start + "".join(lines).encode() + b"\r\n"


@lru_cache(maxsize=1024)
def _header(name: bytes, value: bytes) -> tuple[str, str]:
    """Clients send nearly the same headers again and again."""
    return name.decode("latin-1").lower(), value.decode("latin-1")


@lru_cache(maxsize=256)
def _start(status: int, content_type: str) -> bytes:
    """What all answers of a sort begin with."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    kind = f"content-type: {content_type}\r\n" if content_type else ""
    return f"HTTP/1.1 {status} {phrase}\r\n{kind}cache-control: no-cache, private\r\n".encode()
