"""
Field ownership: server-side apply, and the tracking of all other writes.

Every manager has an entry in ``metadata.managedFields`` with the set of fields it owns. An apply removes the fields
that it no longer sets, unless another manager owns them. A field that another manager owns with a different value is a
conflict. Any other write takes ownership of the fields that it changed.

Kubernetes: apimachinery/pkg/util/managedfields, structured-merge-diff/merge.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, Literal, NamedTuple

from kyu.api.meta import Json
from kyu.server import errors
from kyu.server.fieldmanager import fields as managed_fields
from kyu.server.fieldmanager import kubectl, objects, sets, shape
from kyu.server.fieldmanager.entries import (
    ManagedFieldsEntry,
    capped,
    decode,
    entry_of,
    is_valid,
    with_managed,
    without_managed,
)
from kyu.server.fieldmanager.fields import ShapeError
from kyu.server.fieldmanager.objects import Changes
from kyu.server.fieldmanager.sets import FieldSet
from kyu.server.metadata import timestamp
from kyu.server.schema import typed
from kyu.server.schema.node import Schema

BEFORE_FIRST_APPLY: Final = "before-first-apply"
# Fields without an owner: they identify the object, or only the server writes them.
UNOWNED: Final = frozenset({"apiVersion", "kind"})
UNOWNED_METADATA: Final = frozenset({
    "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields",
    "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds",
})  # fmt: skip
MAIN_RESETS: Final = frozenset({"status"})


class FieldManager(NamedTuple):
    """The manager of a write, with the version, time and subresource of the write."""

    manager: str
    api_version: str
    now: datetime
    subresource: str = ""
    # Top-level fields that this path never writes; see ``resets_of``.
    resets: frozenset[str] = MAIN_RESETS

    def entry(self, operation: Literal["Apply", "Update"], time: str, fields: FieldSet) -> ManagedFieldsEntry:
        return ManagedFieldsEntry(self.manager, operation, self.api_version, self.subresource, time, fields)


def apply(schema: Schema, live: Json | None, config: Json, by: FieldManager, *, force: bool) -> Json:
    """Return the object after an apply, with its new managedFields. Raise a 409 that names every conflicting field.

    The result shares parts with ``live``, except the top level and the metadata.
    """
    try:
        return _apply(schema, live, config, by, force=force)
    except ShapeError as error:
        # Kubernetes answers 500. The client can mend it: the list is in the stored object.
        text = f"the stored object cannot be applied to: {error}; correct it with an update"
        raise errors.bad_request(text) from error


def _apply(schema: Schema, live: Json | None, config: Json, by: FieldManager, *, force: bool) -> Json:
    config = {name: value for name, value in config.items() if name not in by.resets}
    identity = {name: config.pop(name) for name in UNOWNED if name in config}
    named = _applied_set(schema, config, f"{by.api_version}, Kind={identity.get('kind', '')}")
    applied = _owned(named)
    entries = decode(live)
    old = live or {}
    if live is not None and not entries:
        # Before the first apply, all fields belong to one entry.
        first = by._replace(manager=BEFORE_FIRST_APPLY)
        touched = _owned(compare(schema, empty_object(schema), old, by.resets).touched)
        entries = [first.entry("Update", timestamp(by.now), touched)]
    mine = by.entry("Apply", "", applied)
    last = entry_of(mine, entries)
    mine.time = last.time if last else ""
    others = [entry for entry in entries if entry is not last]
    new: Json = objects.merge(schema, old, config)
    if last is not None and last.fields != applied:
        # ``named`` has the name, which has no owner: an applier that drops all its labels still holds the metadata.
        new = objects.remove(schema, new, last.fields, [named, *(other.fields for other in others)])
    # Only fields of other managers can conflict.
    contested = {element[2:] for other in others for element in other.fields} - by.resets
    changes = compare(schema, old, new, {*old, *new} - contested) if contested else Changes()
    is_kubectl = by.manager == kubectl.MANAGER and not by.subresource
    if changes.touched and not force:
        _refuse_conflicts(others, changes.touched, kubectl.own_fields(schema, old) if is_kubectl else {})
    if changes:
        _release(others, changes)
    if new != old:
        mine.time = timestamp(by.now)
    if is_kubectl:
        new = kubectl.with_annotation(new, {**identity, **config})
    return {**identity, **with_managed(new, [*others, mine])}


def track_update(schema: Schema, old: Json | None, new: Json, by: FieldManager) -> Json:
    """Return the new object with its managedFields: the writer owns the fields that it changed.

    A client may write managedFields itself. An empty list, or one empty entry, stops the tracking until the next apply.
    A valid list replaces the stored one. Anything else is ignored.
    """
    entries = _given_entries(old, new) if not by.subresource else decode(old)
    if old is not None and not entries:
        return without_managed(new)
    try:
        changes = compare(schema, empty_object(schema) if old is None else old, new, by.resets)
    except ShapeError:
        # Items with equal keys cannot be owned. The validation, which comes later, rejects them.
        return without_managed(new)
    if entries:
        _release(entries, changes)
    if owned := _owned(changes.touched):
        mine = by.entry("Update", timestamp(by.now), owned)
        previous = entry_of(mine, entries) if entries else None
        if previous is not None:
            entries.remove(previous)
            mine.fields = sets.union(owned, previous.fields)
        entries.append(mine)
    return with_managed(new, capped(entries))


def is_settled(old: Json, new: Json) -> bool:
    """Return whether the objects are equal except for the times of managedFields."""
    if old.keys() != new.keys():
        return False
    for name, value in new.items():
        if name != "metadata" and value is not old[name] and value != old[name]:
            return False
    before, after = old["metadata"], new["metadata"]
    if before.keys() != after.keys() or any(before[n] != v for n, v in after.items() if n != "managedFields"):
        return False
    entries = [{**entry, "time": None} for entry in before.get("managedFields", ())]
    others = [{**entry, "time": None} for entry in after.get("managedFields", ())]
    return len(entries) == len(others) and all(entry in entries for entry in others)


def resets_of(schema: Schema, subresource: str) -> frozenset[str]:
    """Return the top-level fields that a path ignores: status on the main path, all but status on the status path."""
    if not subresource:
        return MAIN_RESETS
    return schema.all_but_status if subresource == "status" else frozenset()


def _applied_set(schema: Schema, config: Json, described: str) -> FieldSet:
    """Return the fields of a configuration. Raise a 500, as Kubernetes does, if it does not fit the schema."""
    if shape.is_certainly_valid(schema, config):
        try:
            return managed_fields.applied_set(schema, config)
        except ShapeError:
            pass
    if found := shape.problems(schema, config):
        metadata = config["metadata"] if isinstance(config.get("metadata"), dict) else {}
        place = "/".join(text if isinstance(text := metadata.get(key), str) else "" for key in ("namespace", "name"))
        where = f"{place}; {'' if '/' in described else '/'}{described}"
        raise errors.internal(f"failed to create typed patch object ({where}): {shape.render(found)}")
    return managed_fields.applied_set(schema, config)


def compare(schema: Schema, old: Json, new: Json, resets: Iterable[str]) -> Changes:
    changes = Changes()
    ignored = {"metadata", *UNOWNED, *resets}
    objects.compare_fields(schema, old, new, (), changes, ignored)
    if "metadata" not in resets:
        before, after = old.get("metadata") or {}, new.get("metadata") or {}
        if not (UNOWNED_METADATA.issuperset(after) and UNOWNED_METADATA.issuperset(before)):
            metadata = managed_fields.child_schema(schema, "metadata")
            objects.compare_fields(metadata, before, after, ("f:metadata",), changes, UNOWNED_METADATA)
    return changes


def empty_object(schema: Schema) -> Json:
    """Return the object that a create is compared with: the structs that a built-in kind always has, empty."""
    return schema.cached(_empty_object)


def _empty_object(schema: Schema) -> Json:
    return typed.decode(schema, {}, "")[0] if schema.shape else {}


def _owned(fields: FieldSet) -> FieldSet:
    """Return the set without fields that have no owner."""
    result = {element: node for element, node in fields.items() if element[2:] not in UNOWNED}
    metadata = result.pop("f:metadata", None)
    if metadata:
        kept = {e: node for e, node in metadata.items() if e != sets.SELF and e[2:] not in UNOWNED_METADATA}
        if kept:
            result["f:metadata"] = kept
    return result


def _refuse_conflicts(others: list[ManagedFieldsEntry], touched: FieldSet, own: FieldSet) -> None:
    """Reject an apply that changes fields of other managers.

    ``own`` are fields that belong to the applier in spite of managedFields.
    """
    lost = ((entry, sets.difference(sets.intersection(entry.fields, touched), own)) for entry in others)
    if conflicts := [(entry, fields) for entry, fields in lost if fields]:
        raise _conflict(conflicts)


def _release(others: list[ManagedFieldsEntry], changes: Changes) -> None:
    """Remove changed fields from the other entries, and entries without fields."""
    for entry in others:
        for changed in (changes.touched, changes.removed):
            if changed:
                entry.fields = sets.difference(entry.fields, changed)
    others[:] = [entry for entry in others if entry.fields]


def _conflict(conflicts: Sequence[tuple[ManagedFieldsEntry, FieldSet]]) -> errors.StatusError:
    listed = [(str(entry), path) for entry, fields in conflicts for path in sets.paths(fields)]
    causes = [errors.cause("FieldManagerConflict", f"conflict with {entry}", path) for entry, path in listed]
    if len(listed) == 1:
        entry, path = listed[0]
        return errors.apply_conflict(f"Apply failed with 1 conflict: conflict with {entry}: {path}", causes)
    lines = []
    for entry in sorted({entry for entry, _ in listed}):
        lines.append(f"conflicts with {entry}:")
        lines += [f"- {path}" for owner, path in listed if owner == entry]
    return errors.apply_conflict(f"Apply failed with {len(listed)} conflicts: " + "\n".join(lines), causes)


def _given_entries(old: Json | None, new: Json) -> list[ManagedFieldsEntry]:
    """Return the entries that a write starts from: its own valid ones, or the stored ones."""
    given = new.get("metadata", {}).get("managedFields")
    if given is None:
        return decode(old)
    if given in ([], [{}]):
        return []
    return decode(new) if isinstance(given, list) and all(map(is_valid, given)) else decode(old)
