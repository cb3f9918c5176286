"""The cache: states from a reflector, states from own writes, and reads."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key, Kind
from kyu.kube import cache as cache_module
from kyu.kube.cache import Cache, Reflector
from kyu.kube.client import Client
from tests.support.servers import CONFIG_MAP, WORKLOAD, config_map, serving, workload

Heard = tuple[str | None, str | None]


def listening(cache: Cache) -> asyncio.Queue[Heard]:
    """Return a queue of the old and new data of each change."""
    heard: asyncio.Queue[Heard] = asyncio.Queue()

    def subscriber(kind: Kind, old: Json | None, new: Json | None) -> None:
        heard.put_nowait((old and old["data"]["k"], new and new["data"]["k"]))

    cache.subscribe(subscriber)
    return heard


@contextlib.asynccontextmanager
async def reflecting(client: Client, cache: Cache, kind: Kind) -> AsyncIterator[None]:
    task = asyncio.create_task(Reflector(client, cache, kind, "default").run())
    try:
        await asyncio.wait_for(cache.synced(), 60)
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def heard_next(heard: asyncio.Queue[Heard]) -> Heard:
    return await asyncio.wait_for(heard.get(), 60)


def state(name: str, version: int, text: str = "1") -> Json:
    return {"metadata": {"name": name, "namespace": "default", "resourceVersion": str(version)}, "data": {"k": text}}


def test_subscribers_get_their_kinds_in_order() -> None:
    cache = Cache()
    told: list[tuple[str, str]] = []

    def note(name: str) -> Callable[[Kind, Json | None, Json | None], None]:
        return lambda kind, old, new: told.append((name, kind.kind))

    cache.subscribe(note("maps"), CONFIG_MAP)
    cache.subscribe(note("all"))
    cache.subscribe(note("both"), WORKLOAD, CONFIG_MAP)
    cache.observe(CONFIG_MAP, state("a", 1))
    cache.observe(WORKLOAD, state("a", 2))
    cache.subscribe(note("late"), WORKLOAD)
    cache.observe(WORKLOAD, state("a", 3))
    assert told == [
        ("maps", "ConfigMap"),
        ("all", "ConfigMap"),
        ("both", "ConfigMap"),
        *[("all", "Workload"), ("both", "Workload")] * 2,
        ("late", "Workload"),
    ]


async def test_a_reflector_tells_every_change_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        await client.create(CONFIG_MAP, config_map("a"))
        cache = Cache()
        heard = listening(cache)
        async with reflecting(client, cache, CONFIG_MAP):
            assert await heard_next(heard) == (None, "1")
            await client.patch(CONFIG_MAP, Key("default", "a"), {"data": {"k": "2"}})
            assert await heard_next(heard) == ("1", "2")
            await client.delete(CONFIG_MAP, Key("default", "a"))
            assert await heard_next(heard) == ("2", None)
            assert cache.find_json(CONFIG_MAP, Key("default", "a")) is None


async def test_a_list_of_several_pages_is_one_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kyu.kube.client.PAGE", 3)
    async with serving(tmp_path) as (_, client):
        for i in range(8):
            await client.create(CONFIG_MAP, config_map(f"m-{i}"))
        cache = Cache()
        async with reflecting(client, cache, CONFIG_MAP):
            assert len(cache.list_json(CONFIG_MAP)) == 8


async def test_after_410_the_list_is_read_again_and_what_was_missed_is_told(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        for name in ("stays", "goes"):
            await client.create(CONFIG_MAP, config_map(name))
        cache = Cache()
        heard = listening(cache)
        reflector = Reflector(client, cache, CONFIG_MAP, "default")
        task = asyncio.create_task(reflector.run())
        await asyncio.wait_for(cache.synced(), 60)
        assert [await heard_next(heard) for _ in range(2)] == [(None, "1"), (None, "1")]
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await client.delete(CONFIG_MAP, Key("default", "goes"))
        await client.patch(CONFIG_MAP, Key("default", "stays"), {"data": {"k": "2"}})
        api.store.compact(api.store.version)
        await api.store.flush()
        task = asyncio.create_task(reflector.run())
        try:
            assert [await heard_next(heard) for _ in range(2)] == [("1", "2"), ("1", None)]
        finally:
            task.cancel()


async def test_a_watch_goes_on_where_it_was_cut(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        await client.create(CONFIG_MAP, config_map("a"))
        cache = Cache()
        heard = listening(cache)
        async with reflecting(client, cache, CONFIG_MAP):
            assert await heard_next(heard) == (None, "1")
            for text in "234":
                api.hub.close_all("configmaps")
                await client.patch(CONFIG_MAP, Key("default", "a"), {"data": {"k": text}})
            assert [await heard_next(heard) for _ in range(3)] == [("1", "2"), ("2", "3"), ("3", "4")]


def test_an_older_state_never_replaces_a_newer_one() -> None:
    cache = Cache()
    cache.observe(CONFIG_MAP, state("a", 5, "new"))
    cache.observe(CONFIG_MAP, state("a", 4, "old"))
    assert cache.list_json(CONFIG_MAP)[0]["data"]["k"] == "new"


def test_the_late_answer_of_a_write_does_not_bring_back_a_deleted_object() -> None:
    cache = Cache()
    cache.observe(CONFIG_MAP, state("a", 5))
    cache.forget(CONFIG_MAP, state("a", 7))
    cache.observe(CONFIG_MAP, state("a", 6))
    assert cache.list_json(CONFIG_MAP) == []
    cache.observe(CONFIG_MAP, state("a", 8))
    assert len(cache.list_json(CONFIG_MAP)) == 1


def test_objects_missing_in_a_list_are_gone_unless_newer_than_the_list() -> None:
    cache = Cache()
    cache.observe(CONFIG_MAP, state("old", 3))
    cache.observe(CONFIG_MAP, state("just-written", 9))
    cache.replace(CONFIG_MAP, [state("listed", 4)], "8")
    assert sorted(obj["metadata"]["name"] for obj in cache.list_json(CONFIG_MAP)) == ["just-written", "listed"]


def test_deletions_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "REMEMBERED_DELETIONS", 2)
    cache = Cache()
    for name in "abc":
        cache.observe(CONFIG_MAP, state(name, 1))
        cache.forget(CONFIG_MAP, state(name, 5))
    cache.observe(CONFIG_MAP, state("a", 4))
    cache.observe(CONFIG_MAP, state("c", 4))
    assert [obj["metadata"]["name"] for obj in cache.list_json(CONFIG_MAP)] == ["a"]


def test_objects_are_found_by_their_controller_and_typed_once() -> None:
    cache = Cache()
    body = {"apiVersion": WORKLOAD.api_version, "kind": "Workload", **workload("w")}
    body["metadata"] |= {"resourceVersion": "3", "uid": "u", "managedFields": [{"manager": "x"}]}
    body["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job-uid", "controller": True}
    ]
    cache.observe(WORKLOAD, body)
    assert [obj["metadata"]["name"] for obj in cache.owned_by(WORKLOAD, "job-uid")] == ["w"]
    found = cache.get(Workload, Key("default", "w"))
    assert found is not None
    assert found is cache.list(Workload, "default")[0]
    assert found.spec.queue_name == "main"
    assert "managedFields" not in cache.list_json(WORKLOAD)[0]["metadata"]
    cache.forget(WORKLOAD, {**body, "metadata": {**body["metadata"], "resourceVersion": "4"}})
    assert list(cache.owned_by(WORKLOAD, "job-uid")) == []
