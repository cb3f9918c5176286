"""The writes that share one transaction, from the first that queues to the last whose writer is told."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from kyu.server.storage.records import Change


class Unwritable(Exception):
    """The database refused a write, for example because the disk is full. Nothing of it was stored."""


class Obsolete(NamedTuple):
    """A row that is needed only to look back before ``version``."""

    version: int
    row: int
    size: int


@dataclass(slots=True)
class Batch:
    """The writes that share one transaction, and the futures of the requests that wait for it."""

    changes: list[Change]
    forget: list[Obsolete]
    compacted: int
    # With the number of changes that each of them waits for.
    waiting: deque[tuple[int, asyncio.Future[None]]] = field(default_factory=deque)
    told: int = 0

    def settle(self) -> None:
        """Wake the requests whose changes were told."""
        while self.waiting and self.waiting[0][0] <= self.told:
            future = self.waiting.popleft()[1]
            if not future.done():
                future.set_result(None)

    def refuse(self, error: Unwritable) -> None:
        for _, future in self.waiting:
            if not future.done():
                future.set_exception(error)
                # A future without a reader (its client has gone) is no fault.
                future.exception()
