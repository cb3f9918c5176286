"""Turns on the event loop: how many begin in a round, who comes first, and that nobody waits behind all of another."""

from __future__ import annotations

import asyncio
from functools import partial

from kyu.turns import PER_ROUND, Turns


class Rounds:
    """Work that takes turns, and what has begun by the end of each round of the event loop."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.begun: list[str] = []
        self._expected = 0

    def decide(self, flow: str, count: int) -> None:
        self._expected += count
        for _ in range(count):
            self.turns.decision(flow, partial(self.begun.append, flow))

    def ask(self, flow: str, count: int) -> list[asyncio.Task[None]]:
        self._expected += count
        return [asyncio.create_task(self._request(flow)) for _ in range(count)]

    def give_up(self, requests: list[asyncio.Task[None]]) -> None:
        self._expected -= len(requests)
        for task in requests:
            task.cancel()

    async def until_all_begun(self) -> list[list[str]]:
        """What began in each round from now on, until nothing is left."""
        rounds = []
        while len(self.begun) < self._expected:
            before = len(self.begun)
            await asyncio.sleep(0)
            if len(self.begun) > before:
                rounds.append(self.begun[before:])
        return rounds

    async def _request(self, flow: str) -> None:
        await self.turns.request(flow)
        self.begun.append(flow)


async def test_a_few_begin_in_each_round() -> None:
    work = Rounds()
    work.decide("a", 3 * PER_ROUND)
    assert len(work.begun) == PER_ROUND
    rounds = await work.until_all_begun()
    assert list(map(len, rounds)) == [PER_ROUND, PER_ROUND]


async def test_decisions_do_not_stand_behind_what_users_ask_for() -> None:
    work = Rounds()
    work.ask("user", 3 * PER_ROUND)
    await asyncio.sleep(0)
    work.decide("queue", 3 * PER_ROUND)
    await work.until_all_begun()
    # The first that asked began before anybody knew of the decisions; the last of what was decided does not wait for
    # the last of what was asked.
    half = PER_ROUND // 2
    assert work.begun[:PER_ROUND] == ["user"] * PER_ROUND
    for start in range(PER_ROUND, 5 * PER_ROUND, PER_ROUND):
        assert work.begun[start : start + PER_ROUND].count("queue") == half
    assert work.begun[5 * PER_ROUND :] == ["queue"] * PER_ROUND


async def test_the_storm_of_one_namespace_does_not_delay_the_others() -> None:
    work = Rounds()
    work.decide("storm", 20 * PER_ROUND)
    work.decide("calm", 1)
    rounds = await work.until_all_begun()
    assert "calm" in rounds[0]


async def test_who_had_nothing_to_do_comes_before_all_who_are_in_the_middle_of_much() -> None:
    work = Rounds()
    storms = [f"storm-{number}" for number in range(3 * PER_ROUND)]
    for storm in storms:
        work.decide(storm, 10)
    for _ in range(4):
        await asyncio.sleep(0)
    work.decide("calm", 1)
    rounds = await work.until_all_begun()
    assert "calm" in rounds[0]


async def test_who_comes_with_one_thing_at_a_time_is_not_always_new() -> None:
    work = Rounds()
    work.decide("before", PER_ROUND)
    work.decide("many", 2)
    for _ in range(10):
        for number in range(PER_ROUND):
            work.decide(f"one-{number}", 1)
        await asyncio.sleep(0)
    assert work.begun.count("many") == 2


async def test_work_that_was_given_up_does_not_begin() -> None:
    work = Rounds()
    work.decide("a", 2 * PER_ROUND)
    given_up = work.ask("b", PER_ROUND)
    await asyncio.sleep(0)
    work.give_up(given_up)
    work.decide("c", PER_ROUND)
    await work.until_all_begun()
    assert "b" not in work.begun
    assert work.begun.count("c") == PER_ROUND
