"""Reviews of an API server and their answers."""

from __future__ import annotations

import asyncio
import base64
import json

import msgspec
import pytest

from kyu.api.config.config import Configuration, Integrations
from kyu.api.meta import Json
from kyu.controllers.live_view import LiveView
from kyu.kinds.table import FRAMEWORKS
from kyu.kube.cache import Cache
from kyu.server.exchange import Request, Response
from kyu.server.verbs import json_patch
from kyu.webhooks import reviews
from kyu.webhooks.server import webhook_pages

QUEUE = "kueue.x-k8s.io/queue-name"


def view() -> LiveView:
    settings = Configuration(integrations=Integrations(frameworks=FRAMEWORKS))
    return LiveView(Cache(), settings, on_settings=lambda: None)


def post(path: str, body: Json, *, ready: bool = True) -> Response:
    handler = webhook_pages(view(), lambda: ready)
    return asyncio.run(handler(Request("POST", path, body=msgspec.json.encode(body))))


def review(obj: Json, *, group: str = "batch", kind: str = "Job", old: Json | None = None, part: str = "") -> Json:
    version = "v1beta2" if "kueue" in group else "v1"
    request = {
        "uid": "1",
        "kind": {"group": group, "version": version, "kind": kind},
        "operation": "UPDATE" if old else "CREATE",
        "namespace": "team",
        "object": obj,
        "oldObject": old,
        "subResource": part,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def answer(path: str, body: Json) -> Json:
    response = post(path, body)
    assert response.status == 200
    assert isinstance(response.body, bytes)
    found: Json = json.loads(response.body)["response"]
    return found


def patch_of(response: Json) -> list[Json]:
    found: list[Json] = json.loads(base64.b64decode(response["patch"]))
    return found


def job(**labels: str) -> Json:
    return {"metadata": {"name": "a", "labels": labels}, "spec": {"template": {"spec": {"containers": []}}}}


def test_a_labelled_job_is_suspended() -> None:
    response = answer("/mutate-batch-v1-job", review(job(**{QUEUE: "team"})))
    assert response["allowed"] is True
    assert patch_of(response) == [{"op": "add", "path": "/spec/suspend", "value": True}]


def test_a_workflow_with_a_circle_is_refused() -> None:
    def reviewed(*after: str, image: str = "busybox") -> Json:
        steps = [{"name": "a", "command": ["x"], "after": list(after)}]
        spec = {"queue": "q", "image": image, "steps": steps}
        body = {"apiVersion": "kyu.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "dag"}, "spec": spec}
        return answer("/validate-kyu-dev-v1alpha1-workflow", review(body, group="kyu.dev", kind="Workflow"))

    assert reviewed()["allowed"] is True
    assert "in a circle: a → a" in reviewed("a")["status"]["message"]
    assert "a command on a cluster needs an image" in reviewed(image="")["status"]["message"]


def test_an_unlabelled_job_passes_unchanged() -> None:
    assert answer("/mutate-batch-v1-job", review(job())) == {"uid": "1", "allowed": True}


def test_the_namespace_of_the_request_is_not_patched_into_the_object() -> None:
    response = answer(
        "/mutate--v1-pod",
        review({"metadata": {"generateName": "a-", "labels": {QUEUE: "team"}}, "spec": {}}, group="", kind="Pod"),
    )
    assert all("namespace" not in operation["path"] for operation in patch_of(response))


def test_a_new_queue_gets_its_finalizer() -> None:
    queue = {"metadata": {"name": "a"}, "spec": {}}
    response = answer(
        "/mutate-kueue-x-k8s-io-v1beta2-clusterqueue", review(queue, group="kueue.x-k8s.io", kind="ClusterQueue")
    )
    expected = {"op": "add", "path": "/metadata/finalizers", "value": ["kueue.x-k8s.io/resource-in-use"]}
    assert patch_of(response) == [expected]


def test_a_wrong_change_is_denied_with_all_errors() -> None:
    before = {**job(**{QUEUE: "team"}), "spec": {**job()["spec"], "suspend": False}}
    after = {**job(**{QUEUE: "other"}), "spec": before["spec"]}
    response = answer("/validate-batch-v1-job", review(after, old=before))
    assert response["allowed"] is False
    assert response["status"]["code"] == 403
    assert "field is immutable" in response["status"]["message"]


def test_an_object_that_is_being_deleted_passes() -> None:
    before = {**job(**{QUEUE: "team"}), "spec": {**job()["spec"], "suspend": False}}
    after = {**job(**{QUEUE: "other"}), "spec": before["spec"]}
    after["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert answer("/validate-batch-v1-job", review(after, old=before))["allowed"] is True


@pytest.mark.parametrize("spec", [None, 7, [], {"template": 3}, {"template": {"spec": []}}])
def test_a_broken_object_is_answered(spec: object) -> None:
    broken = {"metadata": {"labels": {QUEUE: "team"}}, "spec": spec}
    for path in ("/mutate-batch-v1-job", "/validate-batch-v1-job"):
        assert isinstance(answer(path, review(broken))["allowed"], bool)


def test_objects_are_converted() -> None:
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ClusterQueue",
        "metadata": {"name": "a"},
        "spec": {"cohort": "c"},
    }
    request = {"uid": "1", "desiredAPIVersion": "kueue.x-k8s.io/v1beta2", "objects": [queue]}
    response = answer("/convert", {"request": request})
    assert response["result"] == {"status": "Success"}
    assert response["convertedObjects"][0]["spec"]["cohortName"] == "c"


def test_an_unknown_version_is_not_converted() -> None:
    queue = {"apiVersion": "kueue.x-k8s.io/v9", "kind": "ClusterQueue", "metadata": {"name": "a"}, "spec": {}}
    request = {"uid": "1", "desiredAPIVersion": "kueue.x-k8s.io/v1beta2", "objects": [queue]}
    assert answer("/convert", {"request": request})["result"]["status"] == "Failure"


@pytest.mark.parametrize(("path", "status"), [("/", 404), ("/validate-batch-v1-job", 400), ("/convert", 400)])
def test_other_requests_are_refused(path: str, status: int) -> None:
    assert post(path, {}).status == status


def test_reviews_wait_for_the_view() -> None:
    assert post("/validate-batch-v1-job", review(job()), ready=False).status == 503


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {"a": 1}),
        ({"a": {"b/c": 1, "~d": 2}}, {"a": {"b/c": 3}}),
        ({"a": [1, 2]}, {"a": [2]}),
        ({"a": {"b": 1}}, {"a": "b"}),
        ({"a": None}, {"a": {"b": {}}}),
    ],
)
def test_the_patch_makes_the_new_object(old: Json, new: Json) -> None:
    assert json_patch.json_patch(old, list(reviews.json_patch(old, new))) == new
