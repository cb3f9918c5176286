"""Listening to pools in a test: a listener without a control plane, what it puts in the view, and who speaks to it."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from kyu.api.meta import Key
from kyu.api.pools import MasterQueue, PoolReport, PoolSource
from kyu.bus.connector import Connector
from kyu.bus.nats import NatsConnection
from kyu.controllers.pools.subscriptions import PoolListener
from kyu.kube.cache import Cache
from kyu.kube.client import Client
from kyu.kube.requests import Answer, Call

LONGEST_SECONDS = 60.0
SUBJECT = "interlink.resources"


class Secrets:
    """A transport that knows one Secret, kyu/nats."""

    def __init__(self, data: dict[str, str]) -> None:
        self.data = {name: base64.b64encode(text.encode()).decode() for name, text in data.items()}

    async def send(self, call: Call) -> Answer:
        if call.path != "/api/v1/namespaces/kyu/secrets/nats":
            return Answer(404, b'{"kind":"Status","reason":"NotFound","code":404}', {})
        return Answer(200, json.dumps({"metadata": {"name": "nats"}, "data": self.data}).encode(), {})

    def lines(self, call: Call) -> AsyncIterator[bytes]:
        raise AssertionError("nobody watches Secrets")

    async def close(self) -> None:
        """Nothing is held."""


class Heard:
    """A listener for one MasterQueue, and what it has put in the view."""

    def __init__(self, secrets: Secrets) -> None:
        self.cache = Cache()
        self.slept = timedelta()
        self.listener = PoolListener(
            self.cache, Client(secrets), lambda: datetime.now(UTC) + self.slept, NatsConnection
        )
        self.cache.subscribe(self.listener.changed)
        self._version = 0

    def put(self, url: str = "", **nats: object) -> None:
        self._version += 1
        flavor = {"natsConnector": url, "natsSubject": SUBJECT, "poolRegExp": ".*", **nats}
        spec = {"flavors": [{"name": "i", "natsFlavor": {k: v for k, v in flavor.items() if v}}]}
        metadata = {"name": "mq", "resourceVersion": str(self._version)}
        self.cache.observe(MasterQueue.KIND, {"metadata": metadata, "spec": spec})

    def remove(self) -> None:
        self.cache.forget(MasterQueue.KIND, {"metadata": {"name": "mq", "resourceVersion": str(self._version + 1)}})

    def pools(self) -> list[str]:
        return sorted(report.pool for report in self.cache.list(PoolReport))

    def source(self) -> PoolSource:
        return self.cache.get(PoolSource, Key("mq", "i")) or PoolSource()

    async def until(self, what: str, is_so: Callable[[], object]) -> None:
        ends = time.monotonic() + LONGEST_SECONDS
        while not is_so():
            assert time.monotonic() < ends, f"{what}: not seen; pools {self.pools()}, source {self.source()}"
            await asyncio.sleep(0.01)


@asynccontextmanager
async def heard(**secret: str) -> AsyncIterator[Heard]:
    """A listener that runs; ``secret``: what the Secret kyu/nats holds."""
    one = Heard(Secrets(secret))
    task = asyncio.create_task(one.listener.run())
    try:
        yield one
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def speaking(where: str | Connector) -> AsyncIterator[NatsConnection]:
    """A connection that pools may speak on."""
    connector = Connector(where) if isinstance(where, str) else where
    connection = NatsConnection(connector, "test")
    task = asyncio.create_task(connection.run())
    try:
        await asyncio.wait_for(connection.connected(), LONGEST_SECONDS)
        yield connection
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def say(connection: NatsConnection, pool: str, body: object) -> None:
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    await connection.publish(f"{SUBJECT}.{pool}", payload)
