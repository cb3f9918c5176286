"""
Much work on one event loop: a little of it in each round, and nobody behind all of another.

The loop goes round and round, and in each round does all that is ready. A hundred writes that become ready together
would be one long round, in which nothing else happens: no answer is given, no change is heard, nothing that the first
of them have caused begins. So only a few begin in each round. Half of them are decisions of the scheduler, which must
not stand behind a hundred submissions; half of them are requests of users, many of which say that something has ended.
What one half leaves the other takes. In both lines those of different origin (namespaces, users) take turns, so that
the storm of one does not keep the others waiting, and who had nothing to do for a while comes first.

Called by: controllers/outcome.py for what was decided, app.py for what users ask; kube/apply.py, kube/direct.py and
server/inside.py for what begins at once.
Kubernetes: API priority and fairness, with its levels, seats and flows.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")

# Fewer make shorter rounds, and more transactions and scheduling passes, each for less, which costs CPU.
PER_ROUND = 16


class Begun(Generic[T]):
    """What a plain call has begun: await it for what comes of it, or leave it alone.

    A coroutine begins when it is awaited, and complains when it is not. ``rest`` makes the one that waits.
    """

    __slots__ = ("_rest",)

    def __init__(self, rest: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._rest = rest

    def __await__(self) -> Generator[Any, None, T]:
        return self._rest().__await__()


class Turns:
    """``flow`` says where the work comes from."""

    def __init__(self) -> None:
        self._begun = 0
        self._decisions = _Line()
        self._requests = _Line()

    def decision(self, flow: str, begin: Callable[[], None]) -> None:
        """Call ``begin`` when it is its turn, which may be now."""
        if self._is_free():
            begin()
        else:
            self._decisions.add(flow, begin)

    async def request(self, flow: str) -> None:
        """Return when it is the caller's turn."""
        if not self._is_free():
            turn = asyncio.get_running_loop().create_future()
            self._requests.add(flow, partial(_wake, turn))
            await turn

    def _is_free(self) -> bool:
        """Whether one more may begin in this round, which is counted if so."""
        if self._begun >= PER_ROUND:
            return False
        if not self._begun:
            asyncio.get_running_loop().call_soon(self._next_round)
        self._begun += 1
        return True

    def _next_round(self) -> None:
        begun = self._requests.begin(PER_ROUND // 2)
        begun += self._decisions.begin(PER_ROUND - begun)
        begun += self._requests.begin(PER_ROUND - begun)
        self._begun = begun
        if begun:
            asyncio.get_running_loop().call_soon(self._next_round)


class _Line:
    """Those who wait, by flow: first the flows that are new, then those that were served, who go to the end each time.

    A flow that was served stays among those until it comes to the front with nothing to do: otherwise many that
    come with one thing at a time would always be before one that has many. Linux: the queueing discipline fq_codel.
    """

    def __init__(self) -> None:
        self._new: dict[str, deque[Callable[[], None]]] = {}
        self._served: dict[str, deque[Callable[[], None]]] = {}

    def add(self, flow: str, begin: Callable[[], None]) -> None:
        waiting = self._served.get(flow)
        if waiting is None:
            waiting = self._new.setdefault(flow, deque())
        waiting.append(begin)

    def begin(self, most: int) -> int:
        """Let so many begin; how many there were."""
        begun = 0
        while begun < most and (flows := self._new or self._served):
            flow = next(iter(flows))
            waiting = flows.pop(flow)
            if waiting:
                waiting.popleft()()
                begun += 1
                self._served[flow] = waiting
        return begun


def _wake(turn: asyncio.Future[None]) -> None:
    # One that was given up is cancelled.
    if not turn.done():
        turn.set_result(None)
