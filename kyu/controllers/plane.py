"""
All controllers of one process, put together: cache, reflectors, loop, scheduler.

The same in both modes: on a cluster the client speaks to its API server, embedded to our own in the same process.

Called by: app.py. Calls: everything in this folder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial

from kyu.api.config import Configuration
from kyu.api.kueue import ClusterQueue, Cohort, LocalQueue
from kyu.api.meta import Json, Key, Kind, Object
from kyu.controllers import table
from kyu.controllers.live import CONFIG_MAP, LiveView
from kyu.controllers.loop import Controller, Loop
from kyu.controllers.scheduler import TYPE_BY_KIND, Scheduler
from kyu.kube.apply import Writer
from kyu.kube.cache import Cache, Reflector
from kyu.kube.client import Client
from kyu.plans import queue_status

ROW_BY_TYPE: dict[type[Object], str] = {
    ClusterQueue: "cluster-queue",
    LocalQueue: "local-queue",
    Cohort: "cohort",
}


class Plane:
    """``run`` runs until it is cancelled. ``extra`` are rows that only one mode has."""

    def __init__(
        self,
        client: Client,
        configuration: Configuration,
        clock: Callable[[], datetime],
        extra: Iterable[Controller] = (),
    ) -> None:
        self.cache = Cache()
        self._client = client
        self.view = LiveView(self.cache, configuration, self._settings_changed)
        write = Writer(client, self.cache, clock, component="kueue-admission")
        self.scheduler = Scheduler(self.view, write, clock, self._queue_changed)
        rows = (*table.controllers(), *self._queue_rows(), *extra)
        self._loop = Loop(self.view, write, rows, clock)
        for kind in sorted(self._kinds(), key=lambda kind: kind.plural):
            self.cache.add(kind)
        self.cache.subscribe(self._changed)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for kind in self._kinds():
                group.create_task(Reflector(self._client, self.cache, kind).run())
            await self.cache.synced()
            group.create_task(self._loop.run())
            group.create_task(self.scheduler.run())

    def _kinds(self) -> frozenset[Kind]:
        return self._loop.kinds | frozenset(TYPE_BY_KIND) | {CONFIG_MAP}

    def _queue_rows(self) -> Iterable[Controller]:
        """Rows without watches: the scheduler says when the numbers of a queue have changed."""
        numbers = self.scheduler
        yield Controller("cluster-queue", partial(queue_status.plan_cluster_queue, numbers.cluster_queue_numbers), ())
        yield Controller("local-queue", partial(queue_status.plan_local_queue, numbers.local_queue_numbers), ())
        yield Controller("cohort", partial(queue_status.plan_cohort, numbers.cohort_numbers), ())

    def _changed(self, kind: Kind, old: Json | None, new: Json | None) -> None:
        self.view.changed(kind, old, new)
        self.scheduler.changed(kind, old, new)
        self._loop.changed(kind, old, new)

    def _queue_changed(self, type_: type[Object], key: Key) -> None:
        self._loop.again((ROW_BY_TYPE[type_], key))

    def _settings_changed(self) -> None:
        self.scheduler.rebuild()
        for kind in self._loop.kinds:
            for obj in self.cache.list_json(kind):
                self._loop.changed(kind, None, obj)
