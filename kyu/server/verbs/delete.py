"""
Delete: marks an object, or removes it when nothing holds it.

An object is held by its finalizers, and a running Pod by its grace period. The propagation policy becomes a finalizer
that the garbage collector takes away when it has dealt with the dependents.

Kubernetes: apiserver/pkg/registry/rest/delete.go, generic/registry/store.go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from kyu.api.meta import Json, Kind
from kyu.server import errors, metadata, representations
from kyu.server.decode import body as bodies
from kyu.server.exchange import Request, Response, User, json_response
from kyu.server.options import DeleteOptions, Propagation, delete_options, list_options
from kyu.server.paths import Target
from kyu.server.pauses import Pauses
from kyu.server.registry import Resource
from kyu.server.storage.records import Record
from kyu.server.verbs.get_list import Reads, list_body
from kyu.server.verbs.objects import Objects

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
# Objects whose deletion is stored together.
DELETED_AT_ONCE = 32
JOB_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set"
    " propagationPolicy=Orphan to suppress this warning"
)

# Raises if the user may not delete this.
Objection = Callable[[Resource, Json, User], None]


@dataclass(frozen=True, slots=True)
class Deleted:
    """The result of a deletion: the last or the marked state of the object, and whether it is gone."""

    record: Record
    is_gone: bool
    done: asyncio.Future[None] | None = None


class Deletion:
    def __init__(self, objects: Objects, reads: Reads, clock: Callable[[], datetime], objection: Objection) -> None:
        self._objects = objects
        self._reads = reads
        self._clock = clock
        self._objection = objection

    async def delete(self, request: Request, target: Target) -> Response:
        resource = target.resource
        options = delete_options(request, _body(request, resource))
        form = representations.choose(resource, request.accept)
        warnings = _warnings(resource, options)
        with errors.Warned(warnings):
            deleted = self.delete_object(resource, *target.key, options, request.user)
        if deleted.done is not None:
            await deleted.done
        if deleted.is_gone and not resource.rules.answers_deleted_object:
            return json_response(200, _success(resource, deleted.record), warnings=warnings)
        code = 202 if options.waits_for_dependents and not deleted.is_gone else 200
        return Response(code, form.one(deleted.record) + b"\n", warnings=warnings)

    async def delete_collection(self, request: Request, target: Target) -> Response:
        resource = target.resource
        options = delete_options(request, _body(request, resource))
        form = representations.choose(resource, request.accept, is_list=True)
        found, head = await self._reads.page(resource, list_options(request.query), target.namespace)
        await self.delete_all(resource, found, options, request.user)
        return Response(200, await list_body(request, form, found, head), warnings=_warnings(resource, options))

    async def delete_all(
        self, resource: Resource, records: Iterable[Record], options: DeleteOptions, user: User
    ) -> None:
        """Delete these objects; return when that is stored."""
        waits: list[asyncio.Future[None]] = []
        pauses = Pauses()
        for record in records:
            try:
                deleted = self.delete_object(resource, record.namespace, record.name, options, user)
            except errors.StatusError as error:
                if error.code != 404:
                    raise
                continue
            if deleted.done is not None:
                waits.append(deleted.done)
            if len(waits) >= DELETED_AT_ONCE:
                # Writes of others are stored in between.
                await asyncio.gather(*waits)
                waits.clear()
            await pauses()
        await asyncio.gather(*waits)

    def delete_object(
        self, resource: Resource, namespace: str, name: str, options: DeleteOptions, user: User
    ) -> Deleted:
        record, obj = self._objects.latest(resource, namespace, name)
        self.check(resource, record, obj, options, user)
        marked = self._marked(resource, obj, options)
        if resource.rules.is_finally_deleted(marked):
            return self._remove(resource, record, marked, options)
        if marked == obj:
            return Deleted(record, is_gone=False)
        if options.dry_run:
            return Deleted(self._objects.draft(resource, marked, record.version), is_gone=False)
        stored, done, _ = self._objects.put(resource, marked)
        return Deleted(stored, is_gone=False, done=done)

    def check(self, resource: Resource, record: Record, obj: Json, options: DeleteOptions, user: User) -> None:
        """Raise if this object is not the one that is meant, or not one for this user."""
        _check_preconditions(resource, record, options)
        self._objection(resource, obj, user)

    def _remove(self, resource: Resource, record: Record, marked: Json, options: DeleteOptions) -> Deleted:
        shows_mark = resource.rules.shows_mark_before_going
        if options.dry_run:
            last = self._objects.draft(resource, marked, record.version) if shows_mark else record
            return Deleted(last, is_gone=True)
        if shows_mark:
            record = self._objects.put(resource, marked).record
        last, done = self._objects.take_away(record)
        return Deleted(last, is_gone=True, done=done)

    def _marked(self, resource: Resource, obj: Json, options: DeleteOptions) -> Json:
        """Return the object with the mark of its deletion and the finalizers of the policy."""
        meta = dict(obj["metadata"])
        marked = {**obj, "metadata": meta}
        policy = options.propagation or (None if meta.get("deletionTimestamp") else resource.rules.default_propagation)
        finalizers = finalizers_for(meta.get("finalizers") or [], policy)
        if finalizers != (meta.get("finalizers") or []):
            meta["finalizers"] = finalizers
        now = self._clock()
        grace = resource.rules.grace_seconds(obj, options.grace_seconds)
        was = meta.get("deletionGracePeriodSeconds", 0)
        if not meta.get("deletionTimestamp"):
            if resource.rules.counts_deletion:
                meta["generation"] = meta.get("generation", 0) + 1
            meta["deletionTimestamp"] = metadata.timestamp(now + timedelta(seconds=grace))
            meta["deletionGracePeriodSeconds"] = grace
            resource.rules.prepare_delete(marked, now)
        elif grace < was and options.grace_seconds is not None:
            meta["deletionTimestamp"] = metadata.timestamp(now + timedelta(seconds=grace))
            meta["deletionGracePeriodSeconds"] = grace
        return marked


def finalizers_for(finalizers: list[str], policy: Propagation | None) -> list[str]:
    """Return the finalizers for a policy; without one they stay as they are."""
    if policy is None:
        return finalizers
    kept = [name for name in finalizers if name not in (ORPHAN, FOREGROUND)]
    added = {"Orphan": [ORPHAN], "Foreground": [FOREGROUND], "Background": []}[policy]
    return kept + added


def _warnings(resource: Resource, options: DeleteOptions) -> tuple[str, ...]:
    """Return the warning for kinds that orphan their dependents by default."""
    is_left_open = resource.rules.default_propagation == "Orphan" and options.propagation is None
    return (f'299 - "{JOB_WARNING}"',) if is_left_open else ()


def _check_preconditions(resource: Resource, record: Record, options: DeleteOptions) -> None:
    kind = resource.kind
    if not kind.group and kind.plural == "namespaces":
        _check_namespace(kind, record, options)
        return
    what = f'Operation cannot be fulfilled on {kind.kind}{"." + kind.group if kind.group else ""} "{record.name}"'
    text, guess = "", "deleted and then recreated"
    if options.uid is not None and options.uid != record.uid:
        text = f"the UID in the precondition ({options.uid}) does not match the UID in record ({record.uid})"
    elif options.version is not None and options.version != str(record.version):
        text = (
            f"the ResourceVersion in the precondition ({options.version}) does not match the ResourceVersion in record"
            f" ({record.version})"
        )
        guess = "modified"
    if text:
        message = f"{what}: {text}. The object might have been {guess}"
        details = {"name": record.name, "kind": kind.kind}
        if kind.group:
            details["group"] = kind.group
        raise errors.StatusError(409, "Conflict", message, details)


def _check_namespace(kind: Kind, record: Record, options: DeleteOptions) -> None:
    """Namespaces are deleted by code of their own, with words of its own."""
    for what, wanted, found in (("UID", options.uid, record.uid), ("ResourceVersion", options.version, record.version)):
        if wanted is not None and wanted != str(found):
            text = f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
            raise errors.conflict(kind, record.name, text)


def _body(request: Request, resource: Resource) -> Json:
    if not request.body:
        return {}
    body, _ = bodies.decode(request, resource.kind)
    return body


def _success(resource: Resource, record: Record) -> Json:
    details: Json = {"name": record.name}
    if resource.kind.group:
        details["group"] = resource.kind.group
    details |= {"kind": resource.kind.plural, "uid": record.uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
