"""Requests to a server of a test, and its answers: as bytes, and as what they mean."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kyu.api.meta import Json
from kyu.server.api import Api
from kyu.server.exchange import Response
from tests.support.servers import ask

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
QUEUES = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues"
MERGE = "application/merge-patch+json"
STEPS = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


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
