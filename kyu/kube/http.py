"""
The transport over sockets: connections are reused, and calls to a silent server time out.

A call without an idle connection waits for the next one, whichever is first: one that another call gives back, or a new
one. Only a few are opened at a time, because a busy server has no time for a hundred handshakes: they would all time
out, and the calls with them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from functools import partial
from urllib.parse import urlsplit

from kyu.api.meta import Json, Key, Kind
from kyu.kube import errors, requests
from kyu.kube.connection import Disconnected, HttpConnection
from kyu.kube.kubeconfig import Credentials
from kyu.kube.requests import Answer, Call, Part, Tell
from kyu.write_fairness import Begun

CONNECT_SECONDS = 30.0
# Connections that are opened at the same time.
MOST_OPENING = 4
ANSWER_SECONDS = 60.0
# Longer than any silence of a watch: the server sends a bookmark every minute.
SILENCE_SECONDS = 150.0
# Shorter than the idle timeout of servers, so that no call is sent into a closing connection.
IDLE_SECONDS = 60.0
CHECK_SECONDS = 5.0
LONGEST_LINE_BYTES = 16 * 1024 * 1024
# Idempotent methods, which may be sent again if it is unknown whether the first call arrived.
REPEATABLE = frozenset({"GET", "PUT", "DELETE"})


async def connect(credentials: Credentials, user_agent: str = "kyu") -> Http:
    """Return a transport to the server; an exec plugin runs before the first connection."""
    await asyncio.to_thread(credentials.headers)
    return Http(credentials, user_agent)


class Http:
    # Each call needs a connection.
    parallel = 64

    def __init__(self, credentials: Credentials, user_agent: str) -> None:
        self._credentials = credentials
        self._tls = credentials.ssl_context()
        server = urlsplit(credentials.server)
        self._host = server.hostname or ""
        self._port = server.port or (443 if server.scheme == "https" else 80)
        self._prefix = server.path.rstrip("/")
        self._head = f"host: {server.netloc.rpartition('@')[2]}\r\nuser-agent: {user_agent}\r\n"
        self._idle: list[HttpConnection] = []
        self._busy: set[HttpConnection] = set()
        # Calls without a connection. Each gets one, and whether it was used before.
        self._waiting: deque[asyncio.Future[tuple[HttpConnection, bool]]] = deque()
        self._opening: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def send(self, call: Call) -> Answer:
        answer = await self._send(call)
        if answer.status == 401 and await asyncio.to_thread(self._credentials.refresh):
            return await self._send(call)
        return answer

    async def _send(self, call: Call) -> Answer:
        try:
            connection, answer = await self._ask(call, ANSWER_SECONDS)
        except OSError as error:
            raise self._unreachable(error) from error
        self._give_back(connection)
        return answer

    def add(self, kind: Kind, body: Json, manager: str) -> Awaitable[Json]:
        return Begun(partial(self._parsed, requests.create(kind, body, manager)))

    def merge(self, kind: Kind, key: Key, body: Json, subresource: Part, manager: str) -> Awaitable[Json]:
        return Begun(partial(self._parsed, requests.patch(kind, key, body, manager, subresource)))

    async def _parsed(self, call: Call) -> Json:
        return requests.parse(await self.send(call))

    async def lines(self, call: Call) -> AsyncIterator[bytes]:
        connection: HttpConnection | None = None
        try:
            connection, answer = await self._ask(call, SILENCE_SECONDS, as_stream=True)
            if answer.status >= 400:
                raise errors.from_answer(answer.status, answer.body, answer.headers)
            async for line in _lines(connection.parts()):
                yield line
        except OSError as error:
            raise self._unreachable(error) from error
        finally:
            if connection is not None:
                self._give_back(connection)

    async def follow(self, call: Call, tell: Tell) -> None:
        async for line in self.lines(call):
            tell(*requests.parse_event(line))

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for connection in (*self._idle, *self._busy):
            connection.close()
        self._idle.clear()
        opening = tuple(self._opening)
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        self._fail_waiting(ConnectionAbortedError("the client was closed"))

    async def _ask(self, call: Call, seconds: float, *, as_stream: bool = False) -> tuple[HttpConnection, Answer]:
        """Return the answer and its connection, which the caller gives back."""
        data = await self._bytes(call)
        while True:
            connection, is_used = await self._obtain()
            self._busy.add(connection)
            self._watch_over()
            try:
                return connection, await connection.ask(data, seconds, as_stream=as_stream)
            except Disconnected:
                self._busy.discard(connection)
                if not is_used or call.method not in REPEATABLE:
                    raise
            except BaseException:
                # A late answer must not be taken for that of the next call.
                self._busy.discard(connection)
                connection.abort()
                raise

    async def _bytes(self, call: Call) -> bytes:
        credentials = self._credentials
        own = await asyncio.to_thread(credentials.headers) if credentials.needs_plugin else credentials.headers()
        lines = [f"{call.method} {self._prefix}{call.target} HTTP/1.1\r\n", self._head]
        lines += [f"{name}: {value}\r\n" for name, value in (*call.headers.items(), *own.items())]
        if call.body or call.method not in ("GET", "DELETE"):
            lines.append(f"content-length: {len(call.body)}\r\n")
        lines.append("\r\n")
        return "".join(lines).encode() + call.body

    async def _obtain(self) -> tuple[HttpConnection, bool]:
        """Return a connection, and whether it was used before."""
        if (idle := self._take()) is not None:
            return idle, True
        waiting: asyncio.Future[tuple[HttpConnection, bool]] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._open_more()
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            elif not waiting.cancelled() and waiting.exception() is None:
                self._offer(*waiting.result())
            raise

    def _take(self) -> HttpConnection | None:
        """Return the idle connection that was used last, if there is one."""
        limit = asyncio.get_running_loop().time() - IDLE_SECONDS
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and connection.heard_at > limit:
                return connection
            connection.close()
        return None

    def _give_back(self, connection: HttpConnection) -> None:
        self._busy.discard(connection)
        if connection.is_reusable:
            self._offer(connection, is_used=True)
        else:
            connection.abort()
            self._open_more()

    def _offer(self, connection: HttpConnection, is_used: bool) -> None:
        """Give a connection to the call that has waited longest, or keep it."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result((connection, is_used))
                return
        self._idle.append(connection)

    def _open_more(self) -> None:
        """Open connections for waiting calls, a few at a time."""
        while len(self._opening) < min(MOST_OPENING, len(self._waiting)):
            task = asyncio.create_task(self._open())
            self._opening.add(task)
            task.add_done_callback(self._opened)

    def _opened(self, task: asyncio.Task[None]) -> None:
        self._opening.discard(task)
        if not task.cancelled():
            self._open_more()

    async def _open(self) -> None:
        try:
            connection = await self._connect()
        except OSError as error:
            # If other calls have a connection, the server is there, and most waiting calls get one of those.
            self._fail_waiting(error, most=1 if self._busy else None)
        else:
            self._offer(connection, is_used=False)

    def _fail_waiting(self, error: OSError, most: int | None = None) -> None:
        failed = 0
        while self._waiting and failed != most:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_exception(error)
                failed += 1

    async def _connect(self) -> HttpConnection:
        name = (self._credentials.server_name or self._host) if self._tls else None
        async with asyncio.timeout(CONNECT_SECONDS):
            _, connection = await asyncio.get_running_loop().create_connection(
                HttpConnection, self._host, self._port, ssl=self._tls or None, server_hostname=name
            )
        return connection

    # One timer for all connections ends calls to silent servers.

    def _watch_over(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(CHECK_SECONDS, self._check)

    def _check(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for connection in list(self._busy):
            if now - connection.heard_at > connection.patience_seconds:
                connection.fail(TimeoutError(f"no answer for {connection.patience_seconds:.0f} seconds"))
        if self._busy:
            self._watch_over()

    def _unreachable(self, error: Exception) -> errors.NoAnswer:
        return errors.NoAnswer(f"{self._credentials.server}: {str(error) or type(error).__name__}")


async def _lines(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for part in parts:
        *whole, rest = (rest + part).split(b"\n") if rest else part.split(b"\n")
        for line in whole:
            if line:
                yield line
        if len(rest) > LONGEST_LINE_BYTES:
            raise errors.NoAnswer("a line of the answer is too long")
    if rest:
        yield rest
