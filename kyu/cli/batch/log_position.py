"""
The position of a reader in a log, to continue there when the log is read again from its start.

Timestamps identify the lines. They are always requested, and removed if the user did not ask for them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping

STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(?:Z|[+-]\d\d:\d\d) ")
Moment = tuple[bytes, bytes]


class LogPosition:
    """The last lines that were read, all of one timestamp. The last of them may be incomplete."""

    def __init__(self, query: Mapping[str, str]) -> None:
        self._query = {**query, "timestamps": "true"}
        self._is_stamped = query.get("timestamps") == "true"
        self._moment: Moment = (b"", b"")
        self._texts: list[bytes] = []
        # On a second reading, lines before this moment are known, and of this moment these lines, in this order.
        self._known_moment = self._moment
        self._known: deque[bytes] = deque()

    def start_again(self) -> dict[str, str]:
        """Return the query for the next reading. If lines are known, it asks for the whole log."""
        self._known_moment, self._known = self._moment, deque(self._texts)
        return {name: value for name, value in self._query.items() if name != "tailLines" or not self._texts}

    def news(self, line: bytes) -> bytes:
        """Return the part of the line that was not read before."""
        match = STAMP.match(line)
        if match is None:
            return line
        # Kubernetes omits trailing zeros of the fraction.
        moment = match[1], (match[2] or b"").ljust(9, b"0")
        text = line if self._is_stamped else line[match.end() :]
        if moment < self._known_moment:
            return b""
        if moment == self._known_moment and self._known:
            # An unknown line comes before the tail that the user asked for.
            if not text.startswith(self._known[0]):
                return b""
            known = self._known.popleft()
            if not self._known:
                self._texts[-1] = text
            return text[len(known) :]
        if moment != self._moment:
            self._moment, self._texts = moment, []
        self._texts.append(text)
        return text
