"""
The check of an applied configuration against its schema: declared fields, right types, no duplicate items.

An apply is rejected for these before the merge, whatever ``fieldValidation`` says, because an undeclared field cannot
be owned. The messages are those of Kubernetes.

Kubernetes: structured-merge-diff/typed/validate.go
"""

from __future__ import annotations

from typing import Any

from kyu.server.fieldmanager import sets
from kyu.server.fieldmanager.fields import ShapeError, element_of
from kyu.server.go_words import shown
from kyu.server.schema import fast
from kyu.server.schema.node import Schema

SCALARS: dict[str, tuple[tuple[type, ...], str]] = {
    "string": ((str,), "string"),
    "boolean": ((bool,), "boolean"),
    "integer": ((int, float), "numeric (int or float)"),
    "number": ((int, float), "numeric (int or float)"),
}


def problems(schema: Schema, value: dict[str, Any]) -> list[str]:
    """Return one line per fault: ``.spec.bogus: field not declared in schema``."""
    found: list[str] = []
    _check(schema, value, "", found)
    return found


def is_certainly_valid(schema: Schema, value: dict[str, Any]) -> bool:
    """Return whether the value is certainly valid, apart from duplicate items."""
    return fast.is_certain(schema, fast.fits, value)


def render(found: list[str]) -> str:
    lines = sorted(found)
    return lines[0] if len(lines) == 1 else "errors:\n" + "\n".join(f"  {line}" for line in lines)


def _check(schema: Schema, value: Any, path: str, found: list[str]) -> None:
    if value is None:
        return
    if (scalar := SCALARS.get(schema.type)) is not None:
        types, name = scalar
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            found.append(f"{path}: expected {name}, got {_got(name, value)}")
    elif isinstance(value, dict):
        _check_fields(schema, value, path, found)
    elif isinstance(value, list):
        _check_items(schema, value, path, found)
    elif schema.type in ("object", "array"):
        found.append(f"{path}: expected {'map' if schema.type == 'object' else 'list'}, got {_plain(value)}")


def _check_fields(schema: Schema, value: dict[str, Any], path: str, found: list[str]) -> None:
    if schema.type == "array":
        found.append(f"{path}: expected list, got {_plain(value)}")
        return
    # A struct is closed. A map, and a value without a schema, is open.
    is_closed = bool(schema.properties) and schema.additional is None and not schema.preserves_unknown
    unknown = next((name for name in value if is_closed and name not in schema.properties), None)
    if unknown is not None:
        # Kubernetes reports nothing else about such a struct.
        found.append(f"{path}.{unknown}: field not declared in schema")
        return
    for name, item in value.items():
        child = schema.child(name)
        if child is not None:
            _check(child, item, f"{path}.{name}", found)


def _check_items(schema: Schema, value: list[Any], path: str, found: list[str]) -> None:
    if schema.type == "object":
        found.append(f"{path}: expected map, got {_plain(value)}")
        return
    is_shared = schema.is_shared_list
    seen: set[str] = set()
    for index, item in enumerate(value):
        here = f"[{index}]"
        if item is None and schema.list_type == "set":
            text = "associative list without keys has an element that's an explicit null"
            found.append(f"{path}: element {index}: {text}")
            continue
        if is_shared:
            try:
                element = element_of(schema, item)
            except ShapeError as error:
                found.append(f"{path}: element {index}: {error}")
                continue
            here = sets.shown(element)
            if element in seen:
                found.append(f"{path}: duplicate entries for key {here}")
            seen.add(element)
        if schema.items is not None:
            _check(schema.items, item, path + here, found)


def _got(wanted: str, value: Any) -> str:
    """Return a value of a wrong type in the notation of Kubernetes."""
    if wanted == "string":
        return f"&value.valueUnstructured{{Value:{sets.encoded(value)}}}"
    if wanted == "boolean":
        return _plain(value)
    names = {str: "string", bool: "boolean", list: "list", dict: "map"}
    return names.get(type(value), "null")


def _plain(value: Any) -> str:
    return f"&{{{shown(value)}}}"
