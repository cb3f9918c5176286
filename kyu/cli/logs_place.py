"""
Where the reader of a log is, so that it can go on there when the log is read again from its start.

Lines are told apart by their times, which are asked for and left out again where the user wants none.

Called by: cli/logs.py.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping

STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(?:Z|[+-]\d\d:\d\d) ")
Moment = tuple[bytes, bytes]


class Place:
    """The lines that were read last, those of one time. The last of them may have been cut."""

    def __init__(self, query: Mapping[str, str]) -> None:
        self._query = {**query, "timestamps": "true"}
        self._is_stamped = query.get("timestamps") == "true"
        self._moment: Moment = (b"", b"")
        self._texts: list[bytes] = []
        # When the log is read again: until then all is known, and of that time these lines, in this order.
        self._known_moment = self._moment
        self._known: deque[bytes] = deque()

    def start_again(self) -> dict[str, str]:
        """What to ask for: all of it, if some is known."""
        self._known_moment, self._known = self._moment, deque(self._texts)
        return {name: value for name, value in self._query.items() if name != "tailLines" or not self._texts}

    def news(self, line: bytes) -> bytes:
        """What of the line is new."""
        match = STAMP.match(line)
        if match is None:
            return line
        # Kubernetes leaves out zeros at the end.
        moment = match[1], (match[2] or b"").ljust(9, b"0")
        text = line if self._is_stamped else line[match.end() :]
        if moment < self._known_moment:
            return b""
        if moment == self._known_moment and self._known:
            # One that is not known was before the tail that was asked for.
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
