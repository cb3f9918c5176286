"""
Tasks in the background: kept until they end, since the event loop does not keep them, and logged if they fail.

Called by: agent.py, processes.py, pools/pods.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from kyu import log


class Background:
    """A set of tasks; ``name`` says in the log whose task has failed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def finish(self) -> None:
        """Wait until all have ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self.finish()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task failed", of=self._name, error=repr(error))
