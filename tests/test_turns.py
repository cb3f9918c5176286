"""Turns on the event loop: how many begin in a round, who comes first, and that nobody waits behind all of another."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from kyu.turns import PER_ROUND, Turns


class Rounds:
    """Work that takes turns, and what has begun by the end of each round of the event loop."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.begun: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []

    def decide(self, flow: str, count: int) -> list[asyncio.Task[None]]:
        return self._start([self._decision(flow) for _ in range(count)])

    def ask(self, flow: str, count: int) -> list[asyncio.Task[None]]:
        return self._start([self._request(flow) for _ in range(count)])

    async def until_all_begun(self) -> list[list[str]]:
        """What began in each round, until nothing is left."""
        rounds = []
        while not all(task.done() for task in self._tasks):
            before = len(self.begun)
            await asyncio.sleep(0)
            if len(self.begun) > before:
                rounds.append(self.begun[before:])
        return rounds

    def _start(self, work: list[Coroutine[Any, Any, None]]) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(one) for one in work]
        self._tasks += tasks
        return tasks

    async def _decision(self, flow: str) -> None:
        await self.turns.decision(flow)
        self.begun.append(flow)

    async def _request(self, flow: str) -> None:
        await self.turns.request(flow)
        self.begun.append(flow)


async def test_a_few_begin_in_each_round() -> None:
    work = Rounds()
    work.decide("a", 3 * PER_ROUND)
    rounds = await work.until_all_begun()
    assert max(map(len, rounds)) == PER_ROUND
    assert len(work.begun) == 3 * PER_ROUND


async def test_decisions_do_not_stand_behind_what_users_ask_for() -> None:
    work = Rounds()
    work.ask("user", 3 * PER_ROUND)
    work.decide("queue", 3 * PER_ROUND)
    rounds = await work.until_all_begun()
    # The first round began before anybody knew of the decisions; after the fifth only decisions are left.
    half = PER_ROUND // 2
    assert [begun.count("user") for begun in rounds] == [PER_ROUND, half, half, half, half, 0]
    assert [begun.count("queue") for begun in rounds] == [0, half, half, half, half, PER_ROUND]


async def test_the_storm_of_one_namespace_does_not_delay_the_others() -> None:
    work = Rounds()
    work.decide("storm", 20 * PER_ROUND)
    await asyncio.sleep(0)
    work.decide("calm", 1)
    rounds = await work.until_all_begun()
    assert next(number for number, begun in enumerate(rounds) if "calm" in begun) <= 2


async def test_work_that_was_given_up_takes_no_turn() -> None:
    work = Rounds()
    work.decide("a", PER_ROUND)
    given_up = work.decide("b", PER_ROUND)
    await asyncio.sleep(0)
    for task in given_up:
        task.cancel()
    work.decide("c", PER_ROUND)
    rounds = await work.until_all_begun()
    assert rounds[-1] == ["c"] * PER_ROUND
    assert "b" not in work.begun
