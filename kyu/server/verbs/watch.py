"""
Watches: each client gets every change of what it looks at, once and in order.

The hub hears each change when it is on disk and hands it to the watchers of the resource. A watcher keeps what its
client has not taken yet. Clients get lines of JSON: the bytes of an event are made when they are sent, once for all
watchers that want the same form. A client that is too slow gets 410 and lists again. Clients in the same process are
called with the objects themselves, which they must not change.

Kubernetes: apiserver/pkg/storage/cacher.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Literal

import msgspec

from kyu.api.meta import Json
from kyu.server import errors, representations
from kyu.server.decode import object
from kyu.server.exchange import encode
from kyu.server.pauses import Pauses
from kyu.server.registry import Resource
from kyu.server.representations import Form, decode
from kyu.server.storage.records import Change, Record
from kyu.server.storage.store import Store

# Events, bytes of objects and seconds by which a client may be behind: then it has to list again.
MAXIMAL_BACKLOG = 100_000
MAXIMAL_BACKLOG_BYTES = 16 * 1024 * 1024
MAXIMAL_BEHIND_SECONDS = 300.0
# Events, and bytes of objects, that go out at once.
SLICE = 200
SLICE_BYTES = 256 * 1024
BOOKMARK_SECONDS = 60.0

EventType = Literal["ADDED", "MODIFIED", "DELETED"]
# A change, or what the server itself has to say: the metadata of a BOOKMARK, the Status of an ERROR.
Event = tuple[EventType, Record, Change | None] | tuple[Literal["BOOKMARK", "ERROR"], Json]
Matches = Callable[[Record], bool]
# Called with the type and the object of an event. The object is shared and must not be changed.
Tell = Callable[[str, Json], None]


class Hub:
    """Hands each change to the watchers of its resource."""

    def __init__(self, store: Store) -> None:
        # In the order in which they came. One that has fallen too far behind leaves while it is being told.
        self._watchers: dict[str, tuple[Watcher, ...]] = {}
        store.listen(self._publish)

    def _publish(self, change: Change) -> None:
        for watcher in self._watchers.get(change.record.resource, ()):
            watcher.offer(change)

    def add(self, watcher: Watcher) -> None:
        storage = watcher.resource.storage
        self._watchers[storage] = (*self._watchers.get(storage, ()), watcher)

    def remove(self, watcher: Watcher) -> None:
        storage = watcher.resource.storage
        self._watchers[storage] = tuple(each for each in self._watchers.get(storage, ()) if each is not watcher)

    def close_all(self, resource: str) -> None:
        """End the watches of a resource that is served no more."""
        for watcher in self._watchers.get(resource, ()):
            watcher.close()

    def count(self) -> int:
        return sum(map(len, self._watchers.values()))


class Watcher:
    """One open watch: a ResponseStream of lines, or, for a client in this process, calls."""

    def __init__(
        self, hub: Hub, store: Store, resource: Resource, form: Form, namespace: str | None, matches: Matches | None
    ) -> None:
        self.resource = resource
        self._hub = hub
        self._store = store
        self._form = form
        self._object_key = representations.object_key(resource)
        self._namespace = namespace
        self._matches = matches
        self._events: deque[Event] = deque()
        # Bytes of the objects that came since the watch began and wait to be sent.
        self._backlog_bytes = 0
        self._behind_since = time.monotonic()
        self._floor = 0
        self._ready = asyncio.Event()
        # The function that is called with events, and the end that its client waits for.
        self._tell: Tell | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_closed = False
        self._wants_bookmarks = False
        self._is_short = False
        # The version of the last change of the resource, also of one that is not shown.
        self._heard = 0
        self._timers: list[asyncio.TimerHandle] = []
        self._sent_any = False

    # Setting up, by server/verbs/get_list.py.

    def start(self, *, after: int, timeout_seconds: float, bookmarks: bool) -> None:
        """Hear of changes after a version from now on."""
        self._floor = after
        self._wants_bookmarks = bookmarks
        self._is_short = timeout_seconds <= BOOKMARK_SECONDS
        self._hub.add(self)
        loop = asyncio.get_running_loop()
        self._timers.append(loop.call_later(timeout_seconds, self.close))
        if bookmarks:
            self._timers.append(loop.call_later(BOOKMARK_SECONDS, self._bookmark_and_again))

    def put_first(self, records: Iterable[Record]) -> None:
        """Put the present objects first, as ADDED events."""
        present: list[tuple[EventType, Record, None]] = [("ADDED", r, None) for r in records if self._sees(r)]
        self._events.extendleft(reversed(present))
        self._ready.set()

    def put_history(self, changes: Iterable[Change]) -> None:
        """Put the changes of the past before those that came meanwhile."""
        heard, self._events = self._events, deque()
        for change in changes:
            self.offer(change)
        self._events.extend(heard)

    def put_error(self, status: Json) -> None:
        self._wants_bookmarks = False
        self._add(("ERROR", status))
        self.close()

    def put_bookmark(self, *, ends_initial_events: bool = False) -> None:
        metadata: Json = {"resourceVersion": str(max(self._store.version, self._floor))}
        if ends_initial_events:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        self._add(("BOOKMARK", metadata))

    # Hearing.

    def offer(self, change: Change) -> None:
        record, previous = change.record, change.previous
        self._heard = record.version
        if record.version <= self._floor or (self._namespace is not None and record.namespace != self._namespace):
            return
        if self._matches is None:
            self._add((change.type, record, change))
        else:
            is_in = change.type != "DELETED" and self._matches(record)
            was_in = previous is not None and self._matches(previous)
            if is_in:
                self._add(("MODIFIED" if was_in else "ADDED", record, change))
            elif was_in and change.type == "DELETED":
                self._add(("DELETED", record, change))
            elif was_in and previous is not None:
                self._add(("DELETED", _moved(previous, record.version), None))
        if self._tell is None and self._is_too_slow():
            self._give_up()

    def _is_too_slow(self) -> bool:
        if not self._events:
            return False
        is_long = len(self._events) > MAXIMAL_BACKLOG or self._backlog_bytes > MAXIMAL_BACKLOG_BYTES
        return is_long or time.monotonic() - self._behind_since > MAXIMAL_BEHIND_SECONDS

    def _give_up(self) -> None:
        """End the watch of a client that does not read: it lists again and goes on from there."""
        self._events.clear()
        self._backlog_bytes = 0
        self.put_error(errors.expired("too old resource version: the client is too far behind").status())

    def _add(self, event: Event) -> None:
        if self._tell is None:
            if not self._events:
                self._behind_since = time.monotonic()
            if len(event) == 3:
                self._backlog_bytes += len(event[1].value)
            self._events.append(event)
            self._ready.set()
            return
        try:
            self._tell(*self._shared(event))
        except Exception as error:
            # It ends this watch, and neither the other ones nor the write that is being told of.
            self._tell = None
            if not self._ended.done():
                self._ended.set_exception(error)

    def close(self) -> None:
        """End the stream after the events that are waiting."""
        if self._is_closed:
            return
        # The last bookmark says how far the watch has come. A short watch without a change needs none.
        if self._wants_bookmarks and not (self._is_short and self._heard <= self._floor):
            self.put_bookmark()
        self._is_closed = True
        self._tell = None
        self._hub.remove(self)
        for timer in self._timers:
            timer.cancel()
        self._ready.set()
        if not self._ended.done():
            self._ended.set_result(None)

    # Sending.

    async def parts(self) -> AsyncGenerator[bytes, None]:
        try:
            pauses = Pauses()
            while await self._has_events():
                yield self._take_slice()
                await pauses()
        finally:
            self.close()

    def _take_slice(self) -> bytes:
        """Return the lines of some events, at least of one."""
        lines: list[bytes] = []
        size = 0
        while self._events and len(lines) < SLICE and size < SLICE_BYTES:
            event = self._events.popleft()
            lines.append(self._line(event))
            size += len(lines[-1])
            if len(event) == 3:
                self._backlog_bytes = max(0, self._backlog_bytes - len(event[1].value))
        return b"".join(lines)

    async def deliver(self, tell: Tell) -> None:
        """Tell of each event in the moment in which it is heard, until the watch ends; a fault in it is raised."""
        try:
            while self._events:
                tell(*self._shared(self._events.popleft()))
            if not self._is_closed:
                self._tell = tell
            await self._ended
        finally:
            self.close()

    async def _has_events(self) -> bool:
        """Wait for the next one; no more come when the watch is closed."""
        while not self._events and not self._is_closed:
            self._ready.clear()
            await self._ready.wait()
        return bool(self._events)

    def _line(self, event: Event) -> bytes:
        if len(event) == 2:
            return encode({"type": event[0], "object": self._own_object(event)}) + b"\n"
        type_, record, change = event
        key = None if change is None or self._form.key is None else (self._form.key, type_)
        if change is not None and key is not None and isinstance(known := change.forms.get(key), bytes):
            return known
        body = self._form.in_event(record, is_first=not self._sent_any)
        self._sent_any = True
        line = b'{"type":"%b","object":%b}\n' % (type_.encode(), body)
        if change is not None and key is not None:
            change.forms[key] = line
        return line

    def _own_object(self, event: tuple[Literal["BOOKMARK", "ERROR"], Json]) -> Json:
        if event[0] == "ERROR":
            return event[1]
        is_first, self._sent_any = not self._sent_any, True
        return self._form.bookmark(event[1], is_first=is_first)

    def _shared(self, event: Event) -> tuple[str, Json]:
        if len(event) == 2:
            return event[0], self._own_object(event)
        type_, record, change = event
        if change is not None and isinstance(known := change.forms.get(self._object_key), dict):
            return type_, known
        obj = object.typed(self.resource, representations.served_object(self.resource, record))
        if change is not None:
            change.forms[self._object_key] = obj
        return type_, obj

    def _sees(self, record: Record) -> bool:
        return self._matches is None or self._matches(record)

    def _bookmark_and_again(self) -> None:
        self.put_bookmark()
        self._timers[-1] = asyncio.get_running_loop().call_later(BOOKMARK_SECONDS, self._bookmark_and_again)


def _moved(record: Record, version: int) -> Record:
    """Return the same content with another version: an object that left the selection is shown as it was."""
    obj = decode(record.value)
    obj["metadata"]["resourceVersion"] = str(version)
    return msgspec.structs.replace(record, version=version, value=encode(obj))
