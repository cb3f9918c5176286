"""
Messages of pools that changed nothing: counted by reason, and told together.

The first is told at once; the longer it goes on, the more seldom. So a mistake shows immediately, and a flood is a few
writes.

Called by: controllers/pools.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from kyu import log
from kyu.api.pool_messages import Refused

SECOND_DELAY_SECONDS = 2.0
LONGEST_DELAY_SECONDS = 16.0


class Refusals:
    """``told``: the counts as they were when ``tell`` was called last. ``now`` is in seconds."""

    def __init__(self, tell: Callable[[], None], now: Callable[[], float]) -> None:
        self._tell = tell
        self._now = now
        self._counts: Counter[str] = Counter()
        self._is_due = False
        self._delay = 0.0
        self._told_at = 0.0
        self.told: dict[str, int] = {}

    def add(self, refused: Refused, pool: str) -> None:
        if not self._counts[refused.reason]:
            log.warning("message refused", pool=pool[:64], reason=refused.reason, detail=refused.detail)
        self._counts[refused.reason] += 1
        if self._is_due:
            return
        if self._now() - self._told_at > LONGEST_DELAY_SECONDS:
            self._delay = 0.0
        self._is_due = True
        asyncio.get_running_loop().call_later(self._delay, self._tell_now)

    def _tell_now(self) -> None:
        self._is_due = False
        self._told_at = self._now()
        self._delay = min(max(SECOND_DELAY_SECONDS, 2 * self._delay), LONGEST_DELAY_SECONDS)
        self.told = dict(self._counts)
        self._tell()
