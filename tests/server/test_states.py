"""Updates of the status, repeated writes of Pods and Jobs, and answers about deleted objects."""

from __future__ import annotations

from pathlib import Path

import pytest

from kyu.api.meta import Json
from tests.server.test_verbs import first_events
from tests.support.answers import APPLY, JOBS, MAPS, MERGE, PODS, make, send
from tests.support.servers import ask, serving

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
    """An update of the status writes all metadata, except what a kind keeps, and its manager owns them."""
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


# Repeated writes of Pods and Jobs.


async def test_a_pod_is_put_from_its_manifest(tmp_path: Path) -> None:
    """A manifest has neither the priority nor the tolerations that admission has set."""
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
async def test_fields_that_a_pod_update_cannot_add(tmp_path: Path, change: Json, blamed: str) -> None:
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


# Deletions, and updates of missing objects.


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
        ("/apis/node.k8s.io/v1/runtimeclasses", {"handler": "h"}, 201, 422),
        ("/apis/policy/v1/namespaces/default/poddisruptionbudgets", {"spec": {"minAvailable": 1}}, 404, 422),
        ("/api/v1/namespaces/default/services", {"spec": {"clusterIP": "None", "ports": [{"port": 80}]}}, 201, 200),
        ("/api/v1/namespaces/default/limitranges", {"spec": {"limits": [{"type": "Container"}]}}, 201, 200),
    ],
)
async def test_a_put_without_a_version(tmp_path: Path, path: str, fields: Json, missing: int, present: int) -> None:
    """Some kinds are created by it, and some require a version."""
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


async def test_fields_before_the_first_apply_of_a_status_have_an_owner(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        await make(api, "/api/v1/nodes", status={"phase": "Running"})
        config = {"apiVersion": "v1", "kind": "Node", "metadata": {"labels": {"z": "1"}}}
        request = "PATCH /api/v1/nodes/a/status?fieldManager=m"
        await send(api, "PATCH /api/v1/nodes/a", {"metadata": {"managedFields": [{}]}}, kind=MERGE)
        _, applied = await send(api, request, config, kind=APPLY)
        entries = applied["metadata"]["managedFields"]
        assert {(entry["manager"], entry["subresource"]) for entry in entries} == {
            ("m", "status"),
            ("before-first-apply", "status"),
        }


@pytest.mark.parametrize(("query", "code"), [("?propagationPolicy=Foreground", 200), ("?orphanDependents=false", 202)])
async def test_a_deletion_in_the_old_way_is_accepted(tmp_path: Path, query: str, code: int) -> None:
    async with serving(tmp_path) as (api, _):
        await send(api, f"POST {MAPS}", {"metadata": {"name": "a", "finalizers": ["x.com/f"]}})
        response, _ = await send(api, f"DELETE {MAPS}/a{query}")
        assert response.status == code


async def test_a_deletion_of_some_answers_with_these(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        for name in "abc":
            await send(api, f"POST {MAPS}", {"metadata": {"name": name}})
        _, deleted = await send(api, f"DELETE {MAPS}?limit=2")
        assert [item["metadata"]["name"] for item in deleted["items"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("subresource", "body", "message"),
    [
        ("binding", {"target": {"name": "n"}}, "name in URL does not match name in Binding object"),
        ("eviction", {"metadata": {"name": "b"}}, "name in URL does not match name in Eviction object"),
        (
            "binding",
            {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}},
            'Pod in version "v1" cannot be handled as a Binding: converting (v1.Pod) to (core.Binding): unknown'
            " conversion",
        ),
    ],
)
async def test_whoever_moves_a_pod_names_it(tmp_path: Path, subresource: str, body: Json, message: str) -> None:
    async with serving(tmp_path) as (api, _):
        await make(api, PODS, spec={"containers": [CONTAINER]})
        response, status = await send(api, f"POST {PODS}/a/{subresource}", body)
        assert (response.status, status["message"]) == (400, message)


async def test_a_gated_pod_waits_since_it_was_created(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        made = await make(api, PODS, spec={"containers": [CONTAINER], "schedulingGates": [{"name": "x.com/gate"}]})
        waits = made["status"]["conditions"][0]
        assert waits["lastTransitionTime"] == made["metadata"]["creationTimestamp"]
