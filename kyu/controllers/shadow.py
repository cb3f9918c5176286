"""
The shadow of another scheduler: the engine follows the live objects, decides beside it, and writes nothing.

Only reads reach the API server, whatever goes wrong: the transport refuses all else. The differences are metrics and a
report (shadow/report.py).
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime

from prometheus_client import CollectorRegistry

from kyu import log
from kyu.api import codec
from kyu.api.config.config import Configuration
from kyu.api.core import CONFIG_MAP
from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key, Kind, key_of
from kyu.controllers import memory
from kyu.controllers.follow import Follower
from kyu.controllers.live_view import LiveView
from kyu.controllers.metrics.shadow import ShadowMetrics
from kyu.controllers.scheduler import REPAIR_SECONDS, TYPE_BY_KIND, put_object
from kyu.engine.options import from_configuration
from kyu.engine.state import State
from kyu.kube import errors
from kyu.kube.cache import Cache
from kyu.kube.client import Client
from kyu.kube.requests import Answer, Call, Part, Tell, Transport
from kyu.shadow.comparison import Comparison
from kyu.shadow.report import ShadowReport

# Predictions that the other scheduler has not followed are looked at this often.
REVIEW_SECONDS = 1.0


class ReadOnly:
    """A transport that refuses every call but reads."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @property
    def parallel(self) -> int:
        return self._transport.parallel

    async def send(self, call: Call) -> Answer:
        if call.method != "GET":
            raise refusal(f"{call.method} {call.path}")
        return await self._transport.send(call)

    def add(self, kind: Kind, body: Json, manager: str) -> Awaitable[Json]:
        raise refusal(f"create {kind.plural}")

    def merge(self, kind: Kind, key: Key, body: Json, subresource: Part, manager: str) -> Awaitable[Json]:
        raise refusal(f"patch {kind.plural}")

    def lines(self, call: Call) -> AsyncIterator[bytes]:
        return self._transport.lines(call)

    async def follow(self, call: Call, tell: Tell) -> None:
        await self._transport.follow(call, tell)

    async def close(self) -> None:
        await self._transport.close()


def refusal(call: str) -> errors.Forbidden:
    return errors.Forbidden(403, "Forbidden", f"{call}: a shadow only reads")


class ShadowPlane:
    """The engine on a live cluster, in comparison with the scheduler that decides there."""

    def __init__(
        self,
        client: Client,
        configuration: Configuration,
        clock: Callable[[], datetime],
        registry: CollectorRegistry,
        patience_seconds: float,
    ) -> None:
        self._clock = clock
        self._patience = patience_seconds
        self._cache = Cache()
        self._view = LiveView(self._cache, configuration, self._settings_changed)
        self._follower = Follower(client, self._cache, lambda: frozenset(TYPE_BY_KIND) | {CONFIG_MAP})
        # Set when all kinds were listed.
        self.started = self._follower.started
        self._wakeup = asyncio.Event()
        self.report = ShadowReport(clock().timestamp())
        self._comparison = self._compare()
        self._metrics = ShadowMetrics(registry, self.report)
        self._cache.subscribe(self._view.changed, CONFIG_MAP)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follower.run())
            await self.started.wait()
            memory.collect_seldom()
            self._start_anew()
            self._cache.subscribe(self._changed, *TYPE_BY_KIND)
            group.create_task(self._decide())

    def _compare(self) -> Comparison:
        """Return a comparison with an empty state, which goes on with the report."""
        state = State(from_configuration(self._view.configuration))
        return Comparison(state, lambda key: self._view.get(Workload, key), self._patience, self.report)

    def _start_anew(self) -> None:
        self._comparison = self._compare()
        for kind, type_ in TYPE_BY_KIND.items():
            for raw in self._view.list_json(kind):
                put_object(self._comparison.state, self._view, type_, key_of(raw))
        self._wakeup.set()

    def _settings_changed(self) -> None:
        if self.started.is_set():
            self._start_anew()

    def _changed(self, kind: Kind, old: Json | None, new: Json | None) -> None:
        obj = new if new is not None else old
        assert obj is not None
        if kind == Workload.KIND:
            self._workload_changed(old, new)
        elif new is None:
            self._comparison.state.delete(kind, key_of(obj))
        else:
            put_object(self._comparison.state, self._view, TYPE_BY_KIND[kind], key_of(obj))
        self._wakeup.set()

    def _workload_changed(self, old: Json | None, new: Json | None) -> None:
        try:
            before, after = (None if one is None else codec.decode_as(Workload, one) for one in (old, new))
            self._comparison.change(before, after, self._clock())
        except Exception as error:
            log.error("change not compared", error=repr(error), trace=traceback.format_exc())
            self._start_anew()

    async def _decide(self) -> None:
        while True:
            try:
                async with asyncio.timeout(REVIEW_SECONDS):
                    await self._wakeup.wait()
            except TimeoutError:
                pass
            self._wakeup.clear()
            try:
                self._comparison.decide(self._clock())
                self._comparison.review(self._clock())
            except Exception as error:
                # After a bug, log it and make a new state from the objects.
                log.error("decisions not compared", error=repr(error), trace=traceback.format_exc())
                await asyncio.sleep(REPAIR_SECONDS)
                self._start_anew()
            self._metrics.observe_delays()
            # Reflectors may have more changes that belong together.
            await asyncio.sleep(0)
