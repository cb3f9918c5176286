"""
The API server as clients see it: its own process, over TLS, every write on disk before its answer.

- *Writes*: 64 writers create Workloads and apply their status. With the kubeconfig of another API server, both servers
  get the same writes in alternating legs. The etcd of the other one has to sync to disk: ``python -m tests.cluster up
  --fsync``.
- *Watchers*: writes at a fixed rate, and the watchers that receive all of them.
- *Many objects*: start, memory, and the latency of other requests while all objects are listed.
- *Idle*: the CPU of a server without requests.

Called by: cli/admin/bench.py. Calls: ``kyu up`` as a process, kube/client.py, server/storage/database.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import uvloop

from kyu.api.core import DEFINITION, Namespace
from kyu.api.definitions import crds
from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key
from kyu.bench import objects
from kyu.bench.engine import Row
from kyu.kube import errors, http, kubeconfig, requests
from kyu.kube.client import Client
from kyu.server.storage.database import Database

WRITERS = 64
WATCHERS = 20
WRITES_PER_SECOND = 1000
NAMESPACE = "kyu-bench"
START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """The size of a run: ``workloads`` and ``pairs`` of the writes, ``objects`` of the long list."""

    workloads: int
    pairs: int
    watch_seconds: float
    objects: int
    idle_seconds: float


FULL = ServerLoad(workloads=600, pairs=5, watch_seconds=5.0, objects=100_000, idle_seconds=10.0)
QUICK = ServerLoad(workloads=200, pairs=2, watch_seconds=2.0, objects=10_000, idle_seconds=3.0)


def run(*, quick: bool, rival: Path | None = None) -> Iterator[Row]:
    size = QUICK if quick else FULL
    with tempfile.TemporaryDirectory(prefix="kyu-bench-") as folder:
        yield from uvloop.run(measure_writes(Path(folder), size, rival))
    with tempfile.TemporaryDirectory(prefix="kyu-bench-") as folder:
        yield from uvloop.run(measure_many(Path(folder), size))


async def measure_writes(folder: Path, size: ServerLoad, rival: Path | None) -> list[Row]:
    async with ServerProcess.started(folder) as server, connected(server.kubeconfig) as client:
        await prepare(client)
        idle = await measure_idle(server, size)
        if rival is None:
            ours = [await leg(client, f"ours-{number}", size.workloads) for number in range(2 * size.pairs)]
            rows = [Row("create + status apply, writes/s", shown(ours))]
        else:
            async with connected(rival) as other:
                await prepare(other)
                rows = await compare(client, other, size)
        before = server.cpu_seconds()
        writes = await leg(client, "cost", size.workloads)
        spent = (server.cpu_seconds() - before) / (2 * size.workloads) * 1000
        rows.append(Row("CPU of the server per write, ms", f"{spent:.2f} ms, at {writes:.0f}/s", spent))
        return [*rows, await measure_watches(client, size), idle]


async def compare(client: Client, other: Client, size: ServerLoad) -> list[Row]:
    """Return the ratio of alternating legs, in the order A B B A. A first leg of each side does not count."""
    for side in (client, other):
        await leg(side, f"{uuid.uuid4().hex[:8]}-warm", size.workloads)
    ours: list[float] = []
    theirs: list[float] = []
    ratios = []
    for number in range(size.pairs):
        sides = [(client, ours), (other, theirs)]
        for side, rates in sides if number % 2 == 0 else reversed(sides):
            rates.append(await leg(side, f"{uuid.uuid4().hex[:8]}-{number}", size.workloads))
        ratios.append(ours[-1] / theirs[-1])
    ratio = statistics.median(ratios)
    value = f"{shown(ours)} against {shown(theirs)}; ratios {min(ratios):.1f} to {max(ratios):.1f}"
    return [Row("create + status apply, writes/s, against the rival", value, ratio, ">= 8", ">= 20")]


def shown(rates: list[float]) -> str:
    return f"{statistics.median(rates):.0f}/s ({min(rates):.0f} to {max(rates):.0f})"


async def leg(client: Client, name: str, workloads: int) -> float:
    """Return the writes per second of 64 writers, each of which waits for its answers."""
    bodies = iter([workload(f"{name}-{number}") for number in range(workloads)])
    started = time.perf_counter()

    async def write() -> None:
        for body in bodies:
            await client.create(Workload.KIND, body)
            status = objects.admitted(body, timestamp())
            await client.apply(Workload.KIND, status, manager="kyu-bench", subresource="status")

    await asyncio.gather(*(write() for _ in range(WRITERS)))
    return 2 * workloads / (time.perf_counter() - started)


async def measure_watches(client: Client, size: ServerLoad) -> Row:
    """Create Workloads at a fixed rate, and count the watchers that receive all of them."""
    total = int(WRITES_PER_SECOND * size.watch_seconds)
    bodies = enumerate([workload(f"watched-{number}") for number in range(total)])
    _, version = await client.list(Workload.KIND, NAMESPACE)
    watchers = [asyncio.create_task(receive(client, version, total)) for _ in range(WATCHERS)]
    loop = asyncio.get_running_loop()
    started = loop.time()

    async def write() -> None:
        for number, body in bodies:
            await asyncio.sleep(started + number / WRITES_PER_SECOND - loop.time())
            await client.create(Workload.KIND, body)

    await asyncio.gather(*(write() for _ in range(WRITERS)))
    written = total / (loop.time() - started)
    done, late = await asyncio.wait(watchers, timeout=START_SECONDS)
    for task in late:
        task.cancel()
    value = f"{len(done)} of {WATCHERS} received all {total} events; {written:.0f} writes/s, the last event after"
    value = f"{value} {loop.time() - started:.1f} s"
    return Row("watchers that receive all events", value, len(done) / WATCHERS, ">= 1")


async def receive(client: Client, version: str, total: int) -> None:
    received: set[str] = set()
    async for type_, obj in client.watch(Workload.KIND, NAMESPACE, version=version):
        if type_ == "ADDED":
            received.add(obj["metadata"]["name"])
        if len(received) == total:
            return


async def measure_idle(server: ServerProcess, size: ServerLoad) -> Row:
    before = server.cpu_seconds()
    await asyncio.sleep(size.idle_seconds)
    share = (server.cpu_seconds() - before) / size.idle_seconds * 100
    return Row("CPU of an idle server, %", f"{share:.1f} % over {size.idle_seconds:.0f} s", share, "<= 1")


async def measure_many(folder: Path, size: ServerLoad) -> list[Row]:
    async with ServerProcess.started(folder) as server, connected(server.kubeconfig) as client:
        await prepare(client)
        body = workload("w")
        await client.create(Workload.KIND, body)
        status = objects.admitted(body, timestamp())
        await client.apply(Workload.KIND, status, manager="kyu-bench", subresource="status")
    fill(folder / "kyu.db", size.objects)
    async with ServerProcess.started(folder) as server, connected(server.kubeconfig) as client:
        start = Row(
            f"start with {size.objects} Workloads, s", "until requests are answered", server.start_seconds, "<= 5"
        )
        listed, pauses = await list_beside_others(client)
        assert listed == size.objects + 1, f"{listed} of {size.objects + 1} Workloads were listed"
        megabytes = server.resident_bytes() / 2**20
        return [
            start,
            Row(f"memory with {size.objects} Workloads, MB", f"{megabytes:.0f} MB", megabytes, "<= 1500"),
            Row(
                "other requests during a list of all, ms",
                f"longest of {len(pauses)} reads; median {statistics.median(pauses) * 1000:.1f} ms",
                max(pauses) * 1000,
                "<= 100",
            ),
        ]


def fill(path: Path, count: int) -> None:
    """Store Workloads as the server would, with the defaults and managedFields of the one that it has stored."""
    database = Database(path)
    try:
        row = [row for row in database.rows() if row[1] == "workloads.kueue.x-k8s.io"][-1]
        stored = msgspec.json.decode(row[7], type=dict[str, Json])
        first = database.versions()[0] + 1
        rows = []
        for version in range(first, first + count):
            uid = str(uuid.uuid4())
            obj = stored_workload(stored, f"w-{version}", uid, version)
            rows.append((version, row[1], row[2], obj["metadata"]["name"], uid, 0, 0, msgspec.json.encode(obj)))
        database.commit(rows, [], 0)
    finally:
        database.close()


def stored_workload(stored: Json, name: str, uid: str, version: int) -> Json:
    body = workload(name)
    metadata = {**stored["metadata"], **body["metadata"], "uid": uid, "resourceVersion": str(version)}
    status = objects.admitted(body, timestamp())["status"]
    return {**stored, "metadata": metadata, "spec": {**stored["spec"], **body["spec"]}, "status": status}


async def list_beside_others(client: Client) -> tuple[int, list[float]]:
    """Return the number of listed objects, and the latencies of another reader meanwhile."""
    pauses: list[float] = []
    listing = asyncio.create_task(count(client))
    while not listing.done():
        started = time.perf_counter()
        await client.raw("/livez")
        pauses.append(time.perf_counter() - started)
    return listing.result(), pauses


async def count(client: Client) -> int:
    """Count all objects page by page. The items are not decoded, to spare this process."""
    total, token = 0, ""
    path = requests.collection_path(Workload.KIND, NAMESPACE)
    while True:
        page = _decode_page(await client.raw(path, {"limit": "500", "continue": token} if token else {"limit": "500"}))
        total += len(page.items)
        token = page.metadata.token
        if not token:
            return total


class _PageMetadata(msgspec.Struct):
    token: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct):
    metadata: _PageMetadata
    items: list[msgspec.Raw]


_decode_page = msgspec.json.Decoder(_Page).decode


async def prepare(client: Client) -> None:
    """Create the namespace, and the definition of Workloads if the server does not have it."""
    definition = crds.definition(Workload)
    definition["spec"] = {**definition["spec"], "conversion": {"strategy": "None"}}
    with contextlib.suppress(errors.AlreadyExists):
        await client.create(DEFINITION, definition)
    with contextlib.suppress(errors.AlreadyExists):
        await client.create(Namespace.KIND, {"metadata": {"name": NAMESPACE}})
    async with asyncio.timeout(START_SECONDS):
        while True:
            with contextlib.suppress(errors.NotFound):
                await client.list(Workload.KIND, NAMESPACE)
                return
            await asyncio.sleep(0.1)


def workload(name: str) -> Json:
    return objects.workload(Key(NAMESPACE, name), "main", cpu="1", priority=50)


def timestamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """``kyu up --server-only`` in a folder."""

    pid: int
    kubeconfig: Path
    start_seconds: float

    @staticmethod
    @contextlib.asynccontextmanager
    async def started(folder: Path) -> AsyncIterator[ServerProcess]:
        arguments = ("-m", "kyu", "up", "--server-only", "--bare", "--data", str(folder), "--listen", "127.0.0.1:0")
        started = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            assert process.stdout is not None
            # The first line says that requests are answered.
            async with asyncio.timeout(START_SECONDS):
                if not await process.stdout.readline():
                    raise RuntimeError(f"kyu {' '.join(arguments[2:])} ended before it was ready")
            yield ServerProcess(process.pid, folder / "kubeconfig", time.perf_counter() - started)
        finally:
            process.terminate()
            await process.wait()

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.asynccontextmanager
async def connected(path: Path) -> AsyncIterator[Client]:
    client = Client(await http.connect(kubeconfig.load(path)), "kyu-bench")
    try:
        yield client
    finally:
        await client.close()
