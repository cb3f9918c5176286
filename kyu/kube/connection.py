"""
A connection to an API server over HTTP/1.1: a call's bytes out, an Answer or a stream of parts back.

A connection carries one call at a time. It knows how long the server may be silent, and when it last sent something.
Only this file and http.py know HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import httptools

from kyu.kube.requests import Answer

# Unread bytes of a stream before the server is paused.
MAXIMAL_BUFFER_BYTES = 4 * 2**20
# Bytes written before other tasks run.
SLICE_BYTES = 2**20


class Disconnected(ConnectionError):
    """The connection ended before the answer began: the server may not have seen the call."""

    def __init__(self) -> None:
        super().__init__("the server closed the connection")


class HttpConnection(asyncio.Protocol):
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self.heard_at = self._loop.time()
        self.patience_seconds = 0.0
        # One parser reads all answers of the connection in turn.
        self._parser = httptools.HttpResponseParser(self)
        self._more = asyncio.Event()
        self._start_answer()

    def _start_answer(self) -> None:
        self._answer: asyncio.Future[Answer] = self._loop.create_future()
        self._is_stream = False
        self._status = 0
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._buffered = 0
        self._is_complete = False
        self._keeps_alive = False
        self._fault: Exception | None = None
        self._more.clear()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_reusable(self) -> bool:
        """Whether the last answer is complete and the server keeps the connection."""
        return self.is_open and self._is_complete and self._keeps_alive

    async def ask(self, data: bytes, patience_seconds: float, *, as_stream: bool = False) -> Answer:
        """Return the whole answer; for a successful stream only its head, and ``parts`` yields the rest."""
        if self._is_complete:
            self._start_answer()
        self._is_stream = as_stream
        self.heard_at = self._loop.time()
        self.patience_seconds = patience_seconds
        for start in range(0, len(data), SLICE_BYTES):
            if self._transport is None:
                raise Disconnected
            self._transport.write(data[start : start + SLICE_BYTES] if len(data) > SLICE_BYTES else data)
            if not self._writable.is_set():
                await self._writable.wait()
        return await self._answer

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the parts of a stream until its end."""
        while True:
            await self._more.wait()
            if self._parts:
                data = b"".join(self._parts)
                self._parts.clear()
                if self._buffered > MAXIMAL_BUFFER_BYTES and self._transport is not None:
                    self._transport.resume_reading()
                self._buffered = 0
                yield data
            elif self._fault is not None:
                raise self._fault
            elif self._is_complete:
                return
            else:
                self._more.clear()

    def fail(self, fault: Exception) -> None:
        """End the connection, and raise the error in the waiting task."""
        self._fault = self._fault or fault
        if not self._answer.done():
            self._answer.set_exception(fault)
            # Mark the exception as retrieved: no task may wait any more.
            self._answer.exception()
        self._more.set()
        self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Streams only have such transports; those of uvloop do not derive from the class.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._writable.set()
        if self._status and not self._is_complete and not self._is_delimited():
            # An answer without a length ends with its connection.
            self.on_message_complete()
        elif not self._is_complete:
            self.fail(exc or (ConnectionError("the answer broke off") if self._status else Disconnected()))

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._loop.time()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.fail(ConnectionError(f"the answer is no HTTP: {error}"))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            # An interim answer such as 100 Continue; the final one follows.
            self._headers = {}
            return
        self._status = status
        if status >= 400:
            self._is_stream = False
        if self._is_stream and not self._answer.done():
            self._answer.set_result(Answer(status, b"", self._headers))

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)
        if not self._is_stream:
            return
        self._more.set()
        self._buffered += len(body)
        if self._buffered > MAXIMAL_BUFFER_BYTES and self._transport is not None:
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if not self._status:
            return
        self._is_complete = True
        self._keeps_alive = self._parser.should_keep_alive()
        self._more.set()
        if not self._answer.done():
            self._answer.set_result(Answer(self._status, b"".join(self._parts), self._headers))

    def _is_delimited(self) -> bool:
        return "content-length" in self._headers or "transfer-encoding" in self._headers
