"""
The objects as last seen: one reflector per kind keeps them up to date, everyone else reads.

A reflector lists page by page, then watches from the version of the list; when the watch ends it goes on from the last
version it saw, and when that version is forgotten (410) it lists again and tells what changed meanwhile. The answer of
an own write can be put in at once: an older state never replaces a newer one.

Called by: controllers/plane.py (starts it), plans (through View), kube/apply.py (puts answers in).
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
    """One object: its JSON, its controller, and the projections that someone has asked for."""

    __slots__ = ("controller", "json", "typed", "version")

    def __init__(self, json: Json, version: int) -> None:
        self.json = json
        self.typed: dict[type[Object], Object] = {}
        self.version = version
        self.controller = _controller_uid(json)


class _Shelf:
    """The objects of one kind, by namespace and name, and by the uid of their controller."""

    def __init__(self) -> None:
        self.by_namespace: dict[str, dict[str, _Entry]] = {}
        self.by_controller: dict[str, dict[Key, _Entry]] = {}
        # Deleted objects and the version of their deletion: a late answer of a write must not bring them back.
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
        self._shelves: dict[Kind, _Shelf] = {}
        self._expected: dict[Kind, None] = {}
        self._subscribers: list[tuple[Subscriber, frozenset[Kind]]] = []
        # Those of each kind, found with its first change.
        self._told: dict[Kind, tuple[Subscriber, ...]] = {}

    # View.

    def get(self, type_: type[T], key: Key) -> T | None:
        shelf = self._shelves.get(type_.KIND)
        entry = shelf.find(key) if shelf is not None else None
        return _typed(entry, type_) if entry is not None else None

    def list(self, type_: type[T], namespace: str | None = None) -> Sequence[T]:
        return [_typed(entry, type_) for entry in self._shelf(type_.KIND).entries(namespace)]

    def find_json(self, kind: Kind, key: Key) -> Json | None:
        shelf = self._shelves.get(kind)
        entry = shelf.find(key) if shelf is not None else None
        return entry.json if entry is not None else None

    def list_json(self, kind: Kind, namespace: str | None = None) -> Sequence[Json]:
        return [entry.json for entry in self._shelf(kind).entries(namespace)]

    def owned_by(self, kind: Kind, uid: str) -> Sequence[Json]:
        return [entry.json for entry in self._shelf(kind).by_controller.get(uid, {}).values()]

    # Changing.

    def subscribe(self, subscriber: Subscriber, *kinds: Kind) -> None:
        """Call it with (kind, old, new) after each change, of these kinds or of all, in the order of subscriptions.

        No old is a new object, no new a deleted one.
        """
        self._subscribers.append((subscriber, frozenset(kinds)))
        self._told.clear()

    def observe(self, kind: Kind, obj: Json) -> None:
        """The object has this state, by a watch or as the answer of a write."""
        shelf, key, version = self._shelf(kind), _key(obj), _version(obj)
        known = shelf.find(key)
        # Most often this is the echo of an own write.
        if known is not None and known.version >= version:
            return
        if shelf.deleted and version <= shelf.deleted.get(key, -1):
            return
        kept = _kept(kind, obj)
        shelf.put(key, _Entry(kept, version), known)
        shelf.deleted.pop(key, None)
        self._tell(kind, known.json if known is not None else None, kept)

    def forget(self, kind: Kind, obj: Json) -> None:
        """The object is gone; this is its last state."""
        shelf = self._shelf(kind)
        key = _key(obj)
        version = _version(obj)
        known = shelf.find(key)
        if known is not None and known.version > version:
            return
        shelf.deleted[key] = version
        if len(shelf.deleted) > REMEMBERED_DELETIONS:
            del shelf.deleted[next(iter(shelf.deleted))]
        if known is not None:
            shelf.take(key)
            self._tell(kind, known.json, None)

    def drop(self, kind: Kind, key: Key) -> None:
        """Nobody follows the object: what is known of it would stay as it is. It may be there."""
        shelf = self._shelf(kind)
        known = shelf.find(key)
        if known is not None:
            shelf.take(key)
            self._tell(kind, known.json, None)

    def replace(self, kind: Kind, objects: Iterable[Json], version: str) -> None:
        """The list says what exists as of its version: what is not in it, and older, is gone."""
        shelf = self._shelf(kind)
        listed = set()
        for obj in objects:
            listed.add(_key(obj))
            self.observe(kind, obj)
        for key in shelf.all_keys():
            entry = shelf.find(key)
            if key not in listed and entry is not None and entry.version <= int(version):
                shelf.take(key)
                self._tell(kind, entry.json, None)
        shelf.deleted.clear()
        shelf.is_synced.set()

    def add(self, kind: Kind) -> None:
        """Expect the kind: ``synced`` waits for its first list. A kind that was only asked for may never have one."""
        self._expected[kind] = None

    async def synced(self) -> None:
        """Wait until every expected kind was listed once."""
        for kind in list(self._expected):
            await self._shelf(kind).is_synced.wait()

    def _shelf(self, kind: Kind) -> _Shelf:
        shelf = self._shelves.get(kind)
        if shelf is None:
            shelf = self._shelves[kind] = _Shelf()
        return shelf

    def _tell(self, kind: Kind, old: Json | None, new: Json | None) -> None:
        told = self._told.get(kind)
        if told is None:
            told = tuple(each for each, kinds in self._subscribers if not kinds or kind in kinds)
            self._told[kind] = told
        for subscriber in told:
            subscriber(kind, old, new)


class Reflector:
    """Keeps one kind of one server in the cache, for as long as ``run`` runs; with ``labels``, what they select."""

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
        """Until the server fails, for who wants to know about that."""
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
        """Twice as long after each failure, with some chance in it: a thousand clients must not come back as one."""
        delay = min(FIRST_DELAY_SECONDS * 2**self._failures, LONGEST_DELAY_SECONDS)
        delay = max(delay * random.uniform(0.5, 1.0), error.retry_after_seconds)
        self._failures = min(self._failures + 1, 10)
        log.warning("watch interrupted", kind=self._kind.kind, error=error, retry_seconds=f"{delay:.1f}")
        await asyncio.sleep(delay)


def _typed(entry: _Entry, type_: type[T]) -> T:
    known = entry.typed.get(type_)
    if known is None:
        known = entry.typed[type_] = codec.decode_as(type_, entry.json)
    # The dictionary maps each type to an object of it, which its own type cannot say.
    assert isinstance(known, type_)
    return known


def _kept(kind: Kind, obj: Json) -> Json:
    """What is kept of an object, which may be shared and stays as it is.

    Who owns which field is half of many objects, and no plan reads it. In a list, objects of Kubernetes' own kinds come
    without their kind.
    """
    kept = obj.copy() if "kind" in obj else {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
    kept["metadata"] = obj["metadata"].copy()
    kept["metadata"].pop("managedFields", None)
    return kept


def _key(obj: Json) -> Key:
    metadata = obj["metadata"]
    return Key(metadata.get("namespace", ""), metadata["name"])


def _version(obj: Json) -> int:
    """Versions are opaque to clients, but every server that Kyu speaks to counts."""
    return int(obj["metadata"].get("resourceVersion") or 0)


def _controller_uid(obj: Json) -> str:
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            uid: str = owner.get("uid", "")
            return uid
    return ""
