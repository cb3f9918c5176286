"""Watches of clients in the same process, which receive events by calls."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from kyu.api.meta import Json, Key, Kind
from kyu.kube import errors
from kyu.kube.cache import Cache
from tests.support.servers import CONFIG_MAP, WORKLOAD, Followed, config_map, following, serving, started, workload

KEY = Key("default", "a")


class Faulty(Followed):
    def tell(self, type_: str, obj: Json) -> None:
        super().tell(type_, obj)
        raise ValueError("the callback failed")


async def test_followers_receive_a_change_before_its_writer_is_answered(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client), following(api, client, CONFIG_MAP) as (one,):
        await client.create(CONFIG_MAP, config_map("a"))
        assert one.names == [("ADDED", "a")]
        await client.patch(CONFIG_MAP, KEY, {"data": {"k": "2"}})
        await client.delete(CONFIG_MAP, KEY)
        assert one.names == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


async def test_past_events_come_before_new_ones(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        _, version = await client.list(CONFIG_MAP)
        for name in "ab":
            await client.create(CONFIG_MAP, config_map(name))
        one = Followed(client, CONFIG_MAP, version)
        await asyncio.gather(*(client.create(CONFIG_MAP, config_map(name)) for name in "cd"))
        assert one.names == [("ADDED", name) for name in "abcd"]
        api.hub.close_all("configmaps")
        await one.task
        assert one.names[4:] == [("BOOKMARK", "")], "the last word is how far the watch has come"


async def test_a_failing_follower_is_removed_without_effect_on_others(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        version = str(api.store.version)
        before, faulty, after = (type_(client, CONFIG_MAP, version) for type_ in (Followed, Faulty, Followed))
        async with started(api, before, faulty, after):
            await asyncio.gather(*(client.create(CONFIG_MAP, config_map(name)) for name in "abc"))
            with pytest.raises(ValueError, match="the callback failed"):
                await faulty.task
            assert len(faulty.told) == 1
            assert before.names == after.names == [("ADDED", name) for name in "abc"]


async def test_a_forgotten_version_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        for name in "ab":
            await client.create(CONFIG_MAP, config_map(name))
        await client.delete(CONFIG_MAP, KEY)
        api.store.compact(api.store.version)
        await api.store.flush()
        one = Followed(client, CONFIG_MAP, "1")
        with pytest.raises(errors.Gone):
            await one.task
        assert one.told == []


async def test_a_kind_that_is_not_served_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        one = Followed(client, Kind("unserved.dev", "v1", "Nothing", "nothings"), "1")
        with pytest.raises(errors.NotFound):
            await one.task


async def test_all_are_shown_one_object_and_caches_leave_it_as_it_is(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client), following(api, client, CONFIG_MAP, CONFIG_MAP) as (one, other):
        created = await client.create(CONFIG_MAP, config_map("a"))
        ((first, shown),) = one.told
        ((_, again),) = other.told
        assert first == "ADDED"
        assert shown is again
        assert shown == created
        cache = Cache()
        cache.observe(CONFIG_MAP, shown)
        kept = cache.find_json(CONFIG_MAP, KEY)
        assert kept is not None
        assert "managedFields" not in kept["metadata"]
        assert shown == created, "what is shared stays as it was"


async def test_a_follower_is_shown_the_version_it_asked_for(tmp_path: Path) -> None:
    """The object of a write is shared only with followers of the same version of the kind."""
    older = msgspec.structs.replace(WORKLOAD, version="v1beta1")
    async with serving(tmp_path) as (api, client), following(api, client, WORKLOAD, older) as all_:
        await client.create(WORKLOAD, workload("w"))
        shown = [obj["apiVersion"] for one in all_ for obj in one.objects]
        assert shown == ["kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1"]


@pytest.mark.parametrize("kind", [CONFIG_MAP, WORKLOAD])
async def test_read_only_answers_are_shared_with_followers(tmp_path: Path, kind: Kind) -> None:
    body = config_map("a") if kind is CONFIG_MAP else workload("a")
    async with serving(tmp_path) as (api, client), following(api, client, kind) as (one,):
        created = await client.add(kind, body)
        copied = await client.patch(kind, KEY, {"metadata": {"labels": {"a": "b"}}})
        patched = await client.merge(kind, KEY, {"metadata": {"labels": {"a": "c"}}})
        seen = one.objects
        assert created is seen[0]
        assert copied == seen[1]
        assert copied is not seen[1]
        assert patched is seen[2]
        assert patched == await client.get(kind, KEY)
        with pytest.raises(errors.AlreadyExists):
            await client.add(kind, body)
