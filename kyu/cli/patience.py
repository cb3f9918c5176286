"""
Going on when the server was away for a while, as when it is restarted.

A command that waits for a job has nothing to say of the job while nobody answers: it waits until the server is back,
and ends with an exit code of its own if that takes too long, which no script takes for that of the job.

Called by: cli/wait.py, cli/logs.py.
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
# What a server says that starts or ends, or who stands before it.
AWAY_CODES = (429, 502, 503, 504)


class Lost(Failed):
    """The server is away, and with it the answer: try again later."""

    exit_code = 75


def is_away(error: Exception) -> bool:
    return isinstance(error, Unreachable) or (isinstance(error, ApiError) and error.code in AWAY_CODES)


class Patience:
    def __init__(
        self, tell: Callable[[str], None], deadline: float | None = None, longest: float | None = None
    ) -> None:
        self._tell = tell
        self._deadline = deadline
        self._longest = LONGEST_SECONDS if longest is None else longest
        self._since: float | None = None
        self.absences = 0

    def ask(self, call: Callable[[], T]) -> T:
        """The answer, as soon as there is a server that gives it."""
        while True:
            try:
                answer = call()
            except (Unreachable, ApiError) as error:
                if not is_away(error):
                    raise
                self._pause(error)
            else:
                if self._since is not None:
                    self._tell("the server is back")
                self._since = None
                return answer

    def _pause(self, error: Exception) -> None:
        now = time.monotonic()
        if self._since is None:
            self._since = now
            self.absences += 1
            self._tell(f"{error}; waiting at most {self._longest:.0f} s until it does")
        if now >= min(self._since + self._longest, self._deadline or math.inf):
            raise Lost(f"{error}; how the job ends is not known") from error
        time.sleep(PAUSE_SECONDS)
