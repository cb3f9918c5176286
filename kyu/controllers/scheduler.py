"""
The engine's shell: objects in, passes, decisions out.

Changes go straight to the engine's state; whenever something was put in, a pass runs at the next turn of the event
loop, and its decisions are handed over to be written.

Called by: plane.py. Calls: engine (state, cycle), outcome.py, queue_numbers.py. Kueue: pkg/scheduler/scheduler.go
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable
from datetime import datetime

from prometheus_client import CollectorRegistry

from kyu import log
from kyu.api.core import LimitRange, Namespace, Node, Pod, RuntimeClass
from kyu.api.kueue import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    ResourceFlavor,
    Topology,
    Workload,
    WorkloadPriorityClass,
)
from kyu.api.meta import Json, Key, Kind, Object, key_of
from kyu.controllers.live import LiveView
from kyu.controllers.loop import Writer
from kyu.controllers.metrics import Metrics, Role
from kyu.controllers.outcome import Outcome
from kyu.controllers.queue_numbers import QueueNumbers
from kyu.engine import cycle, reasons
from kyu.engine.options import from_configuration
from kyu.engine.reasons import Untried
from kyu.engine.state import State
from kyu.turns import Turns

ENGINE_TYPES: tuple[type[Object], ...] = (
    Namespace,
    LimitRange,
    RuntimeClass,
    Node,
    Pod,
    Topology,
    ResourceFlavor,
    AdmissionCheck,
    WorkloadPriorityClass,
    Cohort,
    ClusterQueue,
    LocalQueue,
    Workload,
)
TYPE_BY_KIND: dict[Kind, type[Object]] = {type_.KIND: type_ for type_ in ENGINE_TYPES}
# What completes the pods of workloads: in a namespace, or everywhere.
POD_DEFAULTS = (LimitRange, RuntimeClass)
UNTRIED = reasons.render(Untried())
# After a fault of the engine, before it is tried again.
REPAIR_SECONDS = 1.0


class Scheduler:
    def __init__(
        self,
        view: LiveView,
        write: Writer,
        clock: Callable[[], datetime],
        queue_changed: Callable[[type[Object], Key], None],
        registry: CollectorRegistry,
        parallel: int,
        turns: Turns,
        role: Role = "standalone",
    ) -> None:
        self._view = view
        self._clock = clock
        self._state = State(from_configuration(view.configuration))
        self._wakeup = asyncio.Event()
        self._outcome = Outcome(view, write, clock, lambda: self._state, self._wakeup.set, parallel, turns)
        self.numbers = QueueNumbers(view, lambda: self._state, queue_changed)
        self._metrics = Metrics(registry, lambda: self._state, role)
        self._is_running = False

    # Objects in.

    def changed(self, kind: Kind, old: Json | None, new: Json | None) -> None:
        type_ = TYPE_BY_KIND.get(kind)
        if type_ is None:
            return
        self.numbers.note(type_, old, new)
        if not self._is_running:
            return
        obj = new if new is not None else old
        assert obj is not None
        key = key_of(obj)
        if new is None:
            self._state.delete(kind, key)
        else:
            self._put(type_, key)
            if type_ is Workload:
                self._note_workload(key, old, new)
        if type_ in POD_DEFAULTS:
            self._read_workloads_again(key.namespace)
        self._wakeup.set()

    def _read_workloads_again(self, namespace: str) -> None:
        """What pods are given without asking has changed, so the same workload may ask for something else."""
        for raw in self._view.list_json(Workload.KIND, namespace or None):
            self._put(Workload, key_of(raw))

    def _note_workload(self, key: Key, old: Json | None, new: Json) -> None:
        if is_untold(new):
            self._outcome.note_untold(key)
        if old is not None and old.get("status") != new.get("status"):
            typed = self._view.get(Workload, key)
            assert typed is not None
            self._metrics.note_workload(old, typed, self._clock())

    def _put(self, type_: type[Object], key: Key) -> None:
        try:
            obj = self._view.get(type_, key)
            if obj is not None:
                self._state.put(obj)
        except Exception as error:
            # One object that cannot be read or taken in must not stop the work on all others.
            log.error("object left out", kind=type_.__name__, key=key, error=repr(error))

    def rebuild(self) -> None:
        """Start from the objects anew: at the beginning, and when settings change."""
        self._state = State(from_configuration(self._view.configuration))
        for type_ in ENGINE_TYPES:
            for raw in self._view.list_json(type_.KIND):
                self._put(type_, key_of(raw))
        for raw in self._view.list_json(Workload.KIND):
            if is_untold(raw):
                self._outcome.note_untold(key_of(raw))
        self._is_running = True
        self._wakeup.set()

    # Decisions out.

    async def run(self) -> None:
        self.rebuild()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._decide())
            group.create_task(self._outcome.tell_reasons())
            group.create_task(self.numbers.tell())

    async def _decide(self) -> None:
        while True:
            # Goes on in the next round of the event loop, when everything that has come with the change is in.
            await self._wakeup.wait()
            self._wakeup.clear()
            started = time.perf_counter()
            try:
                decided = cycle.schedule(self._state, self._clock())
            except Exception as error:
                # A fault of ours: its story goes to the log, and the state is made anew from the objects.
                log.error("scheduling failed", error=repr(error), trace=traceback.format_exc())
                await asyncio.sleep(REPAIR_SECONDS)
                self.rebuild()
                continue
            self._metrics.note_cycle(decided, time.perf_counter() - started)
            self._outcome.begin(decided)
            await asyncio.sleep(0)


def is_untold(workload: Json) -> bool:
    """Nobody has said yet why it has no quota, but that its turn is still to come."""
    for condition in (workload.get("status") or {}).get("conditions") or ():
        if condition["type"] == "QuotaReserved":
            return (condition["reason"], condition.get("message")) == UNTRIED
    return True
