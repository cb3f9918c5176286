"""
The engine's shell: objects in, cycles, decisions out.

Changes go straight to the engine's state; whenever something was put in, a pass runs at the next turn of the event
loop and its decisions are written, many at a time. Admissions come first; the reasons of those who wait are written a
moment later, and only if they still hold, so that a burst of jobs costs one write each and not two.

Called by: plane.py. Calls: engine (state, cycle), plans/admission.py, the writer of kube/apply.py.
Kueue: pkg/scheduler/scheduler.go
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Coroutine
from datetime import datetime
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry

from kyu import log
from kyu.api.actions import Action
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
from kyu.api.meta import Json, Key, Kind, Object
from kyu.controllers.live import LiveView
from kyu.controllers.loop import Writer
from kyu.controllers.metrics import Metrics
from kyu.engine import cycle, explain
from kyu.engine.decisions import Admit, Cycle, Evict, Preempt, Wait
from kyu.engine.options import from_configuration
from kyu.engine.state import State, Stats
from kyu.kube.errors import ApiError
from kyu.plans import admission
from kyu.plans.queue_status import Numbers

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
# Reasons to wait are written after this time, if they still hold then.
SETTLE_SECONDS = 0.3
# The status of a queue is written this long after a change, and then not again for a while: it may change with every
# workload that comes or goes.
STATUS_SECONDS = 0.1
STATUS_PAUSE_SECONDS = 1.0
WRITERS = 64
# Before an eviction that could not be written is decided again.
AGAIN_SECONDS = 0.02
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
    ) -> None:
        self._view = view
        self._write = write
        self._clock = clock
        self._queue_changed = queue_changed
        self._state = State(from_configuration(view.configuration))
        self._wakeup = asyncio.Event()
        self._slots = asyncio.Semaphore(WRITERS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._reasons: dict[Key, Wait] = {}
        # Workloads whose status says nothing yet; most are admitted before anybody could read it.
        self._untold: dict[Key, None] = {}
        self._metrics = Metrics(registry, lambda: self._state)
        self._changed_queues: set[tuple[type[Object], Key]] = set()
        self._told_queues: dict[tuple[type[Object], Key], float] = {}
        self._is_running = False

    # Objects in.

    def changed(self, kind: Kind, old: Json | None, new: Json | None) -> None:
        type_ = TYPE_BY_KIND.get(kind)
        if type_ is None:
            return
        self._note_queues(type_, old, new)
        if not self._is_running:
            return
        if new is None:
            assert old is not None
            self._state.delete(kind, key_of(old))
        else:
            self._put(type_, key_of(new))
            if type_ is Workload:
                self._note_workload(old, new)
        self._wakeup.set()

    def _note_workload(self, old: Json | None, new: Json) -> None:
        if is_untold(new):
            self._untold[key_of(new)] = None
        if old is not None and old.get("status") != new.get("status"):
            typed = self._view.get(Workload, key_of(new))
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
        self._is_running = True
        self._wakeup.set()

    # Decisions out.

    async def run(self) -> None:
        self.rebuild()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._decide())
            group.create_task(self._tell_reasons())
            group.create_task(self._tell_queues())

    async def _decide(self) -> None:
        while True:
            await self._wakeup.wait()
            # Let everything that is already there come in first: one pass for a burst.
            await asyncio.sleep(0)
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
            self._carry_out(decided)
            await asyncio.sleep(0)

    def _carry_out(self, decided: Cycle) -> None:
        for decision in decided.decisions:
            match decision:
                case Admit():
                    self._reasons.pop(decision.key, None)
                    self._start(self._admit(decision))
                case Preempt():
                    self._start(self._evict(decision.victim, partial(admission.plan_preempt, self._view, decision)))
                case Evict():
                    self._start(self._evict(decision.key, partial(admission.plan_evict, self._view, decision)))
                case Wait():
                    self._reasons[decision.key] = decision

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _admit(self, decision: Admit) -> None:
        async with self._slots:
            actions = admission.plan_admit(self._view, decision, self._clock())
            try:
                if actions is None:
                    self._state.forget(decision.key)
                else:
                    await self._write(actions)
            except (ApiError, OSError) as error:
                log.info("admission not written", workload=decision.key, error=error)
                self._state.forget(decision.key)
                self._wakeup.set()

    async def _evict(self, victim: Key, plan: Callable[[datetime], list[Action] | None]) -> None:
        """The engine takes the victim as leaving; if that cannot be written, it must know, and decide again."""
        actions = plan(self._clock())
        while actions is None:
            # Its own admission is still on its way: it is evicted when that is seen, or not at all if that failed.
            await asyncio.sleep(AGAIN_SECONDS)
            if victim not in self._state.holdings:
                return
            actions = plan(self._clock())
        async with self._slots:
            try:
                await self._write(actions)
            except (ApiError, OSError) as error:
                log.info("eviction not written", workload=victim, error=error)
                self._state.forget(victim)
                await asyncio.sleep(AGAIN_SECONDS)
                self._wakeup.set()

    async def _tell(self, plan: Callable[[datetime], list[Action]]) -> None:
        """A reason to wait; if it cannot be written, the workload has changed and is looked at again."""
        async with self._slots:
            try:
                await self._write(plan(self._clock()))
            except (ApiError, OSError) as error:
                log.debug("reason not written", error=error)

    async def _tell_reasons(self) -> None:
        while True:
            await asyncio.sleep(SETTLE_SECONDS)
            due, self._reasons = self._reasons, {}
            untold, self._untold = self._untold, {}
            for key in untold:
                if key not in due and (ask := self._state.waiting.asks.get(key)) is not None:
                    due[key] = Wait(key, "", explain.why_waiting(self._state, ask), parked=True)
            for key, decision in due.items():
                ask = self._state.waiting.asks.get(key)
                await self._tell(partial(admission.plan_wait, self._view, decision, ask.shape if ask else None))

    # Numbers of queues.

    def _note_queues(self, type_: type[Object], old: Json | None, new: Json | None) -> None:
        """Whose numbers a change may have touched."""
        for obj in (old, new):
            if obj is None:
                continue
            if type_ is Workload:
                self._note_queues_of_workload(obj)
            elif type_ in (ClusterQueue, LocalQueue, Cohort):
                self._changed_queues.add((type_, key_of(obj)))
            elif type_ in (ResourceFlavor, AdmissionCheck, Topology):
                self._changed_queues.update((ClusterQueue, key_of(q)) for q in self._view.list_json(ClusterQueue.KIND))
        if type_ is ClusterQueue and new is not None:
            name = new["metadata"]["name"]
            for queue in self._view.list_json(LocalQueue.KIND):
                if (queue.get("spec") or {}).get("clusterQueue") == name:
                    self._changed_queues.add((LocalQueue, key_of(queue)))

    def _note_queues_of_workload(self, obj: Json) -> None:
        key = Key(obj["metadata"].get("namespace", ""), (obj.get("spec") or {}).get("queueName", ""))
        self._changed_queues.add((LocalQueue, key))
        queue = self._view.find_json(LocalQueue.KIND, key)
        names = {((queue or {}).get("spec") or {}).get("clusterQueue")}
        names.add(((obj.get("status") or {}).get("admission") or {}).get("clusterQueue"))
        for name in names - {None, ""}:
            self._changed_queues.add((ClusterQueue, Key("", str(name))))

    async def _tell_queues(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(STATUS_SECONDS)
            due = clock() - STATUS_PAUSE_SECONDS
            for queue in [q for q in self._changed_queues if self._told_queues.get(q, 0.0) <= due]:
                self._changed_queues.discard(queue)
                self._told_queues[queue] = clock()
                self._queue_changed(*queue)

    def cluster_queue_numbers(self, key: Key) -> Numbers:
        if key.name not in self._state.queues:
            return Numbers()
        return self._numbers(self._state.stats(key.name))

    def local_queue_numbers(self, key: Key) -> Numbers:
        return self._numbers(self._state.local_queue_stats(key))

    def cohort_numbers(self, key: Key) -> Numbers:
        if key.name not in self._state.hierarchy.cohorts:
            return Numbers()
        return self._numbers(self._state.cohort_stats(key.name))

    def _numbers(self, stats: Stats) -> Numbers:
        return Numbers(
            stats.pending,
            stats.reserving,
            stats.admitted,
            {(cell.flavor, cell.resource): usage.reserved for cell, usage in stats.usage.items()},
            {(cell.flavor, cell.resource): usage.admitted for cell, usage in stats.usage.items()},
            stats.weighted_share if self._state.options.fair_sharing else None,
        )

    # Questions.

    def explain(self, key: Key) -> explain.Explanation | None:
        return explain.why(self._state, key, self._clock())


def key_of(obj: Json) -> Key:
    return Key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])


def is_untold(workload: Json) -> bool:
    """Nobody has said yet whether it has quota."""
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return not any(condition["type"] == "QuotaReserved" for condition in conditions)
