"""The paths beside the API: health, version, metrics, OpenAPI."""

from __future__ import annotations

import platform
from collections.abc import Callable

import kyu
from kyu.server.exchange import Request, Response, json_response, text_response
from kyu.server.metrics import Metrics
from kyu.server.registry import Registry
from kyu.server.routing import openapi
from kyu.server.routing.routes import PAGE_NOT_FOUND, Page

# The Kubernetes version whose API is spoken; clients compare it with their own.
KUBERNETES = "1.36.0"
PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
# The name in requests of older clients; they do not read it in an answer.
OLD_PROTOBUF_V2 = PROTOBUF_V2.replace("v2.v1.0", "v2@v1.0")
CHECKS = ("ping", "store")


class Pages:
    def __init__(self, registry: Registry, metrics: Metrics, find_fault: Callable[[], str]) -> None:
        self._metrics = metrics
        self._find_fault = find_fault
        self._openapi = openapi.OpenApi(registry)

    def table(self) -> dict[str, Page]:
        """Return the pages by path; one that ends with a slash answers for all paths below it."""
        return {
            "/version": self._version,
            "/healthz": self._health,
            "/livez": self._health,
            "/readyz": self._health,
            "/healthz/": self._check,
            "/livez/": self._check,
            "/readyz/": self._check,
            "/metrics": self._show_metrics,
            "/openapi/v2": self._openapi_v2,
            "/openapi/v3": self._openapi_index,
            "/openapi/": self._openapi_document,
        }

    async def _version(self, request: Request) -> Response:
        major, minor, _ = KUBERNETES.split(".")
        return json_response(
            200,
            {
                "major": major,
                "minor": minor,
                "gitVersion": f"v{KUBERNETES}+kyu-{kyu.__version__}",
                "gitCommit": "",
                "gitTreeState": "clean",
                "buildDate": "1970-01-01T00:00:00Z",
                "goVersion": "",
                "compiler": f"{platform.python_implementation()} {platform.python_version()}",
                "platform": f"{platform.system().lower()}/{platform.machine()}",
            },
        )

    async def _health(self, request: Request) -> Response:
        """Answer a probe. A server that cannot store writes is alive, and not ready."""
        name = request.path.strip("/")
        faults = self._faults(request)
        if faults or "verbose" in request.query:
            lines = [f"[{'-' if check in faults else '+'}]{check} {faults.get(check, 'ok')}" for check in CHECKS]
            end = f"{name} check {'failed' if faults else 'passed'}"
            return text_response(500 if faults else 200, "\n".join([*lines, end, ""]))
        return text_response(200, "ok")

    def _faults(self, request: Request) -> dict[str, str]:
        if not request.path.startswith("/readyz"):
            return {}
        reason = self._find_fault()
        return {"store": f"failed: {reason}"} if reason else {}

    async def _check(self, request: Request) -> Response:
        check = request.path.rstrip("/").rpartition("/")[2]
        if check not in CHECKS:
            return text_response(404, PAGE_NOT_FOUND)
        fault = self._faults(request).get(check)
        return text_response(500, f"{fault}\n") if fault else text_response(200, "ok")

    async def _show_metrics(self, request: Request) -> Response:
        return Response(200, self._metrics.render(), "text/plain; version=0.0.4; charset=utf-8")

    async def _openapi_v2(self, request: Request) -> Response:
        if PROTOBUF_V2 in request.accept or OLD_PROTOBUF_V2 in request.accept:
            return Response(200, openapi.version_2_protobuf(), PROTOBUF_V2)
        return json_response(200, openapi.version_2())

    async def _openapi_index(self, request: Request) -> Response:
        return json_response(200, self._openapi.index())

    async def _openapi_document(self, request: Request) -> Response:
        document = self._openapi.document(request.path.removeprefix("/openapi/v3/").strip("/"))
        return Response(200, document) if document is not None else text_response(404, PAGE_NOT_FOUND)
