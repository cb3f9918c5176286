"""Objects and their changes as the store keeps them, and as rows of the database."""

from __future__ import annotations

from typing import Literal

import msgspec

from kyu.api.meta import Json
from kyu.server.storage.database import Row


class Record(msgspec.Struct, frozen=True, gc=False):
    """One object at one version. The value is its JSON without kind and apiVersion."""

    resource: str
    namespace: str
    name: str
    uid: str
    version: int
    value: bytes
    labels: dict[str, str]
    owners: tuple[str, ...]
    # Its deletion has begun.
    is_ending: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


class Change(msgspec.Struct, frozen=True):
    """A row as watchers see it. After a deletion, ``record`` is the last state with the version of the deletion."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    record: Record
    previous: Record | None
    # The event by form (served version, Table, …): made by the writer or the first watcher, and shared by the others.
    # Bytes of a line, or for watchers in this process the object, which must not be changed.
    forms: dict[object, bytes | Json] = {}


class _Owner(msgspec.Struct):
    uid: str = ""


class _Metadata(msgspec.Struct, rename="camel"):
    labels: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None
    deletion_timestamp: str | None = None


class _Head(msgspec.Struct):
    metadata: _Metadata


_decode_head = msgspec.json.Decoder(_Head).decode


def record_of(row: Row) -> Record:
    version, resource, namespace, name, uid, _, _, value = row
    metadata = _decode_head(value).metadata
    owners = tuple(owner.uid for owner in metadata.owner_references or ())
    is_ending = metadata.deletion_timestamp is not None
    return Record(resource, namespace, name, uid, version, value, metadata.labels or {}, owners, is_ending)


def row_of(change: Change) -> Row:
    record, previous = change.record, change.previous
    deleted = int(change.type == "DELETED")
    before = previous.version if previous else 0
    return record.version, record.resource, record.namespace, record.name, record.uid, before, deleted, record.value


def change_of(row: Row, before: bytes | None) -> Change:
    """``before`` is the value of the row that this one replaced."""
    previous = None
    if before is not None:
        previous = record_of((row[5], *row[1:5], 0, 0, before))
    return Change("DELETED" if row[6] else "MODIFIED" if previous else "ADDED", record_of(row), previous)
