"""
The controller of Workflows alone, beside an installed Kueue: Kueue queues the objects that the steps become.

The row is that of the whole control plane. The kind Workflow and the policy of its rights must be installed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime

from kyu.api.config.config import Configuration
from kyu.api.core import CONFIG_MAP, Namespace
from kyu.api.meta import Kind
from kyu.controllers.follow import Follower
from kyu.controllers.live_view import LiveView
from kyu.controllers.loop import Loop
from kyu.controllers.workflows import rows
from kyu.kinds.pod import POD
from kyu.kinds.table import KINDS
from kyu.kube.apply import Writer
from kyu.kube.cache import Cache
from kyu.kube.client import Client

# Kinds beside those of the row: the pods of steps, what is between them and their job, and Kueue's settings.
BETWEEN = frozenset(kind.kind for kind in KINDS if kind.kind.group == "ray.io")
BESIDE: frozenset[Kind] = BETWEEN | {POD, CONFIG_MAP, Namespace.KIND}


class WorkflowPlane:
    """The control plane of Workflows."""

    def __init__(self, client: Client, configuration: Configuration, clock: Callable[[], datetime]) -> None:
        self._cache = Cache()
        self._view = LiveView(self._cache, configuration, self._settings_changed)
        write = Writer(client, self._cache, clock, component="kyu-workflows")
        self._loop = Loop(self._view, write, rows.controllers(rows.ON_CLUSTER), clock)
        self._follower = Follower(client, self._cache, lambda: self._loop.kinds | BESIDE)
        # Set when all kinds were listed.
        self.started = self._follower.started
        self._cache.subscribe(self._view.changed, CONFIG_MAP)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follower.run())
            await self.started.wait()
            kinds = tuple(self._loop.kinds)
            self._cache.subscribe(self._loop.changed, *kinds)
            self._cache.replay(self._loop.changed, *kinds)
            group.create_task(self._loop.run())

    def _settings_changed(self) -> None:
        if self.started.is_set():
            self._cache.replay(self._loop.changed, *self._loop.kinds)
