"""The form of functions and outcomes: signatures, and plain values where others could have forged one."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

import kyu
from kyu.sdk import exchange, parcel, worker

KEY = parcel.new_key()


def outcome(entry: tuple[object, ...], task: int = 0, key: bytes = KEY) -> bytes:
    body = pickle.dumps([entry])
    return worker.sign(key, task, body) + body


class Harmful:
    """An object that runs a command when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.path}",)


def test_only_the_right_signature_is_read() -> None:
    good = outcome(("value", pickle.dumps(1)))
    assert parcel.unpack(good, KEY, 0, is_secret=True) == [parcel.CallOutcome(1)]
    assert parcel.unpack(good, KEY, 1, is_secret=True) is None, "the outcome of another task"
    assert parcel.unpack(good, parcel.new_key(), 0, is_secret=True) is None
    assert parcel.unpack(good[:-1], KEY, 0, is_secret=True) is None
    assert parcel.unpack(b"", KEY, 0, is_secret=True) is None


def test_a_key_that_others_can_read_runs_no_code_here(tmp_path: Path) -> None:
    harm = pickle.dumps(Harmful(tmp_path / "harm"))
    for entry in (("value", harm), ("error", "Odd", "message", "trace", harm)):
        (found,) = parcel.unpack(outcome(entry), KEY, 0, is_secret=False) or []
        assert isinstance(found.error, kyu.NotCarried | kyu.RemoteError)
    with pytest.raises(pickle.UnpicklingError):
        parcel.load_plain(harm)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [None, 1.5, "ü", b"\0", [1, (2, {3})], {"a": frozenset({True})}])
def test_plain_values_need_no_secret(value: object) -> None:
    (found,) = parcel.unpack(outcome(("value", pickle.dumps(value))), KEY, 0, is_secret=False) or []
    assert found.value == value


def test_exceptions_of_python_come_back_by_name() -> None:
    entry = ("error", "KeyError", "'x'", "Traceback …", b"")
    (found,) = parcel.unpack(outcome(entry), KEY, 0, is_secret=False) or []
    assert isinstance(found.error, KeyError)
    assert "Traceback …" in str(found.error.__cause__)


def test_an_outcome_in_a_log_is_found_among_other_lines() -> None:
    reader, writer = os.pipe()
    body = os.urandom(5 * worker.PART_BYTES)
    worker.write_log(writer, body)
    with open(reader, "rb") as log:
        lines = log.readlines()
    assert exchange.read_log([b"hello\n", *lines, b"bye\n"]) == body
    assert exchange.read_log([worker.MARK + b"nonsense\n", *lines[:-1]]) is None
    assert exchange.read_log([*lines[:3], *lines]) == body, "an attempt that broke off, and another one"
