"""Actions on a real server: an object as wanted already counts as success, and equal events are counted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kyu.api.actions import Apply, Create, Delete, Event, Patch
from kyu.api.meta import Key, Kind, Ref
from kyu.kube import errors
from kyu.kube.apply import EVENT, SAME_EVENT, Writer
from kyu.kube.cache import Cache
from tests.support.servers import CONFIG_MAP, config_map, serving

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MAP = Ref(CONFIG_MAP, Key("default", "a"))


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


async def test_an_answer_is_in_the_cache_before_the_next_action(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        cache = Cache()
        write = Writer(client, cache, Clock())
        await write([Create(CONFIG_MAP, config_map("a"))])
        known = cache.find_json(CONFIG_MAP, MAP.key)
        assert known is not None
        await write([Patch(MAP, {"data": {"k": "2"}}, resource_version=known["metadata"]["resourceVersion"])])
        known = cache.find_json(CONFIG_MAP, MAP.key)
        assert known is not None
        assert known["data"] == {"k": "2"}


async def test_created_before_and_gone_before_are_success(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        write = Writer(client, Cache(), Clock())
        await write([Create(CONFIG_MAP, config_map("a")), Create(CONFIG_MAP, config_map("a"))])
        await write([Delete(MAP), Delete(MAP)])
        assert await client.find(CONFIG_MAP, MAP.key) is None


async def test_a_patch_of_an_old_version_conflicts(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        write = Writer(client, Cache(), Clock())
        await client.create(CONFIG_MAP, config_map("a"))
        with pytest.raises(errors.Conflict):
            await write([Patch(MAP, {"data": {"k": "2"}}, resource_version="1")])


async def test_apply_creates_what_is_missing_under_its_manager(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        await Writer(client, Cache(), Clock())([Apply(CONFIG_MAP, config_map("a"), "planner")])
        made = await client.get(CONFIG_MAP, MAP.key)
        assert [entry["manager"] for entry in made["metadata"]["managedFields"]] == ["planner"]


async def test_an_object_that_waits_for_its_finalizers_stays_in_the_cache_with_its_mark(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        cache = Cache()
        write = Writer(client, cache, Clock())
        await write([Create(CONFIG_MAP, config_map("a", finalizers=["x.com/hold"])), Delete(MAP)])
        known = cache.find_json(CONFIG_MAP, MAP.key)
        assert known is not None
        assert known["metadata"]["deletionTimestamp"]


async def test_equal_events_are_one_with_a_count(tmp_path: Path) -> None:
    event = Event(MAP, "Warning", "Pending", "no quota", "uid")
    async with serving(tmp_path) as (_, client):
        clock = Clock()
        write = Writer(client, Cache(), clock)
        await write([event, event])
        await write.flush()
        clock.now += timedelta(minutes=1)
        await write([event, Event(MAP, "Normal", "Admitted", "runs", "uid")])
        await write.flush()
        events, _ = await client.list(EVENT, "default")
        counts = {each["reason"]: each["count"] for each in events}
        assert counts == {"Pending": 3, "Admitted": 1}
        pending = next(each for each in events if each["reason"] == "Pending")
        assert pending["lastTimestamp"] == "2026-01-01T00:01:00Z"
        assert pending["involvedObject"]["uid"] == "uid"
        clock.now += SAME_EVENT
        await write([event])
        await write.flush()
        assert len((await client.list(EVENT, "default"))[0]) == 3


async def test_an_event_that_cannot_be_written_undoes_nothing(tmp_path: Path) -> None:
    nowhere = Ref(Kind("", "v1", "Pod", "pods"), Key("nowhere", "p"))
    async with serving(tmp_path) as (_, client):
        await Writer(client, Cache(), Clock())(
            [Event(nowhere, "Normal", "A", "b"), Create(CONFIG_MAP, config_map("a"))]
        )
        assert await client.find(CONFIG_MAP, MAP.key) is not None
