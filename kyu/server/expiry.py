"""
Deletes Events an hour after they were last seen: they are news, and would fill the store.

Called by: app.py, through the Api. Kubernetes: the --event-ttl of kube-apiserver.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import datetime, timedelta

from kyu.server.forms import decode
from kyu.server.objects import Objects
from kyu.server.records import Record
from kyu.server.store import Unwritable

LIFETIME = timedelta(hours=1)
INTERVAL_SECONDS = 300.0
# Deleted between two turns of the loop.
PER_TURN = 200


class Expiry:
    def __init__(self, objects: Objects, clock: Callable[[], datetime]) -> None:
        self._objects = objects
        self._clock = clock

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            with contextlib.suppress(Unwritable):
                await self.sweep()
            await asyncio.sleep(INTERVAL_SECONDS)

    async def sweep(self) -> None:
        """Delete what is too old now."""
        limit = self._clock() - LIFETIME
        for resource in ("events", "events.events.k8s.io"):
            old = [record for record in self._objects.store.objects(resource) if _last_seen(record) < limit]
            for start in range(0, len(old), PER_TURN):
                waits = [self._objects.remove(record) for record in old[start : start + PER_TURN]]
                await asyncio.gather(*waits)


def _last_seen(record: Record) -> datetime:
    event = decode(record.value)
    times = (event.get("lastTimestamp"), event.get("eventTime"), event["metadata"].get("creationTimestamp"))
    return max(datetime.fromisoformat(time) for time in times if time)
