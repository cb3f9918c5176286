"""Creates and patches of clients in the same process: the same writes, which have begun when the call returns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from kyu.api.meta import Json, Key, Kind
from kyu.kube import errors
from kyu.kube.client import Client
from kyu.kube.direct import Direct
from kyu.server.api import Api
from tests.server.test_store import full_disk
from tests.support.servers import CONFIG_MAP, WORKLOAD, config_map, following, serving, workload

KEY = Key("default", "a")
OLDER = msgspec.structs.replace(WORKLOAD, version="v1beta1")
UNSERVED = Kind("unserved.dev", "v1", "Nothing", "nothings")
STATUS: Json = {"status": {"requeueState": {"count": 1}}}


def comparable(obj: Json) -> Json:
    """Return the object without uid, version and times."""
    own = ("name", "uid", "resourceVersion", "creationTimestamp")
    metadata = {name: value for name, value in obj["metadata"].items() if name not in own}
    owners = [{**entry, "time": ""} for entry in metadata.pop("managedFields")]
    return {**obj, "metadata": metadata, "owners": owners}


def stored(api: Api, resource: str) -> bytes:
    """Return the object that the next write would read."""
    record = api.store.latest(resource, "default", "a")
    assert record is not None
    return record.value


async def test_the_write_has_begun_when_the_call_returns_and_is_answered_from_the_disk(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        await client.create(CONFIG_MAP, config_map("a"))
        async with following(api, client, CONFIG_MAP) as (followed,):
            answer = client.merge(CONFIG_MAP, KEY, {"data": {"k": "2"}})
            assert b'"k":"2"' in stored(api, "configmaps")
            assert (await client.get(CONFIG_MAP, KEY))["data"] == {"k": "1"}, "an unwritten change is not visible"
            merged = await answer
            assert merged == await client.get(CONFIG_MAP, KEY)
            assert merged is followed.objects[0]


@pytest.mark.parametrize(
    ("kind", "body", "patch"),
    [
        (CONFIG_MAP, config_map, {"data": {"k": None, "l": "2"}, "metadata": {"labels": {"x": "y"}}}),
        (WORKLOAD, workload, {"spec": {"priority": 7}}),
        (OLDER, workload, {"metadata": {"labels": {"x": "y"}}}),
        (WORKLOAD, workload, {"spec": {"queueName": "main"}}),
    ],
    ids=["built in", "custom", "converted", "nothing new"],
)
async def test_it_is_the_write_of_any_client(
    tmp_path: Path, kind: Kind, body: Callable[[str], Json], patch: Json
) -> None:
    async with serving(tmp_path) as (_, client):
        for name in ("a", "b"):
            await client.create(kind, body(name))
        other = await client.patch(kind, Key("default", "b"), patch)
        assert comparable(await client.merge(kind, KEY, patch)) == comparable(other)
        assert comparable(await client.get(kind, KEY)) == comparable(other)


async def test_a_create_has_begun_when_the_call_returns_and_is_answered_from_the_disk(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client), following(api, client, CONFIG_MAP) as (followed,):
        answer = client.add(CONFIG_MAP, config_map("a"))
        assert b'"k":"1"' in stored(api, "configmaps")
        assert await client.find(CONFIG_MAP, KEY) is None, "an unwritten change is not visible"
        added = await answer
        assert added == await client.get(CONFIG_MAP, KEY)
        assert added is followed.objects[0]


@pytest.mark.parametrize(
    ("kind", "body"),
    [(CONFIG_MAP, config_map), (WORKLOAD, workload), (OLDER, workload)],
    ids=["built in", "custom", "converted"],
)
async def test_it_is_the_create_of_any_client_also_when_the_same_spec_came_before(
    tmp_path: Path, kind: Kind, body: Callable[..., Json]
) -> None:
    async with serving(tmp_path) as (_, client):
        other = comparable(await client.create(kind, body("a")))
        for name in ("b", "c", "d"):
            assert comparable(await client.add(kind, body(name))) == other
            assert comparable(await client.get(kind, Key("default", name))) == other


async def test_an_added_object_is_copied(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        for name in ("a", "b", "c"):
            body = workload(name)
            body["metadata"]["labels"] = {"x": "y"}
            added = await client.add(WORKLOAD, body)
            body["metadata"]["labels"]["x"] = "z"
            body["spec"]["podSets"][0]["template"]["spec"]["containers"].clear()
            assert added["metadata"]["labels"] == {"x": "y"}
            assert added["spec"]["podSets"][0]["template"]["spec"]["containers"]


ODD = {**workload("a"), "metadata": {"name": "a", "namespace": "default", "labels": {"x": 7}}}
REVIEW = Kind("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (UNSERVED, workload("a")),
        (WORKLOAD, workload("there")),
        (WORKLOAD, workload("a", "nowhere")),
        (WORKLOAD, {**workload("a"), "spec": {"podSets": []}}),
        (WORKLOAD, {**workload("a"), "kind": "Job"}),
        (WORKLOAD, {"metadata": {"name": "a", "namespace": "default"}, "spec": 7}),
        (WORKLOAD, ODD),
        (WORKLOAD, workload("a", "")),
    ],
    ids=["no such kind", "there", "no such namespace", "rules", "another kind", "type", "metadata", "no namespace"],
)
async def test_a_create_is_refused_as_that_of_any_client(tmp_path: Path, kind: Kind, body: Json) -> None:
    async with serving(tmp_path) as (_, client):
        for name in ("there", "too"):
            await client.create(WORKLOAD, workload(name))
        with pytest.raises(errors.ApiError) as one:
            await client.create(kind, body)
        with pytest.raises(errors.ApiError) as other:
            await client.add(kind, body)
        if kind is WORKLOAD and body["metadata"]["namespace"]:
            assert type(other.value) is type(one.value)
            assert str(other.value) == str(one.value)
            assert other.value.details == one.value.details
        assert len((await client.list(WORKLOAD))[0]) == 2


async def test_reviews_cannot_be_added_in_process(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        before = api.store.next_version
        with pytest.raises(errors.ApiError, match="does not allow this method"):
            await client.add(REVIEW, {"metadata": {}, "spec": {}})
        assert api.store.next_version == before


async def test_a_status_is_written_as_by_any_client(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        for name in ("a", "b"):
            await client.create(WORKLOAD, workload(name))
        other = await client.patch(WORKLOAD, Key("default", "b"), STATUS, subresource="status")
        assert other["status"]["requeueState"] == {"count": 1}
        assert comparable(await client.merge(WORKLOAD, KEY, STATUS, subresource="status")) == comparable(other)


@pytest.mark.parametrize(
    ("kind", "name", "patch"),
    [
        (UNSERVED, "a", {}),
        (CONFIG_MAP, "gone", {"data": {}}),
        (WORKLOAD, "a", {"metadata": {"resourceVersion": "1"}, "spec": {"priority": 7}}),
        (WORKLOAD, "a", {"spec": {"podSets": []}}),
        (WORKLOAD, "a", {"spec": {"priority": "high"}}),
    ],
    ids=["no such kind", "no such object", "an older version", "against the rules", "of another type"],
)
async def test_it_is_refused_as_that_of_any_client(tmp_path: Path, kind: Kind, name: str, patch: Json) -> None:
    async with serving(tmp_path) as (api, client):
        await client.create(WORKLOAD, workload("a"))
        before = stored(api, "workloads.kueue.x-k8s.io")
        with pytest.raises(errors.ApiError) as one:
            await client.patch(kind, Key("default", name), patch)
        with pytest.raises(errors.ApiError) as other:
            await client.merge(kind, Key("default", name), patch)
        assert type(other.value) is type(one.value)
        if kind is not UNSERVED:
            assert str(other.value) == str(one.value)
            assert other.value.details == one.value.details
        assert stored(api, "workloads.kueue.x-k8s.io") == before


async def test_a_status_that_the_kind_does_not_have_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        await client.create(CONFIG_MAP, config_map("a"))
        with pytest.raises(errors.NotFound):
            await client.merge(CONFIG_MAP, KEY, {"status": {}}, subresource="status")


async def test_a_full_disk_is_an_error_to_retry(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        await client.create(CONFIG_MAP, config_map("a"))
        room = (tmp_path / "kyu.db-wal").stat().st_size + 10_000
        with full_disk(room), pytest.raises(errors.ApiError, match="the change could not be stored") as refused:
            await client.merge(CONFIG_MAP, KEY, {"data": {"k": "2" * 100_000}})
        assert refused.value.retry_after_seconds > 0
        assert (await client.merge(CONFIG_MAP, KEY, {"data": {"k": "3"}}))["data"] == {"k": "3"}


async def test_clients_with_write_fairness_wait_for_their_turn(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        await client.create(CONFIG_MAP, config_map("a"))
        seen: list[bytes] = []

        async def turn() -> None:
            seen.append(stored(api, "configmaps"))

        before = stored(api, "configmaps")
        answer = Client(Direct(api, turn)).merge(CONFIG_MAP, KEY, {"data": {"k": "2"}})
        assert stored(api, "configmaps") == before
        assert (await answer)["data"] == {"k": "2"}
        assert seen == [before]
