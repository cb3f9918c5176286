"""
What a pass has decided, written to the objects: admissions and evictions at once, reasons to wait a moment later.

Decisions of one pass are written together, so that they share a transaction of the server, but only a few begin in each
round of the event loop (turns.py), the first in that of the pass, where the server is in the same process. Those about
one workload are written one after the other, so that none is refused because of another. The engine has taken them as
done; what could not be written it is told, and decides again. A reason is written only if it still holds then, so that
a burst of jobs costs one write each and not two.

Called by: scheduler.py. Calls: plans/admission.py; kube/apply.py, through the writer. Kueue: pkg/scheduler/scheduler.go
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
from kyu.controllers.live import LiveView
from kyu.controllers.loop import Writer
from kyu.engine import explain
from kyu.engine.decisions import Admit, Cycle, Evict, Preempt, Wait
from kyu.engine.reasons import Untried
from kyu.engine.state import State
from kyu.kube.errors import ApiError
from kyu.plans import admission
from kyu.turns import Turns

# Reasons to wait are written after this time, if they still hold then.
SETTLE_SECONDS = 0.3
# Before what could not be written is decided again: what was in its way is seen by then.
AGAIN_SECONDS = 0.02
# There may be many who wait for their turn behind one that waits; so many of them are looked at in each round.
UNTRIED_AT_ONCE = 200

# What to write at a time; None if the workload is not what the engine takes it for.
Plan = Callable[[datetime], list[Action] | None]
GiveUp = Callable[[Key, Exception], Awaitable[None]]


class Outcome:
    """``state`` gives the engine's state as it is; ``decide_again`` asks for another pass.

    ``parallel`` writes may wait for their answers at the same time; those of different namespaces begin in turns.
    """

    def __init__(
        self,
        view: LiveView,
        write: Writer,
        clock: Callable[[], datetime],
        state: Callable[[], State],
        decide_again: Callable[[], None],
        parallel: int,
        turns: Turns,
    ) -> None:
        self._view = view
        self._write = write
        self._clock = clock
        self._state = state
        self._decide_again = decide_again
        self._slots = asyncio.Semaphore(parallel)
        self._turns = turns
        # The last write of each workload that is on its way, done when it is written or was given up.
        self._writing: dict[Key, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # Why they wait; None if nobody has asked the engine yet.
        self._reasons: dict[Key, Wait | None] = {}
        # Who was told that its turn is still to come; equals of it may have had theirs since.
        self._untried: dict[Key, None] = {}

    def begin(self, decided: Cycle) -> None:
        for decision in decided.decisions:
            match decision:
                case Admit():
                    self._reasons.pop(decision.key, None)
                    self._start(decision.key, partial(admission.plan_admit, self._view, decision), self._give_up)
                case Preempt():
                    self._start(decision.victim, partial(admission.plan_preempt, self._view, decision), self._give_up)
                case Evict():
                    self._start(decision.key, partial(admission.plan_evict, self._view, decision), self._give_up)
                case Wait():
                    self._reasons[decision.key] = decision
                case _:
                    assert_never(decision)

    def note_untold(self, key: Key) -> None:
        """A workload whose status says nothing yet; most are admitted before anybody could read a reason."""
        self._reasons.setdefault(key, None)

    async def tell_reasons(self) -> None:
        while True:
            await asyncio.sleep(SETTLE_SECONDS)
            due, self._reasons = {**self._tried_since(), **self._reasons}, {}
            for key, decision in due.items():
                if self._writing:
                    # Decisions come first, unless one of them hangs.
                    await asyncio.wait(set(self._writing.values()), timeout=SETTLE_SECONDS)
                ask = self._state().waiting.asks.get(key)
                if ask is None:
                    continue
                told = decision or Wait(key, "", explain.why_waiting(self._state(), ask), parked=True)
                if isinstance(told.reason, Untried):
                    self._untried[key] = None
                plan = partial(admission.plan_wait, self._view, told, ask.shape)
                await self._start(key, plan, self._leave)

    def _tried_since(self) -> dict[Key, Wait | None]:
        """Of some who were told that their turn is still to come: those who wait for something else by now."""
        found: dict[Key, Wait | None] = {}
        for key in list(itertools.islice(self._untried, UNTRIED_AT_ONCE)):
            del self._untried[key]
            ask = self._state().waiting.asks.get(key)
            if ask is None:
                continue
            if isinstance(explain.why_waiting(self._state(), ask), Untried):
                self._untried[key] = None
            else:
                found[key] = None
        return found

    def _start(self, key: Key, plan: Plan, give_up: GiveUp) -> asyncio.Future[None]:
        """Begin a write of the workload in its turn, after the one that is on its way."""
        done = asyncio.get_running_loop().create_future()
        before, self._writing[key] = self._writing.get(key), done
        begin = partial(self._begin, key, plan, give_up, done)
        if before is None:
            self._turns.decision(key.namespace, begin)
        else:
            before.add_done_callback(lambda _: self._turns.decision(key.namespace, begin))
        return done

    def _begin(self, key: Key, plan: Plan, give_up: GiveUp, done: asyncio.Future[None]) -> None:
        try:
            actions = plan(self._clock())
            begun = self._write(actions) if actions else None
        except Exception as error:
            # A fault of ours, on this workload: it must not stop the work on all others.
            log.error("plan failed", workload=key, error=repr(error), trace=traceback.format_exc())
            actions = begun = None
        if begun is not None:
            task = asyncio.create_task(self._carry_out(key, begun, give_up, done))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        if actions is None:
            self._state().forget(key)
        self._end(key, done)

    async def _carry_out(self, key: Key, begun: Awaitable[None], give_up: GiveUp, done: asyncio.Future[None]) -> None:
        try:
            async with self._slots:
                await begun
        except (ApiError, OSError) as error:
            await give_up(key, error)
        finally:
            self._end(key, done)

    def _end(self, key: Key, done: asyncio.Future[None]) -> None:
        if self._writing.get(key) is done:
            del self._writing[key]
        if not done.done():
            done.set_result(None)

    async def _give_up(self, key: Key, error: Exception) -> None:
        """The engine takes it as done: it is told, and decides again.

        Not at once: until what was in the way is seen, the same would be decided on the same state.
        """
        log.info("decision not written", workload=key, error=error)
        await asyncio.sleep(AGAIN_SECONDS)
        self._state().forget(key)
        self._decide_again()

    async def _leave(self, key: Key, error: Exception) -> None:
        """A reason that cannot be written: the workload has changed and is looked at again."""
        log.debug("reason not written", workload=key, error=error)
