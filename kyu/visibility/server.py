"""
The visibility API on a cluster: an aggregated API server for one subresource.

The API server of the cluster authenticates users and forwards their requests. A SubjectAccessReview asks it whether a
user may see a queue.

Called by: on_cluster.py. Kueue: pkg/visibility/server.go
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kyu import log
from kyu.api.meta import Json, Key, Kind
from kyu.kube import errors as api_errors
from kyu.kube.client import Client
from kyu.server import errors
from kyu.server.auth.rbac import Attributes
from kyu.server.exchange import Handler, Request, Response, User, error_response, json_response, text_response
from kyu.server.paths import Path
from kyu.server.routing import discovery, openapi
from kyu.server.routing.routes import PAGE_NOT_FOUND, parse_path, refusal
from kyu.visibility.front_proxy import FrontProxy
from kyu.visibility.pending import QueueVisibility
from kyu.visibility.resources import make_registry

REVIEW = Kind("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False)

MayRead = Callable[[User, str, Attributes], Awaitable[bool]]


def visibility_pages(pending: QueueVisibility, proxy: Callable[[], FrontProxy | None], may_read: MayRead) -> Handler:
    """Return the handler of requests that the front proxy forwards."""
    registry = make_registry()
    documents = openapi.OpenApi(registry)

    async def answer(request: Request) -> Response:
        settings = proxy()
        user = settings.find_user(request.headers) if settings else None
        if user is None:
            raise errors.unauthorized()
        path = parse_path(request.path)
        if path is None and request.path.startswith("/openapi/"):
            return describe(request.path)
        if path is None or (path.group and path.group not in registry.groups()):
            return text_response(404, PAGE_NOT_FOUND)
        if request.method != "GET":
            raise errors.method_not_allowed()
        if not path.plural:
            return discover(request, path)
        resource = registry.find(path.group, path.version, path.plural)
        has_place = resource is not None and resource.kind.namespaced == (path.namespace is not None)
        if resource is None or not has_place or path.subresource not in resource.subresources:
            return text_response(404, PAGE_NOT_FOUND)
        kind, namespace = resource.kind, path.namespace or ""
        right = Attributes("get", kind.group, kind.plural, path.subresource, namespace, path.name)
        if not await may_read(user, kind.version, right):
            raise errors.forbidden(kind, path.name, refusal(user.name, right))
        return json_response(200, pending.summary(kind.version, kind.plural, Key(namespace, path.name), request.query))

    def describe(path: str) -> Response:
        """Return an OpenAPI document. Without one, the API server logs an error every few seconds."""
        if path == "/openapi/v2":
            return json_response(200, openapi.version_2())
        if path == "/openapi/v3":
            return json_response(200, documents.index())
        found = documents.document(path.removeprefix("/openapi/v3/"))
        return text_response(404, PAGE_NOT_FOUND) if found is None else Response(200, found)

    def discover(request: Request, path: Path) -> Response:
        if not path.group:
            version = discovery.aggregated_version(request.accept)
            if version is None:
                return json_response(200, discovery.group_list(registry))
            body = discovery.aggregated(registry, version, core=False)
            return json_response(200, body, content_type=discovery.AGGREGATED.format(version=version))
        if not path.version:
            return json_response(200, discovery.group(registry, path.group))
        if path.version not in registry.versions(path.group):
            return text_response(404, PAGE_NOT_FOUND)
        return json_response(200, discovery.resource_list(registry, path.group, path.version))

    async def handle(request: Request) -> Response:
        try:
            return await answer(request)
        except errors.StatusError as error:
            return error_response(error)

    return handle


async def review_access(client: Client, user: User, version: str, right: Attributes) -> bool:
    """Return whether the cluster lets the user read the pending workloads of a queue."""
    attributes: Json = {
        "verb": right.verb,
        "group": right.group,
        "version": version,
        "resource": right.resource,
        "subresource": right.subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    spec = {"user": user.name, "groups": list(user.groups), "resourceAttributes": attributes}
    try:
        review = await client.create(REVIEW, {"metadata": {}, "spec": spec})
    except (api_errors.ApiError, OSError) as error:
        log.warning("user of the visibility API not reviewed", user=user.name, error=error)
        raise errors.unavailable("the API server could not review the user") from error
    return bool(review["status"].get("allowed"))
