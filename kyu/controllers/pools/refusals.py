"""
Counts of refused messages of pools, by reason.

The first refusal is reported at once and later ones in growing intervals, so a flood costs few writes.
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
    """Counts of refusals. ``reported`` are those of the last call of ``tell``; ``now`` returns seconds."""

    def __init__(self, tell: Callable[[], None], now: Callable[[], float]) -> None:
        self._tell = tell
        self._now = now
        self._counts: Counter[str] = Counter()
        self._is_due = False
        self._delay = 0.0
        self._reported_at = 0.0
        self.reported: dict[str, int] = {}

    def add(self, refused: Refused, pool: str) -> None:
        if not self._counts[refused.reason]:
            log.warning("message refused", pool=pool[:64], reason=refused.reason, detail=refused.detail)
        self._counts[refused.reason] += 1
        if self._is_due:
            return
        if self._now() - self._reported_at > LONGEST_DELAY_SECONDS:
            self._delay = 0.0
        self._is_due = True
        asyncio.get_running_loop().call_later(self._delay, self._tell_now)

    def _tell_now(self) -> None:
        self._is_due = False
        self._reported_at = self._now()
        self._delay = min(max(SECOND_DELAY_SECONDS, 2 * self._delay), LONGEST_DELAY_SECONDS)
        self.reported = dict(self._counts)
        self._tell()
