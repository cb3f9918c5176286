"""
Objects as the verbs see them: JSON in a served version, over records of bytes in the stored one.

Called by: server/writes.py, server/deletion.py, the subresources and the garbage collector. Calls: server/store.py.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import msgspec

from kyu.api.meta import Json
from kyu.server import errors, forms, intake, metadata
from kyu.server.exchange import encode
from kyu.server.records import Record
from kyu.server.registry import Resource
from kyu.server.store import Store

# Of how many objects that were just written the JSON is kept: the next write of their status mostly comes soon.
KEPT_OBJECTS = 512
_NOTHING_KEPT: tuple[None, None, Json] = (None, None, {})


class Stored(NamedTuple):
    """An object on its way to the disk: wait for ``done`` before answering. ``obj`` is shared: nobody may change it."""

    record: Record
    done: asyncio.Future[None]
    obj: Json


class Objects:
    def __init__(self, store: Store) -> None:
        self.store = store
        self._kept: dict[int, tuple[Resource, Record, Json]] = {}

    def latest(self, resource: Resource, namespace: str, name: str) -> tuple[Record, Json]:
        """The object as a write finds it; 404 if there is none."""
        record = self.latest_record(resource, namespace, name)
        return record, forms.served_object(resource, record)

    def latest_record(self, resource: Resource, namespace: str, name: str) -> Record:
        record = self.store.latest(resource.storage, namespace, name)
        if record is None:
            raise errors.not_found(resource.kind, name)
        return record

    def lent(self, resource: Resource, record: Record) -> Json:
        """The object of a record, which the caller must not change: it may be lent to others, too."""
        resource_kept, record_kept, obj = self._kept.get(record.version, _NOTHING_KEPT)
        # After a change of its definition an object may look different.
        return obj if record_kept is record and resource_kept is resource else forms.served_object(resource, record)

    def put(self, resource: Resource, obj: Json) -> Stored:
        """The object gets the next version."""
        obj["metadata"]["resourceVersion"] = str(self.store.next_version)
        return self.put_tidied(resource, metadata.tidy(obj))

    def put_tidied(self, resource: Resource, tidied: Json) -> Stored:
        """The same for an object whose metadata is in its final form; it gets its version in place."""
        record = self._record(resource, tidied, self.store.next_version)
        self._keep(resource, record, tidied)
        typed = intake.typed(resource, tidied)
        return Stored(record, self.store.append(record, forms={forms.object_key(resource): typed}), typed)

    def _keep(self, resource: Resource, record: Record, obj: Json) -> None:
        if resource.is_custom and not resource.needs_conversion:
            self._kept[record.version] = resource, record, obj
            if len(self._kept) > KEPT_OBJECTS:
                del self._kept[next(iter(self._kept))]

    def remove(self, record: Record) -> asyncio.Future[None]:
        """The object is deleted."""
        return self.take_away(record)[1]

    def take_away(self, record: Record) -> tuple[Record, asyncio.Future[None]]:
        """The object is deleted: its last state, as stored before, gets the version of the deletion."""
        obj = forms.decode(record.value)
        version = self.store.next_version
        obj["metadata"]["resourceVersion"] = str(version)
        last = msgspec.structs.replace(record, version=version, value=encode(obj))
        return last, self.store.append(last, deleted=True)

    def draft(self, resource: Resource, obj: Json, version: int | None) -> Record:
        """The record that the object would be; without a version it is one that is never stored."""
        return self._record(resource, metadata.tidy(obj), version)

    def _record(self, resource: Resource, tidied: Json, version: int | None) -> Record:
        meta = tidied["metadata"]
        if version is not None:
            meta["resourceVersion"] = str(version)
        stored = tidied
        if resource.needs_conversion:
            assert resource.convert is not None
            stored = resource.convert(tidied, resource.kind.version, resource.stored_version)
        owners = tuple(owner["uid"] for owner in meta.get("ownerReferences") or ())
        return Record(
            resource.storage,
            meta.get("namespace", ""),
            meta["name"],
            meta["uid"],
            version or 0,
            encode(stored),
            meta.get("labels") or {},
            owners,
            "deletionTimestamp" in meta,
        )
