"""Random requests: every answer is one of Kubernetes, without internal errors, and the store stays readable."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kyu.server.exchange import Response
from tests.support.servers import ask, config_map, serving, workload

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
PATHS = (
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/configmaps/a",
    "/apis/batch/v1/namespaces/default/jobs",
    "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads/w",
    "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads/w/status",
    "/apis/apps/v1/namespaces/default/deployments",
    "/apis/apps/v1/namespaces/default/deployments/d",
    "/apis/apps/v1/namespaces/default/deployments/d/scale",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
)
TYPES = (
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
QUERIES = (
    "",
    "?fieldManager=m",
    "?fieldManager=m&force=true",
    "?dryRun=All",
    "?limit=1&continue=x",
    "?labelSelector=(",
)
WORKLOAD_TYPE = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload"}
DEPLOYMENT = {
    "metadata": {"name": "d"},
    "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    },
}
WORDS = st.sampled_from((
    "apiVersion", "kind", "metadata", "name", "labels", "finalizers", "ownerReferences", "managedFields", "spec",
    "data", "replicas", "template", "containers", "ports", "env", "status", "conditions", "$patch", "$retainKeys",
    "op", "path", "value", "v1", "apps/v1", "Deployment", "ConfigMap", "Scale", "a", "d", "delete", "replace",
    "add", "/metadata/labels",
))  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers(-3, 2**65) | st.floats(allow_nan=False) | WORDS | st.text(max_size=4)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4), max_leaves=12
)
# A patch of an existing field gets further than a random value.
PATCHES = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.dictionaries(WORDS, VALUES, max_size=3),
        "spec": st.dictionaries(WORDS, VALUES, max_size=3),
        "status": VALUES,
        "data": VALUES,
        "apiVersion": st.sampled_from(("v1", "apps/v1")),
        "kind": st.sampled_from(("ConfigMap", "Deployment")),
    },
)
BODIES = st.binary(max_size=60) | VALUES.map(json.dumps).map(str.encode) | PATCHES.map(json.dumps).map(str.encode)
REQUESTS = st.tuples(
    st.sampled_from(METHODS), st.sampled_from(PATHS), st.sampled_from(QUERIES), st.sampled_from(TYPES), BODIES
)
# Kubernetes answers some requests with a 500, such as an apply that does not fit. Internal errors have this reason.
OUR_FAULT = "InternalError"


# Few servers with many requests each: starting one takes longer than a hundred answers.
@settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.generate],
    database=None,
)
@given(st.lists(REQUESTS, min_size=60, max_size=90))
def test_nothing_fails_inside(requests: list[tuple[str, str, str, str, bytes]]) -> None:
    with tempfile.TemporaryDirectory(prefix="kyu-fuzz-") as folder:
        asyncio.run(send(Path(folder), requests))


async def send(folder: Path, requests: list[tuple[str, str, str, str, bytes]]) -> None:
    async with serving(folder) as (api, _):
        for path, body in (
            ("/api/v1/namespaces/default/configmaps", config_map("a")),
            ("/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads", {**WORKLOAD_TYPE, **workload("w")}),
            ("/apis/apps/v1/namespaces/default/deployments", DEPLOYMENT),
        ):
            made = await ask(api, "POST", path, msgspec.json.encode(body), content_type="application/json")
            assert made.status == 201, made.body
        for method, path, query, content_type, content in requests:
            answer = await asyncio.wait_for(ask(api, method, path + query, content, content_type=content_type), 60)
            check(answer, f"{method} {path}{query} {content_type} {content!r}")
        for path in ("/api/v1/configmaps", "/apis/apps/v1/deployments", "/apis/kueue.x-k8s.io/v1beta2/workloads"):
            assert (await ask(api, "GET", path)).status == 200


def check(answer: Response, request: str) -> None:
    assert isinstance(answer.body, bytes), request
    if answer.status < 400:
        return
    status = msgspec.json.decode(answer.body)
    assert status["kind"] == "Status", request
    assert status["code"] == answer.status, request
    assert status.get("reason") != OUR_FAULT, request
