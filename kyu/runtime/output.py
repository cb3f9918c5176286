"""
Writes the output of a container, a line of text for each of its lines, and starts a new file when one is full.

A line is ``TIME stdout F text``: when it came, from which stream, and whether it is Full or a Part of a longer one
(the CRI log format). A file belongs to one start of the container and is made when there is something to write; a
full one is renamed with the time in its name, and the oldest go.

Called by: supervisor.py. Read by: logs.py. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field

from kyu.runtime import user_files

# Longer lines are cut in parts, so that a program that never ends its line costs no memory.
LONGEST_LINE_BYTES = 16 * 1024
# The starts of a container whose output is kept. A container that crashes all day has thousands.
MOST_STARTS = 20


@dataclass(slots=True)
class LogFile:
    """The log of one start of one container."""

    path: str
    most_bytes: int
    most_files: int
    descriptor: int = -1
    size: int = 0

    def write(self, text: bytes) -> None:
        """Write whole lines, each to one file. On a full disk they are lost: the program must not die of its output."""
        with contextlib.suppress(OSError):
            self._write(text)

    def _write(self, text: bytes) -> None:
        while text:
            first = text.find(b"\n") + 1
            # A line that is longer than a whole file gets one for itself.
            if self.descriptor < 0 or (self.size and self.size + first > self.most_bytes):
                self._open_next()
            end = max(first, text.rfind(b"\n", 0, self.most_bytes - self.size) + 1)
            self.size += os.write(self.descriptor, text[:end])
            text = text[end:]

    def _open_next(self) -> None:
        if self.descriptor >= 0:
            self.close()
            os.rename(self.path, f"{self.path}.{time.time_ns():020d}")
            for old in rotated(self.path)[: -(self.most_files - 1) or None]:
                os.unlink(old)
        else:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self.descriptor = os.open(self.path, flags, 0o640)
        self.size = os.fstat(self.descriptor).st_size

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def rotated(path: str) -> list[str]:
    """Return the full files of this log, the oldest first."""
    folder, name = os.path.split(path)
    return [os.path.join(folder, entry) for entry in sorted(os.listdir(folder)) if entry.startswith(f"{name}.")]


def remove_log(path: str) -> None:
    """Remove all files of the log of one start."""
    if os.path.isdir(os.path.dirname(path)):
        for old in (*rotated(path), path):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(old)


@dataclass(slots=True)
class Stream:
    """One of the two pipes of a container."""

    name: str
    log: LogFile
    rest: bytes = field(default=b"")
    # A file of the user that gets the same output, or -1.
    user_file: int = -1

    def take(self, data: bytes, now_ns: int) -> None:
        """Write all whole lines; keep the last one until it ends."""
        user_files.append(self.user_file, data)
        stamp = timestamp(now_ns)
        full, part = f"{stamp} {self.name} F ".encode(), f"{stamp} {self.name} P ".encode()
        *lines, self.rest = (self.rest + data).split(b"\n")
        parts: list[bytes] = []
        for line in lines:
            for cut in range(0, len(line) - LONGEST_LINE_BYTES, LONGEST_LINE_BYTES):
                parts += (part, line[cut : cut + LONGEST_LINE_BYTES], b"\n")
            parts += (full, line[last_cut(line) :], b"\n")
        while len(self.rest) > LONGEST_LINE_BYTES:
            parts += (part, self.rest[:LONGEST_LINE_BYTES], b"\n")
            self.rest = self.rest[LONGEST_LINE_BYTES:]
        if parts:
            self.log.write(b"".join(parts))

    def close(self, now_ns: int) -> None:
        """Write a last line without an end as a part: a reader must not add an end that was not printed."""
        if self.rest:
            self.log.write(f"{timestamp(now_ns)} {self.name} P ".encode() + self.rest + b"\n")
            self.rest = b""
        user_files.close(self.user_file)
        self.user_file = -1


def last_cut(line: bytes) -> int:
    """Return the position of the last part of a line."""
    return max(0, (len(line) - 1) // LONGEST_LINE_BYTES) * LONGEST_LINE_BYTES


def timestamp(now_ns: int) -> str:
    seconds, nanoseconds = divmod(now_ns, 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{nanoseconds:09d}Z"
