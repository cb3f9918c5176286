"""
The API server as clients meet it: a process of its own, over TLS, every write on disk before its answer.

*Writes*: 64 writers create Workloads and apply their status; where the kubeconfig of another API server is given, it
takes the same writes from the same client, in legs that alternate. That one has to keep the same promise, with an etcd
that syncs to disk: `python -m tests.cluster up --fsync`. *Watchers*: writes at a fixed pace, and whether all
watchers hear of all of them. *Many objects*: start, memory, and how long others wait while all are listed. *Idle*: what
a server costs that nobody asks.

Called by: cli/bench.py. Calls: `kyu up` as a process, kube/client.py, server/database.py to fill a database.
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

from kyu.api import crds
from kyu.api.core import Namespace
from kyu.api.kueue import Workload
from kyu.api.meta import Json
from kyu.bench.engine import Row
from kyu.controllers.plane import DEFINITION
from kyu.kube import errors, http, kubeconfig, requests
from kyu.kube.client import Client
from kyu.server.database import Database

WRITERS = 64
WATCHERS = 20
WRITES_PER_SECOND = 1000
NAMESPACE = "kyu-bench"
START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured. ``workloads`` and ``pairs`` are of the writes, ``objects`` of the long list."""

    workloads: int
    pairs: int
    watch_seconds: float
    objects: int
    idle_seconds: float


FULL = Size(workloads=600, pairs=5, watch_seconds=5.0, objects=100_000, idle_seconds=10.0)
QUICK = Size(workloads=200, pairs=2, watch_seconds=2.0, objects=10_000, idle_seconds=3.0)


def run(*, quick: bool, rival: Path | None = None) -> Iterator[Row]:
    size = QUICK if quick else FULL
    with tempfile.TemporaryDirectory(prefix="kyu-bench-") as folder:
        yield from uvloop.run(measure_writes(Path(folder), size, rival))
    with tempfile.TemporaryDirectory(prefix="kyu-bench-") as folder:
        yield from uvloop.run(measure_many(Path(folder), size))


# Writes and watches.


async def measure_writes(folder: Path, size: Size, rival: Path | None) -> list[Row]:
    async with Server.started(folder) as server, connected(server.kubeconfig) as client:
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


async def compare(client: Client, other: Client, size: Size) -> list[Row]:
    """Legs in the order A B B A, so that a slow minute of the machine meets both; one before them does not count."""
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
    """Writes per second of 64 writers, each of whom waits for its answers."""
    names = iter([f"{name}-{number}" for number in range(workloads)])
    started = time.perf_counter()

    async def write() -> None:
        for each in names:
            await client.create(Workload.KIND, workload(each))
            await client.apply(Workload.KIND, admitted(each), manager="kyu-bench", subresource="status")

    await asyncio.gather(*(write() for _ in range(WRITERS)))
    return 2 * workloads / (time.perf_counter() - started)


async def measure_watches(client: Client, size: Size) -> Row:
    """Creates at a fixed pace; each watcher counts what it hears of."""
    total = int(WRITES_PER_SECOND * size.watch_seconds)
    _, version = await client.list(Workload.KIND, NAMESPACE)
    watchers = [asyncio.create_task(hear(client, version, total)) for _ in range(WATCHERS)]
    loop = asyncio.get_running_loop()
    started = loop.time()
    numbers = iter(range(total))

    async def write() -> None:
        for number in numbers:
            await asyncio.sleep(started + number / WRITES_PER_SECOND - loop.time())
            await client.create(Workload.KIND, workload(f"watched-{number}"))

    await asyncio.gather(*(write() for _ in range(WRITERS)))
    written = total / (loop.time() - started)
    done, late = await asyncio.wait(watchers, timeout=START_SECONDS)
    for task in late:
        task.cancel()
    value = f"{len(done)} of {WATCHERS} heard all {total} events; {written:.0f} writes/s, the last heard after"
    value = f"{value} {loop.time() - started:.1f} s"
    return Row("watchers that hear of everything", value, len(done) / WATCHERS, ">= 1")


async def hear(client: Client, version: str, total: int) -> None:
    heard: set[str] = set()
    async for type_, obj in client.watch(Workload.KIND, NAMESPACE, version=version):
        if type_ == "ADDED":
            heard.add(obj["metadata"]["name"])
        if len(heard) == total:
            return


async def measure_idle(server: Server, size: Size) -> Row:
    before = server.cpu_seconds()
    await asyncio.sleep(size.idle_seconds)
    share = (server.cpu_seconds() - before) / size.idle_seconds * 100
    return Row("CPU of an idle server, %", f"{share:.1f} % over {size.idle_seconds:.0f} s", share, "<= 1")


# Many objects.


async def measure_many(folder: Path, size: Size) -> list[Row]:
    async with Server.started(folder) as server, connected(server.kubeconfig) as client:
        await prepare(client)
        await client.create(Workload.KIND, workload("w"))
        await client.apply(Workload.KIND, admitted("w"), manager="kyu-bench", subresource="status")
    fill(folder / "kyu.db", size.objects)
    async with Server.started(folder) as server, connected(server.kubeconfig) as client:
        start = Row(
            f"start with {size.objects} Workloads, s", "until it says that it is ready", server.start_seconds, "<= 5"
        )
        listed, pauses = await list_beside_others(client)
        assert listed == size.objects + 1, f"{listed} of {size.objects + 1} Workloads were listed"
        megabytes = server.resident_bytes() / 2**20
        return [
            start,
            Row(f"memory with {size.objects} Workloads, MB", f"{megabytes:.0f} MB", megabytes, "<= 1500"),
            Row(
                "others wait during a list of all, ms",
                f"longest of {len(pauses)} reads; median {statistics.median(pauses) * 1000:.1f} ms",
                max(pauses) * 1000,
                "<= 100",
            ),
        ]


def fill(path: Path, objects: int) -> None:
    """Copies of the one Workload that is there, as the server itself would have stored them."""
    database = Database(path)
    try:
        pattern = [row for row in database.rows() if row[1] == "workloads.kueue.x-k8s.io"][-1]
        first = database.versions()[0] + 1
        rows = []
        for version in range(first, first + objects):
            name, uid = f"w-{version}", str(uuid.uuid4())
            obj = msgspec.json.decode(pattern[7], type=dict[str, Json])
            obj["metadata"] |= {"name": name, "uid": uid, "resourceVersion": str(version)}
            rows.append((version, pattern[1], pattern[2], name, uid, 0, 0, msgspec.json.encode(obj)))
        database.commit(rows, [], 0)
    finally:
        database.close()


async def list_beside_others(client: Client) -> tuple[int, list[float]]:
    """All objects page by page, while another reader asks for one of them again and again."""
    pauses: list[float] = []
    listing = asyncio.create_task(count(client))
    while not listing.done():
        started = time.perf_counter()
        await client.raw("/livez")
        pauses.append(time.perf_counter() - started)
    return listing.result(), pauses


async def count(client: Client) -> int:
    """The pages are not decoded: that would be the time of this process."""
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


# The objects.


async def prepare(client: Client) -> None:
    """A namespace, and the definition of Workloads where the server does not have it."""
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
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    pod_set = {"name": "main", "count": 1, "template": template}
    spec = {"queueName": "main", "priority": 50, "podSets": [pod_set]}
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def admitted(name: str) -> Json:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    conditions = [
        {"type": type_, "status": "True", "reason": type_, "message": "by the benchmark", "lastTransitionTime": now}
        for type_ in ("QuotaReserved", "Admitted")
    ]
    assignment = {"name": "main", "flavors": {"cpu": "rf"}, "resourceUsage": {"cpu": "1"}, "count": 1}
    status = {"conditions": conditions, "admission": {"clusterQueue": "main", "podSetAssignments": [assignment]}}
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "status": status}


# The server as a process.


@dataclass(frozen=True, slots=True)
class Server:
    """`kyu up --server-only` in a folder."""

    pid: int
    kubeconfig: Path
    start_seconds: float

    @staticmethod
    @contextlib.asynccontextmanager
    async def started(folder: Path) -> AsyncIterator[Server]:
        arguments = ("-m", "kyu", "up", "--server-only", "--bare", "--data", str(folder), "--listen", "127.0.0.1:0")
        started = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            assert process.stdout is not None
            # It says where it is when requests are answered.
            async with asyncio.timeout(START_SECONDS):
                if not await process.stdout.readline():
                    raise RuntimeError(f"kyu {' '.join(arguments[2:])} ended before it was ready")
            yield Server(process.pid, folder / "kubeconfig", time.perf_counter() - started)
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
