"""
Durations: Go's notation ("30m", "1h30m", "1.5s", "0s"), and the short form of ages ("3m20s", "12d").

Kubernetes: meta/v1 Duration (time.ParseDuration and its String), apimachinery/pkg/util/duration.
"""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]*)")
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
# 64 bits of nanoseconds, as in Go. No such number has more digits than that.
_LONGEST = Fraction(2**63 - 1, 1000)
_MOST_DIGITS = 19


class DurationError(ValueError):
    """The text is no duration. `go_message` has the words of Go, which answers of the API repeat."""

    def __init__(self, message: str, go_message: str) -> None:
        super().__init__(message)
        self.go_message = f"time: {go_message}"


class Duration(timedelta):
    """A timedelta that is written in Go's notation."""

    @classmethod
    def parse(cls, text: str) -> Duration:
        return parse(text)

    def __str__(self) -> str:
        return render(self)


def parse(text: str) -> Duration:
    """Parse Go's notation; raise DurationError if the text is something else."""
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return Duration()
    total, position = Fraction(0), 0
    while position < len(rest) or not rest:
        part = _PART.match(rest, position)
        whole, fraction, unit = part.groups("") if part is not None else ("", "", "")
        if part is None or not (whole or fraction):
            raise _not_a_duration(text, f'invalid duration "{text}"')
        if not unit:
            raise _not_a_duration(text, f'missing unit in duration "{text}"')
        if unit not in _MICROSECONDS:
            raise _not_a_duration(text, f'unknown unit "{unit}" in duration "{text}"')
        if len(whole.lstrip("0")) <= _MOST_DIGITS:
            total += Fraction(f"{whole or 0}.{fraction[:_MOST_DIGITS]}") * _MICROSECONDS[unit]
        else:
            total = _LONGEST + 1
        if total > _LONGEST:
            raise DurationError(f"{text!r} is too long", f'invalid duration "{text}"')
        position = part.end()
    return Duration(microseconds=sign * round(total))


def _not_a_duration(text: str, go_message: str) -> DurationError:
    return DurationError(f"{text!r} is not a duration such as 90s, 30m or 1h30m", go_message)


def render(duration: timedelta) -> str:
    """Return Go's notation: hours, minutes and seconds, and a smaller unit below one second."""
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


def short(seconds: float) -> str:
    """Return at most two units, fewer as it gets longer, as the AGE column of kubectl has them."""
    if seconds < -1:
        return "<invalid>"
    whole = max(0, int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 2 * 365:
        return f"{days}d"
    if days < 8 * 365:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"
