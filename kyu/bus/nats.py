"""
A connection to a NATS server that subscribes, publishes, requests, and reconnects with back-off.

After a reconnect all subscriptions are renewed. Messages are handed over in order to plain functions that must be
quick. If messages arrive faster, some are dropped, and the subscriber is told.

Implements connector.Bus. Only this file imports the NATS library, which takes long; other modules import connector.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import nats.errors
from nats.aio.client import Client, RawCredentials
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from kyu import log
from kyu.bus.connector import ConnectionState, Connector, OnMessage, Unanswered

FIRST_DELAY_SECONDS = 0.2
LONGEST_DELAY_SECONDS = 15.0
CONNECT_SECONDS = 5
CLOSE_SECONDS = 1.0
# A dead server is noticed within two of these, sooner than any sensible timeout of a pool.
PING_SECONDS = 5
MOST_WAITING_MESSAGES = 8192
MOST_WAITING_BYTES = 16 * 1024 * 1024


@dataclass(slots=True, eq=False)
class NatsSubscription:
    subject: str
    on_message: OnMessage
    on_missed: Callable[[], None] | None = None
    subscription: Subscription | None = None

    async def handle(self, message: Msg) -> None:
        try:
            self.on_message(message.subject, message.data, message.reply)
        except Exception as error:
            # A bug in handling one message must not stop the others.
            log.error("message not handled", subject=message.subject, error=repr(error))


class NatsConnection:
    """A connection to a NATS server. ``on_state`` is called when it is made or lost."""

    def __init__(
        self, connector: Connector, name: str, on_state: Callable[[ConnectionState], None] | None = None
    ) -> None:
        self._connector = connector
        self._name = name
        self._on_state = on_state
        self._client: Client | None = None
        self._listening: list[NatsSubscription] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._connected = asyncio.Event()
        self._last_error: Exception | None = None
        self.state = ConnectionState(connected=False)

    async def run(self) -> None:
        """Stay connected until cancelled."""
        failures = 0
        while True:
            try:
                await self._connect_until_lost()
                failures = 0
            except (nats.errors.Error, OSError, TimeoutError, ssl.SSLError, ValueError) as error:
                # The library finally reports only that no server is left; the error before that is the cause.
                cause = self._last_error or error
                self._tell(
                    ConnectionState(connected=False, error=self._connector.clean(str(cause) or type(cause).__name__))
                )
            delay = min(FIRST_DELAY_SECONDS * 2 ** min(failures, 10), LONGEST_DELAY_SECONDS)
            failures += 1
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))

    @property
    def is_private(self) -> bool:
        return self._connector.is_private

    async def connected(self) -> None:
        await self._connected.wait()

    def listen(
        self, subject: str, on_message: OnMessage, on_missed: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """Subscribe to a subject, now or at the next connection, and return a function that ends the subscription.

        ``on_missed`` is called for every dropped message.
        """
        listening = NatsSubscription(subject, on_message, on_missed)
        self._listening.append(listening)
        if self._client is not None:
            self._spawn(listening, self._client)

        def end() -> None:
            self._listening.remove(listening)
            if listening.subscription is not None and self._client is not None:
                task = asyncio.get_running_loop().create_task(_unsubscribe(listening.subscription))
                self._keep(task)

        return end

    async def publish(self, subject: str, body: bytes) -> None:
        """Publish, and return when the server has the message."""
        client = self._client
        if client is None:
            raise Unanswered("there is no connection")
        with _as_unanswered(self._connector):
            await client.publish(subject, body)
            # Shielded, because the connection breaks if a flush is cancelled.
            await asyncio.shield(client.flush(CONNECT_SECONDS))

    async def send(self, subject: str, body: bytes) -> None:
        """Publish without waiting; the message is lost if the connection breaks."""
        if self._client is not None:
            with contextlib.suppress(nats.errors.Error, OSError):
                await self._client.publish(subject, body)

    async def request(self, subject: str, body: bytes, timeout_seconds: float) -> bytes:
        client = self._client
        if client is None:
            raise Unanswered("there is no connection")
        with _as_unanswered(self._connector):
            answer = await client.request(subject, body, timeout=timeout_seconds)
        return bytes(answer.data)

    async def _connect_until_lost(self) -> None:
        closed = asyncio.Event()
        client = await self._connect(closed)
        self._client = client
        try:
            for listening in self._listening:
                await self._subscribe(listening, client)
            # The server must know the subscriptions before ``connected`` returns.
            await asyncio.shield(client.flush(CONNECT_SECONDS))
            self._connected.set()
            self._tell(ConnectionState(connected=True))
            await closed.wait()
            self._tell(ConnectionState(connected=False, error="the connection was lost"))
        finally:
            self._client = None
            self._connected.clear()
            await _close(client)

    async def _connect(self, closed: asyncio.Event) -> Client:
        self._last_error = None

        async def on_error(error: Exception) -> None:
            if isinstance(error, nats.errors.SlowConsumerError):
                self._missed(error.sub)
                return
            self._last_error = error
            log.debug("nats", address=self._connector.address, error=self._connector.clean(str(error)))

        async def on_closed() -> None:
            closed.set()

        connector = self._connector
        client = Client()
        try:
            await client.connect(
                connector.url,
                name=self._name,
                error_cb=on_error,
                closed_cb=on_closed,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=CONNECT_SECONDS,
                ping_interval=PING_SECONDS,
                max_outstanding_pings=2,
                user=connector.user or None,
                password=connector.password or None,
                token=connector.token or None,
                user_credentials=RawCredentials(connector.credentials) if connector.credentials else None,
                nkeys_seed_str=connector.nkey_seed or None,
                tls=tls_context(connector),
            )
        except BaseException:
            # A refused login leaves the socket open.
            await _close(client)
            raise
        return client

    def _missed(self, subscription: Subscription) -> None:
        for listening in self._listening:
            if listening.subscription is subscription and listening.on_missed is not None:
                listening.on_missed()

    async def _subscribe(self, listening: NatsSubscription, client: Client) -> None:
        listening.subscription = await client.subscribe(
            listening.subject,
            cb=listening.handle,
            pending_msgs_limit=MOST_WAITING_MESSAGES,
            pending_bytes_limit=MOST_WAITING_BYTES,
        )

    def _spawn(self, listening: NatsSubscription, client: Client) -> None:
        self._keep(asyncio.get_running_loop().create_task(self._subscribe_soon(listening, client)))

    async def _subscribe_soon(self, listening: NatsSubscription, client: Client) -> None:
        # If the connection is lost meanwhile, the next one subscribes.
        with contextlib.suppress(nats.errors.Error, OSError):
            await self._subscribe(listening, client)

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _tell(self, state: ConnectionState) -> None:
        if state == self.state:
            return
        self.state = state
        log.info("nats", address=self._connector.address, connected=state.connected, error=state.error or "none")
        if self._on_state is not None:
            self._on_state(state)


async def _close(client: Client) -> None:
    """Close the client; after a failed handshake the library would wait for ever, so there is a timeout."""
    with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await client.close()


async def _unsubscribe(subscription: Subscription) -> None:
    with contextlib.suppress(nats.errors.Error, OSError):
        await subscription.unsubscribe()


@contextlib.contextmanager
def _as_unanswered(connector: Connector) -> Iterator[None]:
    """Turn errors into Unanswered. Up to Python 3.11 the library's waiting can lose a cancellation."""
    try:
        yield
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
    except nats.errors.NoRespondersError as error:
        raise Unanswered("there is no subscriber") from error
    except (nats.errors.Error, OSError, TimeoutError) as error:
        raise Unanswered(connector.clean(str(error) or type(error).__name__)) from error


def tls_context(connector: Connector) -> ssl.SSLContext | None:
    """Return the TLS settings, or None without encryption."""
    if urlsplit(connector.url).scheme not in ("tls", "wss") and not (connector.authority or connector.certificate):
        return None
    context = ssl.create_default_context(cadata=connector.authority or None)
    if connector.certificate:
        # The library reads certificates from files only.
        with tempfile.TemporaryDirectory() as folder:
            chain, key = Path(folder) / "tls.crt", Path(folder) / "tls.key"
            chain.write_text(connector.certificate)
            key.touch(0o600)
            key.write_text(connector.private_key)
            context.load_cert_chain(chain, key)
    return context
