"""The list of items that a background task of the server has to look at."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

from kyu.server.pauses import Pauses

Item = TypeVar("Item")

RETRY_SECONDS = 2.0


class Worklist(Generic[Item]):
    """A queue in which each item stands once, in the order of arrival. One task takes them."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._listed: set[Item] = set()
        self._wake = asyncio.Event()
        self._pauses = Pauses()

    def put(self, item: Item) -> None:
        if item not in self._listed:
            self._listed.add(item)
            self._items.append(item)
            self._wake.set()

    def put_later(self, item: Item) -> None:
        """Put the item on the list again after a fault that may pass."""
        asyncio.get_running_loop().call_later(RETRY_SECONDS, self.put, item)

    async def take(self) -> Item:
        """Return the next item, when there is one. Requests are served between many items in a row."""
        await self._pauses()
        while not self._items:
            self._wake.clear()
            await self._wake.wait()
            self._pauses = Pauses()
        item = self._items.popleft()
        self._listed.discard(item)
        return item
