"""
The OpenAPI v3 documents of what is served: one per group version, and the index of them.

kubectl reads them on every apply, create, edit and explain: whether the server checks fields (the ``fieldValidation``
parameter of the patch of a kind) and what the fields are (the schemas). The schemas of built-in kinds are the generated
ones, those of custom kinds come from their definitions. Documents are made when asked for and kept until what is
served changes.

Kubernetes: kube-openapi/pkg/handler3, apiextensions-apiserver/pkg/controller/openapi
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from kyu.api.meta import Json, Kind
from kyu.server.registry import Registry, Resource, Subresource
from kyu.server.schema.node import REF_PREFIX
from kyu.server.schema.published import META, is_known, load, object_meta

INFO: Final = {"title": "Kubernetes", "version": "v1.36.0"}
JSON: Final = "application/json"
PATCH_TYPES: Final = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")
STRATEGIC: Final = "application/strategic-merge-patch+json"
WRITE_PARAMETERS: Final = ("dryRun", "fieldManager", "fieldValidation")
LIST_PARAMETERS: Final = (
    "allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "resourceVersion",
    "resourceVersionMatch", "sendInitialEvents", "timeoutSeconds", "watch",
)  # fmt: skip
TYPES: Final = {
    "allowWatchBookmarks": "boolean", "sendInitialEvents": "boolean", "watch": "boolean", "force": "boolean",
    "limit": "integer", "timeoutSeconds": "integer", "gracePeriodSeconds": "integer",
}  # fmt: skip
META_LISTED: Final = ("ObjectMeta", "ListMeta", "Status", "DeleteOptions")


class OpenApi:
    """The documents of a registry, as bytes."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._edition = -1
        self._documents: dict[str, bytes] = {}

    def index(self) -> Json:
        """Return the address of each document; the hash changes with its content."""
        return {"paths": {path: {"serverRelativeURL": self._location(path)} for path in self._paths()}}

    def document(self, path: str) -> bytes | None:
        """Return the document at ``api/v1`` or ``apis/GROUP/VERSION``; None if nothing is served there."""
        self._forget_old()
        if path not in self._documents:
            if path not in self._paths():
                return None
            group, version = group_version(path)
            resources = self._registry.resources(group, version)
            self._documents[path] = msgspec.json.encode(render(group, version, resources))
        return self._documents[path]

    def _forget_old(self) -> None:
        if self._edition != self._registry.edition:
            self._edition = self._registry.edition
            self._documents.clear()

    def _paths(self) -> list[str]:
        pairs = ((group, version) for group in self._registry.groups() for version in self._registry.versions(group))
        return [f"apis/{group}/{version}" if group else f"api/{version}" for group, version in pairs]

    def _location(self, path: str) -> str:
        group, version = group_version(path)
        return f"/openapi/v3/{path}?hash={fingerprint(self._registry.resources(group, version))}"


def group_version(path: str) -> tuple[str, str]:
    parts = path.split("/")
    return (parts[1], parts[2]) if len(parts) == 3 else ("", parts[-1])


def fingerprint(resources: Iterable[Resource]) -> str:
    digest = hashlib.sha256()
    for resource in resources:
        digest.update(msgspec.json.encode((resource.kind, resource.verbs, sorted(resource.subresources))))
        if resource.is_custom:
            digest.update(msgspec.json.encode(resource.schema.raw))
    return digest.hexdigest()[:32].upper()


def render(group: str, version: str, resources: Iterable[Resource]) -> Json:
    listed = list(resources)
    paths: Json = {}
    for resource in listed:
        paths.update(_paths_of(resource))
    schemas: Json = dict(load(group, version).definitions.raw) if is_known(group, version) else {}
    for resource in listed:
        if resource.is_custom:
            schemas.update(_custom_schemas(resource))
    return {"openapi": "3.0.0", "info": INFO, "paths": paths, "components": {"schemas": schemas}}


def schema_name(kind: Kind) -> str:
    """``com.example.v1.Widget``, as the definitions of custom kinds are called."""
    if is_known(kind.group, kind.version):
        known = load(kind.group, kind.version).name_by_kind.get((kind.group, kind.version, kind.kind))
        if known is not None:
            return known
    return ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])


def _custom_schemas(resource: Resource) -> Iterator[tuple[str, Json]]:
    kind, name = resource.kind, schema_name(resource.kind)
    named = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    yield name, {**resource.schema.raw, "x-kubernetes-group-version-kind": [named]}
    text = {"type": "string"}
    properties = {
        "apiVersion": text,
        "kind": text,
        "metadata": _reference(f"{META}ListMeta"),
        "items": {"type": "array", "items": _reference(name)},
    }
    listed = [{**named, "kind": resource.list_kind}]
    yield f"{name}List", {
        "type": "object", "required": ["items"], "properties": properties, "x-kubernetes-group-version-kind": listed,
    }  # fmt: skip
    definitions = object_meta().definitions.raw
    for each in _referred(definitions, [f"{META}{part}" for part in META_LISTED]):
        yield each, definitions[each]


def _referred(definitions: Any, names: list[str]) -> set[str]:
    """Return the named schemas and all that they refer to."""
    found: set[str] = set()
    waiting = [name for name in names if name in definitions]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [each for each in _references(definitions[name]) if each in definitions]
    return found


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(reference := value.get("$ref"), str):
            yield reference.removeprefix(REF_PREFIX)
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def _paths_of(resource: Resource) -> Json:
    kind = resource.kind
    base = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    collection = f"{base}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{base}/{kind.plural}"
    item = collection + "/{name}"
    paths: Json = {collection: _operations(resource, "", ("list", "create", "deletecollection"))}
    if kind.namespaced:
        paths[f"{base}/{kind.plural}"] = _operations(resource, "", ("list",), is_everywhere=True)
    paths[item] = _operations(resource, "", ("get", "update", "patch", "delete"), has_name=True)
    for subresource in resource.subresources.values():
        operations = _operations(resource, subresource.name, subresource.verbs, has_name=True)
        paths[f"{item}/{subresource.name}"] = operations
    return {path: operations for path, operations in paths.items() if len(operations) > 1}


METHODS: Final = {
    "list": ("get", "list"), "get": ("get", "get"), "create": ("post", "post"), "update": ("put", "put"),
    "patch": ("patch", "patch"), "delete": ("delete", "delete"), "deletecollection": ("delete", "deletecollection"),
}  # fmt: skip


def _operations(
    resource: Resource, subresource: str, verbs: Iterable[str], *, has_name: bool = False, is_everywhere: bool = False
) -> Json:
    written = resource.subresources[subresource] if subresource else Subresource("", resource.verbs)
    placed = (["namespace"] if resource.kind.namespaced and not is_everywhere else []) + (["name"] if has_name else [])
    result: Json = {"parameters": [_parameter(name, "path") for name in placed]}
    for verb in verbs:
        if verb in written.verbs and verb in METHODS:
            method, action = METHODS[verb]
            where = ("Namespaced" if "namespace" in placed else "") + resource.kind.kind + subresource.title()
            body = written.body or resource.kind
            result[method] = _operation(resource, body, verb, action, f"{action}{where}{'All' * is_everywhere}")
    return result


def _operation(resource: Resource, body: Kind, verb: str, action: str, identity: str) -> Json:
    kind = resource.kind
    answer = schema_name(body) + ("List" if verb == "list" else "")
    content = {"schema": _reference(f"{META}Status" if verb in ("delete", "deletecollection") else answer)}
    operation: Json = {
        "operationId": f"{identity}{kind.version}{kind.group.replace('.', '')}",
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {"group": body.group, "version": body.version, "kind": body.kind},
        "parameters": [_parameter(name, "query") for name in _query_parameters(verb)],
        "responses": {"200": {"description": "OK", "content": {JSON: content}}},
    }
    if verb == "create":
        operation["responses"]["201"] = {"description": "Created", "content": {JSON: content}}
    if verb in ("create", "update"):
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": _reference(schema_name(body))}}}
    elif verb == "patch":
        types = PATCH_TYPES if resource.is_custom else (*PATCH_TYPES, STRATEGIC)
        operation["requestBody"] = {"required": True, "content": {name: {"schema": {}} for name in types}}
    return operation


def _query_parameters(verb: str) -> tuple[str, ...]:
    match verb:
        case "list" | "deletecollection":
            return LIST_PARAMETERS
        case "create" | "update":
            return WRITE_PARAMETERS
        case "patch":
            return (*WRITE_PARAMETERS, "force")
        case "delete":
            return ("dryRun", "gracePeriodSeconds", "propagationPolicy")
    return ()


def _parameter(name: str, place: str) -> Json:
    parameter: Json = {"name": name, "in": place, "schema": {"type": TYPES.get(name, "string")}}
    return {**parameter, "required": True} if place == "path" else parameter


def _reference(name: str) -> Json:
    return {"$ref": REF_PREFIX + name}


def version_2() -> Json:
    """Return the old form without content: clients that read the new one do not use it."""
    return {"swagger": "2.0", "info": INFO, "paths": {}, "definitions": {}}


def version_2_protobuf() -> bytes:
    """Return the old form in the encoding that kubectl asks for."""
    info = _text_field(1, INFO["title"]) + _text_field(2, INFO["version"])
    return _text_field(1, "2.0") + _bytes_field(2, info) + _bytes_field(8, b"") + _bytes_field(9, b"")


def _text_field(number: int, text: str) -> bytes:
    return _bytes_field(number, text.encode())


def _bytes_field(number: int, content: bytes) -> bytes:
    """Return a protobuf field of fewer than 128 bytes."""
    return bytes([number << 3 | 2, len(content)]) + content
