"""
Create, update, patch and apply: how a body becomes a stored object.

All four meet in one line: read the body into the kind, fill in what the server decides, note who owns which field,
check the rules, and store it if anything has changed. Between reading the object and queueing its next state nothing is
awaited, so two writers never see the same state, and a patch needs no second try.

Called by: server/routes.py, server/scale.py. Calls: server/objects.py, the Rules of the kind, server/managed.py.
Kubernetes: apiserver/pkg/endpoints/handlers/{create,update,patch}.go, pkg/registry/generic/registry/store.go.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from kyu.api.meta import Json
from kyu.server import bodies, errors, forms, intake, managed, metadata, new_objects, patch, strategic
from kyu.server.attempts import Admission, Attempt, Written
from kyu.server.exchange import Request, Response, User, encode
from kyu.server.new_objects import NewObject
from kyu.server.objects import Objects
from kyu.server.options import WriteOptions, write_options
from kyu.server.records import Record
from kyu.server.registry import Resource
from kyu.server.repeats import AcceptedSpec
from kyu.server.status_writes import StatusWrites
from kyu.server.targets import Target

JSON = "application/json-patch+json"
MERGE = bodies.MERGE_PATCH
APPLY = bodies.APPLY_PATCH
STRATEGIC = "application/strategic-merge-patch+json"
CUSTOM_PATCHES = (JSON, MERGE, APPLY)
PATCHES = (*CUSTOM_PATCHES, STRATEGIC)


class Writes:
    def __init__(self, objects: Objects, clock: Callable[[], datetime], admission: Admission) -> None:
        self._objects = objects
        self._clock = clock
        self._admission = admission
        self._status = StatusWrites(objects, clock)

    # The verbs.

    async def create(self, request: Request, target: Target) -> Response:
        resource = target.resource
        options = write_options(request, "CreateOptions")
        form = forms.choose(resource, request.accept, request.query.get("includeObject", ""))
        new = new_objects.read(resource, request, options.validation)
        return await _answer(resource, self._create(target, new, options, request.user), form)

    async def update(self, request: Request, target: Target) -> Response:
        resource = target.resource
        options = write_options(request, "UpdateOptions")
        form = forms.choose(resource, request.accept, request.query.get("includeObject", ""))
        body, duplicates = bodies.decode(request, resource.kind, is_custom=resource.is_custom)
        obj, warnings = intake.from_body(resource, body, duplicates, options.validation)
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
        form = forms.choose(resource, request.accept, request.query.get("includeObject", ""))
        written = self.patch_by(target, content_type, request.body, options, request.user)
        return await _answer(resource, written, form)

    # The same without HTTP. Of what somebody in the same process shows nothing is kept: it is written as text.

    def create_by(self, target: Target, body: Json, options: WriteOptions, user: User) -> Written:
        """A create of somebody in the same process."""
        return self._create(target, new_objects.copied(target.resource, body, options.validation), options, user)

    def _create(self, target: Target, new: NewObject, options: WriteOptions, user: User) -> Written:
        resource = target.resource
        warnings = new.warnings + metadata.drop_double_owners(new.obj)
        with errors.Warned(warnings):
            metadata.check_place(resource.kind, new.obj, target.namespace)
            written = self.create_object(resource, new.obj, options, user, accepted=new.accepted)
        new_objects.remember(resource, new, written)
        return _warned(written, warnings)

    def patch_by(self, target: Target, type_: str, text: bytes, options: WriteOptions, user: User) -> Written:
        """A patch of one of the types that the kind takes."""
        is_status = target.subresource == "status"
        if is_status and (written := self._status.write(target, type_, text, options)) is not None:
            return written
        if type_ == APPLY:
            return self.apply_object(target, bodies.parse_yaml(text), options, user)
        body, told = bodies.decode_patch(text)
        return self.patch_object(target, body, told, type_, options, user)

    def merge_by(self, target: Target, body: Json, options: WriteOptions, user: User) -> Written:
        """A merge patch of somebody in the same process."""
        if target.subresource == "status" and "status" in body:
            written = self._status.write_parted(target, MERGE, bodies.in_parts(body, "status"), options)
            if written is not None:
                return written
        return self.patch_by(target, MERGE, encode(body), options, user)

    def create_object(
        self,
        resource: Resource,
        obj: Json,
        options: WriteOptions,
        user: User,
        *,
        is_apply: bool = False,
        accepted: AcceptedSpec | None = None,
    ) -> Written:
        """The object is read and in its place; with an apply, it has its managedFields already.

        ``accepted`` is what is known of its spec, if another object was created with the same.
        """
        version = obj["metadata"].pop("resourceVersion", "")
        rules, now = resource.rules, self._clock()
        known, owned = (None, None) if accepted is None else ({"spec": accepted.spec}, accepted.owned)
        rules.default(obj, known)
        if not is_apply:
            obj = managed.track_update(resource.schema, None, obj, resource.writer(options.manager, now), owned)
        self._admission(Attempt(resource, user, "", obj, None))
        metadata.prepare_create(obj, now)
        rules.prepare_create(obj)
        if found := rules.validate_create(obj, known):
            raise errors.invalid(resource.kind, obj["metadata"].get("name", ""), found)
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
        shown = intake.typed(resource, old)
        if type_ == JSON:
            patched = patch.json_patch(shown, body)
        elif type_ == MERGE:
            patched = patch.merge_patch(shown, body)
        else:
            # The type of the object is not among what such a patch can change.
            patched = {**strategic.strategic_patch(resource.schema, shown, body), **intake.typed(resource, {})}
        obj, warnings = intake.from_patch(resource, patched, told, options.validation, old)
        warnings += metadata.drop_double_owners(obj, " after mutating admission happens")
        with errors.Warned(warnings):
            metadata.check_place(resource.kind, obj, target.namespace, target.name)
            written = self._finish(resource, record, old, obj, options, user, target.subresource)
        return _warned(written, warnings)

    def apply_object(self, target: Target, config: Any, options: WriteOptions, user: User) -> Written:
        resource, subresource = target.resource, target.subresource
        config = intake.from_apply(resource, config)
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
        live = None if old is None else intake.typed(resource, old)
        writer = resource.writer(options.manager, self._clock(), subresource)
        applied = managed.apply(resource.schema, live, config, writer, force=bool(options.force))
        obj, warnings = intake.from_apply_result(resource, applied, old)
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
        """The next state of an object, in which the owners of fields are written down already."""
        return self._finish(target.resource, record, old, new, options, user, "", is_apply=True)

    # What all of them share.

    def _old(self, target: Target, record: Record) -> Json:
        """The object before a patch. Nobody changes a new status in place, and with it what it shares with the old."""
        lend = self._objects.lent if target.subresource == "status" else forms.served_object
        return lend(target.resource, record)

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
            new = managed.track_update(resource.schema, old, new, writer)
        self._admission(Attempt(resource, user, subresource, new, old))
        if found := rules.validate_update(new, old, subresource):
            raise errors.invalid(resource.kind, record.name, found)
        new["metadata"]["resourceVersion"] = str(record.version)
        new = metadata.tidy(new)
        if managed.is_settled(old, new):
            return Written(record)
        written = self._store_changed(resource, record, new, options)
        return written if subresource else _warned(written, _quoted(rules.warnings(new, old)))

    def _store_new(self, resource: Resource, obj: Json, options: WriteOptions) -> Written:
        meta = obj["metadata"]
        existing = self._objects.store.latest(resource.storage, meta.get("namespace", ""), meta["name"])
        if existing is not None:
            being_deleted = forms.decode(existing.value)["metadata"].get("deletionTimestamp") is not None
            raise errors.already_exists(resource.kind, meta["name"], being_deleted=being_deleted)
        if options.dry_run:
            return Written(self._objects.draft(resource, obj, None), created=True)
        stored = self._objects.put(resource, obj)
        return Written(stored.record, created=True, done=stored.done, obj=stored.obj)

    def _store_changed(self, resource: Resource, record: Record, obj: Json, options: WriteOptions) -> Written:
        """The metadata is tidied already."""
        if options.dry_run:
            return Written(self._objects.draft(resource, obj, record.version))
        if resource.rules.is_finally_deleted(obj):
            return Written(self._objects.draft(resource, obj, record.version), done=self._objects.remove(record))
        stored = self._objects.put_tidied(resource, obj)
        return Written(stored.record, done=stored.done, obj=stored.obj)

    def _creates_on_update(self, target: Target) -> bool:
        missing = self._objects.store.latest(target.resource.storage, *target.key) is None
        return missing and target.resource.rules.creates_on_update


def _check_version(resource: Resource, record: Record, version: str) -> None:
    """Of a write that names another version than the stored one. None, and 0, are any: not all kinds allow that."""
    if version and not metadata.is_version(version):
        raise errors.internal(f'strconv.ParseUint: parsing "{version}": invalid syntax')
    if int(version or 0):
        raise errors.conflict(resource.kind, record.name)
    if not resource.rules.allows_unconditional_update:
        raise intake.version_required(resource.kind, record.name)


def _other_uid(given: str, stored: str) -> str:
    return f"Precondition failed: UID in precondition: {given}, UID in object meta: {stored}"


def check_patch_type(resource: Resource, content_type: str) -> None:
    """415 for what is no patch, or none that the kind takes."""
    if resource.is_custom and content_type not in CUSTOM_PATCHES:
        raise errors.unsupported_media_type(CUSTOM_PATCHES)
    if content_type not in PATCHES:
        raise errors.unsupported_patch_type()


def _warned(written: Written, warnings: tuple[str, ...]) -> Written:
    """With the warnings about the body before those about the object."""
    return msgspec.structs.replace(written, warnings=(*warnings, *written.warnings)) if warnings else written


def _quoted(texts: list[str]) -> tuple[str, ...]:
    return tuple(map(intake.warning, texts))


async def _answer(resource: Resource, written: Written, form: forms.Form) -> Response:
    if written.done is not None:
        await written.done
    warnings = written.warnings
    if resource.warning:
        warnings = (*warnings, f'299 - "{resource.warning}"')
    return Response(201 if written.created else 200, form.one(written.record) + b"\n", warnings=warnings)
