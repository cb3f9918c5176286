"""Values as Go prints them, in the messages that Kubernetes makes of them."""

from __future__ import annotations

from typing import Any


def shown(value: Any) -> str:
    """``map[a:1 b:[x y]]``."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{shown(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(shown, value))}]"
    if value is None:
        return "<nil>"
    return str(value).lower() if isinstance(value, bool) else str(value)


def type_of(value: Any) -> str:
    """Return the name of the type that a JSON value has in Go."""
    names = {str: "string", bool: "bool", int: "int64", float: "float64", list: "[]interface {}"}
    return names.get(type(value), "map[string]interface {}" if isinstance(value, dict) else "<nil>")


def json_name(value: Any) -> str:
    """Return the kind of JSON that a value is."""
    if value is None:
        return "null"
    return {list: "array", str: "string", bool: "bool", int: "number", float: "number"}.get(type(value), "object")
