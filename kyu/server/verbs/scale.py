"""
The scale subresource: one number of an object, in a form that is the same for all kinds.

A write is done on the scale, as an object of its own kind, and then carried over to the object.

Kubernetes: autoscaling/v1 Scale.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cache, cached_property

from kyu.api import errors as fields
from kyu.api.meta import Json, Kind
from kyu.server import errors, metadata, representations
from kyu.server.builtin.kind import BuiltinKind
from kyu.server.decode import body as bodies
from kyu.server.decode import object
from kyu.server.exchange import Request, Response, json_response
from kyu.server.fieldmanager import entries, manager
from kyu.server.json_values import clone
from kyu.server.options import WriteOptions, write_options
from kyu.server.paths import Target
from kyu.server.registry import Resource, ScalePaths
from kyu.server.schema.node import Schema
from kyu.server.schema.published import load
from kyu.server.tables import jsonpath
from kyu.server.verbs import json_patch, scale_owners, write
from kyu.server.verbs.objects import Objects

SCALE = Kind("autoscaling", "v1", "Scale", "scales")
SUBRESOURCE = "scale"
# The field of the replicas in built-in kinds.
BUILT_IN = ScalePaths(".spec.replicas", ".status.replicas", ".spec.selector")


class ScaleSubresource:
    def __init__(self, objects: Objects, changes: write.Writes, clock: Callable[[], datetime]) -> None:
        self._objects = objects
        self._writes = changes
        self._clock = clock

    async def get(self, request: Request, target: Target) -> Response:
        resource = target.resource
        _, obj = self._objects.latest(resource, *target.key)
        path = _paths(resource).spec_replicas
        if resource.is_custom and jsonpath.first(path, obj) is None:
            raise errors.internal_error(f'the spec replicas field "{path}" does not exist')
        return json_response(200, _shown(resource, obj))

    async def update(self, request: Request, target: Target) -> Response:
        options = write_options(request, "UpdateOptions")
        body, duplicates = bodies.decode(request, SCALE)
        wanted, warnings = object.from_body(_scale_resource(), body, duplicates, options.validation)
        metadata.check_place(target.resource.kind, wanted, target.namespace, target.name)
        _, obj = self._objects.latest(target.resource, *target.key)
        return await self._write(request, target, self._tracked(target.resource, obj, wanted, options), warnings)

    async def patch(self, request: Request, target: Target) -> Response:
        resource, type_ = target.resource, request.content_type
        write.check_patch_type(resource, type_)
        options = write_options(request, "PatchOptions")
        _, obj = self._objects.latest(resource, *target.key)
        if type_ == write.APPLY:
            return await self._write(request, target, self._applied(request, target, obj, options))
        shown, (body, told) = _shown(resource, obj), bodies.decode_patch(request.body)
        patched = json_patch.json_patch(shown, body) if type_ == write.JSON else json_patch.merge_patch(shown, body)
        wanted, warnings = object.from_patch(_scale_resource(), patched, told, options.validation)
        metadata.check_place(resource.kind, wanted, target.namespace, target.name)
        return await self._write(request, target, self._tracked(resource, obj, wanted, options), warnings)

    def _tracked(self, resource: Resource, obj: Json, wanted: Json, options: WriteOptions) -> Json:
        return manager.track_update(
            _scale_resource().schema, _with_owners(resource, obj), wanted, self._writer(options)
        )

    def _writer(self, options: WriteOptions) -> manager.FieldManager:
        return manager.FieldManager(options.manager, scale_owners.SCALE_VERSION, self._clock(), SUBRESOURCE)

    def _applied(self, request: Request, target: Target, obj: Json, options: WriteOptions) -> Json:
        config = object.from_apply(_scale_resource(), bodies.parse_yaml(request.body))
        given = config.get("metadata", {})
        place = {**given, "name": given.get("name") or target.name}
        metadata.check_place(target.resource.kind, {"metadata": place}, target.namespace, target.name)
        shown = _with_owners(target.resource, obj)
        schema, force = _scale_resource().schema, bool(options.force)
        applied = manager.apply(schema, shown, config, self._writer(options), force=force)
        if target.resource.is_custom and applied.get("spec") != shown["spec"]:
            # Kubernetes fails at this too, because it looks for a Scale among the versions of the custom kind.
            raise errors.internal("the scale of a custom kind cannot be changed by an apply: use another kind of patch")
        return object.from_apply_result(_scale_resource(), applied)[0]

    async def _write(self, request: Request, target: Target, scale: Json, warnings: tuple[str, ...] = ()) -> Response:
        """Carry what the scale says over to the object."""
        resource = target.resource
        options = write_options(request, "UpdateOptions" if request.method == "PUT" else "PatchOptions")
        record, obj = self._objects.latest(resource, *target.key)
        path = _paths(resource).spec_replicas
        replicas = bodies.section(scale, "spec").get("replicas", 0)
        *parents, last = path.strip(".").split(".")
        new = clone(obj)
        inner = new
        for name in parents:
            inner = inner.setdefault(name, {})
        inner[last] = replicas
        if replicas < 0 and not resource.is_custom:
            # Custom kinds have a rule of their own for this.
            found = [fields.invalid("spec.replicas", replicas, "must be greater than or equal to 0")]
            raise errors.invalid(SCALE, obj["metadata"]["name"], found)
        field = tuple(f"f:{name}" for name in (*parents, last))
        owners = scale_owners.seen_in_parent(obj, scale, field, resource.kind.api_version)
        new = entries.with_managed(new, owners)
        new["metadata"]["resourceVersion"] = scale["metadata"].get("resourceVersion", "")
        written = self._writes.store_object(target, record, obj, new, options, request.user)
        if written.done is not None:
            await written.done
        shown = _shown(resource, representations.served_object(resource, written.record))
        return json_response(200, shown, warnings=(*warnings, *written.warnings))


class _ScaleKind(BuiltinKind):
    """The published schema of a scale stands beside the kinds that have one."""

    @cached_property
    def schema(self) -> Schema:
        return load("apps", "v1").schema(SCALE.group, SCALE.version, SCALE.kind)


@cache
def _scale_resource() -> Resource:
    return _ScaleKind(SCALE).resource()


def _paths(resource: Resource) -> ScalePaths:
    return resource.scale or BUILT_IN


def _with_owners(resource: Resource, obj: Json) -> Json:
    field = tuple(f"f:{name}" for name in _paths(resource).spec_replicas.strip(".").split("."))
    return entries.with_managed(_shown(resource, obj), scale_owners.seen_in_scale(obj, field))


def _shown(resource: Resource, obj: Json) -> Json:
    paths, meta = _paths(resource), obj["metadata"]
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Json = {"replicas": jsonpath.first(paths.status_replicas, obj) or 0}
    if paths.selector and (selector := jsonpath.first(paths.selector, obj)):
        status["selector"] = selector if isinstance(selector, str) else _selector_text(selector)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: meta[name] for name in names if name in meta},
        # None are not written down.
        "spec": {"replicas": replicas} if (replicas := jsonpath.first(paths.spec_replicas, obj)) else {},
        "status": status,
    }


def _selector_text(selector: Json) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items()))
