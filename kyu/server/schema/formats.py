"""
The string formats of schemas of custom kinds.

Kubernetes: kube-openapi/pkg/validation/strfmt.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import datetime
from typing import Final

from kyu.api import duration

_HOST_LABEL: Final = "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_MAC: Final = re.compile(
    "|".join(
        rf"[0-9a-fA-F]{{{digits}}}({separator}[0-9a-fA-F]{{{digits}}}){{{count - 1}}}"
        for size in (6, 8, 20)
        for separator, digits, count in ((":", 2, size), ("-", 2, size), (r"\.", 4, size // 2))
    )
)
_NUMBER_AND_UNIT: Final = re.compile(r"\d+\s*([a-zµ]+)")
_UNITS: Final = frozenset({"ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"})
_UNIT_PREFIXES: Final = ("nano", "micro", "milli", "sec", "min", "hour", "day", "week")


def _uuid(version: str) -> Callable[[str], object]:
    variant = "[89ab]" if version in ("4", "5") else "[0-9a-f]"
    pattern = rf"[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{version}[0-9a-f]{{3}}-?{variant}[0-9a-f]{{3}}-?[0-9a-f]{{12}}"
    return re.compile(pattern, re.IGNORECASE).fullmatch


def _is_time(text: str) -> bool:
    try:
        return "T" in text.upper() and datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _is_bytes(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


def _is_duration(text: str) -> bool:
    """Accept Go's notation, and any text with a number and a unit, such as ``3 days``."""
    try:
        duration.parse(text)
    except duration.DurationError:
        units = _NUMBER_AND_UNIT.findall(text.lower())
        return any(unit in _UNITS or unit.startswith(_UNIT_PREFIXES) for unit in units)
    return True


# Formats that the validator of fast.py does not know, or checks otherwise.
CHECKS: Final[dict[str, Callable[[str], object]]] = {
    "date-time": _is_time,
    "hostname": re.compile(rf"{_HOST_LABEL}|({_HOST_LABEL}\.)+[a-zA-Z]{{2,63}}").fullmatch,
    "uuid": _uuid("[0-9a-f]"),
    "uuid3": _uuid("3"),
    "uuid4": _uuid("4"),
    "uuid5": _uuid("5"),
    "byte": _is_bytes,
    "cidr": _is_network,
    "mac": _MAC.fullmatch,
    "duration": _is_duration,
    "hexcolor": re.compile("#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})").fullmatch,
}
# Formats that it checks alike.
SHARED: Final = frozenset({"date", "email", "ipv4", "ipv6", "uri"})
NAMES: Final = SHARED | set(CHECKS) | {"int32", "int64", "float", "double"}
