"""
A cache of objects, kept up to date by one reflector per kind.

A reflector lists in pages, then watches from the version of the list. When the watch ends it continues from the last
version that it has seen. When that version is too old (410) it lists again and reports the differences. The answer of
a write can be put in at once: an older version never replaces a newer one.

Kubernetes: client-go tools/cache.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from kyu import log
from kyu.api import codec
from kyu.api.meta import Json, Key, Kind, Object
from kyu.kube import errors
from kyu.kube.client import Client

T = TypeVar("T", bound=Object)
Subscriber = Callable[[Kind, Json | None, Json | None], None]

FIRST_DELAY_SECONDS = 0.1
LONGEST_DELAY_SECONDS = 30.0
REMEMBERED_DELETIONS = 10_000


class _Entry:
    """An object: its JSON, the uid of its controller, and its projections so far."""

    __slots__ = ("controller", "json", "typed", "version")

    def __init__(self, json: Json, version: int) -> None:
        self.json = json
        self.typed: dict[type[Object], Object] = {}
        self.version = version
        self.controller = _controller_uid(json)


class _KindObjects:
    """The objects of one kind, by namespace and name, and by the uid of their controller."""

    def __init__(self) -> None:
        self.by_namespace: dict[str, dict[str, _Entry]] = {}
        self.by_controller: dict[str, dict[Key, _Entry]] = {}
        # Deleted objects with the version of their deletion, so that a late answer of a write does not restore them.
        self.deleted: dict[Key, int] = {}
        self.is_synced = asyncio.Event()

    def find(self, key: Key) -> _Entry | None:
        named = self.by_namespace.get(key.namespace)
        return named.get(key.name) if named is not None else None

    def put(self, key: Key, entry: _Entry, known: _Entry | None) -> None:
        if known is not None and known.controller != entry.controller:
            self.take(key)
        self.by_namespace.setdefault(key.namespace, {})[key.name] = entry
        if entry.controller:
            self.by_controller.setdefault(entry.controller, {})[key] = entry

    def take(self, key: Key) -> None:
        entry = self.by_namespace.get(key.namespace, {}).pop(key.name, None)
        if entry is not None and entry.controller:
            owned = self.by_controller.get(entry.controller, {})
            owned.pop(key, None)
            if not owned:
                self.by_controller.pop(entry.controller, None)

    def all_keys(self) -> list[Key]:
        return [Key(namespace, name) for namespace, named in self.by_namespace.items() for name in named]

    def entries(self, namespace: str | None) -> Iterable[_Entry]:
        if namespace is not None:
            return self.by_namespace.get(namespace, {}).values()
        return (entry for named in self.by_namespace.values() for entry in named.values())


class Cache:
    """Implements ``kyu.api.actions.View``."""

    def __init__(self) -> None:
        self._by_kind: dict[Kind, _KindObjects] = {}
        self._expected: dict[Kind, None] = {}
        self._subscribers: list[tuple[Subscriber, frozenset[Kind]]] = []
        # The subscribers of each kind, filled in at its first change.
        self._subscribers_of: dict[Kind, tuple[Subscriber, ...]] = {}

    def get(self, type_: type[T], key: Key) -> T | None:
        objects = self._by_kind.get(type_.KIND)
        entry = objects.find(key) if objects is not None else None
        return _typed(entry, type_) if entry is not None else None

    def list(self, type_: type[T], namespace: str | None = None) -> Sequence[T]:
        return [_typed(entry, type_) for entry in self._objects_of(type_.KIND).entries(namespace)]

    def find_json(self, kind: Kind, key: Key) -> Json | None:
        objects = self._by_kind.get(kind)
        entry = objects.find(key) if objects is not None else None
        return entry.json if entry is not None else None

    def list_json(self, kind: Kind, namespace: str | None = None) -> Sequence[Json]:
        objects = self._by_kind.get(kind)
        if objects is None:
            return []
        if namespace is None:
            return [entry.json for entry in objects.entries(None)]
        # Each new Workload asks for the jobs of each kind in its namespace, and most of these are none.
        named = objects.by_namespace.get(namespace)
        return [entry.json for entry in named.values()] if named else []

    def owned_by(self, kind: Kind, uid: str) -> Sequence[Json]:
        return [entry.json for entry in self._objects_of(kind).by_controller.get(uid, {}).values()]

    def subscribe(self, subscriber: Subscriber, *kinds: Kind) -> None:
        """Call the subscriber with (kind, old, new) after each change of these kinds, or of all kinds.

        They are called in the order of subscription. ``old`` is None for a new object, ``new`` for a deleted one.
        """
        self._subscribers.append((subscriber, frozenset(kinds)))
        self._subscribers_of.clear()

    def replay(self, subscriber: Subscriber, *kinds: Kind) -> None:
        """Call the subscriber for each object of these kinds, or of all, as if it were new."""
        for kind in kinds or tuple(self._by_kind):
            for obj in self.list_json(kind):
                subscriber(kind, None, obj)

    def observe(self, kind: Kind, obj: Json) -> None:
        """Store this state of the object, from a watch or the answer of a write."""
        objects, key, version = self._objects_of(kind), _key(obj), _version(obj)
        known = objects.find(key)
        # Most often this is the watch event of an own write.
        if known is not None and known.version >= version:
            return
        if objects.deleted and version <= objects.deleted.get(key, -1):
            return
        kept = _kept(kind, obj)
        objects.put(key, _Entry(kept, version), known)
        objects.deleted.pop(key, None)
        self._notify(kind, known.json if known is not None else None, kept)

    def forget(self, kind: Kind, obj: Json) -> None:
        """Remove a deleted object; this is its last state."""
        objects = self._objects_of(kind)
        key = _key(obj)
        version = _version(obj)
        known = objects.find(key)
        if known is not None and known.version > version:
            return
        objects.deleted[key] = version
        if len(objects.deleted) > REMEMBERED_DELETIONS:
            del objects.deleted[next(iter(objects.deleted))]
        if known is not None:
            objects.take(key)
            self._notify(kind, known.json, None)

    def drop(self, kind: Kind, key: Key) -> None:
        """Remove an object that no watch follows, since its state would never change. The object may still exist."""
        objects = self._objects_of(kind)
        known = objects.find(key)
        if known is not None:
            objects.take(key)
            self._notify(kind, known.json, None)

    def replace(self, kind: Kind, objects: Iterable[Json], version: str) -> None:
        """Store a list: objects that are not in it, and older than it, are gone."""
        known = self._objects_of(kind)
        listed = set()
        for obj in objects:
            listed.add(_key(obj))
            self.observe(kind, obj)
        for key in known.all_keys():
            entry = known.find(key)
            if key not in listed and entry is not None and entry.version <= int(version):
                known.take(key)
                self._notify(kind, entry.json, None)
        known.deleted.clear()
        known.is_synced.set()

    def add(self, kind: Kind) -> None:
        """Let ``synced`` wait for the first list of the kind."""
        self._expected[kind] = None

    async def synced(self) -> None:
        """Wait until every added kind was listed once."""
        for kind in list(self._expected):
            await self._objects_of(kind).is_synced.wait()

    def _objects_of(self, kind: Kind) -> _KindObjects:
        objects = self._by_kind.get(kind)
        if objects is None:
            objects = self._by_kind[kind] = _KindObjects()
        return objects

    def _notify(self, kind: Kind, old: Json | None, new: Json | None) -> None:
        subscribers = self._subscribers_of.get(kind)
        if subscribers is None:
            subscribers = tuple(each for each, kinds in self._subscribers if not kinds or kind in kinds)
            self._subscribers_of[kind] = subscribers
        for subscriber in subscribers:
            subscriber(kind, old, new)


class Reflector:
    """Keeps one kind of one server in the cache while ``run`` runs; with ``labels``, only selected objects."""

    def __init__(
        self, client: Client, cache: Cache, kind: Kind, namespace: str | None = None, labels: str = ""
    ) -> None:
        self._client = client
        self._cache = cache
        self._kind = kind
        self._namespace = namespace
        self._labels = labels
        self._version = ""
        self._failures = 0
        cache.add(kind)

    async def run(self) -> None:
        while True:
            try:
                await self.follow()
            except errors.ApiError as error:
                await self._wait(error)

    async def follow(self) -> None:
        """List and watch until the server fails."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
                self._failures = 0
            except errors.Gone:
                self._version = ""

    async def _list(self) -> None:
        objects, version = await self._client.list(self._kind, self._namespace, labels=self._labels)
        self._cache.replace(self._kind, objects, version)
        self._version = version

    async def _watch(self) -> None:
        await self._client.follow(
            self._kind, self._namespace, version=self._version, tell=self._heard, labels=self._labels
        )

    def _heard(self, type_: str, obj: Json) -> None:
        match type_:
            case "ADDED" | "MODIFIED":
                self._cache.observe(self._kind, obj)
            case "DELETED":
                self._cache.forget(self._kind, obj)
            case "BOOKMARK":
                pass
            case _:
                return
        self._version = obj["metadata"]["resourceVersion"]
        self._failures = 0

    async def _wait(self, error: errors.ApiError) -> None:
        """Sleep twice as long after each failure, with jitter, so that clients do not all return at once."""
        delay = min(FIRST_DELAY_SECONDS * 2**self._failures, LONGEST_DELAY_SECONDS)
        delay = max(delay * random.uniform(0.5, 1.0), error.retry_after_seconds)
        self._failures = min(self._failures + 1, 10)
        log.warning("watch interrupted", kind=self._kind.kind, error=error, retry_seconds=f"{delay:.1f}")
        await asyncio.sleep(delay)


def _typed(entry: _Entry, type_: type[T]) -> T:
    known = entry.typed.get(type_)
    if known is None:
        known = entry.typed[type_] = codec.decode_as(type_, entry.json)
    # The dictionary maps each type to an instance of it, which its annotation cannot express.
    assert isinstance(known, type_)
    return known


def _kept(kind: Kind, obj: Json) -> Json:
    """Return the object without managedFields, and with its kind.

    managedFields are half of many objects, and no plan reads them. Items of a list of built-in kinds lack the kind.
    """
    kept = obj.copy() if "kind" in obj else {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
    kept["metadata"] = obj["metadata"].copy()
    kept["metadata"].pop("managedFields", None)
    return kept


def _key(obj: Json) -> Key:
    metadata = obj["metadata"]
    return Key(metadata.get("namespace", ""), metadata["name"])


def _version(obj: Json) -> int:
    """Return the version as a number; versions are opaque by contract, but all API servers count."""
    return int(obj["metadata"].get("resourceVersion") or 0)


def _controller_uid(obj: Json) -> str:
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            uid: str = owner.get("uid", "")
            return uid
    return ""
