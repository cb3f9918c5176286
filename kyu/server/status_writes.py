"""
The short way of a write that brings nothing but the status of a custom object, as most writes of controllers do.

Of such an object only the status, its owners and the version can change. So the status alone is merged and judged, and
all else is shared with the stored object. Whatever is unusual, from a label in the body to an unknown field of the
status, is not answered here: then ``None`` says that the write has to go the way of all others, which leads to the same
object.

Called by: server/writes.py. Calls: server/managed.py, the Rules of the kind, server/objects.py.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from kyu.api.meta import Json
from kyu.server import errors, managed, patch
from kyu.server.attempts import Written
from kyu.server.custom import CustomRules
from kyu.server.objects import Objects
from kyu.server.options import WriteOptions
from kyu.server.records import Record
from kyu.server.registry import Resource
from kyu.server.targets import Target

PATCHED: Final = frozenset({"metadata", "status"})
APPLIED: Final = frozenset({"apiVersion", "kind", "metadata", "status"})
# What a body may say of the object without changing it.
PLACE: Final = frozenset({"name", "namespace", "resourceVersion"})


class StatusWrites:
    def __init__(self, objects: Objects, clock: Callable[[], datetime]) -> None:
        self._objects = objects
        self._clock = clock

    def patch(self, target: Target, body: Any, options: WriteOptions) -> Written | None:
        """A merge patch."""
        found = self._find(target, body, PATCHED)
        if found is None:
            return None
        resource, (record, old) = target.resource, found
        status = patch.merged(old.get("status"), body["status"])
        tracked = managed.track_update(
            resource.schema,
            _part(old),
            {"metadata": {}, "status": status},
            manager=options.manager,
            api_version=resource.api_version,
            subresource="status",
            now=self._clock(),
            resets=resource.rules.resets("status"),
        )
        return self._finish(resource, record, old, tracked, options)

    def apply(self, target: Target, config: Any, options: WriteOptions) -> Written | None:
        """A server-side apply."""
        found = self._find(target, config, APPLIED)
        resource = target.resource
        if found is None or config.get("kind") != resource.kind.kind:
            return None
        if config.get("apiVersion") != resource.api_version:
            return None
        record, old = found
        applied = managed.apply(
            resource.schema,
            _part(old),
            config,
            manager=options.manager,
            force=bool(options.force),
            api_version=resource.api_version,
            subresource="status",
            now=self._clock(),
            resets=resource.rules.resets("status"),
        )
        return self._finish(resource, record, old, applied, options)

    def _find(self, target: Target, body: Any, names: frozenset[str]) -> tuple[Record, Json] | None:
        """The object before the write, if the body can be a status of it."""
        resource = target.resource
        if not resource.is_custom or type(body) is not dict or not names.issuperset(body):
            return None
        place = body.get("metadata", {})
        if type(body.get("status")) is not dict or type(place) is not dict or not PLACE.issuperset(place):
            return None
        record = self._objects.store.latest(resource.storage, *target.key)
        if record is None or record.is_ending or "metadata" not in resource.rules.resets("status"):
            return None
        is_meant = (
            place.get("name", record.name) == record.name
            and place.get("namespace", target.namespace) == target.namespace
            and ("resourceVersion" not in place or place["resourceVersion"] == str(record.version))
        )
        old = self._objects.lent(resource, record) if is_meant else {}
        return (record, old) if is_meant and "managedFields" in old["metadata"] else None

    def _finish(
        self, resource: Resource, record: Record, old: Json, tracked: Json, options: WriteOptions
    ) -> Written | None:
        """``tracked`` has the status and the owners of its fields."""
        status, owners = tracked.get("status"), tracked["metadata"].get("managedFields")
        if type(status) is not dict or not owners:
            return None
        new = {**old, "status": status, "metadata": {**old["metadata"], "managedFields": owners}}
        assert isinstance(resource.rules, CustomRules)
        found = resource.rules.judge_status(new, old)
        if found is None:
            return None
        if found:
            raise errors.invalid(resource.kind, record.name, found)
        if managed.is_settled(old, new):
            return Written(record)
        if options.dry_run:
            return Written(self._objects.draft(resource, new, record.version))
        stored = self._objects.put_tidied(resource, new)
        return Written(stored.record, done=stored.done, obj=stored.obj)


def _part(obj: Json) -> Json:
    """What a write of the status can change of an object."""
    part: Json = {"metadata": {"managedFields": obj["metadata"]["managedFields"]}}
    if "status" in obj:
        part["status"] = obj["status"]
    return part
