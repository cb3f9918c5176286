"""
The whole embedded stack in real time: server, store, controllers and engine, with simulated pods.

- *Burst*: all workloads of Kueue's baseline load are submitted at once, without run time. The figure is admissions per
  second, with durable status, events and queue statuses.
- *Baseline*: the load in real time. The figures are its makespan against that of the engine alone in virtual time, and
  the time from a finish to the admission that it allows.
- *Pods as processes*: how many real pods are started, awaited and reported per second.

Called by: cli/admin/bench.py. Calls: app.py, pretended.py, processes.py, soak.py.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from kyu import app
from kyu.bench import loads, pretended, processes, soak
from kyu.bench.engine import Row
from kyu.bench.loads import Load, WorkloadSet
from kyu.controllers import memory
from kyu.engine.schedule import schedule

QUICK_SHARE = 10
PODS, QUICK_PODS = 1000, 100


def run(*, quick: bool, soak_minutes: float = 0.0) -> Iterator[Row]:
    if soak_minutes:
        yield from soak.run(soak_minutes)
        return
    load = smaller(loads.BASELINE) if quick else loads.BASELINE
    burst = uvloop.run(play(load, at_once=True))
    yield Row(
        f"burst: {load.total} at once, admissions/s",
        f"{burst.admissions / burst.seconds:.0f}/s wall, {burst.cpu_seconds / burst.admissions * 1000:.2f} ms cpu each",
        burst.admissions / burst.seconds,
        ">= 1000",
        ">= 2500",
    )
    virtual = loads.run(load, schedule).makespan
    real = uvloop.run(play(load, at_once=False, probe_seconds=virtual))
    yield Row(
        "baseline in real time: makespan / virtual",
        f"{real.seconds:.1f} s against {virtual:.1f} s, {real.cpu_seconds:.1f} s cpu",
        real.seconds / virtual,
        "<= 1.05",
        "<= 1.02",
    )
    latencies = sorted(real.latencies)
    p99 = latencies[int(len(latencies) * 0.99)] * 1000
    median = statistics.median(latencies) * 1000
    yield Row(
        "a finish to the admission it allows, p99 ms", f"median {median:.1f} of {len(latencies)}", p99, "<= 50", "<= 10"
    )
    yield uvloop.run(processes.measure(QUICK_PODS if quick else PODS))


def smaller(load: Load) -> Load:
    sets = tuple(
        WorkloadSet(s.name, max(1, s.count // QUICK_SHARE), s.interval, s.runtime, s.priority, s.cpu) for s in load.sets
    )
    return Load(load.name, load.cohorts, load.queues, sets, load.nominal, load.borrowing)


@dataclass(slots=True)
class Result:
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    admissions: int = 0
    latencies: list[float] = field(default_factory=list)


async def play(load: Load, *, at_once: bool, probe_seconds: float = 0.0) -> Result:
    submitted = [*pretended.probes(probe_seconds), *pretended.submissions(load, at_once=at_once)]
    with tempfile.TemporaryDirectory(prefix="kyu-bench-") as folder:
        async with app.embedded(app.Settings(Path(folder), bare=True)) as running:
            client = running.client("kyu-bench")
            await pretended.make_queues(client, load)
            async with pretended.pretended_pods(client, submitted) as pods:
                memory.collect_seldom()
                started, cpu = time.perf_counter(), time.process_time()
                await pretended.submit(client, submitted)
                await pods.done.wait()
                result = Result(
                    time.perf_counter() - started, time.process_time() - cpu, pods.admissions, pods.latencies
                )
                gc.unfreeze()
                return result
