"""
The scale subresource: one number of an object, in a form that is the same for all kinds.

Called by: server/api.py. Kubernetes: autoscaling/v1 Scale.
"""

from __future__ import annotations

from dataclasses import replace

from kyu.api import errors as fields
from kyu.api.meta import Json, Kind
from kyu.server import bodies, errors, jsonpath, patch, writes
from kyu.server.exchange import Request, Response, json_response
from kyu.server.objects import Objects
from kyu.server.options import WriteOptions, write_options
from kyu.server.registry import Resource, ScalePaths
from kyu.server.routes import Target

SCALE = Kind("autoscaling", "v1", "Scale", "scales")
# Where the built-in kinds with replicas keep them.
BUILT_IN = ScalePaths(".spec.replicas", ".status.replicas", ".spec.selector")


class Scale:
    def __init__(self, objects: Objects, changes: writes.Writes) -> None:
        self._objects = objects
        self._writes = changes

    async def get(self, request: Request, target: Target) -> Response:
        _, obj = self._objects.latest(target.resource, *target.key)
        return json_response(200, _shown(target.resource, obj))

    async def update(self, request: Request, target: Target) -> Response:
        options = write_options(request, "UpdateOptions")
        body, _ = bodies.decode(request, SCALE)
        return await self._write(request, target, body, options)

    async def patch(self, request: Request, target: Target) -> Response:
        options = write_options(request, "PatchOptions")
        _, obj = self._objects.latest(target.resource, *target.key)
        shown, body = _shown(target.resource, obj), bodies.parse_json(request.body)
        match request.content_type:
            case writes.MERGE | writes.STRATEGIC:
                wanted = patch.merge_patch(shown, body)
            case writes.JSON:
                wanted = patch.json_patch(shown, body)
            case _:
                raise errors.unsupported_patch_type()
        return await self._write(request, target, wanted, options)

    async def _write(self, request: Request, target: Target, scale: Json, options: WriteOptions) -> Response:
        resource = target.resource
        replicas = bodies.section(scale, "spec").get("replicas", 0)
        if not isinstance(replicas, int) or isinstance(replicas, bool):
            raise errors.bad_request("spec.replicas must be an integer")
        path = _paths(resource).spec_replicas
        if replicas < 0:
            found = [fields.invalid(path, replicas, "should be a non-negative integer")]
            raise errors.invalid(resource.kind, target.name, found)
        change: Json = {}
        inner = change
        *parents, last = path.strip(".").split(".")
        for name in parents:
            inner = inner.setdefault(name, {})
        inner[last] = replicas
        if version := bodies.section(scale, "metadata").get("resourceVersion"):
            change["metadata"] = {"resourceVersion": version}
        main = replace(target, subresource="")
        written = self._writes.patch_object(main, change, writes.MERGE, options, request.user)
        if written.done is not None:
            await written.done
        obj = self._objects.latest(resource, *target.key)[1]
        return json_response(200, _shown(resource, obj))


def _paths(resource: Resource) -> ScalePaths:
    return resource.scale or BUILT_IN


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
        "spec": {"replicas": jsonpath.first(paths.spec_replicas, obj) or 0},
        "status": status,
    }


def _selector_text(selector: Json) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items()))
