"""
Create, update, patch and apply: how a body becomes a stored object.

All four meet in one line: read the body into the kind, fill in what the server decides, track the owner of each field,
check the rules, and store it if anything has changed. Between reading the object and queueing its next state nothing is
awaited, so two writers never see the same state, and a patch needs no second try.

Kubernetes: apiserver/pkg/endpoints/handlers/{create,update,patch}.go, pkg/registry/generic/registry/store.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec

from kyu.api.meta import Json
from kyu.server import bounds, errors, metadata, representations
from kyu.server.admission.request import AdmissionRequest, Admit, Written
from kyu.server.decode import body as bodies
from kyu.server.decode import object
from kyu.server.exchange import Request, Response, User, encode
from kyu.server.fieldmanager import manager
from kyu.server.options import WriteOptions, write_options
from kyu.server.paths import Target
from kyu.server.registry import Resource
from kyu.server.storage.records import Record
from kyu.server.verbs import json_patch, strategic_merge
from kyu.server.verbs.objects import Objects
from kyu.server.verbs.status_writes import StatusWrites

JSON = "application/json-patch+json"
MERGE = bodies.MERGE_PATCH
APPLY = bodies.APPLY_PATCH
STRATEGIC = "application/strategic-merge-patch+json"
CUSTOM_PATCHES = (JSON, MERGE, APPLY)
PATCHES = (*CUSTOM_PATCHES, STRATEGIC)
# Warnings about one object: each is a header of the answer.
MOST_WARNINGS = 50


class Writes:
    def __init__(self, objects: Objects, clock: Callable[[], datetime], admission: Admit) -> None:
        self._objects = objects
        self._clock = clock
        self._admission = admission
        self._status = StatusWrites(objects, clock)

    # The verbs.

    async def create(self, request: Request, target: Target) -> Response:
        resource = target.resource
        options = write_options(request, "CreateOptions")
        form = representations.choose(resource, request.accept, request.query.get("includeObject", ""))
        body, duplicates = bodies.decode(request, resource.kind, is_custom=resource.is_custom)
        written = self._create(target, body, duplicates, options, request.user)
        return await _answer(resource, written, form)

    async def update(self, request: Request, target: Target) -> Response:
        resource = target.resource
        options = write_options(request, "UpdateOptions")
        form = representations.choose(resource, request.accept, request.query.get("includeObject", ""))
        body, duplicates = bodies.decode(request, resource.kind, is_custom=resource.is_custom)
        obj, warnings = object.from_body(resource, body, duplicates, options.validation)
        bounds.check_object(resource.kind, obj, is_custom=resource.is_custom)
        warnings += metadata.drop_double_owners(obj)
        with errors.Warned(warnings):
            metadata.check_place(resource.kind, obj, target.namespace, target.name)
            if not target.subresource and self._creates_on_update(target):
                written = self._create_missing(resource, obj, options, request.user)
            else:
                written = self.replace_object(target, obj, options, request.user)
        return await _answer(resource, _warned(written, warnings), form)

    async def patch(self, request: Request, target: Target) -> Response:
        resource = target.resource
        content_type = request.content_type
        check_patch_type(resource, content_type)
        options = write_options(request, "PatchOptions")
        form = representations.choose(resource, request.accept, request.query.get("includeObject", ""))
        written = self.patch_by(target, content_type, request.body, options, request.user)
        return await _answer(resource, written, form)

    # The same without HTTP. Objects of controllers in the same process are copied.

    def create_by(self, target: Target, body: Json, options: WriteOptions, user: User) -> Written:
        """Create an object for a controller in the same process."""
        return self._create(target, bodies.parse_json(encode(body)), [], options, user)

    def _create(self, target: Target, body: Json, duplicates: list[str], options: WriteOptions, user: User) -> Written:
        resource = target.resource
        obj, warnings = object.from_body(resource, body, duplicates, options.validation)
        bounds.check_object(resource.kind, obj, is_custom=resource.is_custom)
        warnings += metadata.drop_double_owners(obj)
        with errors.Warned(warnings):
            metadata.check_place(resource.kind, obj, target.namespace)
            written = self.create_object(resource, obj, options, user)
        return _warned(written, warnings)

    def patch_by(self, target: Target, type_: str, text: bytes, options: WriteOptions, user: User) -> Written:
        """Apply a patch of one of the types that the kind accepts."""
        is_status = target.subresource == "status"
        if is_status and (written := self._status.write(target, type_, text, options)) is not None:
            return written
        if type_ == APPLY:
            return self.apply_object(target, bodies.parse_yaml(text), options, user)
        body, told = bodies.decode_patch(text)
        return self.patch_object(target, body, told, type_, options, user)

    def merge_by(self, target: Target, body: Json, options: WriteOptions, user: User) -> Written:
        """Apply a merge patch of a controller in the same process."""
        if target.subresource == "status" and "status" in body:
            written = self._status.write_parted(target, MERGE, bodies.split_object(body, "status"), options)
            if written is not None:
                return written
        return self.patch_by(target, MERGE, encode(body), options, user)

    def create_object(
        self, resource: Resource, obj: Json, options: WriteOptions, user: User, *, is_apply: bool = False
    ) -> Written:
        """Store a new object that is decoded and has its place; after an apply, it has its managedFields already."""
        version = obj["metadata"].pop("resourceVersion", "")
        rules, now = resource.rules, self._clock()
        rules.default(obj)
        if not is_apply:
            obj = manager.track_update(resource.schema, None, obj, resource.writer(options.manager, now))
        self._admission(AdmissionRequest(resource, user, "", obj, None))
        metadata.prepare_create(obj, now)
        rules.prepare_create(obj)
        if found := rules.validate_create(obj):
            raise errors.invalid(resource.kind, obj["metadata"].get("name", ""), found)
        bounds.check_spec(resource.kind, obj, None)
        if metadata.is_version(version) and int(version):
            if not options.dry_run:
                raise errors.internal("resourceVersion should not be set on objects to be created")
            # Only the storage objects to it, which a dry run does not reach.
            obj["metadata"]["resourceVersion"] = version
        written = self._store_new(resource, obj, options)
        return _warned(written, _quoted(rules.warnings(obj, None)))

    def _create_missing(self, resource: Resource, obj: Json, options: WriteOptions, user: User) -> Written:
        """PUT where there is nothing: the version of what was there once does not matter, its identity does."""
        given = obj["metadata"]
        given.pop("resourceVersion", None)
        if given.get("uid"):
            raise errors.conflict(resource.kind, given["name"], _other_uid(given["uid"], ""))
        return self.create_object(resource, obj, options, user)

    def replace_object(self, target: Target, obj: Json, options: WriteOptions, user: User) -> Written:
        """PUT: the whole object, or the part of it that the subresource writes."""
        resource = target.resource
        record, old = self._objects.latest(resource, *target.key)
        given = obj["metadata"]
        if given.get("uid") and given["uid"] != record.uid:
            raise errors.conflict(resource.kind, target.name, _other_uid(given["uid"], record.uid))
        return self._finish(resource, record, old, obj, options, user, target.subresource)

    def patch_object(
        self, target: Target, body: Any, told: list[str], type_: str, options: WriteOptions, user: User
    ) -> Written:
        resource = target.resource
        record = self._objects.latest_record(resource, *target.key)
        old = self._old(target, record)
        shown = object.typed(resource, old)
        if type_ == JSON:
            patched = json_patch.json_patch(shown, body)
        elif type_ == MERGE:
            patched = json_patch.merge_patch(shown, body)
        else:
            # The type of the object is not among what such a patch can change.
            patched = {**strategic_merge.strategic_patch(resource.schema, shown, body), **object.typed(resource, {})}
        bounds.check_object(resource.kind, patched, is_custom=resource.is_custom)
        obj, warnings = object.from_patch(resource, patched, told, options.validation, old)
        warnings += metadata.drop_double_owners(obj, " after mutating admission happens")
        with errors.Warned(warnings):
            metadata.check_place(resource.kind, obj, target.namespace, target.name)
            written = self._finish(resource, record, old, obj, options, user, target.subresource)
        return _warned(written, warnings)

    def apply_object(self, target: Target, config: Any, options: WriteOptions, user: User) -> Written:
        resource, subresource = target.resource, target.subresource
        config = object.from_apply(resource, config)
        bounds.check_object(resource.kind, config, is_custom=resource.is_custom)
        given = config.get("metadata", {}) if isinstance(config.get("metadata"), dict) else {}
        # Checked on a copy: what the body leaves open is neither owned nor remembered as if it had been applied.
        place = {key: value for key, value in given.items() if isinstance(value, str)}
        place["name"] = place.get("name") or target.name
        metadata.check_place(resource.kind, {"metadata": place}, target.namespace, target.name)
        record = self._objects.store.latest(resource.storage, *target.key)
        if record is None and subresource:
            raise errors.not_found(resource.kind, target.name)
        if record is None and (uid := given.get("uid")):
            text = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise errors.conflict(resource.kind, target.name, text)
        old = None if record is None else self._old(target, record)
        version = given.pop("resourceVersion", "")
        live = None if old is None else object.typed(resource, old)
        writer = resource.writer(options.manager, self._clock(), subresource)
        applied = manager.apply(resource.schema, live, config, writer, force=bool(options.force))
        bounds.check_object(resource.kind, applied, is_custom=resource.is_custom)
        obj, warnings = object.from_apply_result(resource, applied, old)
        with errors.Warned(warnings):
            metadata.check_place(resource.kind, obj, target.namespace, target.name)
            if record is None or old is None:
                written = self.create_object(resource, obj, options, user, is_apply=True)
            else:
                obj["metadata"]["resourceVersion"] = version
                written = self._finish(resource, record, old, obj, options, user, subresource, is_apply=True)
        return _warned(written, warnings)

    def store_object(
        self, target: Target, record: Record, old: Json, new: Json, options: WriteOptions, user: User
    ) -> Written:
        """Store the next state of an object, with its managedFields."""
        return self._finish(target.resource, record, old, new, options, user, "", is_apply=True)

    # Steps of all verbs.

    def _old(self, target: Target, record: Record) -> Json:
        """Return the object before a patch. A new status is never changed in place, so it may share parts."""
        read = self._objects.shared if target.subresource == "status" else representations.served_object
        return read(target.resource, record)

    def _finish(
        self,
        resource: Resource,
        record: Record,
        old: Json,
        new: Json,
        options: WriteOptions,
        user: User,
        subresource: str,
        *,
        is_apply: bool = False,
    ) -> Written:
        version = new["metadata"].pop("resourceVersion", "")
        if version != str(record.version) and (version or not is_apply):
            _check_version(resource, record, version)
        now = self._clock()
        rules = resource.rules
        rules.default(new, old)
        metadata.prepare_update(new, old)
        rules.prepare_update(new, old, subresource)
        if not is_apply:
            writer = resource.writer(options.manager, now, subresource)
            new = manager.track_update(resource.schema, old, new, writer)
        self._admission(AdmissionRequest(resource, user, subresource, new, old))
        if found := rules.validate_update(new, old, subresource):
            raise errors.invalid(resource.kind, record.name, found)
        if not subresource:
            bounds.check_spec(resource.kind, new, old)
        new["metadata"]["resourceVersion"] = str(record.version)
        new = metadata.normalize(new)
        if manager.is_settled(old, new):
            return Written(record)
        written = self._store_changed(resource, record, new, options)
        return written if subresource else _warned(written, _quoted(rules.warnings(new, old)))

    def _store_new(self, resource: Resource, obj: Json, options: WriteOptions) -> Written:
        meta = obj["metadata"]
        existing = self._objects.store.latest(resource.storage, meta.get("namespace", ""), meta["name"])
        if existing is not None:
            being_deleted = representations.decode(existing.value)["metadata"].get("deletionTimestamp") is not None
            raise errors.already_exists(resource.kind, meta["name"], being_deleted=being_deleted)
        if options.dry_run:
            return Written(self._objects.draft(resource, obj, None), created=True)
        stored = self._objects.put(resource, obj)
        return Written(stored.record, created=True, done=stored.done, obj=stored.obj)

    def _store_changed(self, resource: Resource, record: Record, obj: Json, options: WriteOptions) -> Written:
        """Store a changed object whose metadata is normalized already."""
        if options.dry_run:
            return Written(self._objects.draft(resource, obj, record.version))
        if resource.rules.is_finally_deleted(obj):
            return Written(self._objects.draft(resource, obj, record.version), done=self._objects.remove(record))
        stored = self._objects.put_normalized(resource, obj)
        return Written(stored.record, done=stored.done, obj=stored.obj)

    def _creates_on_update(self, target: Target) -> bool:
        missing = self._objects.store.latest(target.resource.storage, *target.key) is None
        return missing and target.resource.rules.creates_on_update


def _check_version(resource: Resource, record: Record, version: str) -> None:
    """Reject a write of another version than the stored one. None and 0 are any version, if the kind allows that."""
    if version and not metadata.is_version(version):
        raise errors.internal(f'strconv.ParseUint: parsing "{version}": invalid syntax')
    if int(version or 0):
        raise errors.conflict(resource.kind, record.name)
    if not resource.rules.allows_unconditional_update:
        raise object.version_required(resource.kind, record.name)


def _other_uid(given: str, stored: str) -> str:
    return f"Precondition failed: UID in precondition: {given}, UID in object meta: {stored}"


def check_patch_type(resource: Resource, content_type: str) -> None:
    """415 for what is no patch, or none that the kind takes."""
    if resource.is_custom and content_type not in CUSTOM_PATCHES:
        raise errors.unsupported_media_type(CUSTOM_PATCHES)
    if content_type not in PATCHES:
        raise errors.unsupported_patch_type()


def _warned(written: Written, warnings: tuple[str, ...]) -> Written:
    """Return the result with the warnings about the body before those about the object."""
    return msgspec.structs.replace(written, warnings=(*warnings, *written.warnings)) if warnings else written


def _quoted(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(object.warning, islice(texts, MOST_WARNINGS)))


async def _answer(resource: Resource, written: Written, form: representations.Form) -> Response:
    if written.done is not None:
        await written.done
    warnings = written.warnings
    if resource.warning:
        warnings = (*warnings, f'299 - "{resource.warning}"')
    return Response(201 if written.created else 200, form.one(written.record) + b"\n", warnings=warnings)
