"""
Writes the ledger: describes the pods that the runtime starts and ends.

Called by: runtime/processes.py, through the protocol PodAccounts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime

from kyu import log
from kyu.accounting.ledger import Ledger
from kyu.api.actions import View
from kyu.api.meta import Json
from kyu.plans import accounting


class Bookkeeper:
    """The accounts of the pods of this machine."""

    def __init__(self, view: View, ledger: Ledger, clock: Callable[[], datetime]) -> None:
        self._view = view
        self._ledger = ledger
        self._clock = clock

    def begin(self, pod: Json) -> Json:
        """Return the account of a pod that starts, which the runtime keeps beside the pod."""
        return accounting.describe_start(self._view, pod)

    def known(self, uids: Collection[str]) -> set[str]:
        return self._ledger.known(uids)

    def end(self, account: Json, status: Json, *, stopped: bool, usage: Json) -> bool:
        """Add the line of a pod that has ended; return whether it was written."""
        try:
            now = self._clock()
            line = accounting.describe_end(self._view, account, status, now, stopped=stopped, usage=usage)
            self._ledger.append(line)
        except OSError as error:
            log.warning("attempt not in the ledger", pod=account.get("pod"), error=error)
            return False
        return True

    async def sync(self) -> None:
        await self._ledger.sync()
