"""
Repeat a request until the server answers again, for example after a restart.

A command that waits for a job also waits for the server. If that takes too long, it ends with an exit code of its own,
so that scripts do not mistake it for the exit code of the job.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

from kyu.cli.main import Failed
from kyu.kube.blocking import Unreachable
from kyu.kube.errors import ApiError

T = TypeVar("T")
LONGEST_SECONDS = 120.0
PAUSE_SECONDS = 0.25
# Answers of a server that is starting or stopping, or of a proxy before it.
AWAY_CODES = (429, 502, 503, 504)


class ServerLost(Failed):
    """The server has not answered for too long. Trying again later may succeed."""

    exit_code = 75


def is_away(error: Exception) -> bool:
    return isinstance(error, Unreachable) or (isinstance(error, ApiError) and error.code in AWAY_CODES)


class Reconnecting:
    """Requests that are repeated while the server does not answer, with messages to the user."""

    def __init__(
        self, tell: Callable[[str], None], deadline: float | None = None, longest: float | None = None
    ) -> None:
        self._tell = tell
        self._deadline = deadline
        self._longest = LONGEST_SECONDS if longest is None else longest
        self._since: float | None = None
        self.absences = 0

    def ask(self, call: Callable[[], T]) -> T:
        """Return the answer to a request as soon as the server gives one."""
        while True:
            try:
                answer = call()
            except (Unreachable, ApiError) as error:
                if not is_away(error):
                    raise
                self._pause(error)
            else:
                if self._since is not None:
                    self._tell("the server answers again")
                self._since = None
                return answer

    def _pause(self, error: Exception) -> None:
        now = time.monotonic()
        if self._since is None:
            self._since = now
            self.absences += 1
            self._tell(f"{error}; waiting up to {self._longest:.0f} s for it")
        if now >= min(self._since + self._longest, self._deadline or math.inf):
            raise ServerLost(f"{error}; the result of the job is unknown") from error
        time.sleep(PAUSE_SECONDS)
