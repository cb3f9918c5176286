"""
A quick yes for lists and CEL rules: list items differ where they must, and every simple rule holds.

A JSON Schema cannot express these, so fast.py cannot check them. A schema is compiled once to functions of the new and
the old value, for the places that have something to check. Only a yes counts: after a no, checks.py and cel.py walk the
object and find the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final, TypeAlias

from kyu.api.meta import Json
from kyu.server.schema import cel
from kyu.server.schema.cel_quick import UNSURE, Program, compile_rule, is_certainly_true
from kyu.server.schema.checks import items_by_key, key_of
from kyu.server.schema.node import Schema

# (value, old value or None) -> passes. May raise one of UNSURE.
Test: TypeAlias = Callable[[Any, Any], bool]

# Rules see only a part of the metadata.
METADATA: Final = "metadata"


def certainly_passes(schema: Schema, obj: Json, old: Json | None) -> bool:
    """Return whether the changed lists and rules of an object certainly pass."""
    test = schema.cached(_root)
    try:
        return test is None or test(obj, old)
    except UNSURE:
        # A value does not have the type of its place.
        return False


def sees_metadata(schema: Schema) -> bool:
    """Return whether a rule on the whole object reads its metadata."""
    return any(METADATA in raw.get("rule", "") for raw in schema.rules)


def _root(schema: Schema) -> Test | None:
    fields = {name: test for name, child in schema.properties.items() if name != METADATA and (test := _test(child))}
    if sees_metadata(schema) or schema.additional is not None:
        return _never
    return _all(_rules(schema), _struct(fields) if fields else None)


def _test(schema: Schema) -> Test | None:
    """Return the check of a value, None if there is nothing to check."""
    if not (schema.has_rules or schema.has_list_rules):
        return None
    fields = {name: test for name, child in schema.properties.items() if (test := _test(child))}
    below = [
        _struct(fields) if fields else None,
        _map(schema) if schema.additional is not None else None,
        _distinct(schema) if schema.is_shared_list else None,
        _items(schema, schema.items) if schema.items is not None else None,
    ]
    return _all(_rules(schema), *below)


def _all(*tests: Test | None) -> Test | None:
    found = [test for test in tests if test is not None]
    return reduce(_both, found) if found else None


def _both(first: Test, second: Test) -> Test:
    return lambda value, old: first(value, old) and second(value, old)


def _never(value: Any, old: Any) -> bool:
    return False


def _rules(schema: Schema) -> Test | None:
    if not schema.rules or not cel.IS_AVAILABLE:
        return None
    rules = cel.rules_of(schema)
    if any(rule.quick is None for rule in rules):
        return _never
    present = _conjunction([rule for rule in rules if not rule.needs_old])
    changes = [(rule, _names(rule)) for rule in rules if rule.needs_old]
    all_changes = _conjunction([rule for rule, _ in changes])

    def passes(value: Any, old: Any) -> bool:
        if present(value, old) is not True:
            return False
        if old is None or is_certainly_true(all_changes, value, old):
            return True
        return not any(_have_changed(names, value, old) and cel.due((rule,), value, old) for rule, names in changes)

    return passes


def _conjunction(rules: list[cel.CelRule]) -> Program:
    """Combine rules into one."""
    return compile_rule(" && ".join(["true", *(f"({rule.source})" for rule in rules)])) or _never


def _names(rule: cel.CelRule) -> tuple[str, ...] | None:
    """Return the fields that a transition rule reads; None if it reads everything."""
    return None if () in rule.reads else tuple({path[0]: None for path in rule.reads})


def _have_changed(names: tuple[str, ...] | None, value: Any, old: Any) -> bool:
    return names is None or any(value.get(name) is not old.get(name) for name in names)


def _struct(fields: Mapping[str, Test]) -> Test:
    """Check the fields that are present: most objects have few of many fields."""
    names = fields.keys()

    def passes(value: Any, old: Any) -> bool:
        for name in names & value.keys():
            item = value[name]
            before = None if old is None else old.get(name)
            if item is not before and item is not None and not fields[name](item, before):
                return False
        return True

    return passes


def _map(schema: Schema) -> Test | None:
    inner = _test(schema.additional) if schema.additional is not None else None
    if inner is None:
        return None
    return lambda value, old: all(
        inner(item, None if old is None else old.get(name))
        for name, item in value.items()
        if item is not None and name not in schema.properties
    )


def _distinct(schema: Schema) -> Test:
    """Check that items differ. Python takes more values for equal than JSON, such as 1 and 1.0."""
    if schema.list_type == "set":
        return lambda value, old: len(set(value)) == len(value)
    names = schema.list_map_keys
    if len(names) == 1:
        name = names[0]
        return lambda value, old: len(value) < 2 or len({item.get(name) for item in value}) == len(value)
    return lambda value, old: len({tuple([item.get(name) for name in names]) for item in value}) == len(value)


def _items(schema: Schema, items: Schema) -> Test | None:
    inner = _test(items)
    if inner is None:
        return None
    if not _compares(items):
        return _each(inner)

    def passes(value: Any, old: Any) -> bool:
        known = items_by_key(schema, old)
        for item in value:
            if item is not None and not inner(item, known.get(key_of(schema, item)) if known else None):
                return False
        return True

    return passes


def _each(test: Test) -> Test:
    def passes(value: Any, old: Any) -> bool:
        for item in value:  # noqa: SIM110 - a generator costs as much again
            if item is not None and not test(item, None):
                return False
        return True

    return passes


def _compares(schema: Schema) -> bool:
    """Return whether a rule at or below a node reads the old value."""
    own = schema.has_rules and cel.IS_AVAILABLE and any(rule.needs_old for rule in cel.rules_of(schema))
    return own or any(_compares(child) for child in schema.children)
