"""
Who owns which field: server-side apply, and the tracking of all other writes.

Every writer has an entry in ``metadata.managedFields`` with the set of fields it owns. An apply says "these fields,
with these values, are mine": what it no longer names goes, unless another owner is left; what another owner has with a
different value is a conflict. Any other write simply takes what it changed from everybody else.

Called by: server/writes.py on every write. Calls: managed_entries.py (who), managed_fields.py (what),
managed_objects.py (merge, compare) and managed_sets.py (sets).
Kubernetes: apimachinery/pkg/util/managedfields, structured-merge-diff/merge.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, Literal, NamedTuple

from kyu.api.meta import Json
from kyu.server import errors, managed_fields, managed_kubectl, managed_objects, managed_shape, schema_typed
from kyu.server import managed_sets as sets
from kyu.server.managed_entries import Entry, capped, decode, entry_of, is_valid, with_managed, without_managed
from kyu.server.managed_fields import ShapeError
from kyu.server.managed_objects import Changes
from kyu.server.managed_sets import FieldSet
from kyu.server.metadata import timestamp
from kyu.server.schema_node import Schema

BEFORE_FIRST_APPLY: Final = "before-first-apply"
# Nobody owns what says which object it is, or what the server alone writes.
UNOWNED: Final = frozenset({"apiVersion", "kind"})
UNOWNED_METADATA: Final = frozenset({
    "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields",
    "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds",
})  # fmt: skip
MAIN_RESETS: Final = frozenset({"status"})


class Writer(NamedTuple):
    """Who writes, in which version of the kind, when, and by which path."""

    manager: str
    api_version: str
    now: datetime
    subresource: str = ""
    # The top-level fields that this path never writes; see ``resets_of``.
    resets: frozenset[str] = MAIN_RESETS

    def entry(self, operation: Literal["Apply", "Update"], time: str, fields: FieldSet) -> Entry:
        return Entry(self.manager, operation, self.api_version, self.subresource, time, fields)


def apply(schema: Schema, live: Json | None, config: Json, by: Writer, *, force: bool) -> Json:
    """The object after an apply, with its new managedFields; a 409 names every field that another manager holds.

    The result shares parts with ``live``, but neither its top level nor its metadata.
    """
    config = {name: value for name, value in config.items() if name not in by.resets}
    identity = {name: config.pop(name) for name in UNOWNED if name in config}
    named = _applied_set(schema, config, f"{by.api_version}, Kind={identity.get('kind', '')}")
    applied = _owned(named)
    entries = decode(live)
    old = live or {}
    if live is not None and not entries:
        # All that is there when an object is applied to for the first time belongs to whoever wrote it before.
        first = by._replace(manager=BEFORE_FIRST_APPLY)
        touched = _owned(compare(schema, unborn(schema), old, by.resets).touched)
        entries = [first.entry("Update", timestamp(by.now), touched)]
    mine = by.entry("Apply", "", applied)
    last = entry_of(mine, entries)
    mine.time = last.time if last else ""
    others = [entry for entry in entries if entry is not last]
    new: Json = managed_objects.merge(schema, old, config)
    if last is not None and last.fields != applied:
        # With the name, which nobody owns: an applier that gives up all its labels still holds the metadata.
        new = managed_objects.remove(schema, new, last.fields, [named, *(other.fields for other in others)])
    # What nobody else owns can neither be in conflict nor be taken from anyone.
    contested = {element[2:] for other in others for element in other.fields} - by.resets
    changes = compare(schema, old, new, {*old, *new} - contested) if contested else Changes()
    is_kubectl = by.manager == managed_kubectl.MANAGER and not by.subresource
    if changes.touched and not force:
        _refuse_conflicts(others, changes.touched, managed_kubectl.own_fields(schema, old) if is_kubectl else {})
    if changes:
        _take(others, changes)
    if new != old:
        mine.time = timestamp(by.now)
    if is_kubectl:
        new = managed_kubectl.with_annotation(new, {**identity, **config})
    return {**identity, **with_managed(new, [*others, mine])}


def track_update(schema: Schema, old: Json | None, new: Json, by: Writer, known: FieldSet | None = None) -> Json:
    """The new object with its managedFields: the writer owns what it changed, everybody else loses it.

    A client may write managedFields itself: one empty entry, or an empty list, ends the tracking until the next apply;
    a valid list replaces the stored one; anything else is ignored. ``known`` is the set of a part of a new object, by
    its name: of this part nothing else is asked.
    """
    entries = _given_entries(old, new) if not by.subresource else decode(old)
    if old is not None and not entries:
        return without_managed(new)
    resets = by.resets | {element[2:] for element in known} if known else by.resets
    try:
        changes = compare(schema, unborn(schema) if old is None else old, new, resets)
    except ShapeError:
        # What cannot be told apart cannot be owned; the checks of the kind come after this and refuse it.
        return without_managed(new)
    if known:
        changes.touched = {**known, **changes.touched}
    if entries:
        _take(entries, changes)
    if owned := _owned(changes.touched):
        mine = by.entry("Update", timestamp(by.now), owned)
        previous = entry_of(mine, entries) if entries else None
        if previous is not None:
            entries.remove(previous)
            mine.fields = sets.union(owned, previous.fields)
        entries.append(mine)
    return with_managed(new, capped(entries))


def is_settled(old: Json, new: Json) -> bool:
    """Nothing but the times of managedFields differs: then there is nothing to write."""
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
    """The top-level fields that a path ignores: status on the main path, all but status on that of the status."""
    if not subresource:
        return MAIN_RESETS
    return schema.all_but_status if subresource == "status" else frozenset()


def _applied_set(schema: Schema, config: Json, described: str) -> FieldSet:
    """What a configuration sets; 500, as Kubernetes has it, if it cannot even be read by the schema."""
    if managed_shape.is_surely_fit(schema, config):
        try:
            return managed_fields.applied_set(schema, config)
        except ShapeError:
            pass
    if found := managed_shape.problems(schema, config):
        metadata = config["metadata"] if isinstance(config.get("metadata"), dict) else {}
        # Of a name that is no text nothing is known.
        place = "/".join(text if isinstance(text := metadata.get(key), str) else "" for key in ("namespace", "name"))
        where = f"{place}; {'' if '/' in described else '/'}{described}"
        raise errors.internal(f"failed to create typed patch object ({where}): {managed_shape.render(found)}")
    return managed_fields.applied_set(schema, config)


def compare(schema: Schema, old: Json, new: Json, resets: Iterable[str]) -> Changes:
    changes = Changes()
    ignored = {"metadata", *UNOWNED, *resets}
    managed_objects.compare_fields(schema, old, new, (), changes, ignored)
    if "metadata" not in resets:
        before, after = old.get("metadata") or {}, new.get("metadata") or {}
        if not (UNOWNED_METADATA.issuperset(after) and UNOWNED_METADATA.issuperset(before)):
            metadata = managed_fields.child_schema(schema, "metadata")
            managed_objects.compare_fields(metadata, before, after, ("f:metadata",), changes, UNOWNED_METADATA)
    return changes


def unborn(schema: Schema) -> Json:
    """What a new object is compared with. A built-in kind has the parts that it can never be without, and empty."""
    return schema.kept(_unborn)


def _unborn(schema: Schema) -> Json:
    return schema_typed.decode(schema, {}, "")[0] if schema.shape else {}


def _owned(fields: FieldSet) -> FieldSet:
    """A set without what nobody can own."""
    result = {element: node for element, node in fields.items() if element[2:] not in UNOWNED}
    metadata = result.pop("f:metadata", None)
    if metadata:
        kept = {e: node for e, node in metadata.items() if e != sets.SELF and e[2:] not in UNOWNED_METADATA}
        if kept:
            result["f:metadata"] = kept
    return result


def _refuse_conflicts(others: list[Entry], touched: FieldSet, own: FieldSet) -> None:
    """409 if the apply would take a value from another owner. ``own`` are fields that only seem to be another's."""
    lost = ((entry, sets.difference(sets.intersection(entry.fields, touched), own)) for entry in others)
    if conflicts := [(entry, fields) for entry, fields in lost if fields]:
        raise _conflict(conflicts)


def _take(others: list[Entry], changes: Changes) -> None:
    """Everybody else loses what was changed, and those who have nothing left go."""
    for entry in others:
        for changed in (changes.touched, changes.removed):
            if changed:
                entry.fields = sets.difference(entry.fields, changed)
    others[:] = [entry for entry in others if entry.fields]


def _conflict(conflicts: Sequence[tuple[Entry, FieldSet]]) -> errors.ApiError:
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


def _given_entries(old: Json | None, new: Json) -> list[Entry]:
    """The entries that a write starts from: its own if it brings valid ones, else the stored ones."""
    given = new.get("metadata", {}).get("managedFields")
    if given is None:
        return decode(old)
    if given in ([], [{}]):
        return []
    return decode(new) if isinstance(given, list) and all(map(is_valid, given)) else decode(old)
