"""Hostile requests: none takes long, none is a fault of the server, and the windows are bounded in bytes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import msgspec
import pytest

from kyu.server import bounds
from kyu.server.api import Api
from kyu.server.exchange import Request, User, encode
from kyu.server.storage.database import Database
from kyu.server.storage.records import Record
from kyu.server.storage.store import Expired, Store, Windows
from kyu.server.verbs.get_list import ListStream
from kyu.server.verbs.watch import MAXIMAL_BACKLOG_BYTES, Watcher
from tests.attack.hostile import MAPS, measure
from tests.support.answers import make, send
from tests.support.servers import ADMIN, CONFIG_MAP, NAMESPACE, ask, config_map, serving, until

# Time of the processor, so that a busy machine does not count.
LONGEST_SECONDS = 0.5
JSON, MERGE = "application/json", "application/merge-patch+json"
EVE = User("eve", ("system:authenticated",))
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"


async def test_no_hostile_request_takes_long_or_fails(tmp_path: Path) -> None:
    found = [
        (hostile.name, response.status, round(seconds, 2))
        async for hostile, response, seconds in measure(tmp_path)
        if response.status >= 500 or seconds > LONGEST_SECONDS
    ]
    assert found == []


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("jobs", {"activeDeadlineSeconds": 2**63 - 1}, "spec.activeDeadlineSeconds"),
        ("cronjobs", {"startingDeadlineSeconds": 2**63 - 1}, "spec.startingDeadlineSeconds"),
        ("jobs", {"template": {"spec": {"containers": [{"name": "c", "image": "a\0b"}]}}}, "image"),
        ("jobs", {"template": {"spec": {"terminationGracePeriodSeconds": 2**40}}}, "terminationGracePeriodSeconds"),
    ],
)
async def test_numbers_and_texts_at_the_edge_are_refused_by_name(
    tmp_path: Path, path: str, body: dict[str, object], field: str
) -> None:
    container = {"name": "c", "image": "i"}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    spec: dict[str, object] = {"template": template, **body}
    if "template" in body:
        spec["template"] = {"spec": {**template["spec"], **body["template"]["spec"]}}  # type: ignore[index]
    if path == "cronjobs":
        spec = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}, **body}
    async with serving(tmp_path) as (api, _):
        response, status = await send(
            api, f"POST /apis/batch/v1/namespaces/default/{path}", {"metadata": {"name": "a"}, "spec": spec}
        )
        assert response.status == 422
        assert field in status["message"]


async def test_an_object_with_such_a_number_from_before_can_still_be_labelled(tmp_path: Path) -> None:
    spec = {"activeDeadlineSeconds": 2**40}
    bounds.check_spec(CONFIG_MAP, {"metadata": {}, "spec": spec}, {"metadata": {}, "spec": dict(spec)})


async def test_a_binding_to_a_role_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    body = {
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "later"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}],
    }
    admin = {
        "metadata": {"name": "eve-admin"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": body["subjects"],
    }
    eve = User("eve", ("system:authenticated",))
    async with serving(tmp_path) as (api, _):
        assert (await send(api, f"POST {ROLES}", admin))[0].status == 201
        kind = "application/json"
        refused = await ask(api, "POST", ROLES, msgspec.json.encode(body), user=eve, content_type=kind)
        assert refused.status == 404
        cluster = {**body, "roleRef": {**body["roleRef"], "kind": "ClusterRole"}}  # type: ignore[dict-item]
        assert (await ask(api, "POST", ROLES, msgspec.json.encode(cluster), user=eve, content_type=kind)).status == 404
        # An administrator may bind any role, as in Kubernetes.
        assert (await send(api, f"POST {ROLES}", body))[0].status == 201


async def test_a_watcher_that_does_not_read_is_ended_with_410(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        watch = await ask(api, "GET", f"{MAPS}?watch=1")
        assert isinstance(watch.body, Watcher)
        size = 1_000_000
        for number in range(MAXIMAL_BACKLOG_BYTES // size + 2):
            await client.create(CONFIG_MAP, {**config_map(f"m-{number}"), "data": {"k": "x" * size}})
        async with contextlib.aclosing(watch.body.parts()) as parts:
            (line,) = [part async for part in parts]
        event = msgspec.json.decode(line)
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


async def test_history_is_bounded_in_bytes(tmp_path: Path) -> None:
    windows = Windows(change_bytes=50_000, all_change_bytes=80_000, obsolete_bytes=100_000, shared_bytes=20_000)
    store = Store(Database(tmp_path / "kyu.db"), windows=windows)
    for _ in range(100):
        for resource in ("a", "b"):
            version = store.next_version
            value = b'{"metadata":{"name":"a"},"x":"%b"}' % (b"x" * 5_000)
            await store.append(Record(resource, "n", "a", "uid", version, value, {}, ()))
    assert store._change_bytes <= 80_000
    assert sum(len(shelf.changes) for shelf in store._shelves.values()) <= 16
    assert sum(bool(change.forms) for change in store._shared) <= 5
    with pytest.raises(Expired):
        await store.changes("a", 1)
    await store.close()
    rows = list(Database(tmp_path / "kyu.db").rows())
    assert sum(len(row[7]) for row in rows) <= 100_000 + 4 * 6_000


async def test_a_long_past_is_not_read_into_memory(tmp_path: Path) -> None:
    store = Store(Database(tmp_path / "kyu.db"), windows=Windows(changes=1, read_bytes=20_000))
    for _ in range(20):
        version = store.next_version
        value = b'{"metadata":{"name":"a"},"x":"%b"}' % (b"x" * 5_000)
        await store.append(Record("a", "n", "a", "uid", version, value, {}, ()))
    assert len(await store.changes("a", 18)) == 2
    with pytest.raises(Expired):
        await store.changes("a", 1)
    await store.close()


async def longest_wait(work: asyncio.Task[None]) -> float:
    """Return the longest time for which nothing else ran while the work was done."""
    longest, last = 0.0, time.thread_time()
    while not work.done():
        await asyncio.sleep(0)
        longest, last = max(longest, time.thread_time() - last), time.thread_time()
    await work
    return longest


async def test_others_wait_little_while_a_namespace_is_deleted(tmp_path: Path) -> None:
    async with serving(tmp_path, controllers=True) as (api, client):
        await client.create(NAMESPACE, {"metadata": {"name": "team"}})
        await asyncio.gather(*(client.create(CONFIG_MAP, config_map(f"m-{n}", "team")) for n in range(1_500)))

        async def delete() -> None:
            await ask(api, "DELETE", "/api/v1/namespaces/team")
            await until(api, lambda: api.store.find("namespaces", "", "team") is None)

        assert await longest_wait(asyncio.create_task(delete())) < 0.2


async def test_others_wait_little_during_lists_and_collection_deletes(tmp_path: Path) -> None:
    async with serving(tmp_path, controllers=True) as (api, client):
        await asyncio.gather(*(client.create(CONFIG_MAP, config_map(f"m-{n}")) for n in range(1_500)))

        async def work() -> None:
            accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
            assert (await ask(api, "GET", MAPS, accept=accept)).status == 200
            assert (await ask(api, "GET", f"{MAPS}?fieldSelector=metadata.name!=a")).status == 200
            assert (await ask(api, "DELETE", MAPS)).status == 200

        assert await longest_wait(asyncio.create_task(work())) < 0.2
        assert api.store.count("configmaps") == 0


async def test_garbage_with_many_owners_is_collected_quickly(tmp_path: Path) -> None:
    async with serving(tmp_path, controllers=True) as (api, _):
        owners = [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": f"o{n}", "uid": f"u{n}"} for n in range(bounds.MOST_ITEMS)
        ]

        async def work() -> None:
            for number in range(5):
                await make_owned(api, f"m-{number}", owners)
            await until(api, lambda: api.store.count("configmaps") == 0)

        assert await longest_wait(asyncio.create_task(work())) < 0.2


async def make_owned(api: Api, name: str, owners: list[dict[str, str]]) -> None:
    body = {"metadata": {"name": name, "ownerReferences": owners}}
    response, _ = await send(api, f"POST {MAPS}", body)
    assert response.status == 201


async def test_patches_and_metadata_within_the_bounds_are_taken(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        await make(api, MAPS, data={"k": "x" * 1000})
        steps = [{"op": "copy", "from": "/data/k", "path": f"/data/k{number}"} for number in range(500)]
        response, _ = await send(api, f"PATCH {MAPS}/a", steps, kind="application/json-patch+json")
        assert response.status == 200
        labels = {f"l{number}": "v" for number in range(bounds.MOST_LABELS)}
        response, _ = await send(api, f"POST {MAPS}", {"metadata": {"name": "b", "labels": labels}})
        assert response.status == 201


async def test_a_long_list_is_streamed_whole_and_never_as_yaml(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        for number in range(4):
            await client.create(CONFIG_MAP, {**config_map(f"m-{number}"), "data": {"k": "x" * 400_000}})
        request = Request("GET", MAPS, headers={"accept": "application/json"}, user=ADMIN, host="127.0.0.1")
        response = await api.handle(request)
        assert isinstance(response.body, ListStream)
        whole = b"".join([part async for part in response.body.parts()])
        assert [item["metadata"]["name"] for item in msgspec.json.decode(whole)["items"]] == [
            f"m-{number}" for number in range(4)
        ]
        refused = await api.handle(msgspec.structs.replace(request, headers={"accept": "application/yaml"}))
        assert refused.status == 406
        response = await api.handle(request)
        assert isinstance(response.body, ListStream)
        response.body.close()
        with pytest.raises(TimeoutError):
            await anext(response.body.parts())


async def test_the_answer_to_the_deletion_of_many_objects_is_streamed(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        for number in range(4):
            await client.create(CONFIG_MAP, {**config_map(f"m-{number}"), "data": {"k": "x" * 400_000}})
        response = await api.handle(Request("DELETE", MAPS, user=ADMIN, host="127.0.0.1"))
        assert isinstance(response.body, ListStream)
        whole = b"".join([part async for part in response.body.parts()])
        assert len(msgspec.json.decode(whole)["items"]) == 4
        assert await client.list(CONFIG_MAP, "default") == ([], str(api.store.version))


async def test_a_full_namespace_grows_by_administrators_and_controllers_only(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "batch-user"}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": EVE.name}
        response, _ = await send(
            api, f"POST {ROLES}", {"metadata": {"name": "e"}, "roleRef": role, "subjects": [subject]}
        )
        assert response.status == 201
        api.admission.most_namespace_bytes = 20_000
        codes = []
        for number in range(5):
            body = {**config_map(f"m-{number}"), "data": {"k": "x" * 8_000}}
            codes.append((await ask(api, "POST", MAPS, encode(body), user=EVE, content_type=JSON)).status)
        assert codes == [201, 201, 201, 403, 403]
        assert api.store.namespace_bytes("default") > 24_000
        larger = encode({"data": {"k": "x" * 9_000}})
        smaller = encode({"data": {"k": "x"}})
        for user, change, code in ((EVE, larger, 403), (EVE, smaller, 200), (ADMIN, larger, 200)):
            answer = await ask(api, "PATCH", f"{MAPS}/m-0", change, user=user, content_type=MERGE)
            assert answer.status == code, answer
        # Deleted objects leave room, also after a restart.
        for number in range(3):
            assert (await ask(api, "DELETE", f"{MAPS}/m-{number}", user=EVE)).status == 200
        left = api.store.namespace_bytes("default")
        assert left < 5_000
    async with serving(tmp_path) as (api, _):
        assert api.store.namespace_bytes("default") == left


async def test_the_fields_of_many_managers_are_bounded(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        fields = {f"k{number}": "v" for number in range(1_000)}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": fields}
        codes = []
        for number in range(40):
            path = f"{MAPS}/a?fieldManager=m{number}&force=true"
            answer = await ask(api, "PATCH", path, encode(body), content_type="application/apply-patch+yaml")
            codes.append(answer.status)
        assert codes[:10] == [201, *[200] * 9]
        assert codes[-1] == 422
        stored = (await ask(api, "GET", f"{MAPS}/a")).body
        assert isinstance(stored, bytes)
        assert len(stored) < 2 * bounds.MOST_METADATA_BYTES
