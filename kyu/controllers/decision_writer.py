"""
Write the decisions of a cycle to Workloads: admissions and evictions at once, reasons to wait a moment later.

The decisions of a cycle are written together, so that they share a transaction of the embedded server; only a few begin
in each round of the event loop (write_fairness.py). Writes of one Workload follow each other, so that none conflicts
with the next. The engine assumes each decision when it is made; a failed write is reported back and decided again.
A reason is written only if it still holds after a pause, so a burst of jobs costs one write per Workload, not two.

Kueue: pkg/scheduler/scheduler.go
"""

from __future__ import annotations

import asyncio
import itertools
import traceback
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import assert_never

from kyu import log
from kyu.api.actions import Action
from kyu.api.meta import Key
from kyu.controllers.live_view import LiveView
from kyu.controllers.loop import Write
from kyu.engine import explain
from kyu.engine.decisions import Admit, Cycle, Evict, Preempt, Wait
from kyu.engine.reasons import Untried
from kyu.engine.state import State
from kyu.kube.errors import ApiError
from kyu.plans.workload import admission
from kyu.write_fairness import WriteFairness

# Delay before a reason to wait is written, if it still holds then.
SETTLE_SECONDS = 0.3
# Delay before a failed write is decided again; the watch has delivered the conflicting change by then.
AGAIN_SECONDS = 0.02
# Workloads per round whose reason "not tried yet" is checked again; thousands may wait behind one head.
UNTRIED_PER_ROUND = 200

# Returns the actions at a time, or None if the Workload is no longer the one that the engine decided about.
Plan = Callable[[datetime], list[Action] | None]
GiveUp = Callable[[Key, Exception], Awaitable[None]]


class DecisionWriter:
    """A writer of scheduling decisions.

    ``state`` returns the current engine state, and ``decide_again`` asks for another cycle. Up to ``parallel`` writes
    wait for their answers at the same time; writes of different namespaces begin in turns.
    """

    def __init__(
        self,
        view: LiveView,
        write: Write,
        clock: Callable[[], datetime],
        state: Callable[[], State],
        decide_again: Callable[[], None],
        parallel: int,
        fairness: WriteFairness,
    ) -> None:
        self._view = view
        self._write = write
        self._clock = clock
        self._state = state
        self._decide_again = decide_again
        self._slots = asyncio.Semaphore(parallel)
        self._fairness = fairness
        # The last write of each Workload, done when it was written or has failed.
        self._writing: dict[Key, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # The time from the beginning of the last answered write to its answer.
        self.last_seconds = 0.0
        # The reason to write for each waiting Workload; None if the engine is to be asked.
        self._reasons: dict[Key, Wait | None] = {}
        # Workloads whose written reason is "not tried yet"; the engine may have tried an equivalent one since.
        self._untried: dict[Key, None] = {}

    def begin(self, decided: Cycle) -> None:
        for decision in decided.decisions:
            match decision:
                case Admit():
                    self._reasons.pop(decision.key, None)
                    self._start(decision.key, partial(admission.plan_admit, self._view, decision), self._decide_later)
                case Preempt():
                    self._start(
                        decision.victim, partial(admission.plan_preempt, self._view, decision), self._decide_later
                    )
                case Evict():
                    self._start(decision.key, partial(admission.plan_evict, self._view, decision), self._decide_later)
                case Wait():
                    self._reasons[decision.key] = decision
                case _:
                    assert_never(decision)

    def note_unexplained(self, key: Key) -> None:
        """Note a Workload without a written reason. Most are admitted before a reason is due."""
        self._reasons.setdefault(key, None)

    async def write_reasons(self) -> None:
        while True:
            await asyncio.sleep(SETTLE_SECONDS)
            due, self._reasons = {**self._tried_by_now(), **self._reasons}, {}
            for key, decision in due.items():
                if self._writing:
                    # Admissions and evictions come first, unless one of them hangs.
                    await asyncio.wait(set(self._writing.values()), timeout=SETTLE_SECONDS)
                pending = self._state().find_pending(key)
                if pending is None:
                    continue
                wait = decision or Wait(key, "", explain.why_waiting(self._state(), pending), inadmissible=True)
                if isinstance(wait.reason, Untried):
                    self._untried[key] = None
                plan = partial(admission.plan_wait, self._view, wait, pending.shape)
                await self._start(key, plan, self._drop_reason)

    def _tried_by_now(self) -> dict[Key, Wait | None]:
        """Return the Workloads, of those written as "not tried yet", that wait for another reason now."""
        found: dict[Key, Wait | None] = {}
        for key in list(itertools.islice(self._untried, UNTRIED_PER_ROUND)):
            del self._untried[key]
            pending = self._state().find_pending(key)
            if pending is None:
                continue
            if isinstance(explain.why_waiting(self._state(), pending), Untried):
                self._untried[key] = None
            else:
                found[key] = None
        return found

    def _start(self, key: Key, plan: Plan, give_up: GiveUp) -> asyncio.Future[None]:
        """Begin a write of the Workload after its previous one."""
        done = asyncio.get_running_loop().create_future()
        before, self._writing[key] = self._writing.get(key), done
        begin = partial(self._begin, key, plan, give_up, done)
        if before is None:
            self._fairness.decision(key.namespace, begin)
        else:
            before.add_done_callback(lambda _: self._fairness.decision(key.namespace, begin))
        return done

    def _begin(self, key: Key, plan: Plan, give_up: GiveUp, done: asyncio.Future[None]) -> None:
        try:
            actions = plan(self._clock())
            begun = self._write(actions) if actions else None
        except Exception as error:
            # A bug that concerns one Workload must not stop the work on all others.
            log.error("plan failed", workload=key, error=repr(error), trace=traceback.format_exc())
            actions = begun = None
        if begun is not None:
            task = asyncio.create_task(self._finish(key, begun, give_up, done))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        if actions is None:
            self._state().forget(key)
        self._end(key, done)

    async def _finish(self, key: Key, begun: Awaitable[None], give_up: GiveUp, done: asyncio.Future[None]) -> None:
        clock = asyncio.get_running_loop().time
        started = clock()
        try:
            async with self._slots:
                await begun
            self.last_seconds = clock() - started
        except (ApiError, OSError) as error:
            await give_up(key, error)
        finally:
            self._end(key, done)

    def _end(self, key: Key, done: asyncio.Future[None]) -> None:
        if self._writing.get(key) is done:
            del self._writing[key]
        if not done.done():
            done.set_result(None)

    async def _decide_later(self, key: Key, error: Exception) -> None:
        """Tell the engine that its decision was not written, and decide again after a pause.

        An immediate cycle would see the same state and decide the same.
        """
        log.info("decision not written", workload=key, error=error)
        await asyncio.sleep(AGAIN_SECONDS)
        self._state().forget(key)
        self._decide_again()

    async def _drop_reason(self, key: Key, error: Exception) -> None:
        """Drop a reason that cannot be written: the Workload has changed, so another cycle looks at it."""
        log.debug("reason not written", workload=key, error=error)
