"""
Every object that exists, in memory; every change of one, on disk before anyone hears of it.

A write is checked against ``latest`` (what will be true once the writes before it are stored), gets its version, and
joins the batch that the writer thread takes next: one transaction for all who wait. Only when the batch is on disk do
readers see it, watchers hear of it and writers get their answer. Reads never touch the disk; a watch that starts
further back than the window in memory reads the rows of the database.

If a batch cannot be stored, it and all that was built on it is refused, and the state stays what is on disk.

Called by: server/objects.py, reads.py, watch.py, on one event loop. etcd's rules for versions and compaction.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import gc
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from kyu.api.meta import Json
from kyu.server.database import Database, DatabaseError, Row
from kyu.server.records import Change, Record, change_of, record_of, row_of

# How many changes of one resource are kept in memory for watches that come back and for lists that go on; those that
# look back further read them from the disk.
WINDOW = 2048
# Of how many of them the forms that watchers have made are kept for others.
SHARED_FORMS = 512
# How many obsolete rows the database keeps; with the writes of a busy hour this is some minutes of history.
HISTORY = 50_000


class Expired(Exception):
    """The version is older than what is kept."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"{asked} ({oldest})")
        self.asked = asked
        self.oldest = oldest


class Unwritable(Exception):
    """The database refused a write, for example because the disk is full. Nothing of it was stored."""


@dataclass(slots=True)
class _Shelf:
    """The objects of one resource, and its last changes."""

    records: dict[tuple[str, str], Record] = field(default_factory=dict)
    order: list[tuple[str, str]] = field(default_factory=list)
    changes: deque[Change] = field(default_factory=deque)
    start: int = 0


@dataclass(slots=True)
class _Batch:
    """The writes that share one transaction, and those who wait for it: each has a future that it may cancel."""

    changes: list[Change]
    forget: list[int]
    compacted: int
    waiting: list[asyncio.Future[None]] = field(default_factory=list)

    def settle(self, error: Unwritable | None = None) -> None:
        for future in self.waiting:
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
                # One that nobody looks at (its client has gone) is no fault.
                future.exception()


Listener = Callable[[Change], None]


class Store:
    def __init__(self, database: Database, *, history: int = HISTORY, window: int = WINDOW) -> None:
        self._database = database
        self._history = history
        self._window = window
        self._shelves: dict[str, _Shelf] = {}
        # By the resource that they listen to; under the empty name, to all.
        self._listeners: dict[str, tuple[Listener, ...]] = {}
        self._pending: dict[tuple[str, str, str], Change] = {}
        self._open: _Batch | None = None
        self._in_flight = False
        self._to_write: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self.version, self.compacted = database.versions()
        self._next = self.version + 1
        self._obsolete: deque[tuple[int, int]] = deque()
        with _without_collections():
            self._load()
        self._writer = threading.Thread(target=self._write_batches, name="store-writer", daemon=True)
        self._writer.start()

    # Reading.

    def find(self, resource: str, namespace: str, name: str) -> Record | None:
        """The object as it is on disk."""
        shelf = self._shelves.get(resource)
        return shelf.records.get((namespace, name)) if shelf else None

    def latest(self, resource: str, namespace: str, name: str) -> Record | None:
        """The object as the next write will find it: what is on disk, and the writes that are on their way."""
        change = self._pending.get((resource, namespace, name))
        if change is None:
            return self.find(resource, namespace, name)
        return None if change.type == "DELETED" else change.record

    def count(self, resource: str) -> int:
        shelf = self._shelves.get(resource)
        return len(shelf.records) if shelf else 0

    def count_after(
        self, resource: str, namespace: str | None, after: tuple[str, str], undo: Sequence[Change] = ()
    ) -> int:
        """How many objects come after a key, with the changes in ``undo`` (oldest first) taken back."""
        shelf = self._shelves.get(resource) or _Shelf()
        before = _before(undo)
        touched = _range(sorted(before), namespace, after)
        taken_back = sum((before[key] is not None) - (key in shelf.records) for key in touched)
        return len(_range(shelf.order, namespace, after)) + taken_back

    def resources(self) -> list[str]:
        """The resources of which an object exists."""
        return sorted(name for name, shelf in self._shelves.items() if shelf.records)

    def objects(self, resource: str, namespace: str | None = None) -> Iterator[Record]:
        """All present objects, in order of namespace and name."""
        shelf = self._shelves.get(resource)
        if shelf is None:
            return
        for key in _range(shelf.order, namespace, None):
            yield shelf.records[key]

    def page(
        self, resource: str, namespace: str | None, after: tuple[str, str] | None, undo: Sequence[Change] = ()
    ) -> Iterator[Record]:
        """Like ``objects``, from a key on, and with the changes in ``undo`` (oldest first) taken back."""
        shelf = self._shelves.get(resource) or _Shelf()
        before = _before(undo)
        missing = sorted(key for key, record in before.items() if record is not None and key not in shelf.records)
        keys: Iterator[tuple[str, str]] = iter(_range(shelf.order, namespace, after))
        if missing:
            keys = iter(sorted([*keys, *_range(missing, namespace, after)]))
        for key in keys:
            record = before[key] if key in before else shelf.records[key]
            if record is not None:
                yield record

    async def changes(self, resource: str, after: int, until: int | None = None) -> list[Change]:
        """What happened to the resource in ``after < version <= until`` (or to this day), oldest first."""
        if after < self.compacted:
            raise Expired(after, self.compacted)
        shelf = self._shelves.setdefault(resource, _Shelf(start=self.version))
        start = shelf.start
        older: list[Change] = []
        if after < start:
            end = start if until is None else min(start, until)
            rows = await asyncio.to_thread(self._database.between, resource, after, end)
            older = [change_of(row, before) for row, before in rows]
            if start < shelf.start:
                raise Expired(after, shelf.start)
        recent = [c for c in shelf.changes if c.record.version > max(after, start)]
        if until is not None:
            recent = [c for c in recent if c.record.version <= until]
        return older + recent

    def listen(self, listener: Listener, *resources: str) -> Callable[[], None]:
        """Call the listener with each change (of these resources) once it is on disk, in order.

        Returns how to stop that.
        """
        names = resources or ("",)
        for name in names:
            self._listeners[name] = (*self._listeners.get(name, ()), listener)

        def stop() -> None:
            for name in names:
                self._listeners[name] = tuple(each for each in self._listeners[name] if each != listener)

        return stop

    # Writing.

    @property
    def next_version(self) -> int:
        """The version that the next write gets; the value must carry it already."""
        return self._next

    def append(
        self, record: Record, *, deleted: bool = False, forms: dict[object, bytes | Json] | None = None
    ) -> asyncio.Future[None]:
        """Queue the new state of an object (or its last one, when deleted); wait for the future before answering.

        ``forms``: what its writer has made of it already, for watchers.
        """
        assert record.version == self._next, f"version {record.version} written where {self._next} was due"
        previous = self.latest(record.resource, record.namespace, record.name)
        self._next += 1
        change = Change("DELETED" if deleted else "MODIFIED" if previous else "ADDED", record, previous, forms or {})
        self._pending[(record.resource, record.namespace, record.name)] = change
        batch = self._batch()
        batch.changes.append(change)
        return self._wait_for(batch)

    async def flush(self) -> None:
        """Wait until everything queued so far is on disk."""
        while self._open is not None or self._in_flight:
            await self._wait_for(self._batch())

    def compact(self, until: int) -> None:
        """Forget the history up to a version: no watch can start before it any more."""
        self._forget(lambda version: version <= until)

    async def close(self) -> None:
        with contextlib.suppress(Unwritable):
            await self.flush()
        self._to_write.put(None)
        await asyncio.to_thread(self._writer.join)
        self._database.close()

    # The batch that is open, and the thread that stores it.

    def _wait_for(self, batch: _Batch) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        batch.waiting.append(future)
        return future

    def _batch(self) -> _Batch:
        if self._open is None:
            self._open = _Batch([], [], self.compacted)
            if not self._in_flight:
                # The other requests of this turn of the loop join the batch before the thread takes it.
                self._loop.call_soon(self._hand_over)
        return self._open

    def _hand_over(self) -> None:
        if self._open is None or self._in_flight:
            return
        self._forget_beyond_history()
        batch, self._open = self._open, None
        self._in_flight = True
        self._to_write.put(batch)

    def _write_batches(self) -> None:
        while (batch := self._to_write.get()) is not None:
            error: DatabaseError | None = None
            try:
                self._database.commit([row_of(c) for c in batch.changes], batch.forget, batch.compacted)
            except DatabaseError as refused:
                error = refused
            self._loop.call_soon_threadsafe(self._settle, batch, error)

    def _settle(self, batch: _Batch, error: DatabaseError | None) -> None:
        self._in_flight = False
        if error is not None:
            self._refuse(batch, Unwritable(str(error)))
            return
        self.compacted = max(self.compacted, batch.compacted)
        # The next batch is stored while this one is told.
        self._hand_over()
        for change in batch.changes:
            self._publish(change)
        batch.settle()

    def _refuse(self, batch: _Batch, error: Unwritable) -> None:
        """What waits behind the failed batch may build on it, so all of it is refused."""
        waiting, self._open = self._open, None
        self._pending.clear()
        for refused in (waiting, batch):
            if refused is not None:
                self._obsolete.extendleft((refused.compacted, version) for version in reversed(refused.forget))
                refused.settle(error)

    def _publish(self, change: Change) -> None:
        record, key = change.record, change.record.key
        shelf = self._shelf(record.resource)
        pending = (record.resource, *key)
        if self._pending.get(pending) is change:
            del self._pending[pending]
        if change.previous is not None:
            self._obsolete.append((record.version, change.previous.version))
        if change.type == "DELETED":
            self._obsolete.append((record.version, record.version))
            del shelf.records[key]
            del shelf.order[bisect.bisect_left(shelf.order, key)]
        else:
            if key not in shelf.records:
                bisect.insort(shelf.order, key)
            shelf.records[key] = record
        shelf.changes.append(change)
        if len(shelf.changes) > SHARED_FORMS:
            # By now all but slow watchers have sent it; those make its forms anew.
            shelf.changes[-SHARED_FORMS].forms.clear()
        if len(shelf.changes) > self._window:
            shelf.start = shelf.changes.popleft().record.version
        self.version = record.version
        for listener in self._listeners.get("", ()) + self._listeners.get(record.resource, ()):
            # The change is stored: a fault of one listener must not keep others from hearing of it, nor its writer.
            try:
                listener(change)
            except Exception as error:
                self._loop.call_exception_handler({"message": "a listener of the store failed", "exception": error})

    # Compaction: (version, obsolete) says that ``obsolete`` is needed only to look back before ``version``.

    def _forget_beyond_history(self) -> None:
        spare = len(self._obsolete) - self._history
        if spare > 0:
            limit = self._obsolete[spare - 1][0]
            self._forget(lambda version: version <= limit)

    def _forget(self, is_old: Callable[[int], bool]) -> None:
        batch = self._batch()
        while self._obsolete and is_old(self._obsolete[0][0]):
            version, obsolete = self._obsolete.popleft()
            batch.forget.append(obsolete)
            batch.compacted = version

    # Start.

    def _load(self) -> None:
        """Play all changes through: what is left is the present."""
        newest: dict[tuple[str, str, str], Row] = {}
        for row in self._database.rows():
            version, resource, namespace, name, _, previous, deleted, _ = row
            if previous:
                self._obsolete.append((version, previous))
            if deleted:
                self._obsolete.append((version, version))
                newest.pop((resource, namespace, name), None)
            else:
                newest[(resource, namespace, name)] = row
        for row in newest.values():
            record = record_of(row)
            self._shelf(record.resource).records[record.key] = record
        for shelf in self._shelves.values():
            shelf.order = sorted(shelf.records)

    def _shelf(self, resource: str) -> _Shelf:
        shelf = self._shelves.get(resource)
        if shelf is None:
            shelf = self._shelves[resource] = _Shelf(start=self.version)
        return shelf


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Nothing of what is loaded is garbage, so nobody needs to look for any."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _before(changes: Sequence[Change]) -> dict[tuple[str, str], Record | None]:
    """What was there before the first of the changes, by the keys that they touch."""
    before: dict[tuple[str, str], Record | None] = {}
    for change in changes:
        before.setdefault(change.record.key, change.previous)
    return before


def _range(
    order: list[tuple[str, str]], namespace: str | None, after: tuple[str, str] | None
) -> Sequence[tuple[str, str]]:
    """The keys of a namespace (None: of all) that come after a key."""
    low = 0 if namespace is None else bisect.bisect_left(order, (namespace, ""))
    high = len(order) if namespace is None else bisect.bisect_left(order, (namespace + "\0", ""))
    if after is not None:
        low = max(low, bisect.bisect_right(order, after))
    return order[low:high]
