"""Conditions without their times: taken apart, put together with others, and kinds that would notice."""

from __future__ import annotations

from typing import Any

import pytest

from kyu.api import crds
from kyu.api.meta import Json
from kyu.server.times_apart import Apart, apart, are_read_by, order, together

EARLY, LATE = b"2026-01-01T12:00:00Z", b"2026-01-01T12:00:01Z"
TIME: Json = {"type": "string", "format": "date-time"}


def conditions(*times: bytes) -> bytes:
    return b",".join(b'{"type":"A","lastTransitionTime":"%b","message":"x"}' % time for time in times)


def test_texts_that_differ_in_their_times_have_the_same_words() -> None:
    one, other = apart(conditions(EARLY, LATE)), apart(conditions(LATE, EARLY))
    assert one.words == other.words
    assert (one.times, other.times) == ((EARLY, LATE), (LATE, EARLY))
    assert order(one.times) == ([EARLY, LATE], (0, 1))
    assert order(other.times) == ([EARLY, LATE], (1, 0))
    assert order((LATE, LATE)) == ([LATE], (0, 0))


@pytest.mark.parametrize("times", [(), (EARLY,), (LATE, EARLY, LATE)])
def test_what_was_taken_apart_is_put_together(times: tuple[bytes, ...]) -> None:
    taken = apart(conditions(*times))
    moments, places = order(taken.times)
    assert together(taken.words, places, moments) == conditions(*times)


@pytest.mark.parametrize(
    "text",
    [
        conditions(EARLY, b"2026-02-30T12:00:00Z"),
        conditions(b"2026-01-01T24:00:01Z"),
        conditions(b"2026-01-01T12:00:00+01:00"),
        b'{"message":"%b"}' % EARLY,
        b'{"message":"\\"lastTransitionTime\\":\\"%b\\""}' % EARLY,
    ],
    ids=["no such day", "no such hour", "another zone", "another field", "in a text"],
)
def test_what_is_no_time_of_a_condition_stays(text: bytes) -> None:
    assert apart(text) == Apart(text)


@pytest.mark.parametrize(
    ("time", "rule", "is_read"),
    [
        (TIME, "self.size() < 5", False),
        ({**TIME, "description": "See lastTransitionTime."}, "self.size() < 5", False),
        (TIME, "self.all(c, c.lastTransitionTime < timestamp('2027-01-01T00:00:00Z'))", True),
        ({**TIME, "pattern": "^2026"}, "self.size() < 5", True),
        ({**TIME, "x-kubernetes-validations": [{"rule": "self.getFullYear() > 2025"}]}, "self.size() < 5", True),
        ({"type": "string"}, "self.size() < 5", True),
    ],
    ids=["plain", "described", "named by a rule", "with a pattern", "with a rule", "any text"],
)
def test_kinds_that_read_times_are_known(time: Json, rule: str, is_read: bool) -> None:
    item: Json = {"type": "object", "required": ["lastTransitionTime"], "properties": {"lastTransitionTime": time}}
    listed: Json = {"type": "array", "items": item, "x-kubernetes-validations": [{"rule": rule}]}
    assert are_read_by({"type": "object", "properties": {"conditions": listed}}) is is_read


def test_the_kinds_of_kueue_do_not_read_them() -> None:
    schemas: list[Any] = [
        version["schema"] for definition in crds.definitions() for version in definition["spec"]["versions"]
    ]
    assert "lastTransitionTime" in str(schemas)
    assert not any(map(are_read_by, schemas))
