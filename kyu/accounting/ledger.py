"""
The ledger: a line of JSON for each attempt, in files that are only appended to.

Files are numbered. When one has its size, the next begins; the oldest is removed when all of them are larger than the
bound, or when its last line is older than the longest age. A line that a crash has cut is skipped, and written again
when the pod is found in its folder, because no folder of a pod is removed before its line is on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import msgspec

from kyu.api.accounting import JobAttempt

FILE = re.compile(r"attempts-(\d{8})\.jsonl")
FILES = 16
# A page of an answer: so many lines are read, and so many bytes looked through.
MOST_LINES = 5000
MOST_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LedgerLimits:
    """The bounds of the ledger: its age in seconds, and its size in bytes."""

    longest_seconds: float = 400 * 24 * 3600.0
    most_bytes: int = 64 * 1024**2


class Position(msgspec.Struct, frozen=True, order=True):
    """A place in the ledger, from which a later page goes on."""

    file: int = 0
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.file}.{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Position:
        if re.fullmatch(r"\d{1,8}\.\d{1,15}", text, re.ASCII) is None:
            raise ValueError(f"{text!r} is no position in the ledger")
        file, _, offset = text.partition(".")
        return cls(int(file), int(offset))


@dataclass(frozen=True, slots=True)
class LedgerPage:
    """Some lines, and where the next page begins; None at the end."""

    attempts: list[JobAttempt]
    next: Position | None


class UidOnly(msgspec.Struct):
    uid: str


class Ledger:
    """The lines in a folder of its own. The owner of the data folder's lock is the only writer."""

    def __init__(self, folder: str, limits: LedgerLimits, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._descriptor = -1
        self._number = 0
        self._size = 0
        self._is_dirty = False
        self._syncing = asyncio.Lock()

    def open(self) -> None:
        """Open the last file, end a line that was cut, and remove files beyond the bounds."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        self._prune()
        self._open_file(max(self._numbers(), default=1))

    def close(self) -> None:
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def append(self, attempt: JobAttempt) -> None:
        """Add a line. It survives a crash of Kyu at once, and a power cut after ``sync``."""
        line = msgspec.json.encode(attempt) + b"\n"
        with self._lock:
            if self._size and self._size + len(line) > self._limits.most_bytes // FILES:
                os.fdatasync(self._descriptor)
                os.close(self._descriptor)
                self._open_file(self._number + 1)
                self._prune()
            written = os.write(self._descriptor, line)
            self._size += written
            self._is_dirty = True
            if written < len(line):
                # The rest of a line on a full disk would be taken for a line of its own.
                os.ftruncate(self._descriptor, self._size - written)
                self._size -= written
                raise OSError(28, "the disk is full")

    async def sync(self) -> None:
        """Wait until all lines are on disk. Calls at the same time share one wait."""
        async with self._syncing:
            if self._is_dirty:
                self._is_dirty = False
                try:
                    await asyncio.to_thread(os.fdatasync, self._descriptor)
                except OSError:
                    self._is_dirty = True
                    raise

    def known(self, uids: Collection[str]) -> set[str]:
        """Return which of these pods have a line."""
        wanted, found = set(uids), set[str]()
        for _, line in self._lines(Position()) if wanted else ():
            with contextlib.suppress(msgspec.DecodeError):
                uid = msgspec.json.decode(line, type=UidOnly).uid
                if uid in wanted:
                    found.add(uid)
        return found

    def read(self, start: Position, wanted: Callable[[bytes], JobAttempt | None]) -> LedgerPage:
        """Return a page of the lines that ``wanted`` accepts, the oldest first."""
        found: list[JobAttempt] = []
        looked_through = 0
        for position, line in self._lines(start):
            if len(found) == MOST_LINES or looked_through > MOST_BYTES:
                return LedgerPage(found, position)
            looked_through += len(line)
            if (attempt := wanted(line)) is not None:
                found.append(attempt)
        return LedgerPage(found, None)

    def _lines(self, start: Position) -> Iterator[tuple[Position, bytes]]:
        """Yield the whole lines from a position on, with their own positions."""
        for number in (number for number in self._numbers() if number >= start.file):
            offset = start.offset if number == start.file else 0
            with contextlib.suppress(FileNotFoundError), open(self._path(number), "rb") as file:
                file.seek(offset)
                for line in file:
                    if line.endswith(b"\n"):
                        yield Position(number, offset), line
                    offset += len(line)

    def _numbers(self) -> list[int]:
        return sorted(int(match[1]) for name in os.listdir(self._folder) if (match := FILE.fullmatch(name)))

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, f"attempts-{number:08}.jsonl")

    def _open_file(self, number: int) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(self._path(number), flags, 0o600)
        self._number, self._size = number, os.fstat(self._descriptor).st_size
        if self._size and os.pread(self._descriptor, 1, self._size - 1) != b"\n":
            self._size += os.write(self._descriptor, b"\n")

    def _prune(self) -> None:
        """Remove the oldest files until the others are within the bounds. The last one stays."""
        numbers = self._numbers()
        infos = {number: os.stat(self._path(number)) for number in numbers}
        total = sum(info.st_size for info in infos.values())
        oldest = self._clock() - self._limits.longest_seconds
        for number in numbers[:-1]:
            if infos[number].st_mtime >= oldest and total <= self._limits.most_bytes:
                return
            os.unlink(self._path(number))
            total -= infos[number].st_size
