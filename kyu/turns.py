"""
Much work on one event loop: a little of it in each round, and nobody behind all of another.

The loop goes round and round, and in each round does all that is ready. A hundred writes that become ready together
would be one long round, in which nothing else happens: no answer is given, no change is heard, nothing that the first
of them have caused begins. So only a few begin in each round. Half of them are decisions of the scheduler, which must
not stand behind a hundred submissions; half of them are requests of users, many of which say that something has ended.
What one half leaves the other takes. In both lines those of different origin (namespaces, users) take turns, so that
the storm of one does not keep the others waiting.

Called by: controllers/outcome.py for what was decided, app.py for what users ask.
Kubernetes: API priority and fairness, with its levels, seats and flows.
"""

from __future__ import annotations

import asyncio
from collections import deque

# Fewer make shorter rounds, and more transactions and scheduling passes, each for less, which costs CPU.
PER_ROUND = 16


class Turns:
    """``decision`` and ``request`` return when the caller may begin; ``flow`` says where the work comes from."""

    def __init__(self) -> None:
        self._begun = 0
        self._decisions = _Line()
        self._requests = _Line()

    async def decision(self, flow: str) -> None:
        await self._take(self._decisions, flow)

    async def request(self, flow: str) -> None:
        await self._take(self._requests, flow)

    async def _take(self, line: _Line, flow: str) -> None:
        loop = asyncio.get_running_loop()
        if self._begun >= PER_ROUND:
            turn = loop.create_future()
            line.add(flow, turn)
            await turn
            return
        if not self._begun:
            loop.call_soon(self._next_round, loop)
        self._begun += 1

    def _next_round(self, loop: asyncio.AbstractEventLoop) -> None:
        begun = self._requests.begin(PER_ROUND // 2)
        begun += self._decisions.begin(PER_ROUND - begun)
        begun += self._requests.begin(PER_ROUND - begun)
        self._begun = begun
        if begun:
            loop.call_soon(self._next_round, loop)


class _Line:
    """Those who wait, by flow. The flow that is served goes to the end."""

    def __init__(self) -> None:
        self._flows: dict[str, deque[asyncio.Future[None]]] = {}

    def add(self, flow: str, turn: asyncio.Future[None]) -> None:
        self._flows.setdefault(flow, deque()).append(turn)

    def begin(self, most: int) -> int:
        """Let so many begin; how many there were."""
        begun = 0
        while begun < most and self._flows:
            flow = next(iter(self._flows))
            waiting = self._flows.pop(flow)
            turn = waiting.popleft()
            if waiting:
                self._flows[flow] = waiting
            # One that was given up is cancelled.
            if not turn.done():
                turn.set_result(None)
                begun += 1
        return begun
