"""
The shell of the engine: objects in, scheduling cycles, decisions out.

Each change goes to the engine's state, and a cycle runs in the next round of the event loop.

Kueue: pkg/scheduler/scheduler.go
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
from kyu.controllers.decision_writer import DecisionWriter
from kyu.controllers.live_view import LiveView
from kyu.controllers.loop import Write
from kyu.controllers.metrics.kueue import KueueMetrics
from kyu.controllers.metrics.labels import Role
from kyu.controllers.queue_numbers import QueueNumbers
from kyu.engine import reasons
from kyu.engine.options import from_configuration
from kyu.engine.reasons import Untried
from kyu.engine.schedule import schedule
from kyu.engine.state import State
from kyu.plans.status import parse_time
from kyu.write_fairness import WriteFairness

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
# Kinds that change the requests of pods: per namespace, or in the whole cluster.
POD_DEFAULTS = (LimitRange, RuntimeClass)
UNTRIED_MESSAGE = reasons.render(Untried())[1]
# Delay before a retry after a bug in the engine.
REPAIR_SECONDS = 1.0
# A timer of the event loop may fire a little before the wall clock shows its time.
CLOCK_SLACK_SECONDS = 0.05


class Scheduler:
    def __init__(
        self,
        view: LiveView,
        write: Write,
        clock: Callable[[], datetime],
        queue_changed: Callable[[type[Object], Key], None],
        registry: CollectorRegistry,
        parallel: int,
        fairness: WriteFairness,
        role: Role = "standalone",
    ) -> None:
        self._view = view
        self._clock = clock
        self._state = State(from_configuration(view.configuration))
        self._wakeup = asyncio.Event()
        self._decision_writer = DecisionWriter(
            view, write, clock, lambda: self._state, self._wakeup.set, parallel, fairness
        )
        writer = self._decision_writer
        self.numbers = QueueNumbers(view, lambda: self._state, queue_changed, clock, lambda: writer.last_seconds)
        self._metrics = KueueMetrics(registry, lambda: self._state, view, role)
        self._is_running = False

    def current_state(self) -> State | None:
        """Return the engine state; None until it holds all objects."""
        return self._state if self._is_running else None

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
                self._note_workload(key, new)
        self._metrics.note(type_, old, new, self._clock())
        if type_ in POD_DEFAULTS:
            self._read_workloads_again(key.namespace)
        self._wakeup.set()

    def _read_workloads_again(self, namespace: str) -> None:
        """Put Workloads to the engine again, because a LimitRange or RuntimeClass changes their requests."""
        for raw in self._view.list_json(Workload.KIND, namespace or None):
            self._put(Workload, key_of(raw))

    def _wake_after_backoff(self, workload: Json) -> None:
        """Run a cycle when the backoff of a Workload is over, since no object changes then."""
        state = (workload.get("status") or {}).get("requeueState") or {}
        until = parse_time(state.get("requeueAt"))
        if until is not None:
            seconds = max(0.0, (until - self._clock()).total_seconds()) + CLOCK_SLACK_SECONDS
            asyncio.get_running_loop().call_later(seconds, self._wakeup.set)

    def _note_workload(self, key: Key, new: Json) -> None:
        self._wake_after_backoff(new)
        if is_unexplained(new):
            self._decision_writer.note_unexplained(key)

    def _put(self, type_: type[Object], key: Key) -> None:
        put_object(self._state, self._view, type_, key)

    def rebuild(self) -> None:
        """Make a new engine state from all objects: at the start, and when the settings change."""
        self._state = State(from_configuration(self._view.configuration))
        for type_ in ENGINE_TYPES:
            for raw in self._view.list_json(type_.KIND):
                self._put(type_, key_of(raw))
        workloads = self._view.list_json(Workload.KIND)
        self._metrics.reset(workloads)
        for raw in workloads:
            self._wake_after_backoff(raw)
            if is_unexplained(raw):
                self._decision_writer.note_unexplained(key_of(raw))
        self._is_running = True
        self._wakeup.set()

    # Decisions out.

    async def run(self) -> None:
        self.rebuild()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._decide())
            group.create_task(self._decision_writer.write_reasons())
            group.create_task(self.numbers.run())

    async def _decide(self) -> None:
        while True:
            # Resumes in the next round of the event loop, when all changes of this round are in the state.
            await self._wakeup.wait()
            self._wakeup.clear()
            started = time.perf_counter()
            try:
                decided = schedule(self._state, self._clock())
            except Exception as error:
                # After a bug, log it and make a new state from the objects.
                log.error("scheduling failed", error=repr(error), trace=traceback.format_exc())
                await asyncio.sleep(REPAIR_SECONDS)
                self.rebuild()
                continue
            self._metrics.note_cycle(decided, time.perf_counter() - started)
            self._decision_writer.begin(decided)
            await asyncio.sleep(0)


def put_object(state: State, view: LiveView, type_: type[Object], key: Key) -> None:
    """Put an object of the view to an engine state."""
    try:
        obj = view.get(type_, key)
        if obj is not None:
            state.put(obj)
    except Exception as error:
        # One object that cannot be decoded must not stop the work on all others.
        log.error("object left out", kind=type_.__name__, key=key, error=repr(error))


def is_unexplained(workload: Json) -> bool:
    """Return whether the Workload has no reason in QuotaReserved, or only that it was not tried yet."""
    for condition in (workload.get("status") or {}).get("conditions") or ():
        if condition["type"] == "QuotaReserved":
            return bool(condition.get("message") == UNTRIED_MESSAGE)
    return True
