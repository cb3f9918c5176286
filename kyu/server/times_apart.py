"""
Conditions without their times: what is said again and again differs in the second in which it was said first.

Two statuses that are equal but for the times of transition in them are taken for equal if these times are in the same
order, and the same of them are equal. A kind whose schema asks no more of such a time than that it is one cannot tell
the two apart.

Used by: server/status_writes.py, server/status_repeats.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

FIELD: Final = "lastTransitionTime"
# What its schema may have.
PLAIN: Final = ({"type": "string", "format": "date-time"}, {"type": "string", "format": "date-time", "nullable": True})

_START, _END = b'"lastTransitionTime":"', b'"'
_TIME: Final = re.compile(_START + rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)" + _END)
# Stands in no JSON.
MARK: Final = b"\0"


class Apart(NamedTuple):
    """``words`` has a mark in place of each field with its time."""

    words: bytes
    times: tuple[bytes, ...] = ()


def apart(text: bytes) -> Apart:
    pieces = _TIME.split(text)
    times = tuple(pieces[1::2])
    return Apart(MARK.join(pieces[::2]), times) if all(map(_is_real, times)) else Apart(text)


def order(times: Sequence[bytes]) -> tuple[list[bytes], tuple[int, ...]]:
    """The different times, the earliest first, and the place of each of the given ones among them."""
    moments = sorted(set(times))
    return moments, tuple(map(moments.index, times))


def together(words: bytes, places: Sequence[int], moments: Sequence[bytes]) -> bytes:
    """A text with times again."""
    pieces = words.split(MARK)
    for index, place in enumerate(places, 1):
        pieces[index] = _START + moments[place] + _END + pieces[index]
    return b"".join(pieces)


def are_read_by(schema: Any) -> bool:
    """Whether a schema, as JSON, asks more of a time of transition than that it is one, or has a rule that names it."""
    if isinstance(schema, list):
        return any(map(are_read_by, schema))
    if not isinstance(schema, dict):
        # Alone it is the name in a list of fields.
        return isinstance(schema, str) and FIELD in schema and schema != FIELD
    return any(
        _without_words(value) not in PLAIN if name == FIELD else are_read_by(value)
        for name, value in _without_words(schema).items()
    )


def _without_words(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    return {name: value for name, value in schema.items() if name != "description"}


@lru_cache(maxsize=256)
def _is_real(time: bytes) -> bool:
    """Not the thirtieth of February: what refuses that would have to see it."""
    try:
        datetime.fromisoformat(time.decode())
    except ValueError:
        return False
    return True
