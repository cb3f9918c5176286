"""
What is to be looked at: the list of a part of the server that works beside the requests.

Called by: server/gc.py, server/namespaces.py, server/definitions.py.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")

RETRY_SECONDS = 2.0
# Items taken between two turns of the loop.
PER_TURN = 50


class Worklist(Generic[Item]):
    """Each item stands on it once, in the order in which they came. One task takes them."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._listed: set[Item] = set()
        self._wake = asyncio.Event()
        self._taken = 0

    def put(self, item: Item) -> None:
        if item not in self._listed:
            self._listed.add(item)
            self._items.append(item)
            self._wake.set()

    def put_later(self, item: Item) -> None:
        """After a fault that may pass."""
        asyncio.get_running_loop().call_later(RETRY_SECONDS, self.put, item)

    async def take(self) -> Item:
        """The next item, when there is one. Others get their turn when many are taken in a row."""
        self._taken += 1
        if self._taken % PER_TURN == 0:
            await asyncio.sleep(0)
        while not self._items:
            self._wake.clear()
            await self._wake.wait()
        item = self._items.popleft()
        self._listed.discard(item)
        return item
