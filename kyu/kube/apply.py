"""
The writer of actions: the only place that writes to a cluster.

Actions run in order. An object that exists already, or is gone already, counts as success. The answer of each write
goes to the cache, so that the next plan sees it. Actions in worker clusters are run by controllers/clusters/workers.py.

Events are written in the background, one at a time, and never delay other writes. A repeated event raises the count of
the first. If events are made faster than they can be written, some are dropped and counted.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import assert_never

from kyu import log
from kyu.api.actions import Action, Apply, Bind, Create, Delete, Elsewhere, Event, Patch, WakeAt
from kyu.api.core import Namespace
from kyu.api.meta import Json, Key, Kind, Ref, key_of
from kyu.api.workflows import RefusedObject
from kyu.kube import errors
from kyu.kube.cache import Cache
from kyu.kube.client import Client
from kyu.write_fairness import Begun

EVENT = Kind("", "v1", "Event", "events")
# Equal events within this time are one event with a count.
SAME_EVENT = timedelta(minutes=10)
REMEMBERED_EVENTS = 4096
# The limit of unwritten events; the conditions of the objects say the same.
WAITING_EVENTS = 1000
# A burst of events is spread out, so that it takes little from other writes: after each batch comes a pause, and after
# a slow answer, which shows a busy server, one of several times that answer.
EVENTS_AT_ONCE = 10
EVENTS_PAUSE_SECONDS = 0.05
PAUSES_PER_WRITE = 5
# The codes of answers that refuse an object: it is malformed, forbidden, of an unknown kind, too large or invalid.
REFUSALS = frozenset({400, 403, 404, 405, 413, 422})
# The same object may be taken later.
PASSING_REFUSALS = ("exceeded quota", "failed calling webhook", "is being terminated")
REMEMBERED_REFUSALS = 10_000


class Writer:
    def __init__(self, client: Client, cache: Cache, clock: Callable[[], datetime], component: str = "kyu") -> None:
        self._client = client
        self._cache = cache
        self._clock = clock
        self._component = component
        self._events: OrderedDict[Event, tuple[str, int, datetime]] = OrderedDict()
        self._waiting: deque[Event] = deque()
        self._event_task: asyncio.Task[None] | None = None
        self.events_left_out = 0
        self._refusals = 0

    def __call__(self, actions: Sequence[Action]) -> Awaitable[None]:
        """Begin to run the actions. With an in-process server a leading patch has begun when this returns."""
        match actions:
            case [Patch() as first, *others]:
                return Begun(partial(self._carry_on, first.ref.kind, self._merge(first), others))
            case _:
                return Begun(partial(self._carry_out, actions))

    async def _carry_on(self, kind: Kind, first: Awaitable[Json], others: Sequence[Action]) -> None:
        self._cache.observe(kind, await first)
        await self._carry_out(others)

    async def _carry_out(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Create():
                    await self._create(action)
                case Apply():
                    answer = await self._client.apply(
                        action.kind, action.body, manager=action.manager, subresource=action.subresource
                    )
                    self._cache.observe(action.kind, answer)
                case Patch():
                    self._cache.observe(action.ref.kind, await self._merge(action))
                case Delete():
                    await self._delete(action)
                case Bind():
                    await self._bind(action)
                case Elsewhere():
                    raise errors.NoAnswer(f"{action.cluster}: not connected")
                case Event():
                    self._queue_event(action)
                case WakeAt():
                    pass
                case _:
                    assert_never(action)

    async def _create(self, action: Create) -> None:
        try:
            answer = await self._client.add(action.kind, action.body)
        except errors.AlreadyExists:
            metadata = action.body["metadata"]
            found = await self._client.find(action.kind, Key(metadata.get("namespace", ""), metadata["name"]))
            if found is not None:
                self._cache.observe(action.kind, found)
            return
        except errors.ApiError as error:
            if not action.reports_refusal or error.code not in REFUSALS:
                raise
            self._report_refusal(action, error)
            return
        self._cache.observe(action.kind, answer)

    def _report_refusal(self, action: Create, error: errors.ApiError) -> None:
        """Put the refusal into the view, for the plan that wanted the object."""
        meta, at = action.body["metadata"], self._clock().timestamp()
        key = Key(meta.get("namespace", ""), action.reports_refusal)
        self._refusals += 1
        body: Json = {
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "ownerReferences": meta.get("ownerReferences") or [],
                "resourceVersion": str(self._refusals),
            },
            "message": str(error),
            "at": at,
            "final": not any(words in str(error) for words in PASSING_REFUSALS),
        }
        self._cache.observe(RefusedObject.KIND, body)
        refused = self._cache.list_json(RefusedObject.KIND)
        if len(refused) > REMEMBERED_REFUSALS:
            oldest = min(refused, key=lambda one: float(one["at"]))
            self._cache.drop(RefusedObject.KIND, key_of(oldest))

    def _merge(self, action: Patch) -> Awaitable[Json]:
        body = action.patch
        if action.resource_version:
            metadata = {**body.get("metadata", {}), "resourceVersion": action.resource_version}
            body = {**body, "metadata": metadata}
        return self._client.merge(action.ref.kind, action.ref.key, body, subresource=action.subresource)

    async def _delete(self, action: Delete) -> None:
        kind, key = action.ref.kind, action.ref.key
        try:
            answer = await self._client.delete(
                kind, key, uid=action.uid, propagation=action.propagation, grace_seconds=action.grace_seconds
            )
        except errors.NotFound:
            return
        # A Status means that the object is gone; an object, that it waits for its finalizers.
        if answer.get("kind") != "Status" and answer.get("metadata", {}).get("deletionTimestamp"):
            self._cache.observe(kind, answer)

    async def _bind(self, action: Bind) -> None:
        key = action.ref.key
        metadata = {"name": key.name, "namespace": key.namespace}
        body = {"metadata": metadata, "target": {"apiVersion": "v1", "kind": "Node", "name": action.node}}
        await self._client.create(action.ref.kind, body, subresource="binding")
        # The answer of a binding does not contain the pod.
        self._cache.observe(action.ref.kind, await self._client.get(action.ref.kind, key))

    def _queue_event(self, event: Event) -> None:
        if len(self._waiting) >= WAITING_EVENTS:
            self.events_left_out += 1
            return
        self._waiting.append(event)
        if self._event_task is None or self._event_task.done():
            self._event_task = asyncio.create_task(self._write_events())

    async def flush(self) -> None:
        """Wait until all events are written."""
        if self._event_task is not None:
            await self._event_task

    async def _write_events(self) -> None:
        clock = asyncio.get_running_loop().time
        while self._waiting:
            started = clock()
            some = Counter(self._waiting.popleft() for _ in range(min(EVENTS_AT_ONCE, len(self._waiting))))
            await asyncio.gather(*(self._write_event(event, times) for event, times in some.items()))
            if self._waiting:
                await asyncio.sleep(max(EVENTS_PAUSE_SECONDS, PAUSES_PER_WRITE * (clock() - started)))

    async def _write_event(self, event: Event, times: int) -> None:
        """Write an event; a failure is only logged. Nothing new is accepted in a namespace that is being deleted."""
        namespace = self._cache.find_json(Namespace.KIND, Key("", _event_namespace(event.regarding)))
        if namespace is not None and namespace["metadata"].get("deletionTimestamp"):
            return
        now = self._clock()
        known = self._events.pop(event, None)
        try:
            if known is not None and now - known[2] < SAME_EVENT:
                name, count = known[0], known[1] + times
                await self._count(event, name, count, now)
            else:
                name, count = _event_name(event, now), times
                await self._client.add(EVENT, {**self._event_body(event, name, now), "count": count})
            self._events[event] = (name, count, now)
        except errors.ApiError as error:
            log.warning("event not written", reason=event.reason, object=event.regarding, error=error)
        while len(self._events) > REMEMBERED_EVENTS:
            self._events.popitem(last=False)

    async def _count(self, event: Event, name: str, count: int, now: datetime) -> None:
        key = Key(_event_namespace(event.regarding), name)
        try:
            await self._client.merge(EVENT, key, {"count": count, "lastTimestamp": _time(now)})
        except errors.NotFound:
            await self._client.add(EVENT, {**self._event_body(event, name, now), "count": count})

    def _event_body(self, event: Event, name: str, now: datetime) -> Json:
        kind, key = event.regarding.kind, event.regarding.key
        involved: Json = {"apiVersion": kind.api_version, "kind": kind.kind, "name": key.name}
        if key.namespace:
            involved["namespace"] = key.namespace
        if event.uid:
            involved["uid"] = event.uid
        return {
            "metadata": {"name": name, "namespace": _event_namespace(event.regarding)},
            "involvedObject": involved,
            "type": event.type,
            "reason": event.reason,
            # The API's limit.
            "message": event.message[:1024],
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": _time(now),
            "lastTimestamp": _time(now),
            "count": 1,
        }


def _event_namespace(ref: Ref) -> str:
    return ref.key.namespace or "default"


def _event_name(event: Event, now: datetime) -> str:
    """Return a name that differs for each event and time, and is the same on a retry."""
    parts = (str(event.regarding), event.uid, event.type, event.reason, event.message, now.isoformat())
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    return f"{event.regarding.key.name[:200]}.{digest}"


def _time(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")
