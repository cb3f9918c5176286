"""
The control plane of a process: cache, reflectors, loop and scheduler.

Both modes use it: on a cluster the client talks to its API server, embedded to our own in the same process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial

from prometheus_client import CollectorRegistry

from kyu.api.config.config import Configuration
from kyu.api.core import CONFIG_MAP
from kyu.api.kueue import ClusterQueue, Cohort, LocalQueue
from kyu.api.meta import Key, Kind, Object
from kyu.api.pools import MasterQueue
from kyu.bus.connector import Connect
from kyu.controllers import memory, table
from kyu.controllers.audit import QuotaAudit
from kyu.controllers.clusters import kubestellar_rows, quota_rows
from kyu.controllers.clusters.metrics import DispatchMetrics
from kyu.controllers.clusters.workers import WorkerConnections
from kyu.controllers.follow import Follower
from kyu.controllers.live_view import LiveView
from kyu.controllers.loop import Controller, Loop
from kyu.controllers.metrics.labels import Role
from kyu.controllers.pools import rows as pool_rows
from kyu.controllers.pools.subscriptions import PoolListener
from kyu.controllers.scheduler import TYPE_BY_KIND, Scheduler
from kyu.kube.apply import Writer
from kyu.kube.cache import Cache
from kyu.kube.client import Client
from kyu.plans.queues import status
from kyu.write_fairness import WriteFairness

ROW_BY_TYPE: dict[type[Object], str] = {
    ClusterQueue: "cluster-queue",
    LocalQueue: "local-queue",
    Cohort: "cohort",
}


class Plane:
    """
    The controllers on one view. ``run`` is ``follow`` and ``act``, which run until they are cancelled.

    ``connect`` makes connections to pools, ``extra`` are rows of one mode.
    """

    def __init__(
        self,
        client: Client,
        configuration: Configuration,
        clock: Callable[[], datetime],
        connect: Connect,
        extra: Iterable[Controller] = (),
        registry: CollectorRegistry | None = None,
        fairness: WriteFairness | None = None,
        role: Role = "standalone",
    ) -> None:
        self.cache = Cache()
        registry = registry or CollectorRegistry()
        self.view = LiveView(self.cache, configuration, self._settings_changed)
        write = Writer(client, self.cache, clock, component="kueue-admission")
        self.scheduler = Scheduler(
            self.view,
            write,
            clock,
            self._queue_changed,
            registry,
            client.parallel,
            fairness or WriteFairness(),
            role,
        )
        self._audit = QuotaAudit(self.view, write)
        registry.register(self._audit)
        rows = (
            *table.controllers(),
            *pool_rows.controllers(),
            *quota_rows.controllers(),
            *kubestellar_rows.controllers(),
            *self._queue_rows(),
            *extra,
        )
        self.pools = PoolListener(self.cache, client, clock, connect)
        self._loop = Loop(self.view, write, rows, self.pools.clock)
        self._connections = WorkerConnections(self.view, client, self.cache, clock, DispatchMetrics(registry, role))
        self._follower = Follower(client, self.cache, self._kinds)
        self.started = self._follower.started
        self._is_acting = False
        self.cache.subscribe(self.view.changed, CONFIG_MAP)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.follow())
            group.create_task(self.act())

    async def follow(self) -> None:
        """Keep the view up to date. A process that stands by does only this."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follower.run())
            await self.started.wait()
            memory.collect_seldom()

    async def act(self) -> None:
        """Run the controllers and the scheduler on the view. They start from the objects that it holds."""
        await self.started.wait()
        self._is_acting = True
        for subscriber, kinds in (
            (self.pools.changed, (MasterQueue.KIND,)),
            (self.scheduler.changed, tuple(TYPE_BY_KIND)),
            (self._loop.changed, tuple(self._loop.kinds)),
            (self._connections.changed, ()),
        ):
            self.cache.subscribe(subscriber, *kinds)
            self.cache.replay(subscriber, *kinds)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._loop.run())
            group.create_task(self.scheduler.run())
            group.create_task(self.pools.run())
            group.create_task(self._connections.run())
            group.create_task(self._audit.run())

    def _kinds(self) -> frozenset[Kind]:
        return self._loop.kinds | frozenset(TYPE_BY_KIND) | {CONFIG_MAP}

    def _queue_rows(self) -> Iterable[Controller]:
        """Yield rows without watches: the scheduler reports when the counts of a queue have changed."""
        numbers = self.scheduler.numbers
        yield Controller("cluster-queue", partial(status.plan_cluster_queue, numbers.of_cluster_queue), ())
        yield Controller("local-queue", partial(status.plan_local_queue, numbers.of_local_queue), ())
        yield Controller("cohort", partial(status.plan_cohort, numbers.of_cohort), ())

    def _queue_changed(self, type_: type[Object], key: Key) -> None:
        self._loop.again((ROW_BY_TYPE[type_], key))

    def _settings_changed(self) -> None:
        if not self._is_acting:
            return
        self.scheduler.rebuild()
        self._connections.settings_changed()
        for kind in self._loop.kinds:
            for obj in self.cache.list_json(kind):
                self._loop.changed(kind, None, obj)
