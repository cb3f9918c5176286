"""Status writes: the short path leads to the same object as the full path."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kyu.api.meta import Json, Key
from kyu.kube.client import Client
from kyu.kube.errors import ApiError
from kyu.server.decode.body import APPLY_PATCH, MERGE_PATCH
from kyu.server.options import WriteOptions
from kyu.server.paths import Target
from kyu.server.verbs.status_writes import StatusWrites
from tests.support.servers import WORKLOAD, ask, following, serving, workload

# A write of the status ignores labels. With labels, a body takes the full path.
IGNORED = {"labels": {"ignored": "yes"}}
TIME = "2026-01-01T12:00:00Z"
# Entries of managedFields are sorted by time: the second must not change between two writes.
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def condition(type_: str, status: str = "True", message: str = "") -> Json:
    return {"type": type_, "status": status, "reason": "Test", "message": message, "lastTransitionTime": TIME}


def admission(queue: str = "main") -> Json:
    assignment = {"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}, "count": 1}
    return {"clusterQueue": queue, "podSetAssignments": [assignment]}


RESERVED = {"conditions": [condition("QuotaReserved")], "admission": admission()}
Step = tuple[str, Json]
HISTORIES: dict[str, list[Step]] = {
    "applied": [("apply one", RESERVED)],
    "applied again": [("apply one", RESERVED), ("apply one", RESERVED)],
    "less applied": [("apply one", RESERVED), ("apply one", {"conditions": [condition("QuotaReserved", "False")]})],
    "two appliers": [("apply one", RESERVED), ("apply two", {"conditions": [condition("PodsReady")]})],
    "taken by force": [("apply one", RESERVED), ("apply two", {"conditions": [condition("QuotaReserved", "False")]})],
    "patched": [("patch", {"conditions": [condition("QuotaReserved", "False")]})],
    "patched, then applied": [("patch", {"conditions": [condition("PodsReady")]}), ("apply one", RESERVED)],
    "applied, then patched": [("apply one", RESERVED), ("patch", {"requeueState": {"count": 1}})],
    "patched with null": [("apply one", RESERVED), ("patch", {"admission": None, "conditions": None})],
    "filled in": [("patch", {"admissionChecks": [{"name": "c", "state": "Pending", "message": ""}]})],
    "unknown field": [("patch", {"bogus": 1, "requeueState": {"count": 2}})],
    "unknown field applied": [("apply one", {"bogus": 1})],
    "wrong type": [("patch", {"requeueState": 3}), ("apply one", {"conditions": "none"})],
    "twice the same item": [("apply one", {"conditions": [condition("A"), condition("A")]})],
    "against the schema": [("patch", {"conditions": [{"type": "A", "status": "Perhaps"}]})],
    "against a rule": [("apply one", {**RESERVED, "admission": {"clusterQueue": "main", "podSetAssignments": []}})],
    "immutable": [("apply one", RESERVED), ("patch", {"admission": admission("other")})],
    "nothing": [("patch", {}), ("apply one", {})],
}


async def write(client: Client, name: str, step: Step, extra: Json) -> Any:
    """Return the answer of one step, or its error."""
    how, status = step
    try:
        if how == "patch":
            body = {"status": status, **({"metadata": extra} if extra else {})}
            return await client.patch(WORKLOAD, Key("default", name), body, subresource="status")
        metadata = {"name": name, "namespace": "default", **extra}
        applied = {"metadata": metadata, "status": status}
        return await client.apply(WORKLOAD, applied, manager=how, subresource="status")
    except Exception as error:
        return type(error), str(error).replace(name, "NAME")


def comparable(answer: Any) -> Any:
    if not isinstance(answer, dict):
        return answer
    metadata = {
        name: value for name, value in answer["metadata"].items() if name not in ("uid", "creationTimestamp", "name")
    }
    entries = [{**entry, "time": ""} for entry in metadata["managedFields"]]
    shown = {**answer, "metadata": {**metadata, "managedFields": entries, "resourceVersion": ""}}
    # As bytes, because the order of the fields counts, too.
    return msgspec.json.encode(shown)


@pytest.mark.parametrize("history", HISTORIES)
async def test_both_ways_lead_to_the_same_object(tmp_path: Path, history: str) -> None:
    async with serving(tmp_path, clock=lambda: NOON) as (_, client):
        for name in ("short", "long"):
            await client.create(WORKLOAD, workload(name))
        for step in HISTORIES[history]:
            short = await write(client, "short", step, {})
            long = await write(client, "long", step, IGNORED)
            assert comparable(short) == comparable(long)
        stored = [await client.get(WORKLOAD, Key("default", name)) for name in ("short", "long")]
        assert comparable(stored[0]) == comparable(stored[1])
        assert "labels" not in stored[1]["metadata"]


async def test_random_histories_lead_to_the_same_object(tmp_path: Path) -> None:
    chance = random.Random(2)
    statuses = [status for steps in HISTORIES.values() for _, status in steps]
    async with serving(tmp_path, clock=lambda: NOON) as (_, client):
        for number in range(40):
            for name in (f"short-{number}", f"long-{number}"):
                await client.create(WORKLOAD, workload(name))
            for _ in range(chance.randint(1, 4)):
                step = chance.choice(("patch", "apply one", "apply two")), chance.choice(statuses)
                short = await write(client, f"short-{number}", step, {})
                long = await write(client, f"long-{number}", step, IGNORED)
                assert comparable(short) == comparable(long)


async def test_unchanged_parts_are_shared_with_the_old_object(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        await client.create(WORKLOAD, workload("w"))
        metadata, more = workload("w")["metadata"], {"status": {"requeueState": {"count": 1}}}
        async with following(api, client, WORKLOAD) as (followed,):
            await client.apply(WORKLOAD, {"metadata": metadata, "status": RESERVED}, subresource="status")
            await client.patch(WORKLOAD, Key("default", "w"), more, subresource="status")
        seen = followed.objects
        assert seen[0]["spec"] is seen[1]["spec"]
        assert seen[0]["status"]["conditions"] is seen[1]["status"]["conditions"]
        assert "requeueState" not in seen[0]["status"]


@pytest.mark.parametrize("version", ["1", "", "x"])
async def test_a_version_is_asked_for(tmp_path: Path, version: str) -> None:
    async with serving(tmp_path) as (_, client):
        created = await client.create(WORKLOAD, workload("w"))
        key, status = Key("default", "w"), {"requeueState": {"count": 1}}
        right = {"metadata": {"resourceVersion": created["metadata"]["resourceVersion"]}, "status": status}
        wrong = {"metadata": {"resourceVersion": version}, "status": status}
        with pytest.raises(ApiError):
            await client.patch(WORKLOAD, key, wrong, subresource="status")
        answer = await client.patch(WORKLOAD, key, right, subresource="status")
        assert answer["status"] == status


async def test_a_dry_run_stores_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        await client.create(WORKLOAD, workload("w"))
        path = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads/w/status?dryRun=All"
        body = msgspec.json.encode({"status": {"requeueState": {"count": 1}}})
        response = await ask(api, "PATCH", path, body, content_type="application/merge-patch+json")
        assert response.status == 200
        assert isinstance(response.body, bytes)
        assert msgspec.json.decode(response.body)["status"] == {"requeueState": {"count": 1}}
        assert "status" not in await client.get(WORKLOAD, Key("default", "w"))


async def test_which_writes_take_the_short_way(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        created = await client.create(WORKLOAD, workload("w"))
        resource = api.registry.find(WORKLOAD.group, WORKLOAD.version, WORKLOAD.plural)
        assert resource is not None
        target = Target(resource, "default", "w", "status")
        options, short = WriteOptions("m"), StatusWrites(api.objects, lambda: datetime.now(UTC))
        typed = {"apiVersion": WORKLOAD.api_version, "kind": WORKLOAD.kind}
        place = {name: created["metadata"][name] for name in ("name", "namespace", "resourceVersion")}
        other = Target(resource, "default", "other", "status")

        def is_short(type_: str, body: Json, at: Target = target) -> bool:
            return short.write(at, type_, msgspec.json.encode(body), options) is not None

        assert is_short(APPLY_PATCH, {**typed, "metadata": place, "status": RESERVED})
        assert is_short(MERGE_PATCH, {"status": {"requeueState": {"count": 1}}})
        assert not is_short(MERGE_PATCH, {"metadata": IGNORED, "status": {}})
        assert not is_short(MERGE_PATCH, {"spec": {}, "status": {}})
        assert not is_short(MERGE_PATCH, {"status": None})
        assert not is_short(APPLY_PATCH, {"metadata": place, "status": RESERVED})
        assert not is_short(APPLY_PATCH, {**typed, "status": {}}, other)
