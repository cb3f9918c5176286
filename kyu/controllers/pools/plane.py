"""
The controllers of MasterQueues alone, beside an installed Kueue: pools become its flavors and quota.

The rows and subscriptions are those of the whole control plane. Kueue and the MasterQueue CRD must be installed; kinds
that are not served yet are listed again until they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime

from kyu.api.config.config import Configuration
from kyu.api.pools import MasterQueue, PoolReport, PoolSource
from kyu.bus.connector import Connect
from kyu.controllers.live_view import LiveView
from kyu.controllers.loop import Loop
from kyu.controllers.pools import rows
from kyu.controllers.pools.subscriptions import PoolListener
from kyu.kube.apply import Writer
from kyu.kube.cache import Cache, Reflector
from kyu.kube.client import Client

# Kinds that PoolListener puts in the view; no API server has them.
HEARD = frozenset({PoolReport.KIND, PoolSource.KIND})


class PoolPlane:
    """The control plane of pools."""

    def __init__(
        self, client: Client, configuration: Configuration, clock: Callable[[], datetime], connect: Connect
    ) -> None:
        self._client = client
        self._cache = Cache()
        view = LiveView(self._cache, configuration, on_settings=lambda: None)
        write = Writer(client, self._cache, clock, component="kyu-pools")
        self._pools = PoolListener(self._cache, client, clock, connect)
        self._loop = Loop(view, write, rows.controllers(), self._pools.clock)
        # Set when all kinds were listed.
        self.started = asyncio.Event()
        self._cache.subscribe(self._pools.changed, MasterQueue.KIND)
        self._cache.subscribe(self._loop.changed, *self._loop.kinds)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for kind in self._loop.kinds - HEARD:
                group.create_task(Reflector(self._client, self._cache, kind).run())
            await self._cache.synced()
            self.started.set()
            group.create_task(self._loop.run())
            group.create_task(self._pools.run())
