"""
Pauses in long work: after some milliseconds other requests are served.

The server has one thread. A list of all objects, a deletion of many or a search for garbage is cut into slices by
``await pauses()`` between its steps. Behind a slice, the work of a request waits in the queue of its user again. So a
hundred long requests of one user are not a hundred slices before the request of another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from typing import Any, TypeAlias

SLICE_SECONDS = 0.005


async def _next_round() -> None:
    await asyncio.sleep(0)


async def _uncounted(work: Coroutine[Any, Any, None]) -> None:
    await work


Charged: TypeAlias = Callable[[Coroutine[Any, Any, None]], Awaitable[None]]

# Runs work for the user of a request and counts its time: a long answer is work, too. Set where requests take turns.
charged: ContextVar[Charged] = ContextVar("charged", default=_uncounted)
# Waits until the work of this request may go on. Set by the server for each request, where requests wait for a turn.
wait_for_turn: ContextVar[Callable[[], Awaitable[None]]] = ContextVar("wait_for_turn", default=_next_round)


class Pauses:
    """The pauses of one piece of work. A call returns at once until a slice is over."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = time.perf_counter() + SLICE_SECONDS

    async def __call__(self) -> None:
        if time.perf_counter() >= self._until:
            await wait_for_turn.get()()
            self._until = time.perf_counter() + SLICE_SECONDS
