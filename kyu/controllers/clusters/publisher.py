"""
The publisher of a cluster: watches its nodes, pods and jobs, and writes its ClusterMetrics in the hub.

A change is written at once, but at most every ``period`` seconds. Without a change only the time of the report is
written, so that the hub knows that the report still holds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import datetime

from kyu import log
from kyu.api.capacity import ClusterMetrics
from kyu.api.core import Node, Pod
from kyu.api.meta import Json, Key, Kind
from kyu.kinds import metadata, table
from kyu.kube import errors
from kyu.kube.cache import Cache, Reflector
from kyu.kube.client import Client
from kyu.plans.clusters import report
from kyu.plans.clusters.report import ClusterUsage
from kyu.plans.status import timestamp

MANAGER = "kyu-cluster"
PERIOD_SECONDS = 10.0
# Changes that come together, such as the pods of one job, are written together.
GATHER_SECONDS = 0.2
WRITE_SECONDS = 15.0
LONGEST_DELAY_SECONDS = 30.0


class ClusterPublisher:
    """Writes the report of the cluster behind ``source`` to the cluster behind ``hub``."""

    def __init__(
        self,
        source: Client,
        hub: Client,
        name: str,
        origin: str,
        period_seconds: float,
        clock: Callable[[], datetime],
    ) -> None:
        self._source = source
        self._hub = hub
        self._name = name
        self._origin = origin
        self._period = period_seconds
        self._clock = clock
        self._cache = Cache()
        self._jobs: dict[str, Json] = {}
        self._changed = asyncio.Event()
        self._written: ClusterUsage | None = None
        # When the content of the report last changed.
        self._content_at = float("-inf")

    async def run(self, *, once: bool = False) -> None:
        """Report until cancelled, or once."""
        kinds = await self._served_jobs()
        async with asyncio.TaskGroup() as group:
            self._cache.subscribe(self._job_changed, *kinds)
            self._cache.subscribe(self._usage_changed, Node.KIND, Pod.KIND)
            watching = [
                group.create_task(Reflector(self._source, self._cache, kind).run())
                for kind in (*kinds, Node.KIND, Pod.KIND)
            ]
            await self._cache.synced()
            if not once:
                await self._keep_publishing()
            await self.publish()
            for task in watching:
                task.cancel()

    async def _keep_publishing(self) -> None:
        failures = 0
        while True:
            self._changed.clear()
            try:
                async with asyncio.timeout(WRITE_SECONDS):
                    await self.publish()
                failures = 0
            except (errors.ApiError, OSError) as error:
                failures = min(failures + 1, 10)
                delay = min(2.0**failures, LONGEST_DELAY_SECONDS)
                log.warning("not reported", cluster=self._name, error=error, retry_seconds=delay)
                await asyncio.sleep(delay)
                continue
            await self._wait_for_change()

    async def _wait_for_change(self) -> None:
        """Wait until a change may be written, or until the time of the report has to be."""
        try:
            async with asyncio.timeout(self._period):
                await self._changed.wait()
        except TimeoutError:
            return
        await asyncio.sleep(max(GATHER_SECONDS, self._content_at + self._period - time.monotonic()))

    async def publish(self) -> None:
        """Write the report, or only its time if nothing else has changed."""
        usage = report.find_usage(self._cache.list_json(Node.KIND), self._cache.list_json(Pod.KIND), self._is_sent)
        at, before = timestamp(self._clock()), self._written
        is_new = before is None or before.nodes != usage.nodes
        gone = before is not None and not before.names <= usage.names
        if gone:
            # Otherwise the foreign pods of a node that left would seem to have made room.
            await self._write_status(usage)
        await self._hub.apply(ClusterMetrics.KIND, report.body(self._name, usage, at), manager=MANAGER)
        if is_new and not gone:
            await self._write_status(usage)
        if usage != before:
            self._content_at = time.monotonic()
        self._written = usage

    async def _write_status(self, usage: ClusterUsage) -> None:
        status = {"status": {"nodes": usage.nodes}}
        await self._hub.patch(ClusterMetrics.KIND, Key("", self._name), status, subresource="status")

    async def _served_jobs(self) -> list[Kind]:
        """Return the kinds of jobs that the cluster serves and this user may read. Pods of others count as foreign."""
        found = []
        for kind in dict.fromkeys(one.kind for one in table.KINDS if one.kind != Pod.KIND):
            try:
                await self._source.page(kind, None, limit=1)
            except (errors.NotFound, errors.Forbidden):
                continue
            found.append(kind)
        return found

    def _is_sent(self, pod: Json) -> bool:
        return report.is_sent_by_hub(pod, self._jobs.get, self._name, self._origin)

    def _job_changed(self, kind: Kind, old: Json | None, new: Json | None) -> None:
        if new is None:
            assert old is not None
            self._jobs.pop(metadata.uid_of(old), None)
        else:
            # Only its labels and owners are asked for.
            self._jobs[metadata.uid_of(new)] = {"metadata": new["metadata"]}

    def _usage_changed(self, kind: Kind, old: Json | None, new: Json | None) -> None:
        self._changed.set()
