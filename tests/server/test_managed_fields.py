"""Cached sets of fields: they equal those of a plain walk, and are never changed."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kyu.server.fieldmanager import sets
from kyu.server.fieldmanager.fields import KEPT_NAMES, all_below, applied_set
from kyu.server.schema.node import Schema

TEXT = {"type": "string"}
TEXTS = {"type": "object", "additionalProperties": TEXT}
POINT = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}}
SCHEMA = Schema({
    "type": "object",
    "properties": {
        "name": TEXT,
        "size": {"x-kubernetes-int-or-string": True},
        "labels": TEXTS,
        "point": POINT,
        "fixed": {**POINT, "x-kubernetes-map-type": "atomic"},
        "words": {"type": "array", "items": TEXT},
        "tags": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": TEXT, "labels": TEXTS, "point": POINT}},
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
})  # fmt: skip

words = st.sampled_from(["a", "b", "c"])
texts = st.dictionaries(words, words, max_size=3)
points = st.fixed_dictionaries({}, optional={"x": st.integers(), "y": st.integers()})
parts = st.fixed_dictionaries({"name": words}, optional={"labels": texts, "point": points})
free = st.recursive(st.integers() | words, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner))
values = st.fixed_dictionaries(
    {},
    optional={
        "name": words,
        "size": st.integers() | words,
        "labels": texts,
        "point": points,
        "fixed": points,
        "words": st.lists(words, max_size=2),
        "tags": st.lists(words, max_size=2, unique=True),
        "parts": st.lists(parts, max_size=3, unique_by=lambda part: part["name"]),
        "free": st.dictionaries(words, free, max_size=2),
    },
)


def paths(value: Any, place: str = "", path: str = "") -> set[str]:
    """Return every path of a value by the schema above."""
    below: dict[str, tuple[Any, str]] = {}
    if isinstance(value, dict) and place != "fixed":
        inside = "free" if place.startswith("free") else ""
        below = {f".{name}": (item, inside or name) for name, item in value.items()}
    elif isinstance(value, list) and place == "tags":
        below = {f'[="{item}"]': (item, "") for item in value}
    elif isinstance(value, list) and place == "parts":
        below = {f'[name="{item["name"]}"]': (item, "part") for item in value}
    found = {path} if path else set()
    for name, (item, inside) in below.items():
        found |= paths(item, inside, path + name)
    return found


@settings(max_examples=200, deadline=None)
@given(values)
def test_all_that_is_below_a_value_is_in_its_set(value: dict[str, Any]) -> None:
    node = all_below(SCHEMA, value)
    assert set(sets.paths(node)) == paths(value)
    assert sets.is_member(node)


@settings(max_examples=200, deadline=None)
@given(values, values)
def test_set_operations_do_not_change_shared_sets(value: dict[str, Any], other: dict[str, Any]) -> None:
    before = list(sets.paths(applied_set(SCHEMA, value)))
    root = applied_set(SCHEMA, other)
    sets.union(root, applied_set(SCHEMA, value))
    sets.difference(root, applied_set(SCHEMA, value))
    sets.insert({}, ("f:spec",), all_below(SCHEMA, value))
    assert list(sets.paths(applied_set(SCHEMA, value))) == before


def test_an_applied_set_has_leaves_items_empty_maps_and_keys() -> None:
    value = {"point": {"x": 1}, "labels": {"a": "b"}, "free": {}, "tags": [], "parts": [{"name": "a", "point": {}}]}
    found = list(sets.paths(applied_set(SCHEMA, value)))
    assert found == [
        ".free",
        ".labels.a",
        '.parts[name="a"]',
        '.parts[name="a"].name',
        '.parts[name="a"].point',
        ".point.x",
    ]


def test_a_place_remembers_a_bounded_number_of_names() -> None:
    schema = Schema(TEXTS)
    for number in range(3 * KEPT_NAMES):
        assert list(sets.paths(applied_set(schema, {f"n{number}": "x"}))) == [f".n{number}"]
    assert len(schema.named) <= KEPT_NAMES
