"""Deletion: dependents, namespaces, finalizers and their order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kyu.api.meta import Json, Key, Kind
from kyu.kube import errors
from kyu.kube.client import Client
from kyu.server.api import Api
from kyu.server.background.expiry import LIFETIME, Expiry
from tests.support.servers import CONFIG_MAP, JOB, NAMESPACE, POD, config_map, serving, until

EVENT = Kind("", "v1", "Event", "events")


def exists(api: Api, name: str, resource: str = "configmaps", namespace: str = "default") -> bool:
    return api.store.find(resource, namespace, name) is not None


async def owner_with_dependent(client: Client, *, blocks: bool = True) -> Json:
    owner = await client.create(CONFIG_MAP, config_map("owner"))
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": blocks,
    }
    await client.create(CONFIG_MAP, config_map("dependent", ownerReferences=[reference]))
    return owner


async def test_background_takes_the_dependents_along(tmp_path: Path) -> None:
    async with serving(tmp_path, controllers=True) as (api, client):
        await owner_with_dependent(client)
        await client.delete(CONFIG_MAP, Key("default", "owner"))
        assert not exists(api, "owner")
        await until(api, lambda: not exists(api, "dependent"))


async def test_foreground_waits_for_the_dependents(tmp_path: Path) -> None:
    async with serving(tmp_path, controllers=True) as (api, client):
        await owner_with_dependent(client)
        await client.patch(CONFIG_MAP, Key("default", "dependent"), {"metadata": {"finalizers": ["x.com/hold"]}})
        marked = await client.delete(CONFIG_MAP, Key("default", "owner"), propagation="Foreground")
        assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
        await until(api, lambda: b"deletionTimestamp" in _value(api, "dependent"))
        assert exists(api, "owner")
        await client.patch(CONFIG_MAP, Key("default", "dependent"), {"metadata": {"finalizers": None}})
        await until(api, lambda: not exists(api, "owner"))
        assert not exists(api, "dependent")


async def test_orphan_leaves_the_dependents_without_an_owner(tmp_path: Path) -> None:
    async with serving(tmp_path, controllers=True) as (api, client):
        await owner_with_dependent(client)
        await client.delete(CONFIG_MAP, Key("default", "owner"), propagation="Orphan")
        await until(api, lambda: not exists(api, "owner"))
        dependent = await client.get(CONFIG_MAP, Key("default", "dependent"))
        assert "ownerReferences" not in dependent["metadata"]


async def test_a_dependent_without_owner_is_deleted_also_after_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        await owner_with_dependent(client)
        await client.delete(CONFIG_MAP, Key("default", "owner"))
        assert exists(api, "dependent")
    async with serving(tmp_path, controllers=True) as (api, _):
        await until(api, lambda: not exists(api, "dependent"))


async def test_one_of_two_owners_goes_and_the_child_stays(tmp_path: Path) -> None:
    async with serving(tmp_path, controllers=True) as (api, client):
        owners = [await client.create(CONFIG_MAP, config_map(name)) for name in ("one", "two")]
        references = [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": o["metadata"]["name"], "uid": o["metadata"]["uid"]}
            for o in owners
        ]
        await client.create(CONFIG_MAP, config_map("child", ownerReferences=references))
        await client.delete(CONFIG_MAP, Key("default", "one"))
        await until(api, lambda: b'"name":"one"' not in _value(api, "child"))
        child = await client.get(CONFIG_MAP, Key("default", "child"))
        assert [reference["name"] for reference in child["metadata"]["ownerReferences"]] == ["two"]


async def test_a_namespace_takes_its_content_along(tmp_path: Path) -> None:
    async with serving(tmp_path, controllers=True) as (api, client):
        await client.create(NAMESPACE, {"metadata": {"name": "team"}})
        await client.create(CONFIG_MAP, config_map("a", "team"))
        await client.create(CONFIG_MAP, config_map("b", "team", finalizers=["x.com/hold"]))
        await client.delete(NAMESPACE, Key("", "team"))
        with pytest.raises(errors.Forbidden, match="being terminated"):
            await client.create(CONFIG_MAP, config_map("late", "team"))
        await until(api, lambda: not exists(api, "a", namespace="team"))
        assert exists(api, "team", "namespaces", "")
        await client.patch(CONFIG_MAP, Key("team", "b"), {"metadata": {"finalizers": None}})
        await until(api, lambda: not exists(api, "team", "namespaces", ""))


async def test_nothing_is_created_where_there_is_no_namespace(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        with pytest.raises(errors.NotFound, match='namespaces "nowhere" not found'):
            await client.create(CONFIG_MAP, config_map("a", "nowhere"))
        with pytest.raises(errors.Forbidden):
            await client.delete(NAMESPACE, Key("", "default"))


async def test_a_finalizer_holds_until_the_last_is_gone(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        key = Key("default", "a")
        await client.create(CONFIG_MAP, config_map("a", finalizers=["x.com/one", "x.com/two"]))
        await client.delete(CONFIG_MAP, key)
        with pytest.raises(errors.AlreadyExists, match="object is being deleted"):
            await client.create(CONFIG_MAP, config_map("a"))
        with pytest.raises(errors.Invalid, match="no new finalizers"):
            await client.patch(CONFIG_MAP, key, {"metadata": {"finalizers": ["x.com/three"]}})
        await client.patch(CONFIG_MAP, key, {"metadata": {"finalizers": ["x.com/two"]}})
        assert exists(api, "a")
        await client.patch(CONFIG_MAP, key, {"metadata": {"finalizers": None}})
        assert not exists(api, "a")


async def test_a_running_pod_gets_its_time_and_a_finished_one_needs_none(tmp_path: Path) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "n1", "terminationGracePeriodSeconds": 7}
    async with serving(tmp_path) as (api, client):
        for name in ("running", "finished"):
            await client.create(POD, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
        await client.patch(POD, Key("default", "finished"), {"status": {"phase": "Succeeded"}}, subresource="status")
        marked = await client.delete(POD, Key("default", "running"))
        assert marked["metadata"]["deletionGracePeriodSeconds"] == 7
        await client.delete(POD, Key("default", "finished"))
        assert not exists(api, "finished", "pods")
        await client.delete(POD, Key("default", "running"), grace_seconds=0)
        assert not exists(api, "running", "pods")


async def test_a_precondition_protects_the_successor(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        await client.create(CONFIG_MAP, config_map("a"))
        with pytest.raises(errors.Conflict, match="UID in the precondition"):
            await client.delete(CONFIG_MAP, Key("default", "a"), uid="another")
        assert exists(api, "a")


async def test_a_job_leaves_its_pods_unless_told_otherwise(tmp_path: Path) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    async with serving(tmp_path) as (api, client):
        await client.create(
            JOB, {"metadata": {"name": "j", "namespace": "default"}, "spec": {"template": template, "suspend": True}}
        )
        status, *_ = await api.serve("DELETE", "/apis/batch/v1/namespaces/default/jobs/j", {}, {}, b"")
        assert status == 200
        assert (await client.get(JOB, Key("default", "j")))["metadata"]["finalizers"] == ["orphan"]


async def test_events_go_after_an_hour(tmp_path: Path) -> None:
    def event(name: str, seen: datetime) -> Json:
        return {
            "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
            "lastTimestamp": seen.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    now = datetime.now(UTC)
    async with serving(tmp_path) as (api, client):
        await client.create(EVENT, event("news", now))
        await client.create(EVENT, event("history", now))
        await client.patch(EVENT, Key("default", "news"), {"lastTimestamp": _text(now + timedelta(minutes=30))})
        sweep: Callable[[], Awaitable[None]] = Expiry(api.objects, lambda: now + LIFETIME + timedelta(minutes=1)).sweep
        await sweep()
        assert exists(api, "news", "events")
        assert not exists(api, "history", "events")


def _value(api: Api, name: str) -> bytes:
    record = api.store.find("configmaps", "default", name)
    return record.value if record is not None else b""


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
