"""Logs as files: how lines are written, cut and set aside, and how they are read again."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from kyu.runtime import logs, output, records
from kyu.runtime.logs import Log, LogOptions, NoLog, Printer, Reader
from kyu.runtime.output import LogFile, Stream

SECOND = 1_000_000_000


def log_file(folder: Path, most_bytes: int = 10_000, most_files: int = 3) -> LogFile:
    return LogFile(str(folder / "logs" / "main.0.log"), most_bytes, most_files)


def printed(log: LogFile, options: LogOptions | None = None) -> bytes:
    reader, printer = Reader(log.path), Printer(options or LogOptions())
    text = b""
    while lines := reader.read():
        text += printer.print(lines)
    return text


def test_lines_have_their_time_and_stream(tmp_path: Path) -> None:
    log = log_file(tmp_path)
    Stream("stdout", log).take(b"one\n", 0)
    Stream("stderr", log).take(b"two\n", 61 * SECOND + 5)
    assert Path(log.path).read_text() == (
        "1970-01-01T00:00:00.000000000Z stdout F one\n1970-01-01T00:01:01.000000005Z stderr F two\n"
    )


def test_a_line_may_come_in_pieces_and_the_last_one_without_an_end(tmp_path: Path) -> None:
    log = log_file(tmp_path)
    stream = Stream("stdout", log)
    for piece in (b"a", b"b\nc", b"", b"\n\nlast"):
        stream.take(piece, 0)
    stream.close(0)
    assert printed(log) == b"ab\nc\n\nlast"


@pytest.mark.parametrize(
    "length", [output.LONGEST_LINE_BYTES - 1, output.LONGEST_LINE_BYTES, 5 * output.LONGEST_LINE_BYTES]
)
@pytest.mark.parametrize("piece", [7000, 10**6])
def test_long_lines_are_cut_and_come_back_whole(tmp_path: Path, length: int, piece: int) -> None:
    log = log_file(tmp_path, most_bytes=10**6)
    stream = Stream("stdout", log)
    text = b"x" * length + b"\nshort\n"
    for start in range(0, len(text), piece):
        stream.take(text[start : start + piece], 0)
    stream.close(0)
    assert all(len(line) < output.LONGEST_LINE_BYTES + 100 for line in Path(log.path).read_bytes().split(b"\n"))
    assert printed(log) == text
    stamped = printed(log, LogOptions(timestamps=True))
    assert stamped.count(b"1970-01-01") == 2


def test_bytes_that_are_no_text_survive(tmp_path: Path) -> None:
    log = log_file(tmp_path)
    Stream("stdout", log).take(bytes(range(256)).replace(b"\n", b"") + b"\n", 0)
    assert printed(log) == bytes(range(256)).replace(b"\n", b"") + b"\n"


def test_full_files_are_set_aside_and_the_oldest_go(tmp_path: Path) -> None:
    log = log_file(tmp_path, most_bytes=200, most_files=3)
    stream = Stream("stdout", log)
    for number in range(50):
        stream.take(f"line {number}\n".encode(), number * SECOND)
    assert len(output.rotated(log.path)) == 2
    assert all(Path(path).stat().st_size <= 200 for path in (*output.rotated(log.path), log.path))
    lines = printed(log).decode().splitlines()
    assert lines == [f"line {number}" for number in range(50 - len(lines), 50)]


def test_a_reader_goes_on_over_files_that_were_set_aside(tmp_path: Path) -> None:
    log = log_file(tmp_path, most_bytes=200)
    stream, reader, printer = Stream("stdout", log), Reader(log.path), Printer(LogOptions())
    text = b""
    for number in range(50):
        stream.take(f"line {number}\n".encode(), 0)
        while lines := reader.read():
            text += printer.print(lines)
    assert text.decode().splitlines() == [f"line {number}" for number in range(50)]


@pytest.mark.parametrize(("count", "expected"), [(0, []), (1, ["9"]), (3, ["7", "8", "9"]), (99, list("0123456789"))])
def test_the_last_lines_over_several_files(tmp_path: Path, count: int, expected: list[str]) -> None:
    log = log_file(tmp_path, most_bytes=100, most_files=20)
    stream = Stream("stdout", log)
    for number in range(10):
        stream.take(f"{number}\n".encode(), 0)
    reader = Reader(log.path)
    assert Printer(LogOptions()).print(reader.tail(count)).decode().split() == expected
    stream.take(b"next\n", 0)
    assert Printer(LogOptions()).print(reader.read()) == b"next\n"


def test_lines_before_a_time_are_left_out(tmp_path: Path) -> None:
    log = log_file(tmp_path)
    stream = Stream("stdout", log)
    for second in range(5):
        stream.take(f"{second}\n".encode(), second * SECOND)
    since = datetime.fromtimestamp(3, UTC)
    assert printed(log, LogOptions(since=since)) == b"3\n4\n"


def test_a_full_disk_loses_output_and_nothing_else() -> None:
    LogFile("/dev/full", 1000, 2).write(b"lost\n")


def record(folder: Path, state: dict[str, object], restarts: int = 0, last: dict[str, object] | None = None) -> None:
    entry = {"state": state, "lastState": last or {}, "restartCount": restarts}
    (folder / records.STATE).mkdir(exist_ok=True)
    records.write(str(folder / records.RECORD), {"containers": {"main": entry}})


def test_which_log_is_meant(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert logs.find_log(folder, "p", "main", previous=False) == NoLog(
        'container "main" in pod "p" is waiting to start: ContainerCreating'
    )
    record(tmp_path, {"running": {}})
    assert logs.find_log(folder, "p", "main", previous=False) == Log(folder, "main", 0)
    assert logs.find_log(folder, "p", "main", previous=True) == NoLog(
        'previous terminated container "main" in pod "p" not found'
    )
    record(tmp_path, {"waiting": {"reason": "CrashLoopBackOff"}}, 2, {"terminated": {}})
    assert logs.find_log(folder, "p", "main", previous=False) == Log(folder, "main", 2)
    assert logs.find_log(folder, "p", "main", previous=True) == Log(folder, "main", 1)


@pytest.mark.parametrize(
    ("state", "restarts", "ended"),
    [({"running": {}}, 0, False), ({"terminated": {}}, 0, True), ({"running": {}}, 1, True)],
)
def test_when_a_log_is_over(tmp_path: Path, state: dict[str, object], restarts: int, ended: bool) -> None:
    record(tmp_path, state, restarts)
    assert logs.has_ended(Log(str(tmp_path), "main", 0)) is ended
