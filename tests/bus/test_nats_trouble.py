"""NATS in trouble, below a whole control plane: killed, cut off, flooded. No live pool is lost, nothing grows."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kyu import app
from kyu.api.config.config import Configuration
from kyu.api.kueue import ClusterQueue, ResourceFlavor
from kyu.api.meta import Json, Key, Kind, find_condition
from kyu.api.pools import MasterQueue
from kyu.bus import nats as bus
from kyu.bus.nats import NatsConnection
from kyu.controllers.beside import BesidePlane
from kyu.controllers.pools import refusals
from kyu.kube.cache import Cache, Reflector
from kyu.kube.client import Client
from kyu.kube.direct import Direct
from kyu.kube.requests import Answer, Call, Part, Tell, Transport
from tests.support.nats_listening import speaking
from tests.support.nats_servers import nats_server, wire_to

LONGEST_SECONDS = 60.0
TIMEOUT_SECONDS = 5
WORDS_IN_TIMEOUT = 10
MESSAGE = json.dumps({"quotas": {"cpu": "8"}}).encode()
MEGABYTE = 2**20


class Plane:
    """A control plane, its store, and every state that a pool was in."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.client = Client(transport)
        self.cache = Cache()
        self.states: dict[str, set[str]] = {}
        self._changed = asyncio.Event()
        self.cache.subscribe(self._on_change)

    def _on_change(self, kind: Kind, old: Json | None, new: Json | None) -> None:
        for pool in ((new or {}).get("status") or {}).get("pools") or ():
            self.states.setdefault(pool["name"], set()).add(pool["state"])
        self._changed.set()

    async def until(self, what: str, is_so: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                while not is_so():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as error:
            raise AssertionError(f"{what}: not seen; {self.cache.list(MasterQueue)}") from error

    def state(self, pool: str) -> str:
        found = [one.state for queue in self.cache.list(MasterQueue) for one in queue.status.pools if one.name == pool]
        return found[0] if found else ""

    def is_connected(self, queue: str) -> bool | None:
        found = self.cache.get(MasterQueue, Key("", queue))
        condition = find_condition(found.status.conditions, "NatsConnected") if found else None
        return None if condition is None else condition.status == "True"

    def refused(self, queue: str) -> dict[str, int]:
        found = self.cache.get(MasterQueue, Key("", queue))
        return found.status.refused_messages if found else {}

    async def create(self, name: str, url: str) -> None:
        nats = {"natsConnector": url, "natsSubject": name, "poolTimeout": TIMEOUT_SECONDS, "poolRegExp": ".*"}
        spec = {"flavors": [{"name": "i", "natsFlavor": {**nats, "poolTimeoutPolicy": "strict"}}]}
        await self.client.create(MasterQueue.KIND, {"metadata": {"name": name}, "spec": spec})


@asynccontextmanager
async def control_plane(folder: Path, *, server_only: bool = False) -> AsyncIterator[Plane]:
    async with app.embedded(app.Settings(folder / "data", bare=True, server_only=server_only)) as running:
        plane = Plane(Direct(running.api))
        kinds = (MasterQueue.KIND, ClusterQueue.KIND, ResourceFlavor.KIND)
        tasks = [asyncio.create_task(Reflector(plane.client, plane.cache, kind).run()) for kind in kinds]
        try:
            await plane.cache.synced()
            yield plane
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class Voice:
    """A pool that announces itself several times within its timeout."""

    def __init__(self, mouth: NatsConnection, subject: str) -> None:
        self._mouth = mouth
        self._subject = subject
        self._spoke = asyncio.Event()

    async def speak(self) -> None:
        while True:
            await self._mouth.send(self._subject, MESSAGE)
            self._spoke.set()
            await asyncio.sleep(TIMEOUT_SECONDS / WORDS_IN_TIMEOUT)

    async def until(self, times: int) -> None:
        """Wait for this many further announcements."""
        for _ in range(times):
            self._spoke.clear()
            await self._spoke.wait()


@asynccontextmanager
async def voice(mouth: NatsConnection, subject: str) -> AsyncIterator[Voice]:
    """Announce while the context is open."""
    one = Voice(mouth, subject)
    task = asyncio.create_task(one.speak())
    try:
        yield one
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def quick_to_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notice a server that does not answer within a second. Messages to a slower one are lost."""
    monkeypatch.setattr(bus, "PING_SECONDS", 0.2)
    monkeypatch.setattr(bus, "CONNECT_SECONDS", 1)
    monkeypatch.setattr(bus, "LONGEST_DELAY_SECONDS", 0.5)


@pytest.fixture(autouse=True)
def quick_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report refusals every second."""
    monkeypatch.setattr(refusals, "LONGEST_DELAY_SECONDS", 1.0)


@pytest.mark.usefixtures("quick_to_notice")
@pytest.mark.parametrize("trouble", ["killed", "cut off"])
async def test_while_we_cannot_hear_no_pool_is_lost(tmp_path: Path, trouble: str) -> None:
    """A pool of another server falls silent in the same moment: when it is lost, there was time to lose both."""
    (tmp_path / "other").mkdir()
    with nats_server(tmp_path) as server, nats_server(tmp_path / "other") as other:
        async with control_plane(tmp_path) as plane, wire_to(server) as (url, wire):
            begin, end = (wire.cut, wire.mend) if trouble == "cut off" else (server.stop, server.start)
            await plane.create("far", url)
            await plane.create("near", other.url)
            async with speaking(server.url) as mouth, speaking(other.url) as other_mouth, voice(mouth, "far.lives"):
                async with voice(other_mouth, "near.dies"):
                    await plane.until("both live", lambda: plane.state("lives") == plane.state("dies") == "Live")
                begin()
                await plane.until("noticed", lambda: plane.is_connected("far") is False)
                await plane.until("the silent one is lost", lambda: plane.state("dies") == "Lost")
                assert plane.state("lives") == "Live"
                assert plane.cache.get(ResourceFlavor, Key("", "far-i-lives")) is not None
                end()
                await plane.until("connected again", lambda: plane.is_connected("far") is True)
                # For as long again: the pool is really heard.
                async with voice(other_mouth, "near.dies"):
                    await plane.until("lives again", lambda: plane.state("dies") == "Live")
                await plane.until("lost again", lambda: plane.state("dies") == "Lost")
                assert plane.states["lives"] == {"Live"}
                assert "far-i-lives" in json.dumps(plane.cache.find_json(ClusterQueue.KIND, Key("", "far")))


class Stalling:
    """A transport on which writes wait for as long as the test wants."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.parallel = inner.parallel
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.waiting = asyncio.Event()

    async def send(self, call: Call) -> Answer:
        if call.method != "GET":
            await self._stall()
        return await self._inner.send(call)

    async def add(self, kind: Kind, body: Json, manager: str) -> Json:
        await self._stall()
        return await self._inner.add(kind, body, manager)

    async def merge(self, kind: Kind, key: Key, body: Json, subresource: Part, manager: str) -> Json:
        await self._stall()
        return await self._inner.merge(kind, key, body, subresource, manager)

    async def _stall(self) -> None:
        if not self.may_write.is_set():
            self.waiting.set()
            await self.may_write.wait()

    def lines(self, call: Call) -> AsyncIterator[bytes]:
        return self._inner.lines(call)

    async def follow(self, call: Call, tell: Tell) -> None:
        await self._inner.follow(call, tell)

    async def close(self) -> None:
        await self._inner.close()


async def test_a_server_that_does_not_answer_makes_no_pool_silent(tmp_path: Path) -> None:
    """While a write hangs for two timeouts, messages are still heard, so no pool counts as silent after it."""
    with nats_server(tmp_path) as nats:
        async with control_plane(tmp_path, server_only=True) as plane, speaking(nats.url) as mouth:
            stalling = Stalling(plane.transport)
            client, parts = Client(stalling), ("pools",)
            beside = BesidePlane(client, Configuration(), app.clock, NatsConnection, parts, "kyu-pools")
            pools = asyncio.create_task(beside.run())
            try:
                await plane.create("far", nats.url)
                async with voice(mouth, "far.lives") as spoke:
                    await plane.until("it lives", lambda: plane.state("lives") == "Live")
                    stalling.may_write.clear()
                    await mouth.send("far.comes", MESSAGE)
                    async with asyncio.timeout(LONGEST_SECONDS):
                        await stalling.waiting.wait()
                    await spoke.until(2 * WORDS_IN_TIMEOUT)
                    stalling.may_write.set()
                    await plane.until("the other one was heard too", lambda: "comes" in plane.states)
                    await mouth.send("far.last", MESSAGE)
                    await plane.until("all is written", lambda: plane.state("last") == "Live")
                assert plane.states["lives"] == {"Live"}
            finally:
                pools.cancel()
                await asyncio.gather(pools, return_exceptions=True)


async def test_a_flood_of_garbage_loses_no_pool_and_nothing_grows(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        async with control_plane(tmp_path) as plane, speaking(server.url) as mouth, speaking(server.url) as hose:
            await plane.create("far", server.url)
            async with voice(mouth, "far.lives"):
                await plane.until("it lives", lambda: plane.state("lives") == "Live")
                await flood(hose, 10_000)
                await plane.until("refused", lambda: sum(plane.refused("far").values()) >= 10_000)
                before = resident_bytes()
                await flood(hose, 20_000)
                await plane.until("refused", lambda: sum(plane.refused("far").values()) >= 30_000)
                assert resident_bytes() - before < 8 * MEGABYTE
                assert plane.states == {"lives": {"Live"}}
                assert "Malformed" in plane.refused("far")


async def test_while_messages_are_dropped_no_pool_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool announces once. During the flood it may have announced again; after the flood it is lost."""
    monkeypatch.setattr(bus, "MOST_WAITING_MESSAGES", 10)
    (tmp_path / "other").mkdir()
    with nats_server(tmp_path) as server, nats_server(tmp_path / "other") as other:
        async with (
            control_plane(tmp_path) as plane,
            speaking(server.url) as mouth,
            speaking(server.url) as hose,
            speaking(other.url) as other_mouth,
        ):
            await plane.create("far", server.url)
            await plane.create("near", other.url)
            await plane.until("connected", lambda: bool(plane.is_connected("far") and plane.is_connected("near")))
            await mouth.publish("far.quiet", MESSAGE)
            await plane.until("heard", lambda: plane.state("quiet") == "Live")
            shouting = asyncio.create_task(shout(hose))
            try:
                await plane.until("missed", lambda: "TooFast" in plane.refused("far"))
                await other_mouth.publish("near.dies", MESSAGE)
                await plane.until("the other is lost", lambda: plane.state("dies") == "Lost")
                assert plane.state("quiet") == "Live"
            finally:
                shouting.cancel()
                await asyncio.gather(shouting, return_exceptions=True)
            await plane.until("it is lost too", lambda: plane.state("quiet") == "Lost")


async def shout(hose: NatsConnection) -> None:
    while True:
        await flood(hose, 500)


async def flood(hose: NatsConnection, count: int) -> None:
    """Publish garbage under many names, as fast as the server takes it."""
    for number in range(count):
        await hose.send(f"far.g{number}", b"\xff garbage" if number % 2 else b'{"quotas": 1}')
        if number % 500 == 0:
            await hose.publish("elsewhere", b"")
    await hose.publish("elsewhere", b"")


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
