"""The shell of the engine: decisions whose writes are refused, or overlap."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from kyu.api.actions import Action, Patch
from kyu.api.core import LimitRange
from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key, Object, find_condition, is_true
from kyu.controllers.live_view import LiveView
from kyu.controllers.scheduler import Scheduler
from kyu.engine import reasons
from kyu.engine.reasons import Untried
from kyu.kube.cache import Cache
from kyu.kube.errors import Conflict
from kyu.write_fairness import WriteFairness
from tests.support import builders
from tests.support.memory_view import merged
from tests.support.planes import settings

LOW, HIGH = Key("default", "low"), Key("default", "high")


class World:
    """Objects in a cache, a scheduler on them, and a writer that calls ``before`` first."""

    def __init__(self) -> None:
        self._versions = itertools.count(1)
        self._changed = asyncio.Event()
        self.cache = Cache()
        view = LiveView(self.cache, settings(featureGates={"UnadmittedWorkloadsObservability": True}), lambda: None)
        self._scheduler = Scheduler(
            view, self.write, lambda: datetime.now(UTC), lambda *queue: None, CollectorRegistry(), 64, WriteFairness()
        )
        self.cache.subscribe(self._scheduler.changed)
        self.before: Callable[[Patch], asyncio.Event | None] = lambda patch: None
        self.conflicts = 0
        for obj in (
            builders.namespace(),
            builders.flavor("f"),
            builders.cluster_queue("main", {"f": {"cpu": 1}}, preemption={"withinClusterQueue": "LowerPriority"}),
            builders.local_queue("main"),
        ):
            self.put(obj)

    def put(self, obj: Object) -> None:
        self._observe(obj, builders.codec_json(obj))

    def _observe(self, like: Object, body: Json) -> None:
        metadata = {**body["metadata"], "resourceVersion": str(next(self._versions))}
        self.cache.observe(like.KIND, {**body, "metadata": metadata})
        self._changed.set()

    def remove(self, key: Key) -> None:
        raw = self.cache.find_json(Workload.KIND, key)
        assert raw is not None
        metadata = {**raw["metadata"], "resourceVersion": str(next(self._versions))}
        self.cache.forget(Workload.KIND, {**raw, "metadata": metadata})

    async def write(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Patch) and action.ref.kind == Workload.KIND:
                if (until := self.before(action)) is not None:
                    await until.wait()
                key = action.ref.key
                typed, raw = self.cache.get(Workload, key), self.cache.find_json(Workload.KIND, key)
                assert typed is not None
                assert raw is not None
                if action.resource_version not in ("", raw["metadata"]["resourceVersion"]):
                    self.conflicts += 1
                    raise Conflict(409, "Conflict", "it has changed")
                self._observe(typed, merged(raw, action.patch))

    def is_true(self, key: Key, condition: str) -> bool:
        found = self.cache.get(Workload, key)
        return found is not None and is_true(found.status.conditions, condition)

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._scheduler.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def conditions(patch: Patch) -> set[str]:
    return {c["type"] for c in patch.patch["status"].get("conditions", ()) if c["status"] == "True"}


async def test_an_eviction_that_meets_a_conflict_is_decided_again() -> None:
    world = World()
    refused: list[Patch] = []

    def refuse_first_eviction(patch: Patch) -> None:
        if "Evicted" in conditions(patch) and not refused:
            refused.append(patch)
            raise Conflict(409, "Conflict", "the object has been modified")

    world.before = refuse_first_eviction
    async with world.running():
        world.put(builders.workload("low", cpu=1))
        await world.until(lambda: world.is_true(LOW, "Admitted"))
        world.put(builders.workload("high", cpu=1, priority=5))
        await world.until(lambda: world.is_true(LOW, "Evicted"))
    assert len(refused) == 1


class Faulty(World):
    """A world in which writes of one Workload fail with an unexpected exception."""

    def __init__(self) -> None:
        super().__init__()
        self.failed = asyncio.Event()

    def write(self, actions: list[Action]) -> Coroutine[Any, Any, None]:
        if any(isinstance(action, Patch) and action.ref.key == LOW for action in actions):
            self.failed.set()
            raise ValueError("a fault of ours")
        return super().write(actions)


async def test_a_fault_in_one_write_stops_no_other() -> None:
    world = Faulty()
    async with world.running():
        world.put(builders.workload("low", cpu=1))
        await world.failed.wait()
        world.put(builders.workload("high", cpu=1, priority=5))
        await world.until(lambda: world.is_true(HIGH, "Admitted"))
    assert not world.is_true(LOW, "QuotaReserved")


async def test_a_victim_whose_admission_is_on_its_way_is_evicted_once_that_is_written() -> None:
    world = World()
    asked, written = asyncio.Event(), asyncio.Event()

    def hold_admission(patch: Patch) -> asyncio.Event | None:
        if patch.ref.key == LOW and "Admitted" in conditions(patch) and "Evicted" not in conditions(patch):
            asked.set()
            return written
        return None

    world.before = hold_admission
    async with world.running():
        world.put(builders.workload("low", cpu=1))
        await asked.wait()
        world.put(builders.workload("high", cpu=1, priority=5))
        # The reason of the pending Workload is written after the cycle that chose the victim.
        await world.until(lambda: has_reason(world, HIGH))
        assert not world.is_true(LOW, "Admitted")
        written.set()
        await world.until(lambda: world.is_true(LOW, "Evicted"))
        # It has no owner, so the eviction releases its quota in the same write.
        await world.until(lambda: world.is_true(HIGH, "Admitted"))
    assert not world.is_true(LOW, "QuotaReserved")


async def test_a_victim_whose_admission_fails_is_not_evicted() -> None:
    world = World()
    asked, touched = asyncio.Event(), asyncio.Event()

    def hold_admission(patch: Patch) -> asyncio.Event | None:
        assert "Evicted" not in conditions(patch)
        if patch.ref.key == LOW and not touched.is_set():
            asked.set()
            return touched
        return None

    world.before = hold_admission
    async with world.running():
        world.put(builders.workload("low", cpu=1))
        await asked.wait()
        world.put(builders.workload("high", cpu=1, priority=5))
        await world.until(lambda: has_reason(world, HIGH))
        world.put(builders.workload("low", cpu=1, annotations={"touched": "by a user"}))
        touched.set()
        await world.until(lambda: world.is_true(HIGH, "Admitted"))
    assert not world.is_true(LOW, "QuotaReserved")


async def test_an_admission_waits_for_the_reason_that_is_being_written() -> None:
    world = World()
    asked, told = asyncio.Event(), asyncio.Event()

    def hold_reason(patch: Patch) -> asyncio.Event | None:
        if patch.ref.key != LOW or conditions(patch):
            return None
        asked.set()
        return told

    world.before = hold_reason
    async with world.running():
        world.put(builders.workload("high", cpu=1, priority=5))
        await world.until(lambda: world.is_true(HIGH, "Admitted"))
        world.put(builders.workload("low", cpu=1))
        await asked.wait()
        world.remove(HIGH)
        # Rounds of the event loop in which the cycle runs and its admission begins.
        for _ in range(20):
            await asyncio.sleep(0)
        told.set()
        await world.until(lambda: world.is_true(LOW, "Admitted"))
    assert world.conflicts == 0


def has_reason(world: World, key: Key) -> bool:
    found = world.cache.get(Workload, key)
    return found is not None and any(c.type == "QuotaReserved" for c in found.status.conditions)


async def test_a_changed_limit_range_applies_to_pending_workloads() -> None:
    def limit(most: str) -> LimitRange:
        spec = {"limits": [{"type": "Container", "max": {"cpu": most}}]}
        return msgspec.convert({"metadata": {"name": "limits", "namespace": "default"}, "spec": spec}, LimitRange)

    world = World()
    async with world.running():
        world.put(limit("500m"))
        world.put(builders.workload("low", cpu=1))
        await world.until(lambda: has_reason(world, LOW))
        assert not world.is_true(LOW, "Admitted")
        world.put(limit("1"))
        await world.until(lambda: world.is_true(LOW, "Admitted"))


def reason(world: World, name: str) -> str:
    found = world.cache.get(Workload, Key("default", name))
    told = find_condition(found.status.conditions, "QuotaReserved") if found is not None else None
    return told.reason if told is not None else ""


async def test_an_untried_workload_gets_the_reason_of_an_equivalent_one() -> None:
    world = World()
    world.put(builders.cluster_queue("main", {"f": {"cpu": 1}}, queueingStrategy="StrictFIFO"))
    async with world.running():
        world.put(builders.workload("runs", cpu=1))
        await world.until(lambda: world.is_true(Key("default", "runs"), "Admitted"))
        world.put(builders.workload("next", cpu=1, priority=2))
        for name in ("large", "equal"):
            world.put(builders.workload(name, cpu=2))
        await world.until(lambda: [reason(world, name) for name in ("large", "equal")] == ["PendingEvaluation"] * 2)
        world.remove(Key("default", "runs"))
        await world.until(lambda: world.is_true(Key("default", "next"), "Admitted"))
        await world.until(lambda: {reason(world, name) for name in ("large", "equal")} == {"ExceedsMaxQuota"})


async def test_a_workload_left_untried_by_an_earlier_process_gets_a_reason_too() -> None:
    world = World()
    untried = {"type": "QuotaReserved", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    word, message = reasons.render(Untried())
    status = {"conditions": [{**untried, "reason": word, "message": message}]}
    for name in ("large", "equal", "alike"):
        world.put(builders.workload(name, cpu=2, status=status))
    async with world.running():
        everybody = ("large", "equal", "alike")
        await world.until(lambda: {reason(world, name) for name in everybody} == {"ExceedsMaxQuota"})
        # A queue was resumed, and its pending Workloads are marked to be tried again.
        world.put(builders.workload("alike", cpu=2, status=status))
        await world.until(lambda: reason(world, "alike") == "ExceedsMaxQuota")
