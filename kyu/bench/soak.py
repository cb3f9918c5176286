"""
Memory over a long time: the same work in rounds, and the memory of the process after each minute.

A round is three hundred workloads through all queues, some of them preempted. Then they and their events are deleted.
After a first part, in which caches and watch windows fill, memory should not grow.

Called by: bench/embedded.py.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import uvloop

from kyu import app
from kyu.api.kueue import Workload
from kyu.api.meta import key_of
from kyu.bench import pretended
from kyu.bench.engine import Row, memory_bytes
from kyu.bench.loads import Load, WorkloadSet
from kyu.controllers import memory
from kyu.kube.apply import EVENT
from kyu.kube.client import Client

SAMPLE_SECONDS = 60.0
# The pause after a round keeps the machine usable.
PAUSE_SECONDS = 5.0
MEGABYTE = 1 << 20
ROUND = Load(
    "soak",
    cohorts=5,
    queues=6,
    sets=(
        WorkloadSet("small", 7, 100, 200, 50, 1),
        WorkloadSet("medium", 2, 500, 500, 100, 5),
        WorkloadSet("large", 1, 1200, 1000, 200, 20),
    ),
)


def run(minutes: float) -> Iterator[Row]:
    samples, rounds = uvloop.run(play(minutes))
    third = max(1, len(samples) // 3)
    first, last = statistics.mean(samples[:third]), statistics.mean(samples[-third:])
    yield Row(
        f"memory after {minutes:.0f} minutes, last third / first",
        f"{last / MEGABYTE:.0f} MB against {first / MEGABYTE:.0f} MB, {rounds * ROUND.total} workloads",
        last / first,
        "<= 1.1",
    )


async def play(minutes: float) -> tuple[list[int], int]:
    """Return the memory after each minute, and the number of rounds."""
    with tempfile.TemporaryDirectory(prefix="kyu-soak-") as folder:
        async with app.embedded(app.Settings(Path(folder), bare=True)) as running:
            client = running.client("kyu-bench")
            await pretended.make_queues(client, ROUND)
            memory.collect_seldom()
            samples: list[int] = []
            clock = asyncio.get_running_loop().time
            started = clock()
            rounds = 0
            while clock() - started < minutes * 60:
                rounds += 1
                await play_round(client, rounds)
                await asyncio.sleep(PAUSE_SECONDS)
                if clock() - started >= (len(samples) + 1) * min(SAMPLE_SECONDS, minutes * 60):
                    samples.append(memory_bytes())
                    line = f"minute {(clock() - started) / 60:.1f}: {samples[-1] / MEGABYTE:.0f} MB, {rounds} rounds"
                    print(line, file=sys.stderr, flush=True)
            return samples, rounds


async def play_round(client: Client, number: int) -> None:
    submitted = pretended.submissions(ROUND, suffix=f"-{number}")
    async with pretended.pretended_pods(client, submitted) as pods:
        await pretended.submit(client, submitted)
        await pods.done.wait()
    for kind in (Workload.KIND, EVENT):
        found, _ = await client.list(kind)
        # The server refuses a client with too many open requests.
        for start in range(0, len(found), pretended.SUBMITTERS):
            batch = found[start : start + pretended.SUBMITTERS]
            await asyncio.gather(*(client.delete(kind, key_of(obj)) for obj in batch))
