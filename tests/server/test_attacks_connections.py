"""Floods of connections and of bytes: the server keeps its bounds, and new callers are served."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from kyu import app
from kyu.server import errors
from kyu.server.auth.auth import FAILURES_AT_ONCE, FailedLogins
from kyu.server.exchange import ANONYMOUS, Request, Response, User
from kyu.server.http.connection import MAXIMAL_HEADERS, Connection
from kyu.server.http.limits import ByteAccount, ConnectionLimits, Members, limits_within, network_of
from kyu.server.http.site import Site
from tests.attack.floods import Flood, Target

USER = User("ana")
HALF_BODY = b"POST /a HTTP/1.1\r\n%bcontent-length: 20000\r\n\r\n" + b"x" * 10_000
TOKEN = b"authorization: Bearer ana\r\n"
SMALL = ConnectionLimits(guests=4, guests_per_address=2, users=4, connections_per_user=3, body_bytes_per_user=35_000)


async def answer(request: Request) -> Response:
    return Response(200, b"x" * 1_000_000 if request.path == "/large" else b"done")


def authenticate(authorization: str) -> User:
    if authorization == "Bearer wrong":
        raise errors.unauthorized()
    return USER if authorization else ANONYMOUS


def refuse_guests(request: Request) -> None:
    raise errors.forbidden_path(f"{request.user.name} may not {request.method} {request.path}")


class Peers:
    """Clients of one site, at addresses of their choice."""

    def __init__(self, site: Site, stack: contextlib.AsyncExitStack) -> None:
        self.site, self._stack = site, stack

    async def connect(self, host: str = "10.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        ours, theirs = socket.socketpair()
        await asyncio.get_running_loop().connect_accepted_socket(lambda: Connection(self.site, host), ours)
        reader, writer = await asyncio.open_connection(sock=theirs)
        self._stack.callback(writer.close)
        return reader, writer

    async def send(self, raw: bytes, host: str = "10.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await self.connect(host)
        writer.write(raw)
        await asyncio.sleep(0.01)
        return reader, writer


@contextlib.asynccontextmanager
async def peers(limits: ConnectionLimits = SMALL) -> AsyncIterator[Peers]:
    async with contextlib.AsyncExitStack() as stack:
        site = Site(answer, authenticate, limits=limits, check_guest=refuse_guests)
        stack.callback(site.abort)
        yield Peers(site, stack)


async def code(reader: asyncio.StreamReader) -> int:
    async with asyncio.timeout(10):
        return int((await reader.readuntil(b"\r\n")).split()[1])


async def is_closed(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(10):
        with contextlib.suppress(ConnectionError):
            return await reader.read() == b""
    return True


async def test_an_address_displaces_only_its_own_connections() -> None:
    async with peers() as found:
        other, _ = await found.connect("10.0.0.2")
        first, _ = await found.connect()
        for _ in range(6):
            await found.connect()
        assert await is_closed(first)
        assert len(found.site.connections) == 3
        assert not other.at_eof()


async def test_many_addresses_displace_the_oldest_and_new_callers_are_served() -> None:
    async with peers() as found:
        oldest, _ = await found.connect("10.0.1.0")
        for number in range(1, 20):
            await found.connect(f"10.0.1.{number}")
        assert await is_closed(oldest)
        assert len(found.site.connections) == 4
        reader, _ = await found.send(b"GET / HTTP/1.1\r\n" + TOKEN + b"\r\n", "10.0.2.1")
        assert await code(reader) == 200


async def test_a_user_has_a_bound_and_idle_connections_make_room() -> None:
    ask = b"GET / HTTP/1.1\r\n" + TOKEN + b"\r\n"
    async with peers() as found:
        idle, _ = await found.send(ask)
        assert await code(idle) == 200
        busy = [await found.send(HALF_BODY % TOKEN) for _ in range(2)]
        reader, _ = await found.send(ask)
        assert await code(reader) == 200
        await idle.readuntil(b"done")
        assert await is_closed(idle)
        busy.append(await found.send(HALF_BODY % TOKEN))
        last, _ = await found.send(ask)
        assert await code(last) == 429


async def test_a_guest_who_may_not_write_sends_no_body() -> None:
    async with peers() as found:
        reader, _ = await found.send(HALF_BODY % b"")
        assert await code(reader) == 403
        assert found.site.bodies.count == 0


async def test_a_wrong_token_is_refused_before_the_body() -> None:
    async with peers() as found:
        reader, _ = await found.send(HALF_BODY % b"authorization: Bearer wrong\r\n")
        assert await code(reader) == 401
        assert found.site.bodies.count == 0


async def test_bodies_of_a_user_are_bounded_together_and_freed_on_close() -> None:
    async with peers(replace(SMALL, connections_per_user=10, users=10)) as found:
        held = [await found.send(HALF_BODY % TOKEN) for _ in range(3)]
        assert found.site.bodies.count == 30_000
        reader, _ = await found.send(HALF_BODY % TOKEN)
        assert await code(reader) == 429
        for _, writer in held:
            writer.transport.abort()
        async with asyncio.timeout(10):
            while found.site.bodies.count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        reader, _ = await found.send(HALF_BODY % TOKEN + b"x" * 10_000)
        assert await code(reader) == 200
        assert found.site.bodies.count == 0


@pytest.mark.parametrize(
    ("raw", "seconds"),
    [
        (b"", SMALL.head_seconds),
        (b"GET / HTTP/1.1\r\nx: ", SMALL.head_seconds),
        (HALF_BODY % TOKEN, SMALL.body_seconds),
        (b"GET / HTTP/1.1\r\n\r\n", SMALL.guest_idle_seconds),
        (b"GET / HTTP/1.1\r\n" + TOKEN + b"\r\n", SMALL.idle_seconds),
    ],
)
async def test_each_step_has_a_deadline(raw: bytes, seconds: float) -> None:
    async with peers() as found:
        start = time.monotonic()
        await found.send(raw)
        found.site.sweep(start + seconds - 1)
        await asyncio.sleep(0.01)
        assert len(found.site.connections) == 1
        found.site.sweep(time.monotonic() + seconds + 0.1)
        async with asyncio.timeout(10):
            while found.site.connections:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert found.site.bodies.count == 0


async def test_a_trickle_does_not_move_the_deadline() -> None:
    async with peers() as found:
        start = time.monotonic()
        _, writer = await found.send(b"GET / HTTP/1.1\r\nx: ")
        writer.write(b"y")
        await asyncio.sleep(0.05)
        found.site.sweep(start + SMALL.head_seconds + 0.03)
        await asyncio.sleep(0.01)
        assert not found.site.connections


async def test_an_answer_that_is_not_read_ends_and_large_ones_are_bounded() -> None:
    limits = replace(SMALL, answer_bytes_per_user=1_500_000)
    ask = b"GET /large HTTP/1.1\r\n" + TOKEN + b"\r\n"
    async with peers(limits) as found:
        await found.send(ask)
        reader, _ = await found.send(ask)
        assert await code(reader) == 429
        found.site.sweep(time.monotonic() + limits.write_seconds + 1)
        async with asyncio.timeout(10):
            while found.site.answers.count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        reader, _ = await found.send(ask)
        assert await code(reader) == 200


async def test_headers_are_bounded_in_number() -> None:
    async with peers() as found:
        headers = b"".join(b"a: %d\r\n" % number for number in range(MAXIMAL_HEADERS + 1))
        reader, _ = await found.send(b"GET / HTTP/1.1\r\n" + headers + b"\r\n")
        assert await code(reader) == 431


async def test_a_body_in_small_chunks_takes_no_more_memory() -> None:
    async with peers(replace(SMALL, body_bytes_per_user=100_000)) as found:
        start = b"POST /a HTTP/1.1\r\n" + TOKEN + b"transfer-encoding: chunked\r\n\r\n"
        reader, _ = await found.send(start + b"1\r\nx\r\n" * 50_000 + b"0\r\n\r\n")
        assert await code(reader) == 200


async def test_wrong_tokens_are_slowed_down_and_right_ones_are_not() -> None:
    wrong = b"GET / HTTP/1.1\r\nauthorization: Bearer wrong\r\n\r\n"
    async with peers() as found:
        for _ in range(FAILURES_AT_ONCE):
            reader, writer = await found.send(wrong)
            assert await code(reader) == 401
            writer.transport.abort()
        reader, _ = await found.send(wrong)
        assert await code(reader) == 429
        reader, _ = await found.send(b"GET / HTTP/1.1\r\n" + TOKEN + b"\r\n")
        assert await code(reader) == 200
        reader, _ = await found.send(wrong, "10.0.0.9")
        assert await code(reader) == 401


def test_the_addresses_of_failed_logins_are_bounded() -> None:
    failures = FailedLogins()
    for number in range(10_000):
        failures.check(str(number))
    assert len(failures._buckets) <= 4096


def test_members_and_bytes_are_counted_exactly() -> None:
    members: Members[str] = Members(3, 2)
    assert [members.join("a", "1"), members.join("a", "2"), members.join("b", "3")] == [None] * 3
    assert members.join("b", "4") == "1"
    members.leave("a", "1")
    members.leave("a", "1")
    assert members.count == 3
    account = ByteAccount(10)
    assert account.take("a", 6, 8)
    assert not account.take("a", 3, 8)
    assert not account.take("b", 5, 8)
    account.give("a", 6)
    assert account.take("b", 8, 8)


def test_networks_of_ipv6_count_as_one_address() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:2")
    assert network_of("2001:db8:0:1::1") != network_of("2001:db8::1")
    assert network_of("::ffff:10.0.0.1") == network_of("10.0.0.1")


def test_limits_fit_the_descriptors() -> None:
    small = limits_within(1024)
    assert small.guests + small.users <= 1024
    assert limits_within(65_536) == ConnectionLimits()


async def test_a_flood_over_tls_leaves_room_for_new_callers(tmp_path: Path) -> None:
    settings = app.Settings(tmp_path / "data", bare=True, server_only=True)
    async with app.embedded(settings):
        target = Target(settings.data)
        for kind in ("idle", "slow", "half-body", "half-body-of-user"):
            flood = Flood(target, kind, 60, "many")
            await asyncio.to_thread(flood.run)
            status, seconds = await asyncio.to_thread(target.call, "127.9.9.9")
            assert status == 200
            assert seconds < 5
            flood.close()
