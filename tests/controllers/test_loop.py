"""The loop of all controllers: keys, retries, timers, and the end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable
from datetime import UTC, datetime, timedelta

import pytest

from kyu.api.actions import Action, Event, View, WakeAt
from kyu.api.core import Namespace
from kyu.api.meta import Key, Ref
from kyu.controllers import loop as loop_module
from kyu.controllers.loop import Controller, Loop, Watch
from kyu.kube.errors import Conflict
from tests.support.memory_view import MemoryView

KEY = Key("", "a")
TOLD = Event(Ref(Namespace.KIND, KEY), "Normal", "Planned", "")


class Recorder:
    """A plan that acts once for each entry of ``answers``, and a writer that fails a given number of times."""

    def __init__(self, *answers: list[Action], failures: int = 0) -> None:
        self.answers = list(answers)
        self.failures = failures
        self.planned = 0
        self.written: list[Action] = []
        self.done = asyncio.Event()

    def plan(self, view: View, key: Key, now: datetime) -> list[Action]:
        self.planned += 1
        if self.failures:
            return self.answers[0]
        return self.answers.pop(0) if self.answers else []

    async def write(self, actions: list[Action]) -> None:
        if self.failures:
            self.failures -= 1
            raise Conflict(409, "Conflict", "the object has been modified")
        self.written += actions
        self.done.set()

    def loop(self) -> Loop:
        rows = [Controller("row", self.plan, (Watch(Namespace.KIND, lambda view, obj: (KEY,)),))]
        return Loop(MemoryView(), self.write, rows, lambda: datetime.now(UTC))


async def run(recorder: Recorder) -> None:
    """Run the loop with one change until something was written."""
    loop = recorder.loop()
    task = asyncio.create_task(loop.run())
    loop.changed(Namespace.KIND, None, {"metadata": {"name": "a"}})
    async with asyncio.timeout(60):
        await recorder.done.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_change_is_planned_and_written() -> None:
    recorder = Recorder([TOLD])
    await run(recorder)
    assert recorder.written == [TOLD]


async def test_a_conflict_is_planned_again() -> None:
    recorder = Recorder([TOLD], failures=3)
    await run(recorder)
    assert recorder.planned == 4


async def test_a_plan_that_asks_to_be_woken_is_asked_again() -> None:
    recorder = Recorder([WakeAt(datetime.now(UTC) + timedelta(milliseconds=50))], [TOLD])
    await run(recorder)
    assert recorder.planned == 2


async def test_a_wake_up_that_a_later_answer_does_not_ask_for_is_forgotten() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    planned: list[str] = []
    turn, written = asyncio.Event(), asyncio.Event()

    def plan(view: View, key: Key, at: datetime) -> list[Action]:
        planned.append(key.name)
        turn.set()
        if key.name == "last":
            return [TOLD]
        return [WakeAt(now + timedelta(seconds=10))] if len(planned) == 1 else []

    async def write(actions: list[Action]) -> None:
        written.set()

    rows = [Controller("row", plan, (Watch(Namespace.KIND, lambda view, obj: (Key("", obj["metadata"]["name"]),)),))]
    clock = [now]
    loop = Loop(MemoryView(), write, rows, lambda: clock[0])
    task = asyncio.create_task(loop.run())
    async with asyncio.timeout(60):
        for _ in range(2):
            turn.clear()
            loop.changed(Namespace.KIND, None, {"metadata": {"name": "a"}})
            await turn.wait()
        clock[0] = now + timedelta(seconds=20)
        loop.changed(Namespace.KIND, None, {"metadata": {"name": "last"}})
        await written.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert planned == ["a", "a", "last"]


@pytest.mark.parametrize(
    ("due_in", "step"),
    [(timedelta(hours=1), timedelta(hours=2)), (timedelta(minutes=1), timedelta(hours=-2))],
    ids=["forward", "back"],
)
async def test_timers_fire_when_the_clock_is_set_back(
    due_in: timedelta, step: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "LONGEST_SLEEP_SECONDS", 0.01)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    clock, recorder = [start], Recorder([WakeAt(start + due_in)], [TOLD])
    rows = [Controller("row", recorder.plan, (Watch(Namespace.KIND, lambda view, obj: (KEY,)),))]
    loop = Loop(MemoryView(), recorder.write, rows, lambda: clock[0])
    task = asyncio.create_task(loop.run())
    loop.changed(Namespace.KIND, None, {"metadata": {"name": "a"}})
    async with asyncio.timeout(60):
        while not recorder.planned:  # noqa: ASYNC110
            await asyncio.sleep(0)
        clock[0] = start + step
        await recorder.done.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert recorder.planned == 2


async def test_a_write_that_fails_unforeseen_stops_no_other_and_is_tried_again() -> None:
    written: list[str] = []
    all_done = asyncio.Event()
    faults = iter([ValueError("a fault of ours")])

    def write(actions: list[Action]) -> Awaitable[None]:
        """Raise at the first call."""
        for fault in faults:
            raise fault
        return note(actions)

    async def note(actions: list[Action]) -> None:
        written.extend(action.regarding.key.name for action in actions if isinstance(action, Event))
        if len(written) == 2:
            all_done.set()

    loop = Loop(MemoryView(), write, [telling()], lambda: datetime.now(UTC))
    async with running(loop, "a", "b"):
        await all_done.wait()
    assert written == ["b", "a"]


async def test_only_so_many_are_written_at_the_same_time() -> None:
    free, full, all_done = asyncio.Event(), asyncio.Event(), asyncio.Event()
    now = most = done = 0

    async def write(actions: list[Action]) -> None:
        nonlocal now, most, done
        now += 1
        most = max(most, now)
        if now == 2:
            full.set()
        await free.wait()
        now, done = now - 1, done + 1
        if done == 5:
            all_done.set()

    loop = Loop(MemoryView(), write, [telling()], lambda: datetime.now(UTC), workers=2)
    async with running(loop, *"abcde"):
        await full.wait()
        # More rounds of the event loop, in which further writes would begin.
        for _ in range(10):
            await asyncio.sleep(0)
        free.set()
        await all_done.wait()
    assert most == 2


def telling() -> Controller:
    """Return a row that records an event about each object whenever it is planned."""

    def plan(view: View, key: Key, now: datetime) -> list[Action]:
        return [Event(Ref(Namespace.KIND, key), "Normal", "Planned", "")]

    return Controller("row", plan, (Watch(Namespace.KIND),))


@contextlib.asynccontextmanager
async def running(loop: Loop, *names: str) -> AsyncIterator[None]:
    """Run the loop after objects of these names have come."""
    task = asyncio.create_task(loop.run())
    for name in names:
        loop.changed(Namespace.KIND, None, {"metadata": {"name": name}})
    try:
        async with asyncio.timeout(60):
            yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("between", range(4))
@pytest.mark.parametrize("before", range(4))
async def test_a_cancellation_is_heard_whatever_happens_at_the_same_time(before: int, between: int) -> None:
    recorder = Recorder()
    loop = recorder.loop()
    task = asyncio.create_task(loop.run())
    for _ in range(before):
        await asyncio.sleep(0)
    loop.changed(Namespace.KIND, None, {"metadata": {"name": "a"}})
    for _ in range(between):
        await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=60)
    assert done, "the loop goes on"


async def test_a_key_whose_plan_takes_long_rests_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "LONG_PLAN_SECONDS", 0.0)
    monkeypatch.setattr(loop_module, "RESTS_PER_PLAN", 1e9)
    monkeypatch.setattr(loop_module, "LONGEST_REST_SECONDS", 3600.0)
    planned: list[str] = []
    turn = asyncio.Event()

    def plan(view: View, key: Key, at: datetime) -> list[Action]:
        planned.append(key.name)
        turn.set()
        return []

    async def write(actions: list[Action]) -> None:
        raise AssertionError("nothing is to be written")

    rows = [Controller("row", plan, (Watch(Namespace.KIND),), is_paced=True)]
    loop = Loop(MemoryView(), write, rows, lambda: datetime.now(UTC))
    task = asyncio.create_task(loop.run())
    for name in ("slow", "slow", "other", "slow", "last"):
        turn.clear()
        loop.changed(Namespace.KIND, None, {"metadata": {"name": name}})
        if name != "slow" or not planned:
            async with asyncio.timeout(60):
                await turn.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert planned == ["slow", "other", "last"]


async def test_other_tasks_run_after_some_milliseconds_of_plans() -> None:
    planned = 0
    # The number of plans that other tasks of the process have seen.
    seen = set[int]()

    def plan(view: View, key: Key, now: datetime) -> list[Action]:
        nonlocal planned
        ends = time.perf_counter() + loop_module.BATCH_SECONDS
        while time.perf_counter() < ends:
            pass
        planned += 1
        return []

    async def write(actions: list[Action]) -> None:
        raise AssertionError(actions)

    loop = Loop(MemoryView(), write, [Controller("row", plan, ())], lambda: datetime.now(UTC))
    for number in range(20):
        loop.again(("row", Key("", f"k-{number}")))
    task = asyncio.create_task(loop.run())
    async with asyncio.timeout(60):
        while planned < 20:
            await asyncio.sleep(0)
            seen.add(planned)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert set(range(1, 21)) <= seen
