"""Objects as the verbs see them: JSON in a served version, over records of bytes in the stored one."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import msgspec

from kyu.api.meta import Json
from kyu.server import bounds, errors, metadata, representations
from kyu.server.decode import object
from kyu.server.exchange import encode
from kyu.server.registry import Resource
from kyu.server.storage.records import Record
from kyu.server.storage.store import Store

# Objects just written whose JSON is kept: the next write of their status mostly comes soon.
RECENT_OBJECTS = 512
LARGEST_KEPT = 32 * 1024
_NOT_RECENT: tuple[None, None, Json] = (None, None, {})


class Stored(NamedTuple):
    """An object on its way to the disk: wait for ``done`` before answering. ``obj`` must not be changed."""

    record: Record
    done: asyncio.Future[None]
    obj: Json


class Objects:
    def __init__(self, store: Store) -> None:
        self.store = store
        self._recent: dict[int, tuple[Resource, Record, Json]] = {}

    def latest(self, resource: Resource, namespace: str, name: str) -> tuple[Record, Json]:
        """Return the object as a write finds it; 404 if there is none."""
        record = self.latest_record(resource, namespace, name)
        return record, representations.served_object(resource, record)

    def latest_record(self, resource: Resource, namespace: str, name: str) -> Record:
        record = self.store.latest(resource.storage, namespace, name)
        if record is None:
            raise errors.not_found(resource.kind, name)
        return record

    def shared(self, resource: Resource, record: Record) -> Json:
        """Return the object of a record. It is shared, and must not be changed."""
        resource_kept, record_kept, obj = self._recent.get(record.version, _NOT_RECENT)
        # After a change of its definition an object may look different.
        is_kept = record_kept is record and resource_kept is resource
        return obj if is_kept else representations.served_object(resource, record)

    def put(self, resource: Resource, obj: Json) -> Stored:
        """Store the object with the next version."""
        obj["metadata"]["resourceVersion"] = str(self.store.next_version)
        return self.put_normalized(resource, metadata.normalize(obj))

    def put_normalized(self, resource: Resource, normalized: Json) -> Stored:
        """Store an object whose metadata is in its final form; it gets its version in place."""
        record = self._record(resource, normalized, self.store.next_version)
        self._keep(resource, record, normalized)
        typed = object.typed(resource, normalized)
        return Stored(record, self.store.append(record, forms={representations.object_key(resource): typed}), typed)

    def _keep(self, resource: Resource, record: Record, obj: Json) -> None:
        is_small = len(record.value) <= LARGEST_KEPT
        if is_small and resource.is_custom and not resource.needs_conversion:
            self._recent[record.version] = resource, record, obj
            if len(self._recent) > RECENT_OBJECTS:
                del self._recent[next(iter(self._recent))]

    def remove(self, record: Record) -> asyncio.Future[None]:
        """Delete the object."""
        return self.take_away(record)[1]

    def take_away(self, record: Record) -> tuple[Record, asyncio.Future[None]]:
        """Delete the object; return its last state, with the version of the deletion."""
        obj = representations.decode(record.value)
        version = self.store.next_version
        obj["metadata"]["resourceVersion"] = str(version)
        last = msgspec.structs.replace(record, version=version, value=encode(obj))
        return last, self.store.append(last, deleted=True)

    def draft(self, resource: Resource, obj: Json, version: int | None) -> Record:
        """Return the record that the object would be; a record without a version is never stored."""
        return self._record(resource, metadata.normalize(obj), version)

    def _record(self, resource: Resource, normalized: Json, version: int | None) -> Record:
        meta = normalized["metadata"]
        if version is not None:
            meta["resourceVersion"] = str(version)
        stored = normalized
        if resource.needs_conversion:
            assert resource.convert is not None
            stored = resource.convert(normalized, resource.kind.version, resource.stored_version)
        owners = tuple(owner["uid"] for owner in meta.get("ownerReferences") or ())
        value = encode(stored)
        bounds.check_stored(resource.kind, meta["name"], value)
        return Record(
            resource.storage,
            meta.get("namespace", ""),
            meta["name"],
            meta["uid"],
            version or 0,
            value,
            meta.get("labels") or {},
            owners,
            "deletionTimestamp" in meta,
        )
