"""The files of the ledger: lines that survive a crash, pages, and bounds."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from kyu.accounting import ledger as files
from kyu.accounting.ledger import Ledger, LedgerLimits, Position
from kyu.accounting.resource import line_filter
from kyu.api.accounting import JobAttempt


def attempt(number: int, namespace: str = "team", **fields: object) -> JobAttempt:
    values = {
        "uid": f"uid-{number}", "namespace": namespace, "pod": f"pod-{number}", "state": "Succeeded",
        "queued": "2026-11-18T10:00:00Z", "started": "2026-11-18T10:00:01Z", "ended": "2026-11-18T10:00:02Z",
        "seconds": 1.0, **fields,
    }  # fmt: skip
    return msgspec.convert(values, JobAttempt)


def open_ledger(folder: Path, now: float = 1e9, **limits: float) -> Ledger:
    ledger = Ledger(str(folder), LedgerLimits(**{"longest_seconds": 1e12, **limits}), lambda: now)  # type: ignore[arg-type]
    ledger.open()
    return ledger


def uids(ledger: Ledger, namespace: str = "", created: str = "", **query: str) -> list[str]:
    found, position = [], Position()
    while True:
        page = ledger.read(position, line_filter(namespace, created, query))
        found += [one.uid for one in page.attempts]
        if page.next is None:
            return found
        position = Position.parse(str(page.next))


def test_lines_are_there_after_a_restart(tmp_path: Path) -> None:
    first = open_ledger(tmp_path)
    first.append(attempt(1))
    second = open_ledger(tmp_path)
    second.append(attempt(2))
    asyncio.run(second.sync())
    assert uids(second) == ["uid-1", "uid-2"]
    assert second.known(["uid-2", "uid-3"]) == {"uid-2"}


def test_a_line_that_a_crash_has_cut_is_skipped(tmp_path: Path) -> None:
    first = open_ledger(tmp_path)
    for number in (1, 2):
        first.append(attempt(number))
    (path,) = tmp_path.iterdir()
    os.truncate(path, path.stat().st_size - 20)
    second = open_ledger(tmp_path)
    assert second.known(["uid-1", "uid-2"]) == {"uid-1"}
    second.append(attempt(2))
    assert uids(second) == ["uid-1", "uid-2"]


def test_the_oldest_lines_go_when_the_ledger_is_full(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path, most_bytes=32 * 1024)
    for number in range(1000):
        ledger.append(attempt(number))
    left = uids(ledger)
    assert left == [f"uid-{number}" for number in range(1000 - len(left), 1000)]
    assert 16 * 1024 < sum(path.stat().st_size for path in tmp_path.iterdir()) <= 34 * 1024


def test_old_files_go_and_the_last_one_stays(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path, most_bytes=16 * 1024)
    for number in range(20):
        ledger.append(attempt(number))
    count = len(list(tmp_path.iterdir()))
    assert count > 2
    for path in tmp_path.iterdir():
        os.utime(path, (1000, 1000))
    open_ledger(tmp_path, now=5000, longest_seconds=3600)
    (left,) = tmp_path.iterdir()
    assert left.name == f"attempts-{count:08}.jsonl"


def test_answers_come_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_LINES", 3)
    ledger = open_ledger(tmp_path, most_bytes=16 * 1024)
    for number in range(17):
        ledger.append(attempt(number, "a" if number % 2 else "b"))
    assert len(ledger.read(Position(), line_filter("", "", {})).attempts) == 3
    assert uids(ledger) == [f"uid-{number}" for number in range(17)]
    assert uids(ledger, "a") == [f"uid-{number}" for number in range(1, 17, 2)]


def test_filters(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    ledger.append(attempt(1, submitter="ana", queue="x", ended="2026-11-18T10:00:02Z"))
    ledger.append(attempt(2, submitter="bo", queue="ana", ended="2026-11-18T11:00:00Z"))
    ledger.append(attempt(3, "other", submitter="ana", state="Failed", ended="2026-11-18T12:00:00Z"))
    # A name that looks like another field does not count as that field.
    ledger.append(attempt(4, "other", job='"namespace":"team"'))
    assert uids(ledger, "team") == ["uid-1", "uid-2"]
    assert uids(ledger, submitter="ana") == ["uid-1", "uid-3"]
    assert uids(ledger, queue="ana") == ["uid-2"]
    assert uids(ledger, state="Failed") == ["uid-3"]
    assert uids(ledger, since="2026-11-18T11:00:00+00:00") == ["uid-2", "uid-3"]
    assert uids(ledger, until="2026-11-18T12:00:00+01:00") == ["uid-1", "uid-4"]
    assert uids(ledger, "team", created="2026-11-18T10:30:00Z") == []


@pytest.mark.parametrize("query", [{"since": "yesterday"}, {"until": "2026-11-18T11:00:00"}])
def test_times_that_are_none_are_refused(query: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"Invalid isoformat|no zone"):
        line_filter("team", "", query)


@pytest.mark.parametrize("text", ["", "1", "1.", "-1.0", "1.0.0", "x"])
def test_positions_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no position"):
        Position.parse(text)
