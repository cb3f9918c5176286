"""What a client is told, word by word: refusals, warnings and forms that other tests do not look at closely.

Each row is a request and its answer, as a Kubernetes 1.36 gives it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from kyu.api.meta import Json
from kyu.server.api import Api
from kyu.server.exchange import Response
from tests.servers import ask, serving
from tests.test_server_verbs import first_events

MAPS = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/namespaces/default/secrets"
QUEUES = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues"
MERGE = "application/merge-patch+json"
STEPS = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
NO_NAME = "the name of the object (a based on URL) was undeterminable: name must be provided"


async def send(
    api: Api, request: str, body: object = None, *, kind: str = "application/json", accept: str = ""
) -> tuple[Response, Json]:
    """``request`` is a verb and a path; a body of bytes is sent as it is."""
    method, path = request.split()
    sent = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
    headers: Mapping[str, str] = {"content_type": kind, "user_agent": "tests/1", "accept": accept}
    response = await ask(api, method, path, sent, **headers)
    assert isinstance(response.body, bytes)
    decoded: Json = msgspec.json.decode(response.body) if response.content_type == "application/json" else {}
    return response, decoded


async def make(api: Api, path: str, **fields: object) -> Json:
    response, made = await send(api, f"POST {path}", {"metadata": {"name": "a"}, **fields})
    assert response.status == 201, made
    return made


async def make_queue(api: Api) -> Json:
    api_version = "kueue.x-k8s.io/v1beta2"
    return await make(api, QUEUES, apiVersion=api_version, kind="LocalQueue", spec={"clusterQueue": "main"})


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
    """And is forgotten where it is not: in a create."""
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


async def test_only_the_server_counts_generations(tmp_path: Path) -> None:
    """A ConfigMap has none, and may be created with one; no later write changes it."""
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


async def test_nobody_sets_the_grace_of_a_deletion(tmp_path: Path) -> None:
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


async def test_a_refusal_comes_with_the_warnings_about_the_body(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        response, _ = await send(api, f"POST {MAPS}", {"metadata": {"name": "B_AD"}, "bogus": 1})
        assert response.status == 422
        assert response.warnings == ('299 - "unknown field \\"bogus\\""',)
        response, _ = await send(api, f"PUT {MAPS}/a", {"metadata": {"name": "a"}, "bogus": 1})
        assert response.status == 404
        assert response.warnings == ('299 - "unknown field \\"bogus\\""',)


async def test_a_deprecated_version_says_so_in_refusals_too(tmp_path: Path) -> None:
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
async def test_a_custom_object_says_what_it_is(tmp_path: Path, patch: Json, code: int, message: str) -> None:
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
async def test_paths_to_nowhere(tmp_path: Path, request_: str, code: int, is_status: bool) -> None:
    """Where the group is known there is a Status, elsewhere plain text."""
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
async def test_what_the_type_of_a_secret_promises(tmp_path: Path, fields: Json, blamed: list[str]) -> None:
    async with serving(tmp_path) as (api, _):
        response, status = await send(api, f"POST {SECRETS}", {"metadata": {"name": "a"}, **fields})
        causes = status["details"]["causes"] if response.status == 422 else []
        assert [cause["field"] for cause in causes] == blamed


# The path of the status.

PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
CONTAINER = {"name": "main", "image": "busybox:1"}
OWNER = {"apiVersion": "v1", "kind": "Thing", "name": "t", "uid": "u"}
TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [CONTAINER]}}
DEPLOYMENT = {"selector": {"matchLabels": {"app": "a"}}, "template": TEMPLATE}
SUSPENDED = {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}}


@pytest.mark.parametrize(
    ("path", "spec", "kept"),
    [
        (PODS, {"containers": [CONTAINER]}, {"ownerReferences"}),
        (JOBS, SUSPENDED, set[str]()),
        (DEPLOYMENTS, DEPLOYMENT, {"labels"}),
    ],
)
async def test_metadata_are_written_by_way_of_the_status(tmp_path: Path, path: str, spec: Json, kept: set[str]) -> None:
    """All of them but what a kind keeps from it; whoever writes them owns them there."""
    wanted = {"labels": {"l": "1"}, "annotations": {"a": "1"}, "finalizers": ["x.com/f"], "ownerReferences": [OWNER]}
    async with serving(tmp_path) as (api, _):
        made = await make(api, path, spec=spec)
        request = f"PATCH {path}/a/status?fieldManager=states"
        _, patched = await send(api, request, {"metadata": wanted}, kind=MERGE)
        changed = {name for name in wanted if patched["metadata"].get(name) != made["metadata"].get(name)}
        assert changed == {*wanted} - kept
        mine = next(entry for entry in patched["metadata"]["managedFields"] if entry["manager"] == "states")
        assert mine["subresource"] == "status"
        assert {*mine["fieldsV1"]["f:metadata"]} == {f"f:{name}" for name in changed}


async def test_addresses_of_a_pod_agree(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        await make(api, PODS, spec={"containers": [CONTAINER]})
        _, one = await send(api, f"PATCH {PODS}/a/status", {"status": {"podIP": "10.0.0.1"}}, kind=MERGE)
        assert one["status"]["podIPs"] == [{"ip": "10.0.0.1"}]
        many = {"status": {"podIP": None, "podIPs": [{"ip": "10.0.0.2"}, {"ip": "fd00::1"}]}}
        _, two = await send(api, f"PATCH {PODS}/a/status", many, kind=MERGE)
        assert two["status"]["podIP"] == "10.0.0.2"
        same_family = {"status": {"podIPs": [{"ip": "10.0.0.2"}, {"ip": "10.0.0.3"}]}}
        response, _ = await send(api, f"PATCH {PODS}/a/status", same_family, kind=MERGE)
        assert response.status == 422


async def test_the_class_of_a_pod_stays(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        await make(api, PODS, spec={"containers": [CONTAINER]})
        response, _ = await send(api, f"PATCH {PODS}/a/status", {"status": {"qosClass": "Guaranteed"}}, kind=MERGE)
        assert response.status == 422
        _, emptied = await send(api, f"PATCH {PODS}/a/status", {"status": None}, kind=MERGE)
        assert emptied["status"]["qosClass"] == "BestEffort"


# Pods and Jobs that are written again.


async def test_a_pod_is_put_from_its_manifest(tmp_path: Path) -> None:
    """Which knows nothing of the priority and the tolerations that it was given."""
    async with serving(tmp_path) as (api, _):
        made = await make(api, PODS, spec={"containers": [CONTAINER]})
        body = {"metadata": {"name": "a", "labels": {"l": "1"}}, "spec": {"containers": [CONTAINER]}}
        response, put = await send(api, f"PUT {PODS}/a", body)
        assert response.status == 200
        assert put["spec"] == made["spec"]


@pytest.mark.parametrize(
    ("change", "blamed"),
    [
        ({"containers": [CONTAINER, {"name": "more", "image": "x"}]}, "spec.containers"),
        ({"initContainers": [CONTAINER]}, "spec.initContainers"),
        ({"schedulingGates": [{"name": "x.com/gate"}]}, "spec.schedulingGates[0].name"),
    ],
)
async def test_what_a_pod_does_not_get_later(tmp_path: Path, change: Json, blamed: str) -> None:
    async with serving(tmp_path) as (api, _):
        await make(api, PODS, spec={"containers": [CONTAINER]})
        response, status = await send(api, f"PATCH {PODS}/a", {"spec": change}, kind=MERGE)
        assert response.status == 422
        assert blamed in [cause["field"] for cause in status["details"]["causes"]]


@pytest.mark.parametrize(
    ("labels", "blamed"),
    [
        ({"job-name": "other"}, ["spec.template.metadata.labels[job-name]"]),
        ({"controller-uid": None}, ["spec.template.metadata.labels[controller-uid]"]),
        ({"color": "red"}, []),
    ],
)
async def test_the_labels_that_a_job_gives_to_its_pods_stay(tmp_path: Path, labels: Json, blamed: list[str]) -> None:
    async with serving(tmp_path) as (api, _):
        await make(api, JOBS, spec=SUSPENDED)
        patch = {"spec": {"template": {"metadata": {"labels": labels}}}}
        response, status = await send(api, f"PATCH {JOBS}/a", patch, kind=MERGE)
        causes = status["details"]["causes"] if response.status == 422 else []
        assert [cause["field"] for cause in causes] == blamed


async def test_the_deletion_of_a_job_warns_though_there_is_none(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        response, _ = await send(api, f"DELETE {JOBS}/none")
        assert response.status == 404
        assert "child pods are preserved by default" in response.warnings[0]


# Deleting, and writing what is not there.


async def test_a_deleted_object_is_answered_in_the_version_of_its_deletion(tmp_path: Path) -> None:
    """As a watch shows it."""
    async with serving(tmp_path) as (api, _):
        made = await make(api, PODS, spec={"containers": [CONTAINER]})
        watch = await ask(api, "GET", f"{PODS}?watch=1&resourceVersion={made['metadata']['resourceVersion']}")
        _, deleted = await send(api, f"DELETE {PODS}/a")
        marked, gone = await first_events(watch, 2)
        assert (marked["type"], gone["type"]) == ("MODIFIED", "DELETED")
        assert deleted["metadata"]["resourceVersion"] == gone["object"]["metadata"]["resourceVersion"]


@pytest.mark.parametrize(
    ("path", "fields", "missing", "present"),
    [
        (MAPS, {}, 404, 200),
        ("/apis/coordination.k8s.io/v1/namespaces/default/leases", {"spec": {}}, 201, 422),
        ("/apis/node.k8s.io/v1/runtimeclasses", {"handler": "h"}, 404, 422),
        ("/apis/policy/v1/namespaces/default/poddisruptionbudgets", {"spec": {"minAvailable": 1}}, 404, 422),
        ("/api/v1/namespaces/default/services", {"spec": {"clusterIP": "None", "ports": [{"port": 80}]}}, 201, 200),
        ("/api/v1/namespaces/default/limitranges", {"spec": {"limits": [{"type": "Container"}]}}, 201, 200),
    ],
)
async def test_a_put_without_a_version(tmp_path: Path, path: str, fields: Json, missing: int, present: int) -> None:
    """Some kinds are created by it, and some want to know what they replace."""
    async with serving(tmp_path) as (api, _):
        body = {"metadata": {"name": "a"}, **fields}
        response, _ = await send(api, f"PUT {path}/a", body)
        assert response.status == missing
        if missing == 404:
            await make(api, path, **fields)
        response, status = await send(api, f"PUT {path}/a", body)
        assert response.status == present
        if present == 422:
            assert status["details"]["causes"][0]["field"] == "metadata.resourceVersion"


async def test_a_namespace_whose_name_was_generated_has_it_as_a_label(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        _, made = await send(api, "POST /api/v1/namespaces", {"metadata": {"generateName": "n-"}})
        name = made["metadata"]["name"]
        assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": name}
        put = {"metadata": {"name": name}, "status": {}}
        _, answered = await send(api, f"PUT /api/v1/namespaces/{name}/status", put)
        assert answered["status"] == {"phase": "Active"}


async def test_what_was_there_before_the_first_apply_of_a_status(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        await make(api, "/api/v1/nodes", status={"phase": "Running"})
        config = {"apiVersion": "v1", "kind": "Node", "metadata": {"labels": {"z": "1"}}}
        request = "PATCH /api/v1/nodes/a/status?fieldManager=m"
        await send(api, "PATCH /api/v1/nodes/a", {"metadata": {"managedFields": [{}]}}, kind=MERGE)
        _, applied = await send(api, request, config, kind="application/apply-patch+yaml")
        entries = applied["metadata"]["managedFields"]
        assert {(entry["manager"], entry["subresource"]) for entry in entries} == {
            ("m", "status"),
            ("before-first-apply", "status"),
        }
