"""
The store: every object in memory, and every change on disk before a reader or watcher sees it.

A write is checked against ``latest`` (the state once the writes before it are stored), gets its version, and joins the
batch that the writer thread takes next: one transaction for all that wait. Only when the batch is on disk do readers
see it, watchers hear of it and writers get their answer. Reads never touch the disk; a watch that starts further back
than the window in memory reads the rows of the database.

If a batch cannot be stored, it and all that was built on it is refused, and the state stays what is on disk.

etcd's rules for versions and compaction.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import gc
import math
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from kyu.api.meta import Json
from kyu.server.pauses import SLICE_SECONDS
from kyu.server.storage.batches import Batch, Obsolete, Unwritable
from kyu.server.storage.database import Damaged, Database, DatabaseError, Row, TooMuch
from kyu.server.storage.records import Change, Record, change_of, record_of, row_of

MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Windows:
    """How much of the past is kept, in changes and in bytes of the objects.

    ``changes``, of one resource, are in memory, for watches that come back and for lists that go on; those that look
    back further read them from the disk, up to ``read_bytes``. ``shared`` are the changes whose written forms are kept
    for further watchers. ``obsolete`` are the rows in the database: some minutes of history in a busy hour.
    """

    changes: int = 2048
    change_bytes: int = 16 * MEGABYTE
    all_change_bytes: int = 64 * MEGABYTE
    read_bytes: int = 32 * MEGABYTE
    shared: int = 4096
    shared_bytes: int = 8 * MEGABYTE
    obsolete: int = 50_000
    obsolete_bytes: int = 256 * MEGABYTE


class Expired(Exception):
    """The version is older than what is kept."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"{asked} ({oldest})")
        self.asked = asked
        self.oldest = oldest


@dataclass(slots=True)
class _Shelf:
    """The objects of one resource, and its last changes."""

    records: dict[tuple[str, str], Record] = field(default_factory=dict)
    order: list[tuple[str, str]] = field(default_factory=list)
    changes: deque[Change] = field(default_factory=deque)
    change_bytes: int = 0
    start: int = 0

    def drop_oldest(self) -> int:
        """Forget the oldest change in memory; return its bytes."""
        change = self.changes.popleft()
        size = len(change.record.value)
        self.start = change.record.version
        self.change_bytes -= size
        return size


Listener = Callable[[Change], None]


class Store:
    def __init__(self, database: Database, *, windows: Windows | None = None) -> None:
        self._database = database
        self._windows = windows or Windows()
        self._shelves: dict[str, _Shelf] = {}
        # By the resource that they listen to; under the empty name, to all.
        self._listeners: dict[str, tuple[Listener, ...]] = {}
        self._pending: dict[tuple[str, str, str], Change] = {}
        self._open: Batch | None = None
        self._in_flight = False
        # Batches that are stored and not told yet.
        self._stored: deque[Batch] = deque()
        self._to_write: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self.version, self.compacted = database.versions()
        self._next = self.version + 1
        self._obsolete: deque[Obsolete] = deque()
        self._obsolete_bytes = 0
        self._namespace_bytes: Counter[str] = Counter()
        self._change_bytes = 0
        # Changes whose forms are kept, oldest first.
        self._shared: deque[Change] = deque()
        self._shared_bytes = 0
        self._reading = asyncio.Lock()
        # The reason why the last batch could not be stored.
        self.fault = ""
        with _without_collections():
            self._load()
        self._writer = threading.Thread(target=self._write_batches, name="store-writer", daemon=True)
        self._writer.start()

    # Reading.

    def find(self, resource: str, namespace: str, name: str) -> Record | None:
        """Return the object as it is on disk."""
        shelf = self._shelves.get(resource)
        return shelf.records.get((namespace, name)) if shelf else None

    def latest(self, resource: str, namespace: str, name: str) -> Record | None:
        """Return the object as the next write will find it, with the writes on their way to the disk."""
        change = self._pending.get((resource, namespace, name))
        if change is None:
            return self.find(resource, namespace, name)
        return None if change.type == "DELETED" else change.record

    def count(self, resource: str) -> int:
        shelf = self._shelves.get(resource)
        return len(shelf.records) if shelf else 0

    def namespace_bytes(self, namespace: str) -> int:
        """Return the size of all objects of a namespace."""
        return self._namespace_bytes[namespace]

    def find_fault(self) -> str:
        """Return why writes cannot be stored now; empty if they can."""
        return self.fault or self._database.find_fault()

    def count_after(
        self, resource: str, namespace: str | None, after: tuple[str, str], undo: Sequence[Change] = ()
    ) -> int:
        """Return how many objects come after a key, with the changes in ``undo`` (oldest first) taken back."""
        shelf = self._shelves.get(resource) or _Shelf()
        before = _before(undo)
        touched = _range(sorted(before), namespace, after)
        taken_back = sum((before[key] is not None) - (key in shelf.records) for key in touched)
        return len(_range(shelf.order, namespace, after)) + taken_back

    def resources(self) -> list[str]:
        """Return the resources of which an object exists."""
        return sorted(name for name, shelf in self._shelves.items() if shelf.records)

    def has_objects(self, resource: str, namespace: str) -> bool:
        """Return whether the namespace has an object of the resource."""
        order = self._shelves[resource].order if resource in self._shelves else []
        place = bisect.bisect_left(order, (namespace, ""))
        return place < len(order) and order[place][0] == namespace

    def objects(self, resource: str, namespace: str | None = None) -> Iterator[Record]:
        """Yield all present objects, in order of namespace and name."""
        shelf = self._shelves.get(resource)
        if shelf is None:
            return
        for key in _range(shelf.order, namespace, None):
            # Its user may have paused, and the object may have gone meanwhile.
            if (record := shelf.records.get(key)) is not None:
                yield record

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
        """Return the changes of the resource in ``after < version <= until`` (or until now), oldest first."""
        if after < self.compacted:
            raise Expired(after, self.compacted)
        shelf = self._shelves.setdefault(resource, _Shelf(start=self.version))
        start = shelf.start
        older: list[Change] = []
        if after < start:
            end = start if until is None else min(start, until)
            # One reader at a time: what it reads is in memory.
            async with self._reading:
                older = await self._read(resource, after, end)
            if start < shelf.start:
                raise Expired(after, shelf.start)
        recent = [c for c in shelf.changes if c.record.version > max(after, start)]
        if until is not None:
            recent = [c for c in recent if c.record.version <= until]
        return older + recent

    async def _read(self, resource: str, after: int, until: int) -> list[Change]:
        most = self._windows.read_bytes
        try:
            rows = await asyncio.to_thread(self._database.between, resource, after, until, most)
        except (TooMuch, Damaged) as error:
            # The client lists again, which is less work than such a past.
            raise Expired(after, until) from error
        return [change_of(row, before) for row, before in rows]

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
        while self._open is not None or self._in_flight or self._stored:
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

    def _wait_for(self, batch: Batch) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        batch.waiting.append((len(batch.changes), future))
        return future

    def _batch(self) -> Batch:
        if self._open is None:
            self._open = Batch([], [], self.compacted)
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
                forgotten = [each.row for each in batch.forget]
                self._database.commit([row_of(c) for c in batch.changes], forgotten, batch.compacted)
            except DatabaseError as refused:
                error = refused
            self._loop.call_soon_threadsafe(self._settle, batch, error)

    def _settle(self, batch: Batch, error: DatabaseError | None) -> None:
        self._in_flight = False
        self.fault = "" if error is None else str(error)
        if error is not None:
            self._refuse(batch, Unwritable(str(error)))
            return
        self.compacted = max(self.compacted, batch.compacted)
        # The next batch is stored while this one is told.
        self._hand_over()
        self._stored.append(batch)
        if len(self._stored) == 1:
            self._tell()

    def _tell(self, seconds: float = SLICE_SECONDS) -> None:
        """Publish stored changes in their order, and wake their writers. The rest follows in the next round."""
        until = time.perf_counter() + seconds
        while self._stored:
            batch = self._stored[0]
            while batch.told < len(batch.changes):
                if time.perf_counter() > until:
                    self._loop.call_soon(self._tell)
                    return
                self._publish(batch.changes[batch.told])
                batch.told += 1
                batch.settle()
            batch.settle()
            self._stored.popleft()

    def _refuse(self, batch: Batch, error: Unwritable) -> None:
        """Refuse a batch and all that waits behind it, because that may build on it."""
        # A stored change must not be taken back with the rest.
        self._tell(math.inf)
        waiting, self._open = self._open, None
        self._pending.clear()
        for refused in (waiting, batch):
            if refused is not None:
                self._obsolete.extendleft(reversed(refused.forget))
                self._obsolete_bytes += sum(each.size for each in refused.forget)
                refused.refuse(error)

    def _publish(self, change: Change) -> None:
        record, key = change.record, change.record.key
        shelf = self._shelf(record.resource)
        pending = (record.resource, *key)
        if self._pending.get(pending) is change:
            del self._pending[pending]
        is_gone, before = change.type == "DELETED", change.previous
        size = (0 if is_gone else len(record.value)) - (0 if before is None else len(before.value))
        self._namespace_bytes[record.namespace] += size
        if change.previous is not None:
            self._note_obsolete(record.version, change.previous.version, len(change.previous.value))
        if is_gone:
            self._note_obsolete(record.version, record.version, len(record.value))
            del shelf.records[key]
            del shelf.order[bisect.bisect_left(shelf.order, key)]
        else:
            if key not in shelf.records:
                bisect.insort(shelf.order, key)
            shelf.records[key] = record
        self._keep(shelf, change)
        self.version = record.version
        for listener in self._listeners.get("", ()) + self._listeners.get(record.resource, ()):
            # The change is stored: a fault of one listener must not keep others from hearing of it, nor its writer.
            try:
                listener(change)
            except Exception as error:
                self._loop.call_exception_handler({"message": "a listener of the store failed", "exception": error})

    def _keep(self, shelf: _Shelf, change: Change) -> None:
        """Add a change to the windows in memory, and drop what is beyond them."""
        windows, size = self._windows, len(change.record.value)
        shelf.changes.append(change)
        shelf.change_bytes += size
        self._change_bytes += size
        while len(shelf.changes) > windows.changes or shelf.change_bytes > windows.change_bytes:
            self._change_bytes -= shelf.drop_oldest()
        while self._change_bytes > windows.all_change_bytes:
            largest = max(self._shelves.values(), key=lambda each: each.change_bytes)
            self._change_bytes -= largest.drop_oldest()
        self._shared.append(change)
        self._shared_bytes += size
        while self._shared_bytes > windows.shared_bytes or len(self._shared) > windows.shared:
            if len(self._shared) == 1:
                # The newest is shared, however large it is.
                break
            # By now all but slow watchers have sent it; these make its forms anew.
            oldest = self._shared.popleft()
            oldest.forms.clear()
            self._shared_bytes -= len(oldest.record.value)

    # Compaction.

    def _note_obsolete(self, version: int, row: int, size: int) -> None:
        self._obsolete.append(Obsolete(version, row, size))
        self._obsolete_bytes += size

    def _forget_beyond_history(self) -> None:
        rows = len(self._obsolete) - self._windows.obsolete
        size = self._obsolete_bytes - self._windows.obsolete_bytes
        limit = 0
        for each in self._obsolete:
            if rows <= 0 and size <= 0:
                break
            rows, size, limit = rows - 1, size - each.size, each.version
        if limit:
            self._forget(lambda version: version <= limit)

    def _forget(self, is_old: Callable[[int], bool]) -> None:
        batch = self._batch()
        while self._obsolete and is_old(self._obsolete[0].version):
            each = self._obsolete.popleft()
            self._obsolete_bytes -= each.size
            batch.forget.append(each)
            batch.compacted = each.version

    # Start.

    def _load(self) -> None:
        """Play all changes through: what is left is the present."""
        newest: dict[tuple[str, str, str], Row] = {}
        for row in self._database.rows():
            version, resource, namespace, name, _, previous, deleted, value = row
            key = (resource, namespace, name)
            if previous:
                before = newest.get(key)
                self._note_obsolete(version, previous, len(before[7]) if before is not None else 0)
            if deleted:
                self._note_obsolete(version, version, len(value))
                newest.pop(key, None)
            else:
                newest[key] = row
        for row in newest.values():
            record = record_of(row)
            self._shelf(record.resource).records[record.key] = record
            self._namespace_bytes[record.namespace] += len(record.value)
        for shelf in self._shelves.values():
            shelf.order = sorted(shelf.records)

    def _shelf(self, resource: str) -> _Shelf:
        shelf = self._shelves.get(resource)
        if shelf is None:
            shelf = self._shelves[resource] = _Shelf(start=self.version)
        return shelf


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Switch the search for garbage off while objects are loaded: none of them is garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _before(changes: Sequence[Change]) -> dict[tuple[str, str], Record | None]:
    """Return the records before the first of the changes, by the keys that they touch."""
    before: dict[tuple[str, str], Record | None] = {}
    for change in changes:
        before.setdefault(change.record.key, change.previous)
    return before


def _range(
    order: list[tuple[str, str]], namespace: str | None, after: tuple[str, str] | None
) -> Sequence[tuple[str, str]]:
    """Return the keys of a namespace (None: of all) that come after a key."""
    low = 0 if namespace is None else bisect.bisect_left(order, (namespace, ""))
    high = len(order) if namespace is None else bisect.bisect_left(order, (namespace + "\0", ""))
    if after is not None:
        low = max(low, bisect.bisect_right(order, after))
    return order[low:high]
