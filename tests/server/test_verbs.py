"""Get, list, watch, create, update, patch and apply, as a client of the API sees them."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import msgspec
import pytest

from kyu.api.meta import Json, Key
from kyu.kube import errors, requests
from kyu.server.exchange import Response
from tests.server.test_store import full_disk
from tests.support.servers import CONFIG_MAP, DEFINITION, POD, WORKLOAD, ask, config_map, serving, workload

MAPS = "/api/v1/namespaces/default/configmaps"


def parsed(response: Response) -> Json:
    assert isinstance(response.body, bytes)
    body: Json = msgspec.json.decode(response.body)
    return body


async def first_events(response: Response, count: int) -> list[Json]:
    assert not isinstance(response.body, bytes)
    lines: list[bytes] = []
    async with contextlib.aclosing(response.body.parts()) as parts:
        async for part in parts:
            lines += part.splitlines()
            if len(lines) >= count:
                break
    return [msgspec.json.decode(line) for line in lines]


async def test_a_page_goes_on_with_the_state_of_the_first(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        for name in "abcde":
            await client.create(CONFIG_MAP, config_map(name))
        first = parsed(await ask(api, "GET", f"{MAPS}?limit=2"))
        assert first["metadata"]["remainingItemCount"] == 3
        await client.delete(CONFIG_MAP, Key("default", "c"))
        await client.create(CONFIG_MAP, config_map("cc"))
        rest = parsed(await ask(api, "GET", f"{MAPS}?limit=5&continue={first['metadata']['continue']}"))
        assert [item["metadata"]["name"] for item in rest["items"]] == ["c", "d", "e"]
        assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_an_expired_continue_token_offers_an_inconsistent_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        for name in "abc":
            await client.create(CONFIG_MAP, config_map(name))
        first = parsed(await ask(api, "GET", f"{MAPS}?limit=1"))
        await client.patch(CONFIG_MAP, Key("default", "c"), {"data": {"k": "2"}})
        await client.patch(CONFIG_MAP, Key("default", "c"), {"data": {"k": "3"}})
        api.store.compact(api.store.version)
        await api.store.flush()
        late = await ask(api, "GET", f"{MAPS}?limit=1&continue={first['metadata']['continue']}")
        assert late.status == 410
        again = parsed(late)["metadata"]["continue"]
        assert [i["metadata"]["name"] for i in parsed(await ask(api, "GET", f"{MAPS}?continue={again}"))["items"]] == [
            "b",
            "c",
        ]


async def test_a_watch_shows_what_enters_and_leaves_its_selection(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        watch = await ask(api, "GET", f"{MAPS}?watch=1&labelSelector=team%3Da")
        key = Key("default", "m")
        await client.create(CONFIG_MAP, config_map("m", labels={"team": "a"}))
        await client.patch(CONFIG_MAP, key, {"data": {"k": "2"}})
        left = await client.patch(CONFIG_MAP, key, {"metadata": {"labels": {"team": "b"}}})
        events = await first_events(watch, 3)
        assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
        gone = events[2]["object"]["metadata"]
        assert gone["labels"] == {"team": "a"}
        assert gone["resourceVersion"] == left["metadata"]["resourceVersion"]


async def test_a_watch_from_a_forgotten_version_is_an_error_event(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        await client.create(CONFIG_MAP, config_map("a"))
        await client.patch(CONFIG_MAP, Key("default", "a"), {"data": {"k": "2"}})
        api.store.compact(api.store.version)
        await api.store.flush()
        watch = await ask(api, "GET", f"{MAPS}?watch=1&resourceVersion=1")
        assert watch.status == 200
        (event,) = await first_events(watch, 9)
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


async def test_watchers_of_one_form_share_their_bytes(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        watches = [await ask(api, "GET", f"{MAPS}?watch=1") for _ in range(2)]
        await client.create(CONFIG_MAP, config_map("a"))
        lines = []
        for watch in watches:
            assert not isinstance(watch.body, bytes)
            async with contextlib.aclosing(watch.body.parts()) as parts:
                lines.append(await anext(parts))
        assert lines[0] == lines[1]
        (change,) = await api.store.changes("configmaps", 0)
        assert [form for form in change.forms.values() if isinstance(form, bytes)] == [lines[0]]


async def test_a_slow_watcher_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kyu.server.verbs.watch.MAXIMAL_BACKLOG", 3)
    async with serving(tmp_path) as (api, client):
        watch = await ask(api, "GET", f"{MAPS}?watch=1")
        for i in range(10):
            await client.create(CONFIG_MAP, config_map(f"m-{i}"))
        (event,) = await first_events(watch, 100)
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        assert api.hub.count() == 0


async def test_two_writers_with_one_version_and_one_wins(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        made = await client.create(CONFIG_MAP, config_map("a"))
        wanted = [{**made, "data": {"k": str(i)}} for i in range(8)]
        results = await asyncio.gather(*(client.update(CONFIG_MAP, w) for w in wanted), return_exceptions=True)
        assert sum(isinstance(result, dict) for result in results) == 1
        assert sum(isinstance(result, errors.Conflict) for result in results) == 7


async def test_patches_at_the_same_time_all_count(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        await client.create(CONFIG_MAP, config_map("a"))
        key = Key("default", "a")
        await asyncio.gather(*(client.patch(CONFIG_MAP, key, {"data": {f"k{i}": "x"}}) for i in range(20)))
        assert len((await client.get(CONFIG_MAP, key))["data"]) == 21


async def test_apply_removes_fields_and_conflicts_with_other_managers(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        body = {"metadata": {"name": "a", "namespace": "default"}, "data": {"x": "1", "y": "1"}}
        await client.apply(CONFIG_MAP, body, manager="one")
        await client.apply(CONFIG_MAP, {**body, "data": {"x": "1"}}, manager="two")
        with pytest.raises(errors.Conflict, match='conflict with "one"'):
            await client.apply(CONFIG_MAP, {**body, "data": {"x": "2"}}, manager="two", force=False)
        left = await client.apply(CONFIG_MAP, {**body, "data": {}}, manager="one")
        assert left["data"] == {"x": "1"}


async def test_the_status_of_a_workload_is_written_through_its_own_path_only(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        made = await client.create(WORKLOAD, {**workload("w"), "status": {"requeueState": {"count": 1}}})
        assert "status" not in made
        condition = {"type": "Admitted", "status": "False", "reason": "Pending", "message": "waits"}
        condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        status = {"metadata": {"name": "w", "namespace": "default"}, "status": {"conditions": [condition]}}
        applied = await client.apply(WORKLOAD, status, manager="kueue", subresource="status")
        assert applied["status"]["conditions"][0]["message"] == "waits"
        assert applied["metadata"]["generation"] == 1
        changed = await client.patch(WORKLOAD, Key("default", "w"), {"spec": {"active": False}, "status": None})
        assert changed["metadata"]["generation"] == 2
        assert changed["status"]["conditions"][0]["message"] == "waits"


async def test_kinds_of_kueue_are_served_in_every_version(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        old = {
            "apiVersion": "kueue.x-k8s.io/v1beta1",
            "kind": "ClusterQueue",
            "metadata": {"name": "q"},
            "spec": {"cohort": "lab", "namespaceSelector": {}, "resourceGroups": []},
        }
        path = "/apis/kueue.x-k8s.io/v1beta1/clusterqueues"
        made = await ask(api, "POST", path, requests.encode(old), content_type="application/json")
        assert made.status == 201, made.body
        assert any("deprecated" in warning for warning in made.warnings)
        assert parsed(made)["spec"]["cohort"] == "lab"
        current = parsed(await ask(api, "GET", "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/q"))
        assert current["spec"]["cohortName"] == "lab"
        listed = parsed(await ask(api, "GET", path))
        assert [(item["apiVersion"], item["spec"]["cohort"]) for item in listed["items"]] == [
            ("kueue.x-k8s.io/v1beta1", "lab")
        ]


async def test_rules_of_kueue_refuse_what_its_webhook_would(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        body = workload("w")
        body["spec"]["podSets"][0]["minCount"] = 1
        body["spec"]["podSets"].append({**body["spec"]["podSets"][0], "name": "other"})
        with pytest.raises(errors.Forbidden, match=r"denied the request: .*minCount"):
            await client.create(WORKLOAD, body)


async def test_a_custom_kind_is_served_as_long_as_its_definition_exists(tmp_path: Path) -> None:
    group, plural = "example.com", "things"
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}}
    definition = {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": "Thing"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    path = f"/apis/{group}/v1/namespaces/default/{plural}"
    body = {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"a": "x", "b": 1}}
    async with serving(tmp_path) as (api, client):
        assert (await ask(api, "GET", path)).status == 404
        await client.create(DEFINITION, definition)
        made = await ask(api, "POST", path, requests.encode(body))
        assert parsed(made)["spec"] == {"a": "x"}
        assert made.warnings == ('299 - "unknown field \\"spec.b\\""',)
        watch = await ask(api, "GET", f"{path}?watch=1")
        await client.delete(DEFINITION, Key("", f"{plural}.{group}"))
        assert [event["type"] for event in await first_events(watch, 9)] == ["ADDED", "DELETED"]
        assert (await ask(api, "GET", path)).status == 404
    async with serving(tmp_path) as (api, _):
        assert (await ask(api, "GET", path)).status == 404


async def test_dry_run_stores_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        before = api.store.version
        made = await ask(api, "POST", f"{MAPS}?dryRun=All", requests.encode(config_map("a")))
        assert made.status == 201
        assert "resourceVersion" not in parsed(made)["metadata"]
        assert api.store.version == before


async def test_duplicate_fields_are_reported(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        body = b'{"metadata": {"name": "a"}, "data": {"k": "1", "k": "2"}}'
        made = await ask(api, "POST", MAPS, body)
        assert made.warnings == ('299 - "duplicate field \\"data.k\\""',)
        strict = await ask(api, "POST", f"{MAPS}?fieldValidation=Strict", body)
        assert strict.status == 400


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/nothings", 404),
        ("PUT", MAPS, 405),
        ("POST", "/api/v1/configmaps", 405),
        ("GET", f"{MAPS}/a/scale", 404),
        ("GET", f"{MAPS}?limit=x", 400),
        ("GET", f"{MAPS}?continue=!!!", 400),
        ("GET", f"{MAPS}?labelSelector=a%3D%3D%3D", 400),
        ("GET", f"{MAPS}?watch=1&resourceVersion=x", 500),
        ("POST", MAPS, 400),
        ("PATCH", f"{MAPS}/a", 415),
        ("DELETE", f"{MAPS}/a", 404),
        ("GET", "/apis/nothing.example.com/v1/things", 404),
        ("GET", "/a/b/c", 404),
        ("POST", "/api/v1/namespaces/default/pods/p/exec", 400),
        ("POST", "/api/v1/namespaces/default/pods/p/proxy", 501),
        ("GET", "/apis/apiregistration.k8s.io/v1/apiservices", 501),
        ("POST", "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", 501),
        ("PATCH", "/api/v1/namespaces/default/pods/p/ephemeralcontainers", 501),
        ("PUT", "/api/v1/namespaces/default/pods/p/resize", 501),
        ("GET", "/api/v1/namespaces/default/pods/p/resize", 404),
    ],
)
async def test_unserved_paths_are_rejected_with_a_status(tmp_path: Path, method: str, path: str, status: int) -> None:
    async with serving(tmp_path) as (api, _):
        answer = await ask(api, method, path, b"{" if method == "POST" else b"")
        assert answer.status == status


async def test_a_pod_is_bound_once(tmp_path: Path) -> None:
    pod = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    binding = {**config_map("p"), "target": {"kind": "Node", "name": "n1"}}
    async with serving(tmp_path) as (_, client):
        await client.create(POD, pod)
        await client.create(POD, binding, subresource="binding")
        assert (await client.get(POD, Key("default", "p")))["spec"]["nodeName"] == "n1"
        with pytest.raises(errors.Conflict, match="already assigned"):
            await client.create(POD, binding, subresource="binding")


async def test_a_full_store_answers_with_a_status_to_retry(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        await client.create(CONFIG_MAP, config_map("a"))
        big = {**config_map("b"), "data": {"k": "x" * 500_000}}
        with full_disk((tmp_path / "kyu.db-wal").stat().st_size + 10_000):
            with pytest.raises(errors.ApiError) as refused:
                await client.create(CONFIG_MAP, big)
            assert refused.value.code == 503
            assert refused.value.retry_after_seconds > 0
            assert len((await client.list(CONFIG_MAP, "default"))[0]) == 1
        await client.create(CONFIG_MAP, big)
        assert api.store.count("configmaps") == 2


@pytest.mark.parametrize("body", [{"metadata": "{}"}, {"spec": "x"}, {"spec": {"replicas": "many"}}, {"spec": []}])
async def test_a_scale_of_the_wrong_form_is_refused(tmp_path: Path, body: Json) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    path = "/apis/apps/v1/namespaces/default/deployments"
    async with serving(tmp_path) as (api, _):
        assert (await ask(api, "POST", path, requests.encode({"metadata": {"name": "d"}, "spec": spec}))).status == 201
        answer = await ask(
            api, "PATCH", f"{path}/d/scale", requests.encode(body), content_type="application/merge-patch+json"
        )
        assert answer.status == 422


async def test_writes_of_a_status_build_on_what_was_written_last(tmp_path: Path) -> None:
    """The server keeps the objects that it wrote. They stay equal to the stored bytes."""
    key = Key("default", "w")
    condition = {"type": "Finished", "status": "True", "reason": "R", "message": "m"}
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    async with serving(tmp_path) as (api, client):
        resource = api.registry.find(WORKLOAD.group, WORKLOAD.version, WORKLOAD.plural)
        assert resource is not None
        await client.create(WORKLOAD, workload("w"))
        for number in range(3):
            named = {"metadata": {"name": "w", "namespace": "default"}}
            await client.patch(WORKLOAD, key, {"metadata": {"labels": {"n": str(number)}}})
            status = {"conditions": [{**condition, "message": str(number)}]}
            await client.apply(WORKLOAD, {**named, "status": status}, subresource="status")
            seconds = {"status": {"accumulatedPastExecutionTimeSeconds": number}}
            await client.patch(WORKLOAD, key, seconds, subresource="status")
            record = api.objects.latest_record(resource, *msgspec.structs.astuple(key))
            assert api.objects.shared(resource, record) == msgspec.json.decode(record.value)
        found = await client.get(WORKLOAD, key)
        assert found["metadata"]["labels"] == {"n": "2"}
        assert found["status"]["conditions"][0]["message"] == "2"
        assert found["status"]["accumulatedPastExecutionTimeSeconds"] == 2


async def test_an_object_is_read_anew_after_a_change_of_its_definition(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        await client.create(WORKLOAD, workload("w"))
        before = api.registry.find(WORKLOAD.group, WORKLOAD.version, WORKLOAD.plural)
        assert before is not None
        record = api.objects.latest_record(before, "default", "w")
        assert api.objects.shared(before, record) is api.objects.shared(before, record)
        name = Key("", f"{WORKLOAD.plural}.{WORKLOAD.group}")
        await client.patch(DEFINITION, name, {"spec": {"names": {"shortNames": ["other"]}}})
        after = api.registry.find(WORKLOAD.group, WORKLOAD.version, WORKLOAD.plural)
        assert after is not None
        assert api.objects.shared(after, record) is not api.objects.shared(after, record)
