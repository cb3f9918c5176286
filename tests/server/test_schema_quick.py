"""The quick yes for lists and rules: where it says yes, the full check finds nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kyu.server.schema import cel, checks, quick
from kyu.server.schema.node import MISSING, Schema

pytestmark = pytest.mark.skipif(not cel.IS_AVAILABLE, reason="there is no CEL library for this platform")

ITEM = {
    "type": "object",
    "properties": {"key": {"type": "string"}, "count": {"type": "integer"}, "zone": {"type": "string"}},
    "x-kubernetes-validations": [{"rule": "!has(self.count) || self.count <= 2"}],
}
FROZEN = {**ITEM, "x-kubernetes-validations": [{"rule": "!has(oldSelf.count) || self.count == oldSelf.count"}]}


def listed(items: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {
        "type": "array", "items": items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)
    }  # fmt: skip


SCHEMA = Schema({
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "items": listed(ITEM, "key"),
                "frozen": listed(FROZEN, "key", "zone"),
                "names": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                "by": {"type": "object", "additionalProperties": ITEM},
            },
        },
    },
    "x-kubernetes-validations": [{"rule": "!has(oldSelf.spec.names) || has(self.spec.names)"}],
})  # fmt: skip

items = st.fixed_dictionaries(
    {}, optional={"key": st.sampled_from("ab"), "count": st.integers(1, 3), "zone": st.sampled_from("xy")}
)
specs = st.fixed_dictionaries(
    {},
    optional={
        "items": st.lists(items, max_size=3),
        "frozen": st.lists(items, max_size=3),
        "names": st.lists(st.sampled_from("pqr"), max_size=3) | st.none(),
        "by": st.dictionaries(st.sampled_from("ab"), items, max_size=2),
    },
)
objects = st.fixed_dictionaries({"spec": specs})


@given(objects, st.none() | objects)
def test_a_yes_is_confirmed_by_the_walk(new: dict[str, Any], old: dict[str, Any] | None) -> None:
    if not quick.certainly_passes(SCHEMA, new, old):
        return
    found: list[Any] = []
    before = MISSING if old is None else old
    checks.check_lists(SCHEMA, new, before, "", found)
    cel.check_rules(SCHEMA, new, before, "", found)
    assert not found


def test_simple_rules_that_hold_pass_quickly() -> None:
    spec = {
        "items": [{"key": "a", "count": 1}, {"key": "b"}],
        "frozen": [{"key": "a", "zone": "x", "count": 3}, {"key": "a", "zone": "y"}],
        "names": ["p", "q"],
        "by": {"a": {"count": 2}},
    }
    assert quick.certainly_passes(SCHEMA, {"spec": spec}, None)
    assert quick.certainly_passes(SCHEMA, {"spec": {**spec, "names": ["p"]}}, {"spec": spec})


@pytest.mark.parametrize(
    "spec",
    [
        {"items": [{"key": "a"}, {"key": "a"}]},
        {"items": [{"key": "a", "count": 3}]},
        {"frozen": [{"key": "a", "zone": "x"}, {"key": "a", "zone": "x"}]},
        {"names": ["p", "p"]},
        {"by": {"a": {"count": 3}}},
        {"items": ["no map"]},
        {"items": {"no": "list"}},
    ],
)
def test_rules_that_do_not_hold_are_left_to_the_full_check(spec: dict[str, Any]) -> None:
    assert not quick.certainly_passes(SCHEMA, {"spec": spec}, None)


def test_items_are_compared_with_those_of_the_same_key() -> None:
    old = {"spec": {"frozen": [{"key": "a", "zone": "x", "count": 1}, {"key": "b", "zone": "x", "count": 2}]}}
    swapped = {"spec": {"frozen": [{"key": "b", "zone": "x", "count": 2}, {"key": "a", "zone": "x", "count": 1}]}}
    changed = {"spec": {"frozen": [{"key": "a", "zone": "x", "count": 2}]}}
    assert quick.certainly_passes(SCHEMA, swapped, old)
    assert not quick.certainly_passes(SCHEMA, changed, old)


def test_rules_about_metadata_are_left_to_the_full_check() -> None:
    """Rules see only a part of the metadata."""
    schema = Schema({"type": "object", "x-kubernetes-validations": [{"rule": "has(self.metadata.labels)"}]})
    assert not quick.certainly_passes(schema, {"metadata": {"labels": {"a": "b"}}}, None)
