"""
Kubernetes quantities, exactly: "500m", "1.5Gi", "2e3", and the integers of the engine.

A quantity is a whole number of nano-units and a format (decimal, binary, exponent); finer fractions are rounded up,
away from zero, as Kubernetes does. The engine counts *amounts* instead: plain integers in the unit of the resource
(milli for cpu, whole units for all else), with one special value, ``UNLIMITED``. No floats are used.

Kubernetes: apimachinery resource.Quantity. Kueue: pkg/resources/amount.go
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache, total_ordering
from typing import Final, Literal, TypeAlias

# The JSON types of a quantity.
QuantityValue: TypeAlias = str | int | float
Format: TypeAlias = Literal["DecimalSI", "BinarySI", "DecimalExponent"]

# The largest amount. As a quota it means no limit.
UNLIMITED: Final = 2**63 - 1
LOWEST: Final = -(2**63)

NANO: Final = 10**9
MICRO: Final = 10**6
# No real resource has a larger exponent, and larger integers would only cost memory.
MAX_EXPONENT: Final = 400

_PATTERN = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?(?:([eE])([+-]?\d+)|([a-zA-Z]*))", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = {0: "", **{exponent: suffix for suffix, exponent in _BINARY.items()}}


class QuantityError(ValueError):
    """The text is not a quantity."""


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """An exact amount. Quantities are equal when their values are equal, in whatever format."""

    nanos: int
    format: Format = "DecimalSI"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nanos == other.nanos

    def __lt__(self, other: Quantity) -> bool:
        return self.nanos < other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __add__(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos + other.nanos, self._format_with(other))

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos - other.nanos, self._format_with(other))

    def __neg__(self) -> Quantity:
        return Quantity(-self.nanos, self.format)

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __str__(self) -> str:
        """Return the canonical form: the largest suffix that leaves a whole number."""
        if self.format == "BinarySI" and abs(self.nanos) >= 1024 * NANO and self.nanos % NANO == 0:
            return _binary_text(self.nanos // NANO)
        return _decimal_text(self.nanos, exponent_form=self.format == "DecimalExponent")

    def _format_with(self, other: Quantity) -> Format:
        """Return the format of a sum. Zero takes the format of the other quantity."""
        return self.format if self.nanos else other.format


def parse(value: QuantityValue) -> Quantity:
    """Parse a JSON value, or raise ``QuantityError``."""
    if isinstance(value, str):
        return _parse(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise QuantityError(f"{value!r} is not a quantity: a number or a text such as 500m, 1.5Gi or 2e3 is wanted")
    return _parse(repr(value))


@lru_cache(maxsize=65536)
def _parse(text: str) -> Quantity:
    match = _PATTERN.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        raise QuantityError(f"{text!r} is not a quantity: a number or a text such as 500m, 1.5Gi or 2e3 is wanted")
    sign, whole, fraction, exponent_mark, exponent_text, suffix = match.groups(default="")
    if len(whole) + len(fraction) > MAX_EXPONENT or len(exponent_text) > 9:
        raise QuantityError(f"{text[:20]!r}… is not a quantity: it has too many digits")
    form: Format = "DecimalExponent" if exponent_mark else "BinarySI" if suffix in _BINARY else "DecimalSI"
    if form == "DecimalSI" and suffix not in _DECIMAL:
        raise QuantityError(f"{text!r} is not a quantity: there is no suffix {suffix!r}")
    exponent = int(exponent_text) if exponent_mark else _DECIMAL.get(suffix, 0)
    if exponent > MAX_EXPONENT:
        raise QuantityError(f"{text!r} is not a quantity: the exponent is too large")
    magnitude = int(whole + fraction or "0") << _BINARY.get(suffix, 0)
    nanos = _scale_up(magnitude, exponent - len(fraction) + 9)
    if form == "BinarySI":
        nanos = min(nanos, UNLIMITED * NANO)
        if 0 < nanos < NANO:
            form = "DecimalSI"
    return Quantity(-nanos if sign == "-" else nanos, form)


def _scale_up(magnitude: int, exponent: int) -> int:
    """Return magnitude × 10^exponent, rounded up to a whole number."""
    power: int = 10 ** min(abs(exponent), 2 * MAX_EXPONENT)
    return magnitude * power if exponent >= 0 else -(-magnitude // power)


def _decimal_text(nanos: int, *, exponent_form: bool) -> str:
    if nanos == 0:
        return "0"
    exponent = -9
    while nanos % 1000 == 0 and (exponent_form or exponent < 18):
        nanos //= 1000
        exponent += 3
    if exponent_form:
        return f"{nanos}e{exponent}" if exponent else str(nanos)
    return f"{nanos}{_DECIMAL_SUFFIX[exponent]}"


def _binary_text(units: int) -> str:
    exponent = 0
    while units % 1024 == 0 and exponent < 60:
        units //= 1024
        exponent += 10
    return f"{units}{_BINARY_SUFFIX[exponent]}"


@lru_cache(maxsize=65536, typed=True)
def amount(resource: str, value: QuantityValue) -> int:
    """Return the engine's integer: milli-cpu or whole units, rounded up (away from zero), kept within 64 bits."""
    return max(LOWEST, min(UNLIMITED, _units(resource, parse(value))))


@lru_cache(maxsize=65536, typed=True)
def quota_amount(resource: str, value: QuantityValue) -> int:
    """Return the amount of a quota. A value beyond 64 bits means no limit."""
    units = _units(resource, parse(value))
    return units if LOWEST <= units < UNLIMITED else UNLIMITED


def exact_amount(resource: str, quantity: Quantity) -> int:
    """Return the amount of a computed quantity."""
    return max(LOWEST, min(UNLIMITED, _units(resource, quantity)))


def _units(resource: str, quantity: Quantity) -> int:
    unit = MICRO if resource == "cpu" else NANO
    return -(-quantity.nanos // unit) if quantity.nanos > 0 else quantity.nanos // unit


def add(a: int, b: int) -> int:
    """Add two amounts. Unlimited plus anything is unlimited."""
    if a == UNLIMITED or b == UNLIMITED:
        return UNLIMITED
    return max(LOWEST, min(UNLIMITED, a + b))


def subtract(a: int, b: int) -> int:
    """Subtract two amounts. Unlimited minus a finite amount is unlimited, minus unlimited is 0."""
    if a == UNLIMITED:
        return 0 if b == UNLIMITED else UNLIMITED
    if b == UNLIMITED:
        return LOWEST
    return max(LOWEST, min(UNLIMITED, a - b))


def multiply(a: int, count: int) -> int:
    """Multiply an amount by ``count``, kept within 64 bits."""
    return max(LOWEST, min(UNLIMITED, a * count))


def is_byte_like(resource: str) -> bool:
    return resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")


def render(resource: str, value: int) -> str:
    """Render the amount: cpu in milli or cores, bytes with binary suffixes, all else decimal."""
    if value == UNLIMITED:
        return "<unlimited>"
    if resource == "cpu":
        return str(Quantity(value * MICRO))
    return str(Quantity(value * NANO, "BinarySI" if is_byte_like(resource) else "DecimalSI"))
