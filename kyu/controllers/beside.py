"""
The control plane beside an installed Kueue: Kueue admits, and Kyu's other controllers work on its decisions.

A part is a set of rows of the whole control plane, so that there is no second code path. Kinds whose definition is
missing are followed as soon as it is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Literal, TypeAlias

from kyu.api.config.config import Configuration
from kyu.api.core import CONFIG_MAP, Namespace
from kyu.api.meta import Kind
from kyu.api.pools import MasterQueue
from kyu.bus.connector import Connect
from kyu.controllers import table
from kyu.controllers.clusters import kubestellar_rows, quota_rows
from kyu.controllers.follow import Follower
from kyu.controllers.live_view import LiveView
from kyu.controllers.loop import Controller, Loop
from kyu.controllers.pools import rows as pool_rows
from kyu.controllers.pools.subscriptions import PoolListener
from kyu.controllers.workflows import rows as workflow_rows
from kyu.kinds.pod import POD
from kyu.kinds.table import KINDS
from kyu.kube.apply import Writer
from kyu.kube.cache import Cache
from kyu.kube.client import Client

Part: TypeAlias = Literal["pools", "clusters", "workflows", "dependencies"]
ROWS: Mapping[Part, Callable[[], Sequence[Controller]]] = {
    "pools": pool_rows.controllers,
    "clusters": lambda: (*quota_rows.controllers(), *kubestellar_rows.controllers()),
    "workflows": lambda: workflow_rows.controllers(workflow_rows.ON_CLUSTER),
    "dependencies": lambda: [row for row in table.controllers() if row.name == "job-dependencies"],
}
# Kinds that Workflows read: the pods of steps, what is between them and their job, and namespaces.
OF_WORKFLOWS = frozenset(kind.kind for kind in KINDS if kind.kind.group == "ray.io") | {POD, Namespace.KIND}


class BesidePlane:
    """The controllers of some parts on one view."""

    def __init__(
        self,
        client: Client,
        configuration: Configuration,
        clock: Callable[[], datetime],
        connect: Connect,
        parts: Sequence[Part],
        component: str,
    ) -> None:
        self._cache = Cache()
        view = LiveView(self._cache, configuration, self._settings_changed)
        write = Writer(client, self._cache, clock, component)
        self._pools = PoolListener(self._cache, client, clock, connect)
        self._listens = "pools" in parts
        self._loop = Loop(view, write, [row for part in parts for row in ROWS[part]()], self._pools.clock)
        kinds = self._loop.kinds | {CONFIG_MAP} | (OF_WORKFLOWS if "workflows" in parts else frozenset[Kind]())
        self._follower = Follower(client, self._cache, lambda: kinds)
        # Set when all kinds were listed.
        self.started = self._follower.started
        self._cache.subscribe(view.changed, CONFIG_MAP)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follower.run())
            await self.started.wait()
            if self._listens:
                self._cache.subscribe(self._pools.changed, MasterQueue.KIND)
                self._cache.replay(self._pools.changed, MasterQueue.KIND)
                group.create_task(self._pools.run())
            self._cache.subscribe(self._loop.changed, *self._loop.kinds)
            self._cache.replay(self._loop.changed, *self._loop.kinds)
            group.create_task(self._loop.run())

    def _settings_changed(self) -> None:
        if self.started.is_set():
            self._cache.replay(self._loop.changed, *self._loop.kinds)
