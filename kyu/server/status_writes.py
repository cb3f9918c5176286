"""
The short way of a write that brings nothing but the status of a custom object, as most writes of controllers do.

Of such an object only the status, its owners and the version can change. So the status alone is merged and judged, and
all else is shared with the stored object. Whatever is unusual, from a label in the body to an unknown field of the
status, is not answered here: then ``None`` says that the write has to go the way of all others, which leads to the same
object. A write that came before in the same words, to an equal object, is not even looked into.

Called by: server/writes.py. Calls: server/managed.py, server/status_repeats.py, the Rules, server/objects.py.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from kyu.api.meta import Json
from kyu.server import bodies, errors, managed, patch, status_repeats, times_apart
from kyu.server.attempts import Written
from kyu.server.bodies import Parted
from kyu.server.custom import CustomRules
from kyu.server.metadata import timestamp
from kyu.server.objects import Objects
from kyu.server.options import WriteOptions
from kyu.server.records import Record
from kyu.server.registry import Resource
from kyu.server.targets import Target
from kyu.server.times_apart import Apart

# What a body has besides the status.
BESIDES: Final = {
    bodies.MERGE_PATCH: frozenset({"metadata"}),
    bodies.APPLY_PATCH: frozenset({"apiVersion", "kind", "metadata"}),
}
# What a body may say of the object without changing it.
PLACE: Final = frozenset({"name", "namespace", "resourceVersion"})


class StatusWrites:
    def __init__(self, objects: Objects, clock: Callable[[], datetime]) -> None:
        self._objects = objects
        self._clock = clock

    def write(self, target: Target, type_: str, text: bytes, options: WriteOptions) -> Written | None:
        """A patch of either type as it came."""
        if type_ not in BESIDES or not isinstance(target.resource.rules, CustomRules):
            return None
        body = bodies.parted(text, "status")
        if body is None or (type_ == bodies.MERGE_PATCH and not body.is_all_of(text)):
            return None
        return self.write_parted(target, type_, body, options)

    def write_parted(self, target: Target, type_: str, body: Parted, options: WriteOptions) -> Written | None:
        """The same for a patch in its parts, of which nothing is left out."""
        resource, rules = target.resource, target.resource.rules
        if not isinstance(rules, CustomRules) or "metadata" not in rules.resets("status"):
            return None
        record = self._meant(target, type_, body.besides)
        if record is None:
            return None
        now, before = self._clock(), None
        status = Apart(body.text) if rules.reads_times else times_apart.apart(body.text)
        if not resource.needs_conversion and rules.status_texts.is_known(status.words):
            before = status_repeats.before(record, type_, status, options)
            if before is not None and (answer := rules.statuses.find(before.question)) is not None:
                new = status_repeats.repeated(before, answer, timestamp(now))
                return self._store(resource, record, new, options)
        written = self._look_into(resource, record, type_, body, options, now)
        if before is not None and written is not None and written.obj is not None:
            status_repeats.remember(rules.statuses, before, written.obj, timestamp(now))
        return written

    def _look_into(
        self, resource: Resource, record: Record, type_: str, body: Parted, options: WriteOptions, now: datetime
    ) -> Written | None:
        status, old = _status(type_, body.text), self._objects.lent(resource, record)
        if status is None or "managedFields" not in old["metadata"]:
            return None
        part, writer = _part(old), resource.writer(options.manager, now, "status")
        if type_ == bodies.APPLY_PATCH:
            config = {**body.besides, "status": status}
            tracked = managed.apply(resource.schema, part, config, writer, force=bool(options.force))
        else:
            new = {"metadata": {}, "status": patch.merged(old.get("status"), status)}
            tracked = managed.track_update(resource.schema, part, new, writer)
        return self._finish(resource, record, old, tracked, options)

    def _meant(self, target: Target, type_: str, besides: Json) -> Record | None:
        """The object that a body is for by what it has besides the status, if it means the one of the URL."""
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
        found = resource.rules.judge_status(new, old)
        if found is None:
            return None
        if found:
            raise errors.invalid(resource.kind, record.name, found)
        return Written(record) if managed.is_settled(old, new) else self._store(resource, record, new, options)

    def _store(self, resource: Resource, record: Record, new: Json, options: WriteOptions) -> Written:
        if options.dry_run:
            return Written(self._objects.draft(resource, new, record.version))
        stored = self._objects.put_tidied(resource, new)
        return Written(stored.record, done=stored.done, obj=stored.obj)


def _status(type_: str, text: bytes) -> Json | None:
    """The status, if it is one. Of a merge patch it is told if a field stands twice, of an apply it is not."""
    try:
        value = bodies.parse_json(text)
    except errors.ApiError:
        # Said by those who read the whole body.
        return None
    if type(value) is not dict or (type_ == bodies.MERGE_PATCH and bodies.duplicates(text, value)):
        return None
    return value


def _part(obj: Json) -> Json:
    """What a write of the status can change of an object."""
    part: Json = {"metadata": {"managedFields": obj["metadata"]["managedFields"]}}
    if "status" in obj:
        part["status"] = obj["status"]
    return part
