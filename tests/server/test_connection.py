"""HTTP: pipelining, chunks, HTTP/1.0, HEAD, unfinished bodies and slow readers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from kyu.server import errors
from kyu.server.exchange import ANONYMOUS, Request, Response, User
from kyu.server.http.connection import MAXIMAL_BODY_BYTES, Connection
from kyu.server.http.site import Site

KIND = b"content-type: application/json\r\ncache-control: no-cache, private\r\n"


class Numbers:
    """A stream of numbered parts that counts how many were requested."""

    def __init__(self, count: int, part: bytes) -> None:
        self.count, self.part, self.asked, self.is_closed = count, part, 0, False

    def close(self) -> None:
        self.is_closed = True

    async def parts(self) -> AsyncGenerator[bytes, None]:
        while self.asked < self.count and not self.is_closed:
            self.asked += 1
            yield self.part


async def answer(request: Request) -> Response:
    """Answer the request as text."""
    if request.path == "/fail":
        raise ValueError("a fault of ours")
    if request.path == "/refuse":
        raise errors.bad_request("no")
    if request.path == "/stream":
        return Response(200, Numbers(2, b"part\n"))
    if request.path == "/warn":
        return Response(200, b"w", warnings=('299 - "odd\r\nfield"',), headers={"Retry-After": "1"})
    text = f"{request.method} {request.path} {dict(request.query)} {request.headers.get('x-a', '')} {len(request.body)}"
    return Response(200, text.encode())


def let_in(authorization: str) -> User:
    if authorization == "Bearer wrong":
        raise errors.unauthorized()
    return ANONYMOUS


class Peer:
    """A client that writes raw bytes."""

    def __init__(self, site: Site, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.site, self.reader, self.writer = site, reader, writer

    async def ask(self, raw: bytes) -> bytes:
        """Return all bytes until the server closes the connection."""
        self.writer.write(raw)
        async with asyncio.timeout(30):
            return await self.reader.read()

    async def one(self, raw: bytes) -> bytes:
        """Return the answer to one request on a connection that stays open."""
        self.writer.write(raw)
        async with asyncio.timeout(30):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            return head + await self.reader.readexactly(length)


@contextlib.asynccontextmanager
async def connected(handler: object = answer) -> AsyncIterator[Peer]:
    site = Site(handler, let_in)  # type: ignore[arg-type]
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    await loop.connect_accepted_socket(lambda: Connection(site), ours)
    reader, writer = await asyncio.open_connection(sock=theirs, limit=2**22)
    try:
        yield Peer(site, reader, writer)
    finally:
        writer.close()
        site.abort()


def shown(text: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\n" + KIND + b"content-length: %d\r\n\r\n%b" % (len(text), text)


async def test_a_pipeline_is_answered_in_order() -> None:
    async with connected() as peer:
        answers = await peer.ask(
            b"GET /a?x=1&x=2&y= HTTP/1.1\r\nX-A: 1\r\nx-a: 2\r\n\r\n"
            b"PUT /b%2Fc HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc"
            b"GET http://proxied.example/d HTTP/1.1\r\nconnection: close\r\n\r\n"
        )
        last = shown(b"GET /d {}  0").replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
        assert answers == shown(b"GET /a {'x': '1', 'y': ''} 1,2 0") + shown(b"PUT /b/c {}  3") + last


async def test_a_request_may_come_in_pieces_and_its_body_in_chunks() -> None:
    async with connected() as peer:
        for piece in (b"POST /a HT", b"TP/1.1\r\ntransfer-encoding: chu", b"nked\r\n\r\n3\r\nabc\r\n"):
            peer.writer.write(piece)
            await peer.writer.drain()
        assert await peer.one(b"2\r\nde\r\n0\r\n\r\n") == shown(b"POST /a {}  5")


async def test_a_long_answer_arrives_whole() -> None:
    long = bytes(range(256)) * 5000

    async def tell(request: Request) -> Response:
        return Response(200, long)

    async with connected(tell) as peer:
        assert await peer.one(b"GET / HTTP/1.1\r\n\r\n") == shown(long)


async def test_expect_100_continue_is_answered() -> None:
    async with connected() as peer:
        peer.writer.write(b"POST /a HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\n")
        assert await peer.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert await peer.one(b"x") == shown(b"POST /a {}  1")


@pytest.mark.parametrize("start", [b"POST /a HTTP/1.0\r\ncontent-length: 2", b"GET /a HTTP/1.1\r\nconnection: close"])
async def test_requests_without_a_body_or_of_http_1_0_get_no_100_continue(start: bytes) -> None:
    body = b"{}" if b"length" in start else b""
    async with connected() as peer:
        answers = await peer.ask(start + b"\r\nexpect: 100-continue\r\n\r\n" + body)
    assert answers.startswith(b"HTTP/1.1 200 OK\r\n")


async def test_100_continue_waits_for_earlier_answers() -> None:
    second = b"POST /b HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"
    async with connected() as peer:
        first = await peer.one(b"GET /a HTTP/1.1\r\n\r\n" + second)
        assert b"GET /a" in first
        async with asyncio.timeout(30):
            assert await peer.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert b"POST /b {}  2" in await peer.one(b"{}")


async def test_head_of_a_stream_is_only_its_head() -> None:
    async with connected() as peer:
        answers = await peer.ask(b"HEAD /stream HTTP/1.1\r\n\r\nGET /a HTTP/1.1\r\nconnection: close\r\n\r\n")
    first, _, second = answers.partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in first
    assert second.startswith(b"HTTP/1.1 200 OK\r\n")


async def test_head_has_the_length_and_no_body() -> None:
    async with connected() as peer:
        answers = await peer.ask(b"HEAD /a HTTP/1.1\r\nconnection: close\r\n\r\n")
        assert b"content-length: 13\r\n" in answers
        assert answers.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("version", "tail"),
    [(b"1.1", b"5\r\npart\n\r\n5\r\npart\n\r\n0\r\n\r\n"), (b"1.0", b"part\npart\n")],
)
async def test_a_stream_goes_out_part_by_part(version: bytes, tail: bytes) -> None:
    async with connected() as peer:
        answers = await peer.ask(b"GET /stream HTTP/%b\r\nconnection: close\r\n\r\n" % version)
        assert answers.partition(b"\r\n\r\n")[2] == tail
        assert (b"transfer-encoding: chunked" in answers) is (version == b"1.1")


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"GET /fail HTTP/1.1\r\n\r\n", 500),
        (b"GET /refuse HTTP/1.1\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nauthorization: Bearer wrong\r\n\r\n", 401),
    ],
)
async def test_a_refusal_keeps_the_connection(raw: bytes, code: int) -> None:
    async with connected() as peer:
        assert (await peer.one(raw)).startswith(b"HTTP/1.1 %d " % code)
        assert await peer.one(b"GET /a HTTP/1.1\r\n\r\n") == shown(b"GET /a {}  0")


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nx: " + b"y" * 70_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"y" * 70_000, 431),
        (b"POST /a HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % 2**40 + b"x" * (MAXIMAL_BODY_BYTES + 1), 413),
    ],
)
async def test_malformed_requests_end_the_connection(raw: bytes, code: int) -> None:
    async with connected() as peer:
        refusal = await peer.one(raw)
        assert refusal.startswith(b"HTTP/1.1 %d " % code)
        assert b"connection: close\r\n" in refusal


async def test_a_large_body_does_not_count_as_head_and_trailers_are_ignored() -> None:
    start = b"POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\nx-a: head\r\n\r\n"
    body = b"%x\r\n%b\r\n" % (100_000, b"z" * 100_000)
    trailers = b"".join(b"x-a: %d\r\n" % number for number in range(20_000))
    async with connected() as peer:
        for end in (b"0\r\n\r\n", b"0\r\n" + trailers + b"\r\n"):
            assert await peer.one(start + body + end) == shown(b"POST /a {} head 100000")
        assert await peer.one(b"GET /a HTTP/1.1\r\n\r\n") == shown(b"GET /a {}  0")


async def test_a_head_that_comes_in_pieces_is_bounded_too() -> None:
    async with connected() as peer:
        peer.writer.write(b"GET /a HTTP/1.1\r\n")
        for number in range(40):
            peer.writer.write(b"x-%d: %b\r\n" % (number, b"y" * 2_000))
            await peer.writer.drain()
        assert (await peer.one(b"")).startswith(b"HTTP/1.1 431 ")


async def test_an_upgrade_is_answered_in_plain_http() -> None:
    async with connected() as peer:
        upgraded = await peer.one(b"POST /a HTTP/1.1\r\nconnection: upgrade\r\nupgrade: SPDY/3.1\r\n\r\n")
        assert upgraded.startswith(b"HTTP/1.1 200 ")


async def test_no_text_can_add_a_header() -> None:
    async with connected() as peer:
        answered = await peer.one(b"GET /warn HTTP/1.1\r\n\r\n")
        assert b'warning: 299 - "odd field"\r\nretry-after: 1\r\n' in answered


async def test_a_slow_reader_holds_the_stream_and_nothing_piles_up() -> None:
    stream = Numbers(10_000, b"x" * 2**16)

    async def endless(request: Request) -> Response:
        return Response(200, stream)

    async with connected(endless) as peer:
        peer.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await peer.reader.readuntil(b"\r\n\r\n")
        while not peer.reader.at_eof() and stream.asked < 5:
            await peer.reader.read(2**16)
        before = stream.asked
        for _ in range(1000):
            await asyncio.sleep(0)
        assert stream.asked < before + 1000
        peer.writer.transport.abort()
        async with asyncio.timeout(30):
            while not stream.is_closed:  # noqa: ASYNC110
                await asyncio.sleep(0)


async def test_stopping_lets_the_last_answer_out() -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> Response:
        began.set()
        await go_on.wait()
        return Response(200, b"done")

    async with connected(slow) as peer:
        peer.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await began.wait()
        peer.site.stop()
        go_on.set()
        async with asyncio.timeout(30):
            answers = await peer.reader.read()
            await peer.site.emptied(30)
        assert answers.endswith(b"connection: close\r\n\r\ndone")


async def test_idle_connections_are_closed() -> None:
    async with connected() as peer:
        await peer.one(b"GET /a HTTP/1.1\r\n\r\n")
        peer.site.sweep(time.monotonic())
        assert len(peer.site.connections) == 1
        peer.site.sweep(time.monotonic() + peer.site.limits.idle_seconds)
        async with asyncio.timeout(30):
            assert await peer.reader.read() == b""
