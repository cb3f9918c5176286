"""Durations as users write them: 90s, 15m, 2h30 (2 h 30 min), 1d12h, and 1-12:00:00 as in Slurm."""

from __future__ import annotations

import re

UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
# A number without a unit has the next smaller unit: 2h30 is 2 h 30 min.
SMALLER = {"": 1, "d": 3600, "h": 60, "m": 1}
PARTS = re.compile(r"(\d+)([dhms])")
DURATION = re.compile(r"(?:\d+d)?(?:\d+h)?(?:\d+m)?(?:\d+s)?(\d+)?")
SLURM = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


def seconds(text: str) -> int | None:
    """Return the seconds of a duration, or None if it is none. A plain number is seconds."""
    if ":" in text or "-" in text:
        return slurm_seconds(text)
    match = DURATION.fullmatch(text)
    if not text or match is None:
        return None
    rest = match[1] or ""
    parts = PARTS.findall(text.removesuffix(rest) if rest else text)
    last = parts[-1][1] if parts else ""
    if rest and last == "s":
        return None
    return sum(int(number) * UNITS[unit] for number, unit in parts) + (int(rest) * SMALLER[last] if rest else 0)


def slurm_seconds(text: str) -> int | None:
    """Return the seconds of a Slurm time: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S."""
    match = SLURM.fullmatch(text)
    if match is None:
        return None
    days, *rest = match.groups()
    first, second, third = (int(group or 0) for group in rest)
    if days is not None:
        return int(days) * 86400 + first * 3600 + second * 60 + third
    if rest[2] is not None:
        return first * 3600 + second * 60 + third
    return first * 60 + second
