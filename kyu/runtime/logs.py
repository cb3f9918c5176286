"""
Reads the output of a container, as ``kubectl logs`` requests it: the last lines, since a time, with new lines.

The files are those that output.py writes, the oldest first. Following looks at the file's size ten times a second, over
the change from a full file to the next, until the container has ended and its last line is read.

Called by: embedded.py, whose function the server calls; pools/runner.py. Kubernetes: the kubelet's ReadLogs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from kyu.runtime import output, records
from kyu.runtime.sandbox import files

BLOCK_BYTES = 256 * 1024
FOLLOW_SECONDS = 0.1
# The parts of a line: time, stream, tag, text.
FIELDS = 4


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The parameters of the pods/log subresource."""

    follow: bool = False
    tail_lines: int | None = None
    since: datetime | None = None
    timestamps: bool = False
    limit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Log:
    """The log of one start of one container."""

    folder: str
    container: str
    number: int

    @property
    def path(self) -> str:
        return os.path.join(self.folder, records.log_file(self.container, self.number))


@dataclass(frozen=True, slots=True)
class NoLog:
    """The reason why there is no log to read."""

    message: str


def find_log(folder: str, pod: str, container: str, *, previous: bool) -> Log | NoLog:
    record = records.find(os.path.join(folder, records.RECORD)) or {"containers": {}}
    entry = record["containers"].get(container)
    if entry is None or ("waiting" in entry["state"] and not entry["lastState"]):
        reason = entry["state"]["waiting"].get("reason", "") if entry else "ContainerCreating"
        return NoLog(f'container "{container}" in pod "{pod}" is waiting to start: {reason}')
    number = entry["restartCount"] - int(previous)
    if number < 0:
        return NoLog(f'previous terminated container "{container}" in pod "{pod}" not found')
    return Log(folder, container, number)


def has_ended(log: Log) -> bool:
    """Return whether this start of the container is over. It is if the pod has no folder."""
    record = records.find(os.path.join(log.folder, records.RECORD))
    entry = (record or {"containers": {}})["containers"].get(log.container)
    if entry is None:
        return record is not None or not os.path.isdir(log.folder)
    return entry["restartCount"] > log.number or "running" not in entry["state"]


async def stream(log: Log, options: LogOptions, closed: asyncio.Event | None = None) -> AsyncGenerator[bytes, None]:
    """Yield the text, in blocks of whole lines where the container has printed them, until ``closed`` is set."""
    left = options.limit_bytes
    async for text in rendered(log, options, closed or asyncio.Event()):
        if left is not None:
            text = text[:left]
            left -= len(text)
        if text:
            yield text
        if left == 0:
            return


async def rendered(log: Log, options: LogOptions, closed: asyncio.Event) -> AsyncIterator[bytes]:
    printer = Printer(options)
    reader = Reader(log.path)
    if options.tail_lines is not None:
        yield printer.print(reader.tail(options.tail_lines))
    while not closed.is_set():
        ended = has_ended(log)
        if lines := reader.read():
            yield printer.print(lines)
            await asyncio.sleep(0)
        elif not options.follow or ended:
            return
        else:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FOLLOW_SECONDS):
                    await closed.wait()


@dataclass(slots=True)
class Printer:
    """Turns written lines to printed ones."""

    options: LogOptions
    at_line_start: bool = True
    since: bytes = field(init=False)

    def __post_init__(self) -> None:
        since = self.options.since
        self.since = output.timestamp(int(since.timestamp() * 1e9)).encode() if since else b""

    def print(self, lines: Iterable[bytes]) -> bytes:
        return b"".join(self._pieces(lines))

    def _pieces(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        for line in lines:
            # All times have the same length and order as text.
            if line < self.since or line.count(b" ") < FIELDS - 1:
                continue
            time, _, tag, text = line.split(b" ", FIELDS - 1)
            if self.options.timestamps and self.at_line_start:
                yield time + b" "
            yield text
            self.at_line_start = tag == b"F"
            if self.at_line_start:
                yield b"\n"


@dataclass(slots=True)
class Reader:
    """Reads a log's files in order, and goes on where it stopped."""

    path: str
    waiting: list[str] | None = None
    descriptor: int = -1
    rest: bytes = b""

    def read(self) -> list[bytes]:
        """Return some more whole lines; none if there are none now."""
        while True:
            if self.descriptor < 0 and not self._open_next():
                return []
            block = os.read(self.descriptor, BLOCK_BYTES)
            if block:
                *lines, self.rest = (self.rest + block).split(b"\n")
                if lines:
                    return lines
            elif not self._is_full():
                return []
            else:
                self.close()

    def tail(self, count: int) -> list[bytes]:
        """Return the last lines of all files; reading goes on behind them."""
        lines: list[bytes] = []
        self.waiting = []
        older: list[str] = []
        if self._open_next():
            *lines, self.rest = read_all(self.descriptor).split(b"\n")
            # It may have been renamed meanwhile.
            older = [path for path in self._rotated() if os.stat(path).st_ino != os.fstat(self.descriptor).st_ino]
        while older and full_lines(lines) <= count:
            lines = read_lines(older.pop()) + lines
        return last_full_lines(lines, count)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __del__(self) -> None:
        self.close()

    def _rotated(self) -> list[str]:
        return output.rotated(self.path) if os.path.isdir(os.path.dirname(self.path)) else []

    def _open_next(self) -> bool:
        if self.waiting is None:
            self.waiting = self._rotated()
        path = self.waiting.pop(0) if self.waiting else self.path
        try:
            self.descriptor = open_log(path)
        except OSError:
            return False
        return True

    def _is_full(self) -> bool:
        """Return whether the file was renamed because it is full: another one is written now."""
        try:
            return os.stat(self.path).st_ino != os.fstat(self.descriptor).st_ino
        except FileNotFoundError:
            return False


def open_log(path: str) -> int:
    """Open a file of a log. Its folder belongs to the pod's user, who may have put anything in its place."""
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return files.open_owned(folder, os.path.basename(path))
    finally:
        os.close(folder)


def read_all(descriptor: int) -> bytes:
    blocks = []
    while block := os.read(descriptor, BLOCK_BYTES):
        blocks.append(block)
    return b"".join(blocks)


def read_lines(path: str) -> list[bytes]:
    with open(open_log(path), "rb") as file:
        return file.read().split(b"\n")[:-1]


def full_lines(lines: list[bytes]) -> int:
    return sum(is_full(line) for line in lines)


def is_full(line: bytes) -> bool:
    return line.split(b" ", FIELDS - 1)[2:3] == [b"F"]


def last_full_lines(lines: list[bytes], count: int) -> list[bytes]:
    """Return the last printed lines, each with all its parts. Text after the last end of a line counts as one more."""
    if count == 0:
        return []
    needed = count + 1 if lines and is_full(lines[-1]) else count
    for position in range(len(lines) - 1, -1, -1):
        needed -= is_full(lines[position])
        if needed == 0:
            return lines[position + 1 :]
    return lines
