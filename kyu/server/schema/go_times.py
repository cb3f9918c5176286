"""
Times as Go parses them: the first part that does not match its layout is reported.

Go: time.Parse with RFC 3339, with or without microseconds.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final, TypeAlias

Parts: TypeAlias = tuple[tuple[str, str], ...]

# (pattern, name of the part in the layout)
_START: Final = (
    (r"\d{4}", "2006"), ("-", "-"), (r"\d\d", "01"), ("-", "-"), (r"\d\d", "02"), ("T", "T"), (r"\d\d?", "15"),
    (":", ":"), (r"\d\d", "04"), (":", ":"), (r"\d\d", "05"),
)  # fmt: skip
_ZONE: Final = (r"Z|[+-]\d\d:\d\d", "Z07:00")
_WITH_SECONDS: Final = (*_START, (r"([.,]\d+)?", ""), _ZONE)
_WITH_MICROSECONDS: Final = (*_START, (r"\.\d{6}", ".000000"), _ZONE)
_is_usual: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ").fullmatch
_RANGES: Final = {
    "01": ("month", 1, 12),
    "02": ("day", 1, 31),
    "15": ("hour", 0, 23),
    "04": ("minute", 0, 59),
    "05": ("second", 0, 59),
}


class TimeFault(ValueError):
    """A text that is no time. The message is for the user."""


def canonical(text: str, *, has_microseconds: bool) -> str:
    """Return the time in UTC with seconds, or with the microseconds that it must then have."""
    parts = _WITH_MICROSECONDS if has_microseconds else _WITH_SECONDS
    if has_microseconds or not _is_usual(text):
        _check(text, parts)
    try:
        moment = datetime.fromisoformat(text.replace(",", "."))
    except ValueError:
        # All parts match, but there is no such day.
        _check(text, parts)
        raise TimeFault(f'parsing time "{text}": day out of range') from None
    precision = "microseconds" if has_microseconds else "seconds"
    try:
        moment = moment.astimezone(UTC)
    except OverflowError:
        # In UTC it is in the year 0 or 10000, which Go reads and cannot write.
        raise TimeFault(f'parsing time "{text}": year out of range') from None
    return moment.replace(tzinfo=None).isoformat(timespec=precision) + "Z"


def _check(text: str, parts: Parts) -> None:
    layout = "".join(name for _, name in parts)
    rest = text
    for pattern, name in parts:
        found = re.match(pattern, rest)
        if found is None:
            raise TimeFault(f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as "{name}"')
        if name in _RANGES:
            what, least, most = _RANGES[name]
            if not least <= int(found[0]) <= most:
                raise TimeFault(f'parsing time "{text}": {what} out of range')
        rest = rest[found.end() :]
    if rest:
        raise TimeFault(f'parsing time "{text}": extra text: "{rest}"')
