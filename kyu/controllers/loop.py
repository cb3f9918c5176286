"""
The loop of all controllers: change → keys → plan → actions → write; retry with back-off after a failure.

A controller is a row: the kinds that it watches, and a pure plan. The loop never runs one (controller, key) twice at a
time: while its actions are written, further changes only mark it to be planned again. If the server is in the same
process, a patch begins within the plan. Writes go through the cache: the answer of a write is visible to the next plan,
so a plan never repeats an action.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from kyu import log
from kyu.api.actions import Action, View, WakeAt
from kyu.api.meta import Json, Key, Kind, key_of
from kyu.kube.errors import ApiError, Conflict

FIRST_DELAY_SECONDS = 0.02
LONGEST_DELAY_SECONDS = 60.0
# Plans run without an await; after this many the other tasks of the process run.
PLANS_PER_BATCH = 64
# Requests of users wait for a batch to end.
BATCH_SECONDS = 0.01
# The wall clock may be set and a laptop may sleep, so timers are checked at least this often.
LONGEST_SLEEP_SECONDS = 10.0
# After the clock was set back by more than this, all timers fire.
CLOCK_STEP = timedelta(seconds=1)
# Cancelled timers are dropped when they outnumber the others by this.
SPARE_TIMERS = 1000
# A paced key rests after a plan that took this long, for so many times its duration.
LONG_PLAN_SECONDS = 0.005
RESTS_PER_PLAN = 4
LONGEST_REST_SECONDS = 2.0


Keys = Callable[[View, Json], Iterable[Key]]
Matters = Callable[[Json | None, Json | None], bool]
_NOTHING: Mapping[Matters | None, list[tuple[str, Keys | None]]] = {}


@dataclass(frozen=True, slots=True)
class Watch:
    """A change of an object of this kind concerns these keys of the controller.

    Without ``keys`` it is the object's own key; without ``matters`` every change counts.
    """

    kind: Kind
    keys: Keys | None = None
    matters: Matters | None = None


@dataclass(frozen=True, slots=True)
class Owned:
    """A change of an object of these kinds concerns its owners of the controller's kind."""

    kinds: tuple[Kind, ...]
    owner: Kind


@dataclass(frozen=True, slots=True)
class Controller:
    name: str
    plan: Callable[[View, Key, datetime], list[Action]]
    watches: tuple[Watch, ...]
    owned: Owned | None = None
    # Whether a key whose plan takes long rests before its next plan, so that it leaves time to all others.
    is_paced: bool = False


class Write(Protocol):
    def __call__(self, actions: list[Action]) -> Awaitable[None]: ...


Item = tuple[str, Key]


class Loop:
    """A queue of (controller, key) pairs to plan, in the order in which they became due."""

    def __init__(
        self,
        view: View,
        write: Write,
        controllers: Iterable[Controller],
        clock: Callable[[], datetime],
        workers: int = 64,
    ) -> None:
        self._view = view
        self._write = write
        self._clock = clock
        self._controllers = {controller.name: controller for controller in controllers}
        # Grouped by ``matters``, so that each predicate runs once per change.
        self._watches: dict[Kind, dict[Matters | None, list[tuple[str, Keys | None]]]] = {}
        for controller in self._controllers.values():
            for watch in controller.watches:
                of_kind = self._watches.setdefault(watch.kind, {})
                of_kind.setdefault(watch.matters, []).append((controller.name, watch.keys))
        self._owners: dict[Kind, dict[tuple[str, str], list[Controller]]] = {}
        for controller in self._controllers.values():
            if (owned := controller.owned) is not None:
                for kind in owned.kinds:
                    of_owner = self._owners.setdefault(kind, {})
                    of_owner.setdefault((owned.owner.group, owned.owner.kind), []).append(controller)
        self._due: dict[Item, None] = {}
        self._writing: set[Item] = set()
        self._changed_meanwhile: set[Item] = set()
        self._failures: dict[Item, int] = {}
        self._timers: list[tuple[datetime, int, Item]] = []
        self._next_wake: dict[Item, datetime] = {}
        # The times before which paced keys are not planned again.
        self._rests_until: dict[Item, datetime] = {}
        self._sequence = itertools.count()
        self._latest = clock()
        self._wakeup = asyncio.Event()
        self._workers = workers
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def kinds(self) -> frozenset[Kind]:
        return frozenset(self._watches) | frozenset(self._owners)

    def changed(self, kind: Kind, old: Json | None, new: Json | None) -> None:
        """Enqueue the keys that a change concerns. ``old`` is None for a new object, ``new`` for a deleted one."""
        states = [state for state in (old, new) if state is not None]
        own = key_of(states[-1])
        for matters, watches in self._watches.get(kind, _NOTHING).items():
            if matters is not None and not matters(old, new):
                continue
            for name, keys in watches:
                if keys is None:
                    self.again((name, own))
                    continue
                for state in states:
                    for key in keys(self._view, state):
                        self.again((name, key))
        if (of_owner := self._owners.get(kind)) is not None:
            for state in states:
                if "ownerReferences" in state["metadata"]:
                    self._note_owners(of_owner, state["metadata"])

    def _note_owners(self, of_owner: Mapping[tuple[str, str], list[Controller]], metadata: Json) -> None:
        for reference in metadata["ownerReferences"] or ():
            owner = (reference["apiVersion"].rpartition("/")[0], reference["kind"])
            for controller in of_owner.get(owner, ()):
                assert controller.owned is not None
                namespace = metadata.get("namespace", "") if controller.owned.owner.namespaced else ""
                self.again((controller.name, Key(namespace, reference["name"])))

    def again(self, item: Item) -> None:
        if item in self._writing:
            self._changed_meanwhile.add(item)
        elif self._rests_until and (until := self._rests_until.get(item)) is not None and self._clock() < until:
            self._wake_at(item, until)
        else:
            self._due[item] = None
            self._wakeup.set()

    async def run(self) -> None:
        """Run until cancelled; writes that have begun are finished first."""
        try:
            while True:
                await self._run_due()
        finally:
            if self._tasks:
                await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run_due(self) -> None:
        now = self._clock()
        self._collect_timers(now)
        ends = time.perf_counter() + BATCH_SECONDS
        for number in range(PLANS_PER_BATCH):
            if not self._due or self._is_full() or (number and time.perf_counter() > ends):
                break
            item = next(iter(self._due))
            del self._due[item]
            self._plan(item, now)
        if self._due and not self._is_full():
            await asyncio.sleep(0)
            return
        self._wakeup.clear()
        try:
            # Not wait_for: up to Python 3.11 it swallows a cancellation that arrives together with the event.
            async with asyncio.timeout(self._seconds_to_next_timer()):
                await self._wakeup.wait()
        except TimeoutError:
            return

    def _is_full(self) -> bool:
        return len(self._writing) >= self._workers

    def _plan(self, item: Item, now: datetime) -> None:
        name, key = item
        controller, started = self._controllers[name], time.perf_counter()
        try:
            actions = controller.plan(self._view, key, now)
            writes: list[Action] = [action for action in actions if not isinstance(action, WakeAt)]
            begun = self._write(writes) if writes else None
        except Exception as error:
            # A bug that concerns one object must not stop the work on all others.
            log.error("plan failed", controller=name, key=key, error=repr(error), trace=traceback.format_exc())
            self._retry_later(item)
            return
        # Each plan states anew when to run again.
        self._next_wake.pop(item, None)
        if controller.is_paced:
            self._rest(item, now, time.perf_counter() - started)
        wakes = [action.at for action in actions if isinstance(action, WakeAt)]
        if wakes:
            self._wake_at(item, min(wakes))
        if begun is None:
            self._failures.pop(item, None)
            return
        self._writing.add(item)
        task = asyncio.create_task(self._carry_out(item, begun))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, item: Item, begun: Awaitable[None]) -> None:
        name, key = item
        try:
            await begun
            self._failures.pop(item, None)
        except Conflict:
            self._retry_later(item)
        except (ApiError, OSError) as error:
            log.warning("write failed", controller=name, key=key, error=error)
            self._retry_later(item)
        finally:
            self._writing.discard(item)
            if item in self._changed_meanwhile:
                self._changed_meanwhile.discard(item)
                self.again(item)
            self._wakeup.set()

    def _rest(self, item: Item, now: datetime, seconds: float) -> None:
        """Let a key rest for some times the duration of its plan; a quick plan needs no rest."""
        self._rests_until.pop(item, None)
        if seconds >= LONG_PLAN_SECONDS:
            rest = min(seconds * RESTS_PER_PLAN, LONGEST_REST_SECONDS)
            self._rests_until[item] = now + timedelta(seconds=seconds + rest)

    def _retry_later(self, item: Item) -> None:
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        delay = min(FIRST_DELAY_SECONDS * 2**failures, LONGEST_DELAY_SECONDS)
        self._wake_at(item, self._clock() + timedelta(seconds=delay))

    def _wake_at(self, item: Item, at: datetime) -> None:
        known = self._next_wake.get(item)
        if known is None or at < known:
            self._next_wake[item] = at
            heapq.heappush(self._timers, (at, next(self._sequence), item))
            self._wakeup.set()
            if len(self._timers) > 2 * len(self._next_wake) + SPARE_TIMERS:
                self._timers = [timer for timer in self._timers if self._next_wake.get(timer[2]) == timer[0]]
                heapq.heapify(self._timers)

    def _collect_timers(self, now: datetime) -> None:
        if now < self._latest - CLOCK_STEP:
            # A retry due in a second would wait until the former time comes again.
            for item in self._next_wake:
                self.again(item)
            self._next_wake.clear()
            self._timers.clear()
        self._latest = now
        while self._timers and self._timers[0][0] <= now:
            at, _, item = heapq.heappop(self._timers)
            if self._next_wake.get(item) == at:
                del self._next_wake[item]
                self.again(item)

    def _seconds_to_next_timer(self) -> float | None:
        if not self._timers:
            return None
        left = (self._timers[0][0] - self._clock()).total_seconds()
        return min(max(0.0, left), LONGEST_SLEEP_SECONDS)
