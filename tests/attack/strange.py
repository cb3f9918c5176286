"""Places in the objects of a kind, read off its schema, and strange values for them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from kyu.server.schema.node import MISSING, Schema

DEEPEST = 9
# The chance to put a value at a place, instead of at one below it.
STOPS = 0.2
FieldPath: TypeAlias = tuple[str | int, ...]

NUMBERS: tuple[Any, ...] = (-1, 0, 1, 2**31 - 1, 2**31, 2**63 - 1, -(2**63), 2**63, 2**64, 1.5, 1e300, "1", None)
TEXTS: tuple[Any, ...] = (
    "", "a", "\0", "a\nb", "a" * 300, "A b", "../../x", "/" * 2000, "9" * 400, "-1s", "1h" * 500, "99999999999h", "1d",
    "0001-01-01T00:00:00+10:00", "9999-12-31T23:59:59.999999999-10:00", "2026-01-01T00:00:60Z", "1e99999", "-5", "9Ei",
    "1e-400", ".", "$(A)", "$(A", "%s%n{}", "é" * 200, "\u202e", "\U0001f600", "*/0 * * * *", "0 0 31 2 *", "(", "[a",
    "(a+)+$", "self.x", "a/b/c", "a" * 100_000, 5, None, [], {},
)  # fmt: skip
FLAGS: tuple[Any, ...] = (True, False, "true", 0, None)
LISTS: tuple[Any, ...] = ([], [None], [[]], [{}], ["a", "a"], ["\0"], [{"name": "c"}] * 3, ["a"] * 1_001, {}, "a", None)
MAPS: tuple[Any, ...] = (
    {}, {"": ""}, {"\0": "\0"}, {"a": None}, {"a": {"b": {"c": []}}}, {"a/b/c": "d"}, {"a": "9" * 400},
    {"a" * 400: "b"}, {"cpu": "-1", "memory": "1e999"}, [], "a", None,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """A field of a kind, and the values to put there."""

    path: FieldPath
    values: tuple[Any, ...]


def places(schema: Schema, path: FieldPath = (), above: tuple[str, ...] = ()) -> Iterator[Place]:
    """Yield every field at or below a schema; recursive schemas once."""
    if len(path) > DEEPEST or (schema.name and above.count(schema.name) > 0):
        return
    above = (*above, schema.name) if schema.name else above
    if path:
        yield Place(path, strange(schema))
    for name, child in schema.properties.items():
        if path or name not in ("apiVersion", "kind"):
            yield from places(child, (*path, name), above)
    if schema.items is not None:
        yield from places(schema.items, (*path, 0), above)
    if schema.additional is not None:
        yield from places(schema.additional, (*path, "k"), above)


def random_place(schema: Schema, chance: random.Random) -> Place:
    """Return a field at or below a schema, without a look at the others."""
    path: FieldPath = ()
    while True:
        below: list[tuple[str | int, Schema]] = list(schema.properties.items())
        if not path:
            below = [(name, child) for name, child in below if name not in ("apiVersion", "kind")]
        below += [(0, schema.items)] if schema.items is not None else []
        below += [("k", schema.additional)] if schema.additional is not None else []
        if not below or len(path) > DEEPEST or (path and chance.random() < STOPS):
            return Place(path, strange(schema))
        key, schema = chance.choice(below)
        path = (*path, key)


def strange(schema: Schema) -> tuple[Any, ...]:
    if schema.is_int_or_string:
        return (*NUMBERS, *TEXTS, "101%", "-1%")
    kinds: dict[str, tuple[Any, ...]] = {
        "integer": NUMBERS, "number": NUMBERS, "string": TEXTS, "boolean": FLAGS, "array": LISTS, "object": MAPS
    }  # fmt: skip
    return kinds.get(schema.type, (*NUMBERS, *TEXTS, *LISTS, *MAPS))


def put(obj: Any, path: FieldPath, value: Any, schema: Schema) -> Any:
    """Return a copy of an object with a value at a path; what is missing above it has its required fields."""
    if not path:
        return value
    key, rest = path[0], path[1:]
    child = schema.items if isinstance(key, int) else schema.child(key)
    assert child is not None
    if isinstance(key, int):
        items = list(obj) if isinstance(obj, list) else []
        inner = items[0] if items else least(child)
        return [put(inner, rest, value, child), *items[1:]]
    fields = dict(obj) if isinstance(obj, dict) else least(schema)
    inner = fields.get(key)
    if inner is None and rest:
        inner = least(child)
    return {**fields, key: put(inner, rest, value, child)}


def least(schema: Schema, depth: int = 0) -> Any:
    """Return the smallest value of a schema with its required fields."""
    if schema.default is not MISSING and schema.default is not None:
        return schema.default
    if schema.raw.get("enum"):
        return schema.raw["enum"][0]
    if schema.type == "object" or schema.properties:
        if depth > DEEPEST:
            return {}
        required = [name for name in schema.required if name in schema.properties]
        return {name: least(schema.properties[name], depth + 1) for name in required}
    if schema.type == "array":
        return []
    return {"integer": 1, "number": 1, "boolean": True}.get(schema.type, "1" if schema.is_int_or_string else "a")
