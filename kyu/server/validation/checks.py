"""
Checks that fields of many kinds share: names, enumerated values, counts, ports, IP addresses.

Each check yields the errors of one value in the words of Kubernetes. An absent value has none.

Kubernetes: apimachinery/pkg/api/validation, apimachinery/pkg/util/validation
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json

AT_LEAST_ZERO: Final = "must be greater than or equal to 0"
IMMUTABLE: Final = "field is immutable"
IP_ADDRESS: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
PORT_RANGE: Final = "must be between 1 and 65535, inclusive"


def objections(path: str, text: str, rule: Callable[[str], Iterable[str]]) -> Iterator[FieldError]:
    """Yield the objections of a rule of ``kyu.api.names``."""
    for objection in rule(text):
        yield fields.invalid(path, text, objection)


def one_of(path: str, value: Any, supported: Iterable[str]) -> Iterator[FieldError]:
    if value is not None and value not in supported:
        yield fields.not_supported(path, value, supported)


def at_least_zero(path: str, obj: Mapping[str, Any], *names: str) -> Iterator[FieldError]:
    for name in names:
        if (obj.get(name) or 0) < 0:
            yield fields.invalid(f"{path}{name}", obj[name], AT_LEAST_ZERO)


def port_number(path: str, number: int) -> Iterator[FieldError]:
    if not 0 < number < 65536:
        yield fields.invalid(path, number, PORT_RANGE)


def ip_address(path: str, text: str) -> Iterator[FieldError]:
    if not is_ip_address(text):
        yield fields.invalid(path, text, IP_ADDRESS)


def is_ip_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def immutable(path: str, new: Json, old: Json, *names: str) -> Iterator[FieldError]:
    for name in names:
        if new.get(name) != old.get(name):
            yield fields.invalid(f"{path}{name}", new.get(name), IMMUTABLE)
