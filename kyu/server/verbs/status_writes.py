"""
The short way of a write that brings nothing but the status of a custom object, as most writes of controllers do.

Of such an object only the status, its owners and the version can change. So the status alone is merged and judged, and
all else is shared with the stored object. Whatever is unusual, from a label in the body to an unknown field of the
status, is not answered here: then ``None`` says that the write has to go the way of all others, which leads to the same
object.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from kyu.api.meta import Json
from kyu.server import errors
from kyu.server.admission.request import Written
from kyu.server.crd.custom import CustomRules
from kyu.server.decode import body as bodies
from kyu.server.decode.body import SplitBody
from kyu.server.fieldmanager import manager
from kyu.server.options import WriteOptions
from kyu.server.paths import Target
from kyu.server.registry import Resource
from kyu.server.storage.records import Record
from kyu.server.verbs import json_patch
from kyu.server.verbs.objects import Objects

# The other fields of a body.
BESIDES: Final = {
    bodies.MERGE_PATCH: frozenset({"metadata"}),
    bodies.APPLY_PATCH: frozenset({"apiVersion", "kind", "metadata"}),
}
# The fields of metadata that name the object and do not change it.
PLACE: Final = frozenset({"name", "namespace", "resourceVersion"})


class StatusWrites:
    def __init__(self, objects: Objects, clock: Callable[[], datetime]) -> None:
        self._objects = objects
        self._clock = clock

    def write(self, target: Target, type_: str, text: bytes, options: WriteOptions) -> Written | None:
        """Write a patch of either type, from its text."""
        if type_ not in BESIDES or not isinstance(target.resource.rules, CustomRules):
            return None
        body = bodies.split_body(text, "status")
        if body is None or (type_ == bodies.MERGE_PATCH and not body.is_complete(text)):
            return None
        return self.write_parted(target, type_, body, options)

    def write_parted(self, target: Target, type_: str, body: SplitBody, options: WriteOptions) -> Written | None:
        """Write a patch whose parts are complete."""
        resource, rules = target.resource, target.resource.rules
        if not isinstance(rules, CustomRules) or "metadata" not in rules.resets("status"):
            return None
        record = self._meant(target, type_, body.besides)
        if record is None:
            return None
        status, old = _status(type_, body.text), self._objects.shared(resource, record)
        if status is None or "managedFields" not in old["metadata"]:
            return None
        part, writer = _part(old), resource.writer(options.manager, self._clock(), "status")
        if type_ == bodies.APPLY_PATCH:
            config = {**body.besides, "status": status}
            tracked = manager.apply(resource.schema, part, config, writer, force=bool(options.force))
        else:
            new = {"metadata": {}, "status": json_patch.merged(old.get("status"), status)}
            tracked = manager.track_update(resource.schema, part, new, writer)
        return self._finish(resource, record, old, tracked, options)

    def _meant(self, target: Target, type_: str, besides: Json) -> Record | None:
        """Return the object of the URL if the body names it too, and contains nothing unusual."""
        resource, place = target.resource, besides.get("metadata", {})
        if not BESIDES[type_].issuperset(besides) or type(place) is not dict or not PLACE.issuperset(place):
            return None
        if type_ == bodies.APPLY_PATCH and (
            besides.get("kind") != resource.kind.kind or besides.get("apiVersion") != resource.api_version
        ):
            return None
        record = self._objects.store.latest(resource.storage, *target.key)
        if record is None or record.is_ending:
            return None
        is_meant = (
            place.get("name", record.name) == record.name
            and place.get("namespace", target.namespace) == target.namespace
            and ("resourceVersion" not in place or place["resourceVersion"] == str(record.version))
        )
        return record if is_meant else None

    def _finish(
        self, resource: Resource, record: Record, old: Json, tracked: Json, options: WriteOptions
    ) -> Written | None:
        """``tracked`` has the status and the owners of its fields."""
        status, owners = tracked.get("status"), tracked["metadata"].get("managedFields")
        if type(status) is not dict or not owners:
            return None
        new = {**old, "status": status, "metadata": {**old["metadata"], "managedFields": owners}}
        assert isinstance(resource.rules, CustomRules)
        found = resource.rules.validate_status(new, old)
        if found is None:
            return None
        if found:
            raise errors.invalid(resource.kind, record.name, found)
        return Written(record) if manager.is_settled(old, new) else self._store(resource, record, new, options)

    def _store(self, resource: Resource, record: Record, new: Json, options: WriteOptions) -> Written:
        if options.dry_run:
            return Written(self._objects.draft(resource, new, record.version))
        stored = self._objects.put_normalized(resource, new)
        return Written(stored.record, done=stored.done, obj=stored.obj)


def _status(type_: str, text: bytes) -> Json | None:
    """Return the status if it is usual. A merge patch with duplicate fields gets a warning elsewhere."""
    try:
        value = bodies.parse_json(text)
    except errors.StatusError:
        # The decoder of the whole body reports it.
        return None
    if type(value) is not dict or (type_ == bodies.MERGE_PATCH and bodies.duplicates(text, value)):
        return None
    return value


def _part(obj: Json) -> Json:
    """Return the part of an object that a write of the status can change."""
    part: Json = {"metadata": {"managedFields": obj["metadata"]["managedFields"]}}
    if "status" in obj:
        part["status"] = obj["status"]
    return part
