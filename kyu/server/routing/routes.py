"""
From a path to a verb: the resource, the object, the rights of the user, and the handler.

Kubernetes: apiserver/pkg/endpoints/request/requestinfo.go, installer.go.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import lru_cache

import msgspec

from kyu.api.meta import Kind
from kyu.server import bounds, errors, metadata, options, unserved
from kyu.server.auth import auth, impersonation, rbac, reviews
from kyu.server.decode import body as bodies
from kyu.server.decode import object
from kyu.server.exchange import REMEMBERED_LENGTH, Request, Response, error_response, json_response, text_response
from kyu.server.fieldmanager import manager
from kyu.server.http import yaml_answers
from kyu.server.options import write_options
from kyu.server.paths import Path, Target
from kyu.server.registry import Registry
from kyu.server.routing import deprecated_watches, discovery
from kyu.server.storage.batches import Unwritable

PAGE_NOT_FOUND = "404 page not found\n"
# Paths that need no rights.
OPEN_PATHS = ("/version", "/version/", "/healthz", "/livez", "/readyz")
_COLLECTION_VERBS = {"GET": "list", "HEAD": "list", "POST": "create", "DELETE": "deletecollection"}
_OBJECT_VERBS = {"GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "POST": "create"}


Verb = Callable[[Request, Target], Awaitable[Response]]
Page = Callable[[Request], Awaitable[Response]]


class Routes:
    """The whole API as one function from Request to Response."""

    def __init__(
        self,
        registry: Registry,
        authorizer: rbac.Authorizer,
        verbs: Mapping[str, Verb],
        special: Mapping[str, Verb],
        subresources: Mapping[str, Mapping[str, Verb]],
        pages: Mapping[str, Page],
    ) -> None:
        self._registry = registry
        self._authorizer = authorizer
        self._verbs = verbs
        # Resources that are only created, and answered instead of stored.
        self._special = special
        self._subresources = subresources
        self._pages = pages

    async def __call__(self, request: Request) -> Response:
        is_watch = options.is_watch(request.query)
        if (accept := yaml_answers.json_instead(request.accept)) and not is_watch:
            headers = {**request.headers, "accept": accept}
            return await yaml_answers.rewritten(await self(msgspec.structs.replace(request, headers=headers)))
        try:
            if "timeout" in request.query and not is_watch:
                options.check_timeout(request.query["timeout"])
            if request.body:
                bounds.check_body(request)
            effective = impersonation.effective(request, self._authorizer)
            return await self._answer(deprecated_watches.as_usual(effective))
        except errors.StatusError as error:
            return error_response(error)
        except RecursionError:
            return error_response(errors.too_large("the object is nested too deeply"))
        except Unwritable as error:
            return error_response(errors.unavailable(f"the change could not be stored: {error}"))

    def check(self, request: Request) -> None:
        """Raise if the user of the request may not make it, before its body is known."""
        path = parse_path(request.path)
        if path is None or not path.plural:
            self._authorize_page(request)
        elif (target := self._target(path)) is None:
            self._authorize_words(request, path, _verb(request, path))
        else:
            self._authorize(request, target, _verb(request, path))

    async def _answer(self, request: Request) -> Response:
        path = parse_path(request.path)
        if path is None or not path.plural:
            return await self._answer_page(request, path)
        target = self._target(path)
        verb = _verb(request, path)
        if target is None:
            self._authorize_words(request, path, verb)
            if reason := unserved.why_not(path.group, path.plural, path.subresource):
                what = f"{path.plural}/{path.subresource}" if path.subresource else path.plural
                raise errors.not_implemented(f"{what} is not served: {reason}")
            if missing := self._missing(path):
                raise missing
            return text_response(404, PAGE_NOT_FOUND)
        self._authorize(request, target, verb)
        if _is_across(target, verb) and target.resource.is_custom:
            return text_response(404, PAGE_NOT_FOUND)
        handler = self._handler(target, request.method, verb)
        if not target.resource.deprecation:
            return await handler(request, target)
        warning = f'299 - "{target.resource.deprecation}"'
        with errors.Warned((warning,)):
            response = await handler(request, target)
        return msgspec.structs.replace(response, warnings=(*response.warnings, warning))

    def _missing(self, path: Path) -> errors.StatusError | None:
        """Return why there is nothing at the path; None for a group that is not served at all."""
        resource = self._registry.find(path.group, path.version, path.plural)
        if resource is not None and resource.is_custom and path.subresource:
            # All subresources of custom kinds are looked for behind the object.
            return errors.not_found(resource.kind, path.name)
        return errors.no_such_resource() if self._registry.is_built_in(path.group) else None

    def _target(self, path: Path) -> Target | None:
        resource = self._registry.find(path.group, path.version, path.plural)
        if resource is None:
            return None
        if path.subresource and path.subresource not in resource.subresources:
            return None
        if not resource.kind.namespaced:
            return Target(resource, None, path.name, path.subresource) if path.namespace is None else None
        if path.namespace is None and path.name:
            # A namespaced object has no address without its namespace.
            return None
        return Target(resource, path.namespace, path.name, path.subresource)

    def _handler(self, target: Target, method: str, verb: str) -> Verb:
        if target.subresource:
            # A subresource without a handler of its own is another way to write the same object.
            handler = self._subresources.get(target.subresource, self._subresources[""]).get(method)
            if handler is None or verb not in target.resource.subresources[target.subresource].verbs:
                raise _unsupported(target, verb)
            return handler
        is_custom = target.resource.is_custom
        # Objects are not posted to, collections neither put nor patched, and nothing is created across namespaces.
        misplaced = method == "POST" if target.name else method in ("PUT", "PATCH")
        if misplaced and is_custom and not target.name:
            raise errors.bad_request("name must be provided")
        if misplaced or _is_across(target, verb) or (method == "HEAD" and not is_custom):
            raise errors.method_not_allowed()
        if verb not in target.resource.verbs:
            raise _unsupported(target, verb)
        return self._special.get(target.resource.storage) or self._verbs["list" if verb == "watch" else verb]

    def _authorize(self, request: Request, target: Target, verb: str) -> None:
        if auth.MASTERS in request.user.groups:
            return
        kind = target.resource.kind
        # For rights, a Namespace is in itself: users with rights in it may read it.
        namespace = target.name if kind.plural == "namespaces" and not kind.group else target.namespace or ""
        attributes = rbac.Attributes(verb, kind.group, kind.plural, target.subresource, namespace, target.name)
        if not self._authorizer.is_allowed(request.user, attributes):
            shown = replace(attributes, namespace=target.namespace or "")
            raise errors.forbidden(kind, target.name, refusal(request.user.name, shown))

    def _authorize_words(self, request: Request, path: Path, verb: str) -> None:
        """Reject a user without rights to a resource before saying whether there is one."""
        attributes = rbac.Attributes(verb, path.group, path.plural, path.subresource, path.namespace or "", path.name)
        if not self._authorizer.is_allowed(request.user, attributes):
            what = Kind(path.group, path.version, "", path.plural)
            raise errors.forbidden(what, path.name, refusal(request.user.name, attributes))

    # Paths that are no resources.

    async def _answer_page(self, request: Request, path: Path | None) -> Response:
        self._authorize_page(request)
        if path is not None:
            return self._discover(request, path)
        page = self._pages.get(request.path.rstrip("/") or "/")
        if page is None:
            prefix = request.path.strip("/").partition("/")[0]
            page = self._pages.get(f"/{prefix}/")
        if page is None:
            return text_response(404, PAGE_NOT_FOUND)
        if request.method not in ("GET", "HEAD"):
            raise errors.method_not_allowed()
        return await page(request)

    def _authorize_page(self, request: Request) -> None:
        if request.path.startswith(OPEN_PATHS):
            return
        verb = {"GET": "get", "HEAD": "get", "POST": "post", "PUT": "put", "PATCH": "patch", "DELETE": "delete"}
        attributes = rbac.Attributes(verb.get(request.method, request.method.lower()), path=request.path)
        if not self._authorizer.is_allowed(request.user, attributes):
            text = f'User "{request.user.name}" cannot {attributes.verb} path "{request.path}"'
            raise errors.forbidden_path(text)

    def _discover(self, request: Request, path: Path) -> Response:
        registry = self._registry
        is_root = request.path in ("/api", "/apis", "/api/", "/apis/")
        if not is_root and path.group not in registry.groups():
            return text_response(404, PAGE_NOT_FOUND)
        if request.method not in ("GET", "HEAD"):
            raise errors.method_not_allowed()
        if is_root:
            return self._discover_root(request)
        if not path.version:
            return json_response(200, discovery.group(registry, path.group))
        if path.version not in registry.versions(path.group):
            return text_response(404, PAGE_NOT_FOUND)
        return json_response(200, discovery.resource_list(registry, path.group, path.version))

    def _discover_root(self, request: Request) -> Response:
        core = request.path.rstrip("/") == "/api"
        version = discovery.aggregated_version(request.accept)
        if version is not None:
            body = discovery.aggregated(self._registry, version, core=core)
            return json_response(200, body, content_type=discovery.AGGREGATED.format(version=version))
        if core:
            return json_response(200, discovery.core_versions(request.headers.get("host", "")))
        return json_response(200, discovery.group_list(self._registry))


def parse_path(path: str) -> Path | None:
    """Return the words of ``/api/…`` and ``/apis/…``, or None for all other paths. Short ones are remembered."""
    return _short_path(path) if len(path) <= REMEMBERED_LENGTH else _parse_path(path)


@lru_cache(maxsize=512)
def _short_path(path: str) -> Path | None:
    return _parse_path(path)


def _parse_path(path: str) -> Path | None:
    words = path.strip("/").split("/")
    if words[0] == "api":
        group, rest = "", words[1:]
    elif words[0] == "apis":
        group, rest = (words[1] if len(words) > 1 else ""), words[2:]
    else:
        return None
    if not rest:
        return Path(group, "")
    version, rest = rest[0], rest[1:]
    namespace = None
    # /namespaces/N/PLURAL is in a namespace; /namespaces/N, …/status and …/finalize are the Namespace itself.
    if len(rest) > 2 and rest[0] == "namespaces" and not (len(rest) == 3 and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    # Words behind a subresource belong to it; no subresource has such paths.
    if len(rest) > 3:
        rest = [*rest[:2], "/".join(rest[2:])]
    plural, name, subresource = (*rest, "", "", "")[:3]
    return Path(group, version, namespace, plural, name, subresource)


def refusal(user: str, attributes: rbac.Attributes) -> str:
    resource = attributes.resource
    if attributes.subresource:
        resource = f"{resource}/{attributes.subresource}"
    where = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    return f'User "{user}" cannot {attributes.verb} resource "{resource}" in API group "{attributes.group}" {where}'


def _is_across(target: Target, verb: str) -> bool:
    """Return whether the request writes to all namespaces at once."""
    return target.resource.kind.namespaced and target.namespace is None and verb in ("create", "deletecollection")


def _unsupported(target: Target, verb: str) -> errors.StatusError:
    """Custom and built-in kinds say it in different words."""
    if target.resource.is_custom:
        return errors.unsupported_verb(target.resource.kind, verb)
    return errors.method_not_allowed()


def _verb(request: Request, path: Path) -> str:
    if path.name:
        return _OBJECT_VERBS.get(request.method, request.method.lower())
    verb = _COLLECTION_VERBS.get(request.method, {"PUT": "update", "PATCH": "patch"}.get(request.method, ""))
    return "watch" if verb == "list" and options.is_watch(request.query) else verb


def review(authorizer: rbac.Authorizer, review_token: reviews.TokenReview, clock: Callable[[], datetime]) -> Verb:
    """Return the verb that answers reviews."""

    async def create(request: Request, target: Target) -> Response:
        resource = target.resource
        kind = resource.kind
        options = write_options(request, "CreateOptions")
        body, duplicates = bodies.decode(request, kind)
        asked, warnings = object.from_body(resource, body, duplicates, options.validation)
        metadata.check_place(kind, asked, target.namespace)
        writer = manager.FieldManager(options.manager, kind.api_version, clock())
        asked = manager.track_update(resource.schema, None, asked, writer)
        status = reviews.answer(authorizer, review_token, kind, request.user, asked)
        return json_response(201, reviews.shown(kind, asked, status, clock()), warnings=warnings)

    return create
