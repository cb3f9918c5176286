"""
Many pools in one process, for the benchmark of MasterQueues: each publishes once a second, some with news, and some
garbage.

News is an amount of memory that encodes its time of publication in microseconds. So its delay can be read from a queue.

Called by: bench/pools.py, as its own process, so that its cost is not measured.
"""

from __future__ import annotations

import asyncio
import sys
import time

import msgspec

from kyu.api.meta import Json
from kyu.bus.connector import Connector
from kyu.bus.nats import NatsConnection

PERIOD_SECONDS = 1.0
# Messages of a period are sent in this many ticks.
TICKS = 20
GARBAGE = (b"\xff no text", b'{"quotas": 1}')
STEADY_MEMORY = str(2**40)


class Voices(msgspec.Struct, frozen=True):
    """The rates of messages.

    ``news`` differ from the message before. ``numbered`` messages have a sequence and a time. ``garbage`` cannot be
    decoded and has ever new names.
    """

    url: str
    queues: int
    pools: int
    news: float = 0.0
    numbered: bool = False
    garbage: int = 0


def subject(queue: int) -> str:
    return f"bench.q{queue}.resources"


async def speak(voices: Voices) -> None:
    """Publish until cancelled."""
    connection = NatsConnection(Connector(voices.url), "kyu-bench")
    connecting = asyncio.create_task(connection.run())
    try:
        await connection.connected()
        everyone = [(queue, pool) for pool in range(voices.pools) for queue in range(voices.queues)]
        memory = dict.fromkeys(everyone, STEADY_MEMORY)
        started, tick, told = time.monotonic(), 0, 0
        while True:
            now = everyone[tick % TICKS :: TICKS]
            # With few pools some ticks are silent; news waits for the next one.
            due = int((time.monotonic() - started) * voices.news) if now else told
            for number in range(told, due):
                memory[now[number % len(now)]] = str(int(time.time() * 1e6))
            told = due
            bodies = [(subject(queue), f"pool-{pool:02}", memory[queue, pool]) for queue, pool in now]
            await asyncio.gather(*(publish(connection, voices, *body) for body in bodies))
            for number in range(int(voices.garbage * PERIOD_SECONDS / TICKS)):
                await connection.send(f"{subject(number % voices.queues)}.g{tick}-{number}", GARBAGE[number % 2])
            tick += 1
            await asyncio.sleep(max(0.0, started + tick * PERIOD_SECONDS / TICKS - time.monotonic()))
    finally:
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)


async def publish(connection: NatsConnection, voices: Voices, to: str, pool: str, memory: str) -> None:
    quotas = {"cpu": "64", "memory": memory, "pods": 100, "nvidia.com/gpu": 0}
    body: Json = {"quotas": quotas, "labels": ["site=bench"], "taints": []}
    if voices.numbered:
        now = time.time()
        body |= {"seq": int(now * 1000), "ts": now, "period": PERIOD_SECONDS, "pool": pool, "schema": 2}
    await connection.send(f"{to}.{pool}", msgspec.json.encode(body))


if __name__ == "__main__":
    asyncio.run(speak(msgspec.json.decode(sys.argv[1], type=Voices)))
