"""
One connection of a client: bytes to Requests, Responses to bytes (HTTP/1.1).

The requests of a connection are answered one after the other, in their order. A long answer goes out in slices, as fast
as the client reads, so that other requests are served in between. The caller is known before the body is read, and
each step has a deadline. No rule of Kubernetes is here.

The only file that imports httptools.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections import deque
from dataclasses import dataclass
from typing import cast
from urllib.parse import unquote

import httptools

from kyu import log
from kyu.server import errors, pauses
from kyu.server.exchange import ANONYMOUS, Request, Response, ResponseStream, Tunnel, User, error_response, parse_query
from kyu.server.http.heads import CONTINUE, head, header
from kyu.server.http.limits import network_of
from kyu.server.http.site import Site
from kyu.server.http.tunnel import TunnelWire

# As kube-apiserver: larger bodies are refused before they are read to the end.
MAXIMAL_BODY_BYTES = 3 * 1024 * 1024
MAXIMAL_HEAD_BYTES = 64 * 1024
MAXIMAL_HEADERS = 256
# Requests that may wait on one connection while an earlier one is answered.
MAXIMAL_WAITING = 16
# Bytes that are written before other connections are served.
SLICE_BYTES = 64 * 1024
# A client that is refused while it still sends needs time to read the reason.
LINGER_SECONDS = 2.0
NEVER = float("inf")
SWITCHING_PROTOCOLS = 101


@dataclass(slots=True)
class Asked:
    """A request as it was read. ``fault`` is the reason why it gets no other answer."""

    request: Request
    owner: str
    keeps_alive: bool = False
    # HTTP/1.0 ends an answer of unknown length by closing the connection.
    knows_chunks: bool = False
    fault: errors.StatusError | None = None


class _Ended:
    """The parser of a closed connection, which reads nothing."""


# A parser without an owner: no method of it is called after the end of a connection.
_ENDED = httptools.HttpRequestParser(_Ended())


class Connection(asyncio.Protocol):
    """A connection counts for its address from the moment in which it is accepted, before any handshake."""

    def __init__(self, site: Site, host: str = "") -> None:
        self._site = site
        self.host = host
        self.owner = network_of(host)
        # Set by the acceptor while the TLS handshake goes on.
        self.handshake: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[Asked] = deque()
        self._task: asyncio.Task[None] | None = None
        self._stream: ResponseStream | Tunnel | None = None
        # Holds what the client sends after a request to turn to another protocol.
        self._wire: TunnelWire | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._paused_since = NEVER
        self._is_closing = False
        # Nothing that comes after a refused request is read.
        self._is_refused = False
        self._is_reading_paused = False
        # A client holds back a body until the requests before it are answered.
        self._owes_continue = False
        self._deadline = NEVER
        # The parser calls the methods on_…, which collect one request.
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: dict[str, str] = {}
        self._header_count = 0
        self._is_in_head = False
        self._is_in_message = False
        # Since the last request was complete.
        self._received_bytes = 0
        self._user: User = ANONYMOUS
        self._fault: errors.StatusError | None = None
        self._body: bytes | bytearray = b""
        site.enter(self)

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A server of streams has no other transports; those of uvloop do not derive from the class.
        self._transport = cast(asyncio.Transport, transport)
        self._deadline = time.monotonic() + self._site.limits.head_seconds
        if self._is_closing:
            self.abort()
        elif self._site.is_stopping:
            # The handshake ended after all connections were told to finish.
            self.finish()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._is_closing = True
        self._drop_waiting()
        self._drop_body()
        self._writable.set()
        if self._wire is not None:
            self._wire.end()
        if self._stream is not None:
            self._stream.close()
        self._site.leave(self)
        # The parser refers to this object: without the circle, memory is free at once.
        self._parser = _ENDED

    def data_received(self, data: bytes) -> None:
        if self._wire is not None:
            self._wire.feed(data)
            return
        if self._is_refused:
            return
        self._received_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # The request itself is complete, and is the last one. Bytes after it belong to the other protocol.
            self._is_refused = True
            if self._transport is not None:
                self._wire = TunnelWire(self._transport, self._writable)
                self._wire.feed(data[int(upgrade.args[0]) :])
        except httptools.HttpParserError:
            self._refuse(errors.bad_request("the request is no HTTP/1.1"))
        if self._is_in_head and self._received_bytes > MAXIMAL_HEAD_BYTES:
            self._refuse_head()

    def pause_writing(self) -> None:
        self._writable.clear()
        self._paused_since = time.monotonic()

    def resume_writing(self) -> None:
        self._writable.set()
        self._paused_since = NEVER

    # The site's side.

    def finish(self) -> None:
        """Close as soon as the last request is answered."""
        self._is_closing = True
        if self._stream is not None:
            self._stream.close()
        if self._task is None:
            self._close()

    def close_if_idle(self) -> bool:
        """Close unless a request is being read or answered; return whether it was closed."""
        if self._task is not None or self._is_in_message or self._transport is None:
            return False
        self._site.leave(self)
        self._close()
        return True

    def check_deadline(self, now: float) -> None:
        """Close if the client has taken longer than it may."""
        if self._wire is not None and self._wire.is_used:
            # A person may look at a full screen for long; the stream holds its process back meanwhile.
            if now - self._wire.used_at > self._site.limits.tunnel_idle_seconds:
                self.abort()
        elif now - self._paused_since > self._site.limits.write_seconds:
            self.abort()
        elif now > self._deadline:
            if self._is_in_message:
                self.abort()
            elif self._task is None:
                self._close()

    def abort(self) -> None:
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()
        elif self.handshake is not None:
            self.handshake.cancel()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        else:
            self.abort()

    # The parser's side.

    def on_message_begin(self) -> None:
        self._url, self._headers, self._header_count = b"", {}, 0
        self._is_in_head = self._is_in_message = True
        self._user, self._fault = ANONYMOUS, None
        self._deadline = time.monotonic() + self._site.limits.head_seconds

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_in_head or self._is_refused:
            # Trailers of a body in chunks mean nothing here.
            return
        self._header_count += 1
        if self._header_count > MAXIMAL_HEADERS:
            self._refuse_head()
            return
        key, text = header(name, value)
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
        has_body = self._has_body()
        self._identify(has_body=has_body)
        length = self._headers.get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > MAXIMAL_BODY_BYTES:
            self._refuse_body()
        if not has_body or self._is_refused:
            return
        self._deadline = time.monotonic() + self._site.limits.body_seconds
        if "expect" in self._headers and self._expects_continue():
            # Answers come in the order of the requests, and this one is a part of the last.
            self._owes_continue = True
            if self._task is None:
                self._continue()

    def _has_body(self) -> bool:
        return self._headers.get("content-length", "0") != "0" or "transfer-encoding" in self._headers

    def _identify(self, *, has_body: bool) -> None:
        """Find the user of the request. A body that would be refused anyway is not read."""
        site = self._site
        try:
            try:
                self._user = site.authenticate(self._headers.get("authorization", ""))
            except errors.StatusError:
                site.failures.check(network_of(self.host))
                raise
            if self._user is not ANONYMOUS:
                if self.owner != (owner := f"user {self._user.name}"):
                    site.promote(self, owner)
            elif has_body:
                site.check_guest(self._request(b""))
        except errors.StatusError as error:
            self._fault = error
            if has_body or error.code == 429:
                self._refuse(error)

    def _expects_continue(self) -> bool:
        """Return whether the client holds back a body until it is told to go on."""
        return self._headers["expect"].lower() == "100-continue" and self._parser.get_http_version() == "1.1"

    def _continue(self) -> None:
        if self._owes_continue and self._transport is not None and not self._is_refused:
            self._transport.write(CONTINUE)
        self._owes_continue = False

    def on_body(self, body: bytes) -> None:
        if self._is_refused:
            return
        if len(self._body) + len(body) > MAXIMAL_BODY_BYTES:
            self._refuse_body()
            return
        limits = self._site.limits
        most = limits.body_bytes_per_address if self._user is ANONYMOUS else limits.body_bytes_per_user
        if not self._site.bodies.take(self.owner, len(body), most):
            self._refuse(errors.too_many_requests("too many bytes of request bodies wait to be handled"))
        elif not self._body:
            self._body = body
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += body

    def on_message_complete(self) -> None:
        self._owes_continue = self._is_in_message = False
        self._received_bytes = 0
        self._deadline = NEVER
        if self._is_refused:
            return
        parser = self._parser
        knows_chunks = parser.get_http_version() == "1.1"
        keeps_alive = knows_chunks and parser.should_keep_alive() and not parser.should_upgrade()
        body, self._body = self._body, b""
        request = self._request(body if isinstance(body, bytes) else bytes(body))
        self._put(Asked(request, self.owner, keeps_alive, knows_chunks, self._fault))

    def _refuse_head(self) -> None:
        text = f"the head of the request has more than {MAXIMAL_HEAD_BYTES} bytes or {MAXIMAL_HEADERS} headers"
        self._refuse(errors.StatusError(431, "RequestHeaderFieldsTooLarge", text))

    def _refuse_body(self) -> None:
        self._refuse(errors.too_large(f"the body of the request is larger than {MAXIMAL_BODY_BYTES} bytes"))

    def _request(self, body: bytes) -> Request:
        """Return the request that was collected. A client that uses a proxy sends a whole URL: its path counts."""
        url = self._url if self._url.startswith(b"/") else httptools.parse_url(self._url).path or b"/"
        path, _, query = url.decode("latin-1").partition("?")
        return Request(
            self._parser.get_method().decode("latin-1"),
            unquote(path) if "%" in path else path,
            parse_query(query),
            self._headers,
            body,
            self._user,
            self.host,
            query,
        )

    def _refuse(self, fault: errors.StatusError) -> None:
        """Answer with a fault after the requests before it, and read no more."""
        if not self._is_refused:
            self._is_refused = True
            self._drop_body()
            # The rest of the request is not waited for.
            self._is_in_message = False
            self._deadline = NEVER
            try:
                request = self._request(b"") if self._fault is fault else Request("", "", user=self._user)
            except httptools.HttpParserError:
                request = Request("", "")
            self._put(Asked(request, self.owner, fault=fault))

    def _drop_body(self) -> None:
        self._site.bodies.give(self.owner, len(self._body))
        self._body = b""

    def _drop_waiting(self) -> None:
        for asked in self._waiting:
            self._site.bodies.give(asked.owner, len(asked.request.body))
        self._waiting.clear()

    # Answering.

    def _put(self, asked: Asked) -> None:
        if self._is_closing:
            self._site.bodies.give(asked.owner, len(asked.request.body))
            return
        self._waiting.append(asked)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._answer_all())
        elif len(self._waiting) > MAXIMAL_WAITING and not self._is_reading_paused and self._transport is not None:
            self._is_reading_paused = True
            self._transport.pause_reading()

    async def _answer_all(self) -> None:
        try:
            while self._waiting:
                asked = self._waiting.popleft()
                try:
                    response = await self._respond(asked)
                finally:
                    self._site.bodies.give(asked.owner, len(asked.request.body))
                body = response.body
                if isinstance(body, bytes) and len(body) <= SLICE_BYTES:
                    self._send(asked, response, body)
                    if not self._writable.is_set():
                        await self._writable.wait()
                elif isinstance(body, bytes):
                    await pauses.charged.get()(self._send_large(asked, response, body))
                elif response.status == SWITCHING_PROTOCOLS:
                    await self._send_tunnel(response, cast(Tunnel, body))
                else:
                    await pauses.charged.get()(self._send_stream(asked, response, cast(ResponseStream, body)))
                if not asked.keeps_alive:
                    self._is_closing = True
                    self._drop_waiting()
        finally:
            self._task = None
            if not self._is_in_message:
                limits = self._site.limits
                is_guest = self.owner == network_of(self.host)
                idle_seconds = limits.guest_idle_seconds if is_guest else limits.idle_seconds
                self._deadline = time.monotonic() + idle_seconds
            self._go_on()

    def _go_on(self) -> None:
        """Close after the last answer, or read again."""
        if self._transport is None:
            return
        self._continue()
        if self._is_refused:
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self._transport.close)
        elif self._is_closing:
            self._transport.close()
        elif self._is_reading_paused:
            self._is_reading_paused = False
            self._transport.resume_reading()

    async def _respond(self, asked: Asked) -> Response:
        request, start = asked.request, time.monotonic()
        if asked.fault is not None:
            self._site.audit.note(request, asked.fault.code, 0.0)
            return error_response(asked.fault)
        try:
            response = await self._site.handler(request)
        except errors.StatusError as error:
            response = error_response(error)
        except Exception as error:
            # A fault of the server: the client gets a Status, the log gets the trace.
            log.error("request failed", method=request.method, path=request.path, trace=traceback.format_exc())
            response = error_response(errors.StatusError(500, "InternalError", f"Internal error occurred: {error!r}"))
        self._site.audit.note(request, response.status, time.monotonic() - start)
        return response

    def _send(self, asked: Asked, response: Response, body: bytes) -> None:
        """Write an answer at once."""
        if self._transport is not None:
            start = head(response, b"content-length: %d\r\n" % len(body), is_last=self._is_last(asked))
            self._transport.write(start if asked.request.method == "HEAD" else start + body)

    async def _send_large(self, asked: Asked, response: Response, body: bytes) -> None:
        """Write an answer in slices, or refuse it while too much else waits for the client to read."""
        site = self._site
        if not site.answers.take(asked.owner, len(body), site.limits.answer_bytes_per_user):
            refusal = error_response(errors.too_many_requests("too many bytes of answers wait to be read"))
            assert isinstance(refusal.body, bytes)
            self._send(asked, refusal, refusal.body)
            return
        try:
            await self._write(head(response, b"content-length: %d\r\n" % len(body), is_last=self._is_last(asked)))
            if asked.request.method == "HEAD":
                return
            view = memoryview(body)
            for position in range(0, len(body), SLICE_BYTES):
                await self._write(view[position : position + SLICE_BYTES])
                await asyncio.sleep(0)
        finally:
            site.answers.give(asked.owner, len(body))

    def _is_last(self, asked: Asked) -> bool:
        return self._is_closing or not asked.keeps_alive

    async def _write(self, data: bytes | memoryview) -> None:
        if self._transport is not None:
            self._transport.write(data)
            if not self._writable.is_set():
                await self._writable.wait()

    async def _send_tunnel(self, response: Response, tunnel: Tunnel) -> None:
        """Turn to the other protocol. The connection ends with it."""
        self._stream = tunnel
        self._is_closing = True
        wire = self._wire
        try:
            # Without a wire, the request had a body, which no such request has.
            if self._transport is not None and wire is not None:
                wire.begin()
                self._transport.write(head(response, b"", is_last=False))
                await tunnel.run(wire)
        except ConnectionError:
            # The client has gone.
            self.abort()
        finally:
            self._stream = None
            # Nothing more is read; the connection is closed as soon as the last bytes are sent.
            self._is_refused = False
            tunnel.close()

    async def _send_stream(self, asked: Asked, response: Response, stream: ResponseStream) -> None:
        self._stream = stream
        if self._is_closing:
            stream.close()
        is_chunked = asked.knows_chunks
        try:
            # The headers leave at once: the client waits for them before the first event.
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
        except TimeoutError:
            # A list that is not read to its end must not look whole.
            self.abort()
        finally:
            self._stream = None
            stream.close()
