"""
Answers word for word: errors, warnings and representations that other tests do not check closely.

Each row is a request and its answer by Kubernetes 1.36.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kyu.api.meta import Json
from tests.support.answers import APPLY, MAPS, MERGE, PODS, QUEUES, STEPS, STRATEGIC, make, make_queue, send
from tests.support.servers import serving

SECRETS = "/api/v1/namespaces/default/secrets"
NO_NAME = "the name of the object (a based on URL) was undeterminable: name must be provided"


@pytest.mark.parametrize("kind", [MERGE, STRATEGIC])
@pytest.mark.parametrize("patch", [{"metadata": {"name": None}}, {"metadata": None}])
async def test_an_object_keeps_its_name(tmp_path: Path, kind: str, patch: Json) -> None:
    async with serving(tmp_path) as (api, _):
        await make(api, MAPS)
        response, status = await send(api, f"PATCH {MAPS}/a", patch, kind=kind)
        assert (response.status, status["message"]) == (400, NO_NAME)


async def test_a_put_names_its_object(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        await make(api, MAPS)
        response, status = await send(api, f"PUT {MAPS}/a", {"data": {}})
        assert (response.status, status["message"]) == (400, NO_NAME)


async def test_a_version_that_is_no_number_fails_where_it_is_compared(tmp_path: Path) -> None:
    """A create ignores it."""
    async with serving(tmp_path) as (api, _):
        response, _ = await send(api, f"POST {MAPS}", {"metadata": {"name": "a", "resourceVersion": "x"}})
        assert response.status == 201
        response, status = await send(api, f"PATCH {MAPS}/a", {"metadata": {"resourceVersion": "x"}}, kind=MERGE)
        assert (response.status, status["message"]) == (500, 'strconv.ParseUint: parsing "x": invalid syntax')


async def test_a_patch_of_a_custom_object_cannot_take_its_version_away(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        await make_queue(api)
        response, status = await send(api, f"PATCH {QUEUES}/a", {"metadata": {"resourceVersion": None}}, kind=MERGE)
        assert response.status == 422
        assert status["details"]["causes"][0]["message"] == "Invalid value: 0: must be specified for an update"


@pytest.mark.parametrize(("path", "status"), [(MAPS, 200), (QUEUES, 422)])
async def test_version_0_is_any_version(tmp_path: Path, path: str, status: int) -> None:
    async with serving(tmp_path) as (api, _):
        made = await (make_queue(api) if path == QUEUES else make(api, path))
        made["metadata"] |= {"resourceVersion": "0", "labels": {"a": "b"}}
        for verb, body, kind in (
            ("PATCH", {"metadata": made["metadata"]}, MERGE),
            ("PUT", made, "application/json"),
        ):
            response, _ = await send(api, f"{verb} {path}/a", body, kind=kind)
            assert response.status == status


async def test_a_patch_that_takes_the_version_of_its_kind_away(tmp_path: Path) -> None:
    """Kubernetes then takes all its fields for unknown."""
    async with serving(tmp_path) as (api, _):
        await make(api, MAPS, data={"a": "b"})
        response, status = await send(api, f"PATCH {MAPS}/a", {"apiVersion": None}, kind=MERGE)
        assert (response.status, status["message"]) == (400, NO_NAME)
        assert response.warnings == tuple(f'299 - "unknown field \\"{name}\\""' for name in ("data", "metadata"))


@pytest.mark.parametrize(
    ("kind", "patch", "told"),
    [
        (STEPS, b'[{"op":"add","path":"/data","value":{},"more":1}]', 'json patch unknown field "[0].more"'),
        (
            STEPS,
            b'[{"op":"test","path":"/kind","value":1,"value":"ConfigMap"}]',
            'json patch duplicate field "[0].value"',
        ),
        (STEPS, b'[{"op":"add","path":"/data","value":{"a":"1","a":"2"}}]', 'json patch duplicate field "[0].value.a"'),
        (MERGE, b'{"data":{"a":"1","a":"2"}}', 'duplicate field "data.a"'),
        (MERGE, b'{"more":1,"more":2}', 'duplicate field "more", unknown field "more"'),
    ],
)
async def test_warnings_about_a_patch(tmp_path: Path, kind: str, patch: bytes, told: str) -> None:
    async with serving(tmp_path) as (api, _):
        await make(api, MAPS)
        response, status = await send(api, f"PATCH {MAPS}/a?fieldValidation=Strict", patch, kind=kind)
        assert response.status == 422
        assert status["message"].endswith(f": strict decoding error: {told}")
        response, _ = await send(api, f"PATCH {MAPS}/a", patch, kind=kind)
        assert response.status == 200
        assert response.warnings == tuple('299 - "{}"'.format(text.replace('"', '\\"')) for text in told.split(", "))
        response, _ = await send(api, f"PATCH {MAPS}/a?fieldValidation=Ignore", patch, kind=kind)
        assert (response.status, response.warnings) == (200, ())


async def test_remaining_items_are_counted_in_the_listed_state(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        for name in "abcdef":
            await send(api, f"POST {MAPS}", {"metadata": {"name": name}})
        _, first = await send(api, f"GET {MAPS}?limit=2")
        assert first["metadata"]["remainingItemCount"] == 4
        for name in "ae":
            await send(api, f"DELETE {MAPS}/{name}")
        for name in ("aa", "e", "x", "y"):
            await send(api, f"POST {MAPS}", {"metadata": {"name": name}})
        await send(api, f"DELETE {MAPS}/f")
        _, second = await send(api, f"GET {MAPS}?limit=1&continue={first['metadata']['continue']}")
        assert [each["metadata"]["name"] for each in second["items"]] == ["c"]
        assert second["metadata"]["remainingItemCount"] == 3


async def test_a_collection_is_deleted_page_by_page(tmp_path: Path) -> None:
    """The answer has the metadata of a list."""
    async with serving(tmp_path) as (api, _):
        for name in "abcd":
            await send(api, f"POST {MAPS}", {"metadata": {"name": name}})
        _, first = await send(api, f"DELETE {MAPS}?limit=3&fieldSelector=metadata.namespace=default")
        assert [each["metadata"]["name"] for each in first["items"]] == ["a", "b", "c"]
        assert "remainingItemCount" not in first["metadata"]
        _, rest = await send(api, f"DELETE {MAPS}?continue={first['metadata']['continue']}")
        assert [each["metadata"]["name"] for each in rest["items"]] == ["d"]
        response, _ = await send(api, f"DELETE {MAPS}?resourceVersion=x")
        assert response.status == 400


@pytest.mark.parametrize(("what", "field"), [("UID", "uid"), ("ResourceVersion", "resourceVersion")])
async def test_a_namespace_that_is_not_the_one_that_is_meant(tmp_path: Path, what: str, field: str) -> None:
    async with serving(tmp_path) as (api, _):
        made = await make(api, "/api/v1/namespaces")
        response, status = await send(api, "DELETE /api/v1/namespaces/a", {"preconditions": {field: "77777"}})
        text = f"Precondition failed: {what} in precondition: 77777, {what} in object meta: {made['metadata'][field]}"
        assert response.status == 409
        assert status["message"] == f'Operation cannot be fulfilled on namespaces "a": {text}'


async def test_an_evicted_pod_gets_a_disruption_condition(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        spec = {"nodeName": "here", "containers": [{"name": "main", "image": "tool"}]}
        made = await make(api, PODS, spec=spec)
        eviction: Json = {"metadata": {"name": "a"}}
        await send(api, f"POST {PODS}/a/eviction?dryRun=All", eviction)
        response, _ = await send(
            api, f"POST {PODS}/a/eviction", {**eviction, "deleteOptions": {"preconditions": {"uid": "other"}}}
        )
        assert response.status == 409
        _, unchanged = await send(api, f"GET {PODS}/a")
        assert unchanged == made
        version = {"preconditions": {"resourceVersion": made["metadata"]["resourceVersion"]}}
        response, _ = await send(api, f"POST {PODS}/a/eviction", {**eviction, "deleteOptions": version})
        assert response.status == 201
        _, pod = await send(api, f"GET {PODS}/a")
        [condition] = pod["status"]["conditions"]
        assert (condition["type"], condition["reason"]) == ("DisruptionTarget", "EvictionByEvictionAPI")
        assert pod["metadata"]["deletionGracePeriodSeconds"] == 30


async def test_a_terminating_pod_is_deleted_by_its_node(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        await make(api, PODS, spec={"nodeName": "here", "containers": [{"name": "main", "image": "tool"}]})
        await send(api, f"DELETE {PODS}/a")
        await send(api, f"PATCH {PODS}/a/status", {"status": {"phase": "Succeeded"}}, kind=MERGE)
        _, marked = await send(api, f"DELETE {PODS}/a")
        assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
        await send(api, f"DELETE {PODS}/a?gracePeriodSeconds=0")
        response, _ = await send(api, f"GET {PODS}/a")
        assert response.status == 404


async def test_only_the_server_counts_generations(tmp_path: Path) -> None:
    """A ConfigMap has no generation. A create may set one, and no later write changes it."""
    async with serving(tmp_path) as (api, _):
        response, status = await send(api, f"POST {MAPS}", {"metadata": {"name": "a", "generation": -1}})
        assert response.status == 422
        assert status["details"]["causes"][0]["field"] == "metadata.generation"
        await make(api, MAPS)
        _, patched = await send(api, f"PATCH {MAPS}/a", {"metadata": {"generation": 5}}, kind=MERGE)
        assert "generation" not in patched["metadata"]


async def test_a_put_forgets_how_the_name_was_made(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        await make(api, MAPS)
        await send(api, f"PATCH {MAPS}/a", {"metadata": {"generateName": "a-"}}, kind=MERGE)
        _, put = await send(api, f"PUT {MAPS}/a", {"metadata": {"name": "a"}, "data": {"k": "1"}})
        assert "generateName" not in put["metadata"]


async def test_the_grace_period_of_a_deletion_is_immutable(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        await make(api, MAPS)
        patch = {"metadata": {"deletionGracePeriodSeconds": 3}}
        response, status = await send(api, f"PATCH {MAPS}/a", patch, kind=MERGE)
        assert response.status == 422
        assert status["details"]["causes"][0]["field"] == "metadata.deletionGracePeriodSeconds"


async def test_an_owner_that_stands_twice_is_kept_once(tmp_path: Path) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    async with serving(tmp_path) as (api, _):
        body = {"metadata": {"name": "a", "ownerReferences": [owner, owner]}}
        response, made = await send(api, f"POST {MAPS}", body)
        assert made["metadata"]["ownerReferences"] == [owner]
        assert response.warnings[0].endswith('duplicate UID(s) observed: u"')
        response, _ = await send(api, f"PATCH {MAPS}/a", body, kind=MERGE)
        assert "after mutating admission" in response.warnings[0]


async def test_an_owner_has_one_group_and_one_version(tmp_path: Path) -> None:
    owner = {"apiVersion": "a/b/c", "kind": "Pod", "name": "p", "uid": "u"}
    async with serving(tmp_path) as (api, _):
        response, _ = await send(api, f"POST {MAPS}", {"metadata": {"name": "a", "ownerReferences": [owner]}})
        assert response.status == 422


async def test_an_error_carries_the_warnings_about_the_body(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        response, _ = await send(api, f"POST {MAPS}", {"metadata": {"name": "B_AD"}, "bogus": 1})
        assert response.status == 422
        assert response.warnings == ('299 - "unknown field \\"bogus\\""',)
        response, _ = await send(api, f"PUT {MAPS}/a", {"metadata": {"name": "a"}, "bogus": 1})
        assert response.status == 404
        assert response.warnings == ('299 - "unknown field \\"bogus\\""',)


async def test_errors_of_a_deprecated_version_carry_its_warning(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        response, _ = await send(api, "GET /api/v1/namespaces/default/endpoints/none")
        assert response.status == 404
        assert response.warnings == (
            '299 - "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"',
        )


async def test_fields_that_stand_twice_in_a_patch(tmp_path: Path) -> None:
    patch = b'{"data":{"k":"1","k":"2"}}'
    async with serving(tmp_path) as (api, _):
        await make(api, MAPS)
        response, patched = await send(api, f"PATCH {MAPS}/a", patch, kind=MERGE)
        assert patched["data"] == {"k": "2"}
        assert response.warnings == ('299 - "duplicate field \\"data.k\\""',)
        response, _ = await send(api, f"PATCH {MAPS}/a?fieldValidation=Strict", patch, kind=STRATEGIC)
        assert response.status == 422


async def test_an_unknown_field_that_stands_twice_is_only_unknown(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        body = b'{"metadata":{"name":"a"},"bogus":1,"bogus":2}'
        response, _ = await send(api, f"POST {MAPS}", body)
        assert response.warnings == ('299 - "unknown field \\"bogus\\""',)


async def test_a_strategic_patch_does_not_touch_the_type(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        await make(api, MAPS)
        patch = {"kind": "Secret", "apiVersion": "v9", "data": {"k": "1"}}
        response, patched = await send(api, f"PATCH {MAPS}/a", patch, kind=STRATEGIC)
        assert response.status == 200
        assert (patched["kind"], patched["apiVersion"]) == ("ConfigMap", "v1")


async def test_a_merge_patch_may_leave_the_kind_open(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        await make(api, MAPS)
        response, patched = await send(api, f"PATCH {MAPS}/a", {"kind": None}, kind=MERGE)
        assert (response.status, patched["kind"]) == (200, "ConfigMap")


@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        (
            {"kind": "Secret"},
            422,
            'Secret.kueue.x-k8s.io "a" is invalid: kind: Invalid value: "Secret": must be LocalQueue',
        ),
        (
            {"apiVersion": "v9"},
            422,
            'LocalQueue "a" is invalid: apiVersion: Invalid value: "v9": must be kueue.x-k8s.io/v1beta2',
        ),
        (
            {"apiVersion": None},
            500,
            "Internal error occurred: Object 'apiVersion' is missing in 'object has no apiVersion field'",
        ),
    ],
)
async def test_a_custom_object_needs_its_type(tmp_path: Path, patch: Json, code: int, message: str) -> None:
    async with serving(tmp_path) as (api, _):
        await make_queue(api)
        response, status = await send(api, f"PATCH {QUEUES}/a", patch, kind=MERGE)
        assert (response.status, status["message"]) == (code, message)


async def test_which_patches_a_custom_kind_takes(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        response, status = await send(api, f"PATCH {QUEUES}/a", {}, kind=STRATEGIC)
        assert response.status == 415
        assert status["message"].endswith(
            "include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        )
        response, status = await send(api, f"PATCH {MAPS}/a", {})
        assert (response.status, status["message"]) == (415, "415: Unsupported Media Type")


@pytest.mark.parametrize(
    ("kind", "patch", "code"),
    [
        (STRATEGIC, b"null", 200),
        (STEPS, b"null", 200),
        (MERGE, b"null", 400),
        (STEPS, b"{}", 400),
        (STEPS, b"[{}]", 422),
        (STEPS, b'[{"op":"test","path":"/data/x","value":null}]', 200),
        (STEPS, b'[{"op":"test","path":"/nothing/x","value":null}]', 422),
    ],
)
async def test_patches_of_nothing(tmp_path: Path, kind: str, patch: bytes, code: int) -> None:
    async with serving(tmp_path) as (api, _):
        await make(api, MAPS, data={"k": "1"})
        response, _ = await send(api, f"PATCH {MAPS}/a", patch, kind=kind)
        assert response.status == code


@pytest.mark.parametrize(
    ("request_", "code", "is_status"),
    [
        ("GET /apis/batch/v9/jobs", 404, True),
        ("GET /api/v2/pods", 404, True),
        (f"GET {MAPS}/a/b/c", 404, True),
        ("GET /apis/none/v1/things", 404, False),
        ("PUT /apis/none", 404, False),
        ("PUT /apis/batch/v1", 405, True),
    ],
)
async def test_unknown_paths(tmp_path: Path, request_: str, code: int, is_status: bool) -> None:
    """A path in a known group answers a Status, any other path plain text."""
    async with serving(tmp_path) as (api, _):
        response, status = await send(api, request_)
        assert (response.status, bool(status)) == (code, is_status)


@pytest.mark.parametrize(
    ("path", "accept", "message"),
    [
        (
            f"{MAPS}/a",
            "text/plain",
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml,"
            " application/vnd.kubernetes.protobuf",
        ),
        (
            MAPS,
            "application/json;as=Bogus;v=v1;g=meta.k8s.io",
            "only the following media types are accepted: application/json, application/yaml,"
            " application/vnd.kubernetes.protobuf",
        ),
        (
            MAPS,
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
            "you requested PartialObjectMetadata, but the requested object is a list (*core.ConfigMapList)",
        ),
        (
            f"{MAPS}/a",
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            "you requested PartialObjectMetadataList, but the requested object is not a list (*core.ConfigMap)",
        ),
    ],
)
async def test_forms_that_are_not_served(tmp_path: Path, path: str, accept: str, message: str) -> None:
    async with serving(tmp_path) as (api, _):
        await make(api, MAPS)
        response, status = await send(api, f"GET {path}", accept=accept)
        assert (response.status, status["message"]) == (406, message)


@pytest.mark.parametrize(
    ("fields", "blamed"),
    [
        ({"type": "kubernetes.io/basic-auth"}, ["data[username]", "data[password]"]),
        ({"type": "kubernetes.io/basic-auth", "stringData": {"username": "u"}}, []),
        (
            {"type": "kubernetes.io/service-account-token"},
            ["metadata.annotations[kubernetes.io/service-account.name]"],
        ),
        (
            {"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "x"}},
            ["data[.dockerconfigjson]"],
        ),
    ],
)
async def test_required_keys_of_secrets(tmp_path: Path, fields: Json, blamed: list[str]) -> None:
    async with serving(tmp_path) as (api, _):
        response, status = await send(api, f"POST {SECRETS}", {"metadata": {"name": "a"}, **fields})
        causes = status["details"]["causes"] if response.status == 422 else []
        assert [cause["field"] for cause in causes] == blamed


# Lists.


@pytest.mark.parametrize(
    ("query", "names", "goes_on"),
    [
        ("?limit=1&resourceVersion=0", ["a", "b", "c"], False),
        ("?limit=1&labelSelector=l%3D1", ["a"], True),
        ("?limit=3&labelSelector=l", ["a"], False),
        ("?limit=1&fieldSelector=metadata.name%3Da", ["a"], False),
    ],
)
async def test_pages_of_a_list(tmp_path: Path, query: str, names: list[str], goes_on: bool) -> None:
    """With a selector, the server does not look ahead for matches. ``resourceVersion`` lists the whole state."""
    async with serving(tmp_path) as (api, _):
        for name in "abc":
            labels = {"l": "1"} if name == "a" else {}
            await send(api, f"POST {MAPS}", {"metadata": {"name": name, "labels": labels}})
        _, found = await send(api, f"GET {MAPS}{query}")
        assert [item["metadata"]["name"] for item in found["items"]] == names
        assert ("continue" in found["metadata"]) is goes_on


@pytest.mark.parametrize(
    ("query", "causes"),
    [
        ("?resourceVersionMatch=x", ["FieldValueForbidden", "FieldValueNotSupported"]),
        ("?resourceVersionMatch=Exact&continue=x", ["FieldValueForbidden", "FieldValueForbidden"]),
        ("?resourceVersionMatch=Exact&resourceVersion=0", ["FieldValueForbidden"]),
    ],
)
async def test_all_errors_of_a_version_are_reported(tmp_path: Path, query: str, causes: list[str]) -> None:
    async with serving(tmp_path) as (api, _):
        _, status = await send(api, f"GET {MAPS}{query}")
        assert [cause["reason"] for cause in status["details"]["causes"]] == causes


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        (
            f"{MAPS}/a?resourceVersion=x",
            500,
            'resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax',
        ),
        (
            f"{MAPS}?limit=99999999999999999999",
            400,
            'strconv.ParseInt: parsing "99999999999999999999": value out of range',
        ),
        ("/api/v1/nodes?fieldSelector=metadata.namespace%3Da", 400, "field label not supported: metadata.namespace"),
    ],
)
async def test_numbers_and_fields_that_are_none(tmp_path: Path, path: str, code: int, message: str) -> None:
    async with serving(tmp_path) as (api, _):
        response, status = await send(api, f"GET {path}")
        assert (response.status, status["message"]) == (code, message)


async def test_a_get_waits_for_a_version_of_the_future(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        await make(api, MAPS)
        # The definitions of the first start are established in the background.
        version = 0
        while version != api.store.version:
            version = api.store.version
            await asyncio.sleep(0.05)
        waits = asyncio.ensure_future(send(api, f"GET {MAPS}/a?resourceVersion={api.store.version + 1}"))
        await asyncio.sleep(0)
        assert not waits.done()
        await send(api, f"PATCH {MAPS}/a", {"data": {"k": "2"}}, kind=MERGE)
        _, found = await waits
        assert found["data"] == {"k": "2"}


# Metadata of updates.


@pytest.mark.parametrize(
    ("path", "change", "count"),
    [
        (MAPS, {"labels": {"a b": "c"}}, 4),
        (MAPS, {"finalizers": ["a b"]}, 4),
        (MAPS, {"finalizers": ["plain"]}, 2),
        (MAPS, {"uid": "other"}, 2),
        (QUEUES, {"labels": {"a b": "c"}}, 3),
        (QUEUES, {"finalizers": ["a b"]}, 1),
        (QUEUES, {"finalizers": ["plain"]}, 0),
    ],
)
async def test_every_look_at_the_metadata_of_an_update_is_a_cause(
    tmp_path: Path, path: str, change: Json, count: int
) -> None:
    async with serving(tmp_path) as (api, _):
        await (make_queue(api) if path == QUEUES else make(api, path))
        response, status = await send(api, f"PATCH {path}/a", {"metadata": change}, kind=MERGE)
        assert len(status["details"]["causes"] if response.status == 422 else []) == count


async def test_no_entries_of_managers_are_forgotten_or_kept(tmp_path: Path) -> None:
    """In a built-in object they stop the tracking. In a custom object they are ignored."""
    empty = {"metadata": {"managedFields": []}}
    async with serving(tmp_path) as (api, _):
        await make(api, MAPS, data={"k": "1"})
        _, patched = await send(api, f"PATCH {MAPS}/a", empty, kind=MERGE)
        assert "managedFields" not in patched["metadata"]
        made = await make_queue(api)
        _, patched = await send(api, f"PATCH {QUEUES}/a", empty, kind=MERGE)
        assert patched["metadata"]["managedFields"] == made["metadata"]["managedFields"]


@pytest.mark.parametrize(
    ("config", "code", "message"),
    [
        (b"", 400, "invalid object type: /, Kind="),
        (
            b'{"apiVersion":"v1","kind":"ConfigMap","data":["x"]}',
            500,
            "failed to create typed patch object (/; /v1, Kind=ConfigMap): .data: expected map, got &{[x]}",
        ),
        (
            b'{"apiVersion":"v1","kind":"ConfigMap","immutable":"x"}',
            500,
            "failed to create typed patch object (/; /v1, Kind=ConfigMap): .immutable: expected boolean, got &{x}",
        ),
    ],
)
async def test_configurations_that_cannot_be_applied(tmp_path: Path, config: bytes, code: int, message: str) -> None:
    async with serving(tmp_path) as (api, _):
        response, status = await send(api, f"PATCH {MAPS}/a?fieldManager=m", config, kind=APPLY)
        assert (response.status, status["message"]) == (code, message)
