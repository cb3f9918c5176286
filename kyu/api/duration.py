"""
Durations as Kubernetes configuration writes them: "30m", "1h30m", "1.5s", "0s".

Used by: config.py. Kubernetes: meta/v1 Duration, which is Go's notation.
"""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_MICROSECONDS = {
    "ns": Fraction(1, 1000),
    "us": Fraction(1),
    "µs": Fraction(1),
    "μs": Fraction(1),
    "ms": Fraction(1000),
    "s": Fraction(10**6),
    "m": Fraction(60 * 10**6),
    "h": Fraction(3600 * 10**6),
}
# 64 bits of nanoseconds, as in Go.
_LONGEST = Fraction(2**63 - 1, 1000)


class Duration(timedelta):
    """A timedelta that is written in Go's notation."""

    @classmethod
    def parse(cls, text: str) -> Duration:
        return parse(text)

    def __str__(self) -> str:
        return render(self)


def parse(text: str) -> Duration:
    """Read Go's notation; raise ValueError if it is something else."""
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return Duration()
    parts = list(_PART.finditer(rest))
    if not parts or "".join(part[0] for part in parts) != rest:
        raise ValueError(f"{text!r} is not a duration such as 90s, 30m or 1h30m")
    total = sum((Fraction(part[1]) * _MICROSECONDS[part[2]] for part in parts), Fraction(0))
    if total > _LONGEST:
        raise ValueError(f"{text!r} is too long")
    return Duration(microseconds=sign * round(total))


def render(duration: timedelta) -> str:
    """Go's notation: hours, minutes and seconds, and a smaller unit below one second."""
    microseconds = duration // timedelta(microseconds=1)
    if microseconds == 0:
        return "0s"
    sign, microseconds = ("-", -microseconds) if microseconds < 0 else ("", microseconds)
    if microseconds < 1000:
        return f"{sign}{microseconds}µs"
    if microseconds < 10**6:
        return f"{sign}{_decimal(microseconds, 1000)}ms"
    minutes, rest = divmod(microseconds, 60 * 10**6)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{_decimal(rest, 10**6)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else f"{sign}{seconds}"


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    fraction = str(rest).zfill(len(str(unit)) - 1).rstrip("0")
    return f"{whole}.{fraction}" if fraction else str(whole)
