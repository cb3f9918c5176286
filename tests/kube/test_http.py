"""The transport over a socket: reused connections, and broken answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

import pytest

from kyu.kube import errors, http
from kyu.kube.connection import HttpConnection
from kyu.kube.kubeconfig import Credentials
from kyu.kube.requests import Call

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Seen: Yes\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
Script = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


class Scripted:
    """A server that treats each request as the test says, and records it."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[bytes] = []
        self.connections = 0
        self.port = 0
        self._ended: list[asyncio.Future[None]] = []

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Listen; all clients must be gone at the end of the context."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            await asyncio.gather(*self._ended)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        ended = asyncio.get_running_loop().create_future()
        self._ended.append(ended)
        try:
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
                self.requests.append(head + await reader.readexactly(length))
                await self.script(self.requests[-1], writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            ended.set_result(None)


@contextlib.asynccontextmanager
async def serving(script: Script) -> AsyncIterator[tuple[Scripted, http.Http]]:
    scripted = Scripted(script)
    async with scripted.listening():
        credentials = Credentials(f"http://127.0.0.1:{scripted.port}/prefix/", token="secret")
        transport = await http.connect(credentials, "tests")
        try:
            yield scripted, transport
        finally:
            await transport.close()


async def say_ok(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(OK)


async def test_a_call_is_sent_with_its_headers_and_connections_are_used_again() -> None:
    async with serving(say_ok) as (server, transport):
        call = Call("PATCH", "/a b", {"x": "1 2"}, {"accept": "application/json"}, b"{}")
        answer = await transport.send(call)
        await transport.send(call)
        assert (answer.status, answer.body, answer.headers["x-seen"]) == (200, b"ok", "Yes")
        assert server.connections == 1
        head, _, body = server.requests[0].partition(b"\r\n\r\n")
        first, *headers = head.decode().split("\r\n")
        assert first == "PATCH /prefix/a%20b?x=1+2 HTTP/1.1"
        assert {"accept: application/json", "authorization: Bearer secret", "user-agent: tests"} <= set(headers)
        assert body == b"{}"


async def test_calls_at_the_same_time_have_a_connection_each() -> None:
    waiting: list[asyncio.StreamWriter] = []

    async def answer_both(request: bytes, writer: asyncio.StreamWriter) -> None:
        waiting.append(writer)
        if len(waiting) == 2:
            for each in waiting:
                each.write(OK)

    async with serving(answer_both) as (server, transport):
        await asyncio.gather(transport.send(Call("GET", "/a")), transport.send(Call("GET", "/b")))
        assert server.connections == 2


async def test_a_server_that_is_slow_to_connect_is_not_stormed() -> None:
    """While no handshake ends, only a few connections are begun, and a call that is cancelled waits no longer."""
    begun: list[asyncio.StreamWriter] = []
    enough = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun.append(writer)
        if len(begun) == http.MOST_OPENING:
            enough.set()
        await reader.read()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        transport = http.Http(Credentials(server=f"https://127.0.0.1:{port}", verifies=False), "kyu")
        calls = [asyncio.create_task(transport.send(Call("GET", "/"))) for _ in range(40)]
        await enough.wait()
        calls[-1].cancel()
        await asyncio.gather(calls[-1], return_exceptions=True)
        assert len(begun) == http.MOST_OPENING
        await transport.close()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(answer, errors.NoAnswer | asyncio.CancelledError) for answer in answers)
        for writer in begun:
            writer.close()


async def test_a_waiting_call_takes_the_connection_that_another_gives_back() -> None:
    """Three calls at a time keep three connections, however many follow."""
    async with serving(say_ok) as (server, transport):
        for _ in range(5):
            await asyncio.gather(*(transport.send(Call("GET", "/")) for _ in range(3)))
        assert server.connections <= 3


async def close_after_first(request: bytes, writer: asyncio.StreamWriter) -> None:
    """Answer the first call of each connection, and close it at the second without an answer."""
    if b"again" in request:
        writer.close()
    else:
        writer.write(OK)


async def test_a_read_is_repeated_where_a_used_connection_ends_and_a_creation_is_not() -> None:
    times = 0

    async def close_once(request: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal times
        times += 1
        if times == 2:
            writer.close()
        else:
            writer.write(OK)

    async with serving(close_once) as (server, transport):
        await transport.send(Call("GET", "/a"))
        assert (await transport.send(Call("GET", "/b"))).status == 200
        assert server.connections == 2
    async with serving(close_after_first) as (server, transport):
        await transport.send(Call("GET", "/a"))
        with pytest.raises(errors.NoAnswer):
            await transport.send(Call("POST", "/again"))


@pytest.mark.parametrize(
    "broken",
    [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", b"HTTP/1.1 200 OK\r\n", b"nonsense\r\n\r\n", b""],
)
async def test_an_answer_that_breaks_off_is_no_answer(broken: bytes) -> None:
    async def break_off(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(broken)
        writer.close()

    async with serving(break_off) as (_, transport):
        with pytest.raises(errors.NoAnswer):
            await transport.send(Call("GET", "/a"))


async def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    async def close_at_the_end(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\nall of it")
        writer.close()

    async with serving(close_at_the_end) as (_, transport):
        answer = await transport.send(Call("GET", "/a"))
        assert (answer.status, answer.body, answer.headers) == (200, b"all of it", {})


async def test_lines_come_as_they_are_sent_and_the_connection_is_kept() -> None:
    async def stream(request: bytes, writer: asyncio.StreamWriter) -> None:
        if b"watch" not in request:
            await say_ok(request, writer)
            return
        for part in (CHUNKED, b"4\r\none\n\r\n", b"5\r\n\ntwo-\r\n", b"6\r\nandon\n\r\n3\r\nend\r\n0\r\n\r\n"):
            writer.write(part)
            await writer.drain()

    async with serving(stream) as (server, transport):
        lines = [line async for line in transport.lines(Call("GET", "/watch"))]
        assert lines == [b"one", b"two-andon", b"end"]
        await transport.send(Call("GET", "/a"))
        assert server.connections == 1


async def test_a_stream_that_breaks_off_is_told_after_its_lines() -> None:
    async def break_off(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED + b"4\r\none\n\r\n")
        writer.close()

    async with serving(break_off) as (_, transport):
        lines = transport.lines(Call("GET", "/watch"))
        assert await anext(lines) == b"one"
        with pytest.raises(errors.NoAnswer):
            await anext(lines)


async def test_a_refused_stream_is_an_error_with_its_reason() -> None:
    async def refuse(request: bytes, writer: asyncio.StreamWriter) -> None:
        body = b'{"message": "too old", "reason": "Expired"}'
        writer.write(b"HTTP/1.1 410 Gone\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))

    async with serving(refuse) as (_, transport):
        with pytest.raises(errors.Gone, match="too old"):
            await anext(transport.lines(Call("GET", "/watch")))


async def test_a_stream_that_is_left_takes_its_connection_along() -> None:
    async def endless(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED if b"watch" in request else OK)
        writer.write(b"4\r\none\n\r\n" if b"watch" in request else b"")

    async with serving(endless) as (server, transport):
        lines = transport.lines(Call("GET", "/watch"))
        assert isinstance(lines, AsyncGenerator)
        assert await anext(lines) == b"one"
        await lines.aclose()
        await transport.send(Call("GET", "/a"))
        assert server.connections == 2


async def test_a_call_that_is_cancelled_takes_its_connection_along() -> None:
    asked = asyncio.Event()

    async def be_silent(request: bytes, writer: asyncio.StreamWriter) -> None:
        asked.set()
        if b"/b" in request:
            writer.write(OK)

    async with serving(be_silent) as (server, transport):
        call = asyncio.create_task(transport.send(Call("GET", "/a")))
        await asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await transport.send(Call("GET", "/b"))).body == b"ok"
        assert server.connections == 2


async def test_a_large_body_arrives_whole() -> None:
    async with serving(say_ok) as (server, transport):
        await transport.send(Call("POST", "/a", body=b"x" * 5_000_000))
        assert server.requests[0].endswith(b"\r\n\r\n" + b"x" * 5_000_000)


async def test_a_call_to_a_silent_server_fails() -> None:
    asked = asyncio.Event()

    async def be_silent(request: bytes, writer: asyncio.StreamWriter) -> None:
        asked.set()

    scripted = Scripted(be_silent)
    async with scripted.listening():
        _, connection = await asyncio.get_running_loop().create_connection(HttpConnection, "127.0.0.1", scripted.port)
        waiting = asyncio.create_task(connection.ask(b"GET /a HTTP/1.1\r\n\r\n", 60.0))
        await asked.wait()
        connection.fail(TimeoutError("no answer"))
        with pytest.raises(TimeoutError, match="no answer"):
            await waiting


def test_paths_and_queries_are_written_as_urls() -> None:
    plain = Call("GET", "/api/v1/namespaces/a-b/pods/c.d~e_f")
    assert plain.target == plain.path
    assert Call("GET", "/api/v1/pods/ä b?c").target == "/api/v1/pods/%C3%A4%20b%3Fc"
    asked = Call("GET", "/api", {"labelSelector": "a in (b, c)", "limit": "5"})
    assert asked.target == "/api?labelSelector=a+in+%28b%2C+c%29&limit=5"
