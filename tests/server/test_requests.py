"""Requests: YAML, old paths, timeouts and empty bodies."""

from __future__ import annotations

from pathlib import Path

import pytest

from kyu.server import options
from kyu.server.errors import StatusError
from kyu.server.exchange import Request, Response
from kyu.server.http import yaml_answers
from kyu.server.http.yaml_answers import YAML
from kyu.server.routing.deprecated_watches import as_usual
from tests.support.answers import APPLY, MAPS, QUEUES, send
from tests.support.servers import serving


@pytest.mark.parametrize(
    ("accept", "instead"),
    [
        ("application/json", ""),
        ("application/json,application/yaml", ""),
        ("application/yaml", "application/json"),
        ("application/yaml,application/json", "application/json"),
        ("application/yaml;q=0.5,application/json;q=0.9", ""),
        ("application/yaml;as=Table;v=v1;g=meta.k8s.io", "application/json;as=Table;v=v1;g=meta.k8s.io"),
    ],
)
def test_yaml_is_negotiated(accept: str, instead: str) -> None:
    assert yaml_answers.json_instead(accept) == instead


def test_yaml_as_kubernetes_writes_it() -> None:
    value = {
        "b": {"a10": "1", "a9": "yes", "n": None, "text": "one\ntwo\n"},
        "a": ["plain", "", "a: b", "1e3", 1, True, {}, []],
        "when": "2026-01-01T00:00:00Z",
    }
    assert yaml_answers.render(value) == (
        'a:\n- plain\n- ""\n- \'a: b\'\n- "1e3"\n- 1\n- true\n- {}\n- []\n'
        'b:\n  a9: "yes"\n  a10: "1"\n  "n": null\n  text: |\n    one\n    two\n'
        'when: "2026-01-01T00:00:00Z"\n'
    )


async def test_answers_and_refusals_in_yaml(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        response, _ = await send(api, f"POST {MAPS}", {"metadata": {"name": "a"}}, accept=YAML)
        assert (response.status, response.content_type) == (201, YAML)
        assert _bytes(response).startswith(b"apiVersion: v1\nkind: ConfigMap\n")
        response, _ = await send(api, f"GET {MAPS}/none", accept=YAML)
        assert (response.status, response.content_type) == (404, YAML)
        assert b'message: configmaps "none" not found\n' in _bytes(response)
        response, status = await send(api, f"GET {MAPS}?watch=1", accept=YAML)
        assert (response.status, status["reason"]) == (406, "NotAcceptable")


def _bytes(response: Response) -> bytes:
    assert isinstance(response.body, bytes)
    return response.body


@pytest.mark.parametrize(
    ("old", "path", "query"),
    [
        ("/api/v1/watch/nodes", "/api/v1/nodes", {}),
        ("/api/v1/watch/nodes/n", "/api/v1/nodes", {"fieldSelector": "metadata.name=n"}),
        ("/api/v1/watch/namespaces/n", "/api/v1/namespaces", {"fieldSelector": "metadata.name=n"}),
        ("/api/v1/watch/namespaces/n/pods", "/api/v1/namespaces/n/pods", {}),
        ("/apis/batch/v1/watch/namespaces/n/jobs/j", "/apis/batch/v1/namespaces/n/jobs",
         {"fieldSelector": "metadata.name=j"}),
    ],
)  # fmt: skip
def test_old_paths_of_watches(old: str, path: str, query: dict[str, str]) -> None:
    request = as_usual(Request("GET", old, {"watch": "false"}))
    assert (request.path, request.query) == (path, {"watch": "true", **query})


def test_a_name_that_is_watch_is_a_name() -> None:
    request = Request("GET", "/api/v1/namespaces/n/pods/watch/log")
    assert as_usual(request) is request
    with pytest.raises(StatusError):
        as_usual(Request("POST", "/api/v1/watch/pods"))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", None),
        ("0", None),
        ("1h30m", None),
        ("-1.5s", None),
        ("x", 'invalid duration "x"'),
        ("5", 'missing unit in duration "5"'),
        ("1d", 'unknown unit "d" in duration "1d"'),
    ],
)
def test_a_timeout_is_a_duration(text: str, fault: str | None) -> None:
    if fault is None:
        options.check_timeout(text)
        return
    with pytest.raises(StatusError) as caught:
        options.check_timeout(text)
    assert caught.value.message == f"invalid timeout specified in the request URL - time: {fault}"


async def test_a_body_that_is_null_is_an_object_without_fields(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        response, status = await send(api, f"POST {MAPS}", b"null")
        assert (response.status, status["details"]["causes"][0]["field"]) == (422, "metadata.name")
        response, status = await send(api, f"DELETE {MAPS}/none", b"null")
        assert (response.status, status["reason"]) == (404, "NotFound")


@pytest.mark.parametrize(
    ("config", "code", "message"),
    [
        ({"apiVersion": 5, "kind": "ConfigMap"}, 400, "invalid object type: /, Kind=ConfigMap"),
        (
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": "x"},
            500,
            "failed to create typed patch object (/; /v1, Kind=ConfigMap): .metadata: expected map, got &{x}",
        ),
        (
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": 5}},
            500,
            "failed to create typed patch object (/; /v1, Kind=ConfigMap): .metadata.name: expected string, got"
            " &value.valueUnstructured{Value:5}",
        ),
        (
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"uid": "x"}},
            409,
            'Operation cannot be fulfilled on configmaps "a": uid mismatch: the provided object specified uid x, and no'
            " existing object was found",
        ),
    ],
)
async def test_an_apply_whose_metadata_do_not_fit(
    tmp_path: Path, config: dict[str, object], code: int, message: str
) -> None:
    async with serving(tmp_path) as (api, _):
        response, status = await send(api, f"PATCH {MAPS}/a?fieldManager=m", config, kind=APPLY)
        assert (response.status, status["message"]) == (code, message)


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        ("OPTIONS *", 404, "404 page not found\n"),
        ("HEAD " + MAPS, 405, ""),
        ("GET /apis/kueue.x-k8s.io/v1beta2/none", 404, "404 page not found\n"),
        ("GET /apis/batch/v1/none", 404, "the server could not find the requested resource"),
        (f"GET {QUEUES}/a/odd", 404, 'localqueues.kueue.x-k8s.io "a" not found'),
        (f"PUT {QUEUES}", 400, "name must be provided"),
        ("POST /apis/kueue.x-k8s.io/v1beta2/localqueues", 404, "404 page not found\n"),
        ("POST /api/v1/configmaps", 405, "the server does not allow this method on the requested resource"),
        (f"OPTIONS {QUEUES}", 405, ' is not supported on resources of kind "localqueues.kueue.x-k8s.io"'),
    ],
)
async def test_paths_and_verbs_without_anybody_behind_them(
    tmp_path: Path, request_: str, code: int, words: str
) -> None:
    async with serving(tmp_path) as (api, _):
        response, status = await send(api, request_, {})
        assert (response.status, status.get("message", _bytes(response).decode())) == (code, words or status["message"])
