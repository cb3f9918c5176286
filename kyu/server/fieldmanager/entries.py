"""
The entries of ``metadata.managedFields``: one for each manager, with the set of fields it owns.

Kubernetes: apimachinery/pkg/util/managedfields/internal/{managedmanager,capmanagers}.go
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from kyu.api.meta import Json
from kyu.server.fieldmanager import sets
from kyu.server.fieldmanager.sets import FieldSet

MAX_UPDATE_ENTRIES: Final = 10
ANCIENT_CHANGES: Final = "ancient-changes"


class ManagedFieldsEntry(msgspec.Struct):
    """The fields of one manager, operation and subresource.

    The version does not identify an Apply entry: it moves with the version that the applier uses.
    """

    manager: str
    operation: Literal["Apply", "Update"]
    api_version: str
    subresource: str
    time: str
    fields: FieldSet

    def is_by_same_writer(self, other: ManagedFieldsEntry) -> bool:
        return (
            self.manager == other.manager
            and self.operation == other.operation
            and self.subresource == other.subresource
            and (self.operation == "Apply" or self.api_version == other.api_version)
        )

    @property
    def order(self) -> tuple[str, str, str, str, str]:
        return self.operation, self.time, self.manager, self.api_version, self.subresource

    def __str__(self) -> str:
        text = f'"{self.manager}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.api_version}" if self.operation == "Update" else text


def decode(obj: Json | None) -> list[ManagedFieldsEntry]:
    """Return the entries of a stored object."""
    stored = obj["metadata"].get("managedFields") if obj and obj.get("metadata") else None
    return [
        ManagedFieldsEntry(
            raw.get("manager", ""), raw["operation"], raw["apiVersion"], raw.get("subresource", ""),
            raw.get("time") or "", raw.get("fieldsV1") or {},
        )
        for raw in stored or ()
    ]  # fmt: skip


def is_valid(raw: Any) -> bool:
    """Return whether an entry that a client wrote can be stored."""
    return (
        isinstance(raw, dict)
        and raw.get("fieldsType") == "FieldsV1"
        and bool(raw.get("apiVersion"))
        and raw.get("operation") in ("Apply", "Update")
        and sets.is_valid(raw.get("fieldsV1") or {})
    )


def without_managed(obj: Json) -> Json:
    """Return a copy of the top level and the metadata, without managedFields."""
    metadata = {name: value for name, value in (obj.get("metadata") or {}).items() if name != "managedFields"}
    return {**obj, "metadata": metadata} if obj else {}


def with_managed(obj: Json, entries: Sequence[ManagedFieldsEntry]) -> Json:
    """Return a copy of the top level and the metadata, with these entries and no others."""
    metadata = {**(obj.get("metadata") or {})}
    metadata.pop("managedFields", None)
    if stored := encoded(entries):
        metadata["managedFields"] = stored
    return {**obj, "metadata": metadata}


def encoded(entries: Sequence[ManagedFieldsEntry]) -> list[Json]:
    """Return the entries as they are stored, sorted."""
    if len(entries) > 1:
        entries = sorted(entries, key=lambda entry: entry.order)
    return [_encoded(entry) for entry in entries if entry.fields]


def _encoded(entry: ManagedFieldsEntry) -> Json:
    raw: Json = {"manager": entry.manager, "operation": entry.operation, "apiVersion": entry.api_version}
    if entry.time:
        raw["time"] = entry.time
    raw["fieldsType"] = "FieldsV1"
    raw["fieldsV1"] = entry.fields
    if entry.subresource:
        raw["subresource"] = entry.subresource
    return raw


def entry_of(writer: ManagedFieldsEntry, entries: list[ManagedFieldsEntry]) -> ManagedFieldsEntry | None:
    """Return the entry of the same manager, operation and subresource."""
    return next((entry for entry in entries if entry.is_by_same_writer(writer)), None)


def capped(entries: list[ManagedFieldsEntry]) -> list[ManagedFieldsEntry]:
    """Merge the oldest Update entries into one per version, so that at most ten are left."""
    if len(entries) <= MAX_UPDATE_ENTRIES:
        return entries
    updates = sorted((entry for entry in entries if entry.operation == "Update"), key=lambda entry: entry.order)
    excess = len(updates) - MAX_UPDATE_ENTRIES
    buckets: dict[str, ManagedFieldsEntry] = {}
    for entry in updates:
        if excess <= 0:
            break
        bucket = buckets.get(entry.api_version)
        if bucket is None:
            buckets[entry.api_version] = entry
            continue
        bucket.manager, bucket.subresource, bucket.time = ANCIENT_CHANGES, "", entry.time
        bucket.fields = sets.union(bucket.fields, entry.fields)
        entries.remove(entry)
        excess -= 1
    return entries
