"""
Deletes Events an hour after they were last seen: otherwise they would fill the store.

Kubernetes: the --event-ttl of kube-apiserver.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import datetime, timedelta

from kyu.server.pauses import Pauses
from kyu.server.representations import decode
from kyu.server.storage.batches import Unwritable
from kyu.server.storage.records import Record
from kyu.server.verbs.objects import Objects

LIFETIME = timedelta(hours=1)
INTERVAL_SECONDS = 300.0
# Events whose deletion is stored together.
PER_TURN = 32


class Expiry:
    def __init__(self, objects: Objects, clock: Callable[[], datetime]) -> None:
        self._objects = objects
        self._clock = clock

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            with contextlib.suppress(Unwritable):
                await self.sweep()
            await asyncio.sleep(INTERVAL_SECONDS)

    async def sweep(self) -> None:
        """Delete the Events that are too old now."""
        limit = self._clock() - LIFETIME
        for resource in ("events", "events.events.k8s.io"):
            old: list[Record] = []
            pauses = Pauses()
            for record in list(self._objects.store.objects(resource)):
                if _last_seen(record) < limit:
                    old.append(record)
                await pauses()
            for start in range(0, len(old), PER_TURN):
                present = (self._objects.store.latest(*place) for place in map(_place, old[start : start + PER_TURN]))
                waits = [self._objects.remove(record) for record in present if record is not None]
                await asyncio.gather(*waits)


def _place(record: Record) -> tuple[str, str, str]:
    return record.resource, record.namespace, record.name


def _last_seen(record: Record) -> datetime:
    event = decode(record.value)
    times = (event.get("lastTimestamp"), event.get("eventTime"), event["metadata"].get("creationTimestamp"))
    return max(datetime.fromisoformat(time) for time in times if time)
