"""
Much work on one event loop: a little of it in each round, what matters most first, and nobody behind all of another.

The loop goes round and round, and in each round does all that is ready. A hundred writes that become ready together
would be one long round, in which nothing else happens: no answer is given, no change is heard, nothing that the first
of them have caused begins. So only a few begin in each round: those of decisions before those that users ask for,
because what was decided frees users, and what users ask for makes more to decide. In both lines those of different
origin (namespaces, users) take turns, so that the storm of one does not keep the others waiting.

Called by: controllers/outcome.py for what was decided, app.py for what users ask.
Kubernetes: API priority and fairness, with its levels, seats and flows.
"""

from __future__ import annotations

import asyncio
from collections import deque

PER_ROUND = 8


class Turns:
    """``first`` and ``other`` return when the caller may begin; ``flow`` says where the work comes from."""

    def __init__(self) -> None:
        self._begun = 0
        self._first = _Line()
        self._others = _Line()

    async def first(self, flow: str) -> None:
        await self._take(self._first, flow)

    async def other(self, flow: str) -> None:
        await self._take(self._others, flow)

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
        # One of the others in any case: nobody waits for ever.
        begun = self._others.begin(1)
        begun += self._first.begin(PER_ROUND - begun)
        begun += self._others.begin(PER_ROUND - begun)
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
