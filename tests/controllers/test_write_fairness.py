"""Write fairness: a limited number begins in each round, idle flows come first, and flows take turns."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest

from kyu.write_fairness import MOST_WAITING, PER_ROUND, ROUND_SECONDS, Full, WriteFairness


class Rounds:
    """Work with write fairness, and what has begun by the end of each round of the event loop."""

    def __init__(self) -> None:
        self.fairness = WriteFairness()
        self.begun: list[str] = []
        self._expected = 0

    def decide(self, flow: str, count: int) -> None:
        self._expected += count
        for _ in range(count):
            self.fairness.decision(flow, partial(self.begun.append, flow))

    def ask(self, flow: str, count: int) -> list[asyncio.Task[None]]:
        self._expected += count
        return [asyncio.create_task(self._request(flow)) for _ in range(count)]

    def give_up(self, requests: list[asyncio.Task[None]]) -> None:
        self._expected -= len(requests)
        for task in requests:
            task.cancel()

    async def until_all_begun(self) -> list[list[str]]:
        """Return what began in each round from now on, until nothing is left."""
        rounds = []
        while len(self.begun) < self._expected:
            before = len(self.begun)
            await asyncio.sleep(0)
            if len(self.begun) > before:
                rounds.append(self.begun[before:])
        return rounds

    async def _request(self, flow: str) -> None:
        await self.fairness.request(flow)
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
    # The first requests began before there were decisions; the last decision does not wait for the last request.
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


async def test_an_idle_flow_comes_before_busy_ones() -> None:
    work = Rounds()
    storms = [f"storm-{number}" for number in range(3 * PER_ROUND)]
    for storm in storms:
        work.decide(storm, 10)
    for _ in range(4):
        await asyncio.sleep(0)
    work.decide("calm", 1)
    rounds = await work.until_all_begun()
    assert "calm" in rounds[0]


async def test_a_flow_with_one_call_at_a_time_is_not_always_new() -> None:
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


async def work_for(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    await asyncio.sleep(0)


async def test_the_flow_that_has_used_least_comes_first_and_long_requests_are_few_in_a_round() -> None:
    work = Rounds()
    for _ in range(3):
        await work.fairness.charged("heavy", work_for(2 * ROUND_SECONDS))
        await work.fairness.charged("light", work_for(0))
    await asyncio.sleep(0)
    heavy = work.ask("heavy", PER_ROUND)
    await asyncio.sleep(0)
    work.ask("light", 2)
    rounds = await work.until_all_begun()
    assert work.begun[:6].count("light") == 2
    assert all(each.count("heavy") <= 1 for each in rounds)
    await asyncio.gather(*heavy)


async def test_requests_that_take_longer_than_before_are_not_all_in_one_round() -> None:
    fairness = WriteFairness()
    together: list[int] = []
    running = 0

    async def ask(flow: str) -> None:
        nonlocal running
        await fairness.request(flow)
        running += 1
        together.append(running)
        await fairness.charged(flow, work_for(2 * ROUND_SECONDS))

    async def count_rounds() -> None:
        nonlocal running
        while len(together) < PER_ROUND:
            running = 0
            await asyncio.sleep(0)

    # The first round is full, so these wait, and nothing is known of their flows.
    first = [asyncio.create_task(fairness.request("a")) for _ in range(PER_ROUND)]
    await asyncio.sleep(0)
    requests = [asyncio.create_task(ask(f"flow-{number % 4}")) for number in range(PER_ROUND)]
    async with asyncio.timeout(60):
        await asyncio.gather(count_rounds(), *first, *requests)
    assert max(together) == 1


async def test_what_is_charged_keeps_its_result_its_fault_and_its_cancellation() -> None:
    fairness = WriteFairness()

    async def answer() -> str:
        await asyncio.sleep(0)
        return "done"

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("broken")

    assert await fairness.charged("a", answer()) == "done"
    with pytest.raises(ValueError, match="broken"):
        await fairness.charged("a", fail())

    async def wait() -> None:
        await fairness.charged("a", asyncio.sleep(60))

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_flow_with_too_many_waiting_is_refused() -> None:
    fairness = WriteFairness()
    waiting = [asyncio.create_task(fairness.request("a")) for _ in range(PER_ROUND + MOST_WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(Full):
        await fairness.request("a")
    other = asyncio.create_task(fairness.request("b"))
    await asyncio.gather(other, *waiting)


async def nothing() -> None:
    """Use no time that counts."""


async def test_a_new_flow_that_is_charged_while_it_waits_loses_no_call() -> None:
    fairness = WriteFairness()
    before = [fairness.turn("new") for _ in range(2 * PER_ROUND)]
    after = [fairness.turn("new") for _ in range(2 * PER_ROUND)]
    async with asyncio.timeout(30):
        await asyncio.gather(*before, fairness.charged("new", nothing()), *after)


async def test_long_answers_of_one_flow_do_not_hold_up_another() -> None:
    """Each answer is made in slices that wait for their turn. Without a charge before their end they look free."""
    fairness = WriteFairness()
    slices, most = 0, 20 * PER_ROUND
    started = asyncio.Event()

    async def answer() -> None:
        nonlocal slices
        while slices < most:
            await work_for(ROUND_SECONDS / 2)
            slices += 1
            if slices == PER_ROUND:
                started.set()
            await fairness.turn("heavy")

    async def charged_answer() -> None:
        await fairness.charged("heavy", answer())

    await fairness.charged("light", work_for(ROUND_SECONDS / 10))
    answers = [asyncio.create_task(charged_answer()) for _ in range(3 * PER_ROUND)]
    async with asyncio.timeout(120):
        await started.wait()
        before = slices
        await fairness.request("light")
        waited, most = slices - before, 0
        await asyncio.gather(*answers)
    assert waited <= 6 * PER_ROUND
