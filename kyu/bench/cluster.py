"""
Kueue's loads on one real control plane, with each scheduler in turn: never two at once.

A scheduler is a command that runs until it is stopped, so that any version of any system can be measured. What it costs
is read from the kernel, and what it asks of the API server from the metrics of that server. The writes of the load
itself are counted and subtracted.

Called by: cli/admin/bench.py. Calls: cluster_load.py.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import statistics
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from kyu.bench import loads
from kyu.bench.cluster_load import ClusterLoad
from kyu.bench.engine import Row
from kyu.bench.loads import Load, WorkloadSet
from kyu.kube import http, kubeconfig
from kyu.kube.client import Client

LOADS = {load.name: load for load in (loads.BASELINE, loads.LARGE_SCALE)}
QUICK_SHARE = 10
# One Workload that each scheduler admits before it is measured.
PROBE = Load("probe", 1, 1, (WorkloadSet("probe", 1, 1, 1, 0, 1),))
START_SECONDS = 120.0
# After the load, writes are counted until none came for a look.
LOOK_SECONDS, MOST_LOOKS = 2.0, 60
WRITES = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE"})
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class NotMeasured(Exception):
    """A scheduler did not start, or ended."""


@dataclass(slots=True)
class ClusterRun:
    """The result of one scheduler with the load, and its cost."""

    seconds: float
    admissions: int
    evictions: int
    waits: Mapping[str, list[float]]
    writes: Counter[str] = field(default_factory=Counter)
    """Mutating requests of the scheduler, by verb and resource."""
    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    server_cpu_seconds: float = 0.0
    server_memory_bytes: float = 0.0


def run(*, quick: bool, kubeconfig_file: Path, systems: Mapping[str, str], load: str = "baseline") -> Iterator[Row]:
    chosen = smaller(LOADS[load]) if quick else LOADS[load]
    found: dict[str, ClusterRun] = {}
    for number, (name, command) in enumerate(systems.items()):
        found[name] = uvloop.run(measure(kubeconfig_file, command, chosen, f"{number}-"))
        yield from rows_of(name, found[name])
    first, *others = found
    for other in others:
        yield from ratios(first, found[first], other, found[other])


def smaller(load: Load) -> Load:
    """Return a tenth of a load, with the same pressure: fewer cohorts, and fewer workloads in each queue."""
    sets = tuple(
        WorkloadSet(s.name, max(1, s.count // QUICK_SHARE), s.interval, s.runtime, s.priority, s.cpu) for s in load.sets
    )
    return Load(load.name, load.cohorts, load.queues, sets, load.nominal, load.borrowing)


def own_command(kubeconfig_file: Path) -> str:
    """Return the command of this version of Kyu."""
    words = [sys.executable, "-m", "kyu", "controller", "--kubeconfig", str(kubeconfig_file)]
    return shlex.join([*words, "--health-probe-bind-address=0", "--metrics-bind-address=0"])


async def measure(kubeconfig_file: Path, command: str, load: Load, prefix: str) -> ClusterRun:
    client = Client(await http.connect(kubeconfig.load(kubeconfig_file)), "kyu-bench")
    try:
        async with running(command) as process:
            probe = ClusterLoad(client, PROBE, f"{prefix}probe-")
            await probe.make_queues(PROBE)
            await play(probe, PROBE, process)
            playing = ClusterLoad(client, load, prefix)
            await playing.make_queues(load)
            before, cpu = await server_samples(client), cpu_seconds(process.pid)
            seconds = await play(playing, load, process)
            after, used = await settled_samples(client), cpu_seconds(process.pid) - cpu
            outcome = ClusterRun(seconds, sum(map(len, playing.waits.values())), playing.evictions, playing.waits)
            outcome.writes = writes_between(before, after)
            outcome.writes.subtract({f"{verb} {resource}": n for (verb, resource), n in playing.writes.items()})
            outcome.cpu_seconds, outcome.memory_bytes = used, peak_memory(process.pid)
            outcome.server_cpu_seconds = value(after, "process_cpu_seconds_total") - value(
                before, "process_cpu_seconds_total"
            )
            outcome.server_memory_bytes = value(after, "process_resident_memory_bytes")
            await playing.remove()
            await probe.remove()
            return outcome
    finally:
        await client.close()


async def play(load: ClusterLoad, planned: Load, process: asyncio.subprocess.Process) -> float:
    """Run a load to its end; return its seconds. Raise NotMeasured if the scheduler ends before."""
    clock = asyncio.get_running_loop().time
    async with load.following():
        started = clock()
        ended = asyncio.create_task(process.wait())
        done = asyncio.create_task(load.done.wait())
        await load.submit()
        limit = START_SECONDS if planned is PROBE else None
        await asyncio.wait((ended, done), return_when=asyncio.FIRST_COMPLETED, timeout=limit)
        seconds = clock() - started
        ended.cancel()
        if not done.done():
            done.cancel()
            raise NotMeasured(f"the scheduler ended, or did not finish {planned.total} Workloads of {planned.name}")
        return seconds


@asynccontextmanager
async def running(command: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a scheduler while the context is open. Its log goes to the standard error of this process."""
    process = await asyncio.create_subprocess_exec(*shlex.split(command), stdout=sys.stderr)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


# Cost


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_memory(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024 if found else 0


Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def server_samples(client: Client) -> Samples:
    """Return the metrics of the API server."""
    return parse_samples((await client.raw("/metrics")).decode())


async def settled_samples(client: Client) -> Samples:
    """Return the metrics of the API server when no more writes come: events follow the decisions later."""
    samples = await server_samples(client)
    for _ in range(MOST_LOOKS):
        await asyncio.sleep(LOOK_SECONDS)
        before, samples = samples, await server_samples(client)
        if not writes_between(before, samples):
            break
    return samples


def parse_samples(text: str) -> Samples:
    found = _SAMPLE.findall(text)
    return {(name, frozenset(_LABEL.findall(labels))): float(number) for name, labels, number in found}


def value(samples: Samples, name: str) -> float:
    return samples.get((name, frozenset()), 0.0)


def writes_between(before: Samples, after: Samples) -> Counter[str]:
    """Return the mutating requests between two scrapes, by verb and resource, without those of Leases."""
    found: Counter[str] = Counter()
    for (name, labels), number in after.items():
        label = dict(labels)
        if name != "apiserver_request_total" or label["verb"] not in WRITES or label["resource"] == "leases":
            continue
        verb = "PATCH" if label["verb"] == "APPLY" else label["verb"]
        part = f"/{label['subresource']}" if label.get("subresource") else ""
        found[f"{verb} {label['resource']}{part}"] += int(number - before.get((name, labels), 0.0))
    return Counter({what: count for what, count in found.items() if count > 0})


# Rows


def rows_of(name: str, found: ClusterRun) -> Iterator[Row]:
    yield Row(f"{name}: makespan", f"{found.seconds:.1f} s, {found.admissions} admissions, {found.evictions} evictions")
    for class_, waits in sorted(found.waits.items()):
        p99 = sorted(waits)[int(len(waits) * 0.99)]
        yield Row(f"{name}: time to admission, {class_}", f"mean {statistics.mean(waits):.2f} s, p99 {p99:.2f} s")
    total = sum(found.writes.values())
    yield Row(f"{name}: mutating requests", f"{total}, {total / max(1, found.admissions):.2f} per admission")
    for what, count in found.writes.most_common():
        if count > 0:
            yield Row(f"{name}:   {what}", str(count))
    yield Row(f"{name}: controller", f"{found.cpu_seconds:.1f} s cpu, {found.memory_bytes / 2**20:.0f} MiB")
    yield Row(
        f"{name}: API server", f"{found.server_cpu_seconds:.1f} s cpu, {found.server_memory_bytes / 2**20:.0f} MiB"
    )


def ratios(first: str, one: ClusterRun, second: str, other: ClusterRun) -> Iterator[Row]:
    def row(what: str, mine: float, theirs: float, must: str = "", goal: str = "") -> Row:
        return Row(f"{first} / {second}: {what}", "", mine / theirs if theirs else None, must, goal)

    yield row("makespan", one.seconds, other.seconds, "<= 0.8", "<= 0.67")
    yield row("mutating requests", sum(one.writes.values()), sum(other.writes.values()), "<= 0.5", "<= 0.4")
    yield row("controller cpu", one.cpu_seconds, other.cpu_seconds, "<= 0.6", "<= 0.5")
    yield row("controller memory", one.memory_bytes, other.memory_bytes)
    yield row("API server cpu", one.server_cpu_seconds, other.server_cpu_seconds)
