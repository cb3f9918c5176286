"""Copying and comparing JSON values."""

from __future__ import annotations

from typing import Any

from kyu.api.meta import Json


def clone(value: Any) -> Any:
    """Return a deep copy of JSON, several times faster than ``copy.deepcopy``."""
    if isinstance(value, dict):
        return {key: clone(item) if isinstance(item, dict | list) else item for key, item in value.items()}
    if isinstance(value, list):
        return [clone(item) if isinstance(item, dict | list) else item for item in value]
    return value


def carry_over(name: str, source: Json, target: Json) -> None:
    """Let a field of the target be as it is in the source, also if it is not there."""
    if name in source:
        target[name] = source[name]
    else:
        target.pop(name, None)


def same(left: Any, right: Any) -> bool:
    """Equality of JSON, where true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)
