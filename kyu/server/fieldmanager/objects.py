"""
Objects as sets of fields: merge an applied configuration, compare two objects.

All functions return new containers along the changed paths and share the rest with their arguments.

Kubernetes: structured-merge-diff/typed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kyu.server.fieldmanager import sets
from kyu.server.fieldmanager.fields import ANY, CONTAINERS, all_below, by_element, child_schema, element_of
from kyu.server.fieldmanager.sets import SELF, FieldSet
from kyu.server.schema.node import MISSING, Schema


def is_atomic(schema: Schema, value: Any) -> bool:
    """Return whether the value has a single owner: a scalar, or an atomic list or map."""
    if isinstance(value, dict):
        return schema.is_atomic_map
    return not (isinstance(value, list) and schema.is_shared_list)


def merge(schema: Schema, live: Any, config: Any) -> Any:
    """Merge a configuration into the live value. Nothing is removed: null keeps a shared value."""
    if not live or is_atomic(schema, live):
        return config
    if config is None:
        return live
    if isinstance(live, dict) and isinstance(config, dict):
        result = dict(live)
        for name, item in config.items():
            if item is None or isinstance(item, CONTAINERS):
                item = merge(child_schema(schema, name), live.get(name), item)
            result[name] = item
        return result
    if isinstance(live, list) and isinstance(config, list):
        return _merge_lists(schema, live, config)
    return config


def _merge_lists(schema: Schema, live: list[Any], config: list[Any]) -> list[Any]:
    items = schema.items or ANY
    live_by_element = {element_of(schema, item): item for item in live}
    config_by_element = {element_of(schema, item): item for item in config}
    return [
        merge(items, live_by_element.get(element), config_by_element[element])
        if element in config_by_element
        else live_by_element[element]
        for element in merged_order(list(live_by_element), list(config_by_element))
    ]


def merged_order(live: Sequence[str], applied: Sequence[str]) -> list[str]:
    """Merge the order of two lists: for items that both have, the applied order counts.

    The live list is walked. An item that is not applied stays where it is. If an item is the next that both lists have,
    all applied items up to it go there. Otherwise it comes later, in its applied place.
    """
    stored, wanted = set(live), set(applied)
    shared = [element for element in applied if element in stored]
    waiting = list(applied)
    result: list[str] = []
    for element in live:
        if element not in wanted:
            result.append(element)
        elif element == shared[0]:
            end = waiting.index(element) + 1
            result += waiting[:end]
            del waiting[:end], shared[0]
    return result + waiting


def remove(schema: Schema, value: Any, last: FieldSet, owners: Sequence[FieldSet]) -> Any:
    """Remove the fields of the last apply that have no owner now. An emptied list or map becomes null.

    A struct is owned as long as a field below it is owned.
    """
    if isinstance(value, dict) and not schema.is_atomic_map:
        result = dict(value)
        for element, before in last.items():
            name = element[2:]
            if element == SELF or name not in value:
                continue
            declared = name in schema.properties
            nodes = [owner[element] for owner in owners if element in owner]
            if _holds(before, declared) and not any(_holds(node, declared) for node in nodes):
                del result[name]
            elif before:
                result[name] = remove(child_schema(schema, name), value[name], before, nodes)
        return result or None
    if not isinstance(value, list) or is_atomic(schema, value):
        return value
    return _remove_items(schema, value, last, owners)


def _holds(node: FieldSet, declared: bool) -> bool:
    return declared or sets.is_member(node)


def _remove_items(schema: Schema, value: list[Any], last: FieldSet, owners: Sequence[FieldSet]) -> list[Any] | None:
    kept = []
    for item in value:
        element = element_of(schema, item)
        before = last.get(element)
        if before is not None:
            nodes = [owner[element] for owner in owners if element in owner]
            if sets.is_member(before) and not any(map(sets.is_member, nodes)):
                continue
            if before:
                item = remove(schema.items or ANY, item, before, nodes)
        kept.append(item)
    return kept or None


class Changes:
    """The paths that a write added or changed, and those that it removed."""

    __slots__ = ("removed", "touched")

    def __init__(self) -> None:
        self.touched: FieldSet = {}
        self.removed: FieldSet = {}

    def __bool__(self) -> bool:
        return bool(self.touched or self.removed)


def compare_fields(
    schema: Schema, old: dict[str, Any], new: dict[str, Any], path: tuple[str, ...], changes: Changes,
    ignored: Iterable[str] = (),
) -> None:  # fmt: skip
    """Add the differences between two structs or maps to ``changes``."""
    for name, item in new.items():
        if name in ignored:
            continue
        before = old.get(name, MISSING)
        if before is item or before == item:
            continue
        here = (*path, f"f:{name}")
        if before is MISSING:
            sets.insert(changes.touched, here, all_below(child_schema(schema, name), item))
        else:
            _compare(child_schema(schema, name), before, item, here, changes)
    for name, item in old.items():
        if name not in new and name not in ignored:
            here = (*path, f"f:{name}")
            sets.insert(changes.removed, here, all_below(child_schema(schema, name), item))


def _compare(schema: Schema, old: Any, new: Any, path: tuple[str, ...], changes: Changes) -> None:
    # A null list or map is an empty one.
    if old is None and new and not is_atomic(schema, new):
        old = type(new)()
    elif new is None and old and not is_atomic(schema, old):
        new = type(old)()
    if isinstance(old, dict) and isinstance(new, dict) and not schema.is_atomic_map:
        compare_fields(schema, old, new, path, changes)
    elif isinstance(old, list) and isinstance(new, list) and not is_atomic(schema, new):
        _compare_items(schema, old, new, path, changes)
    else:
        sets.insert(changes.touched, path, all_below(schema, new))
        if isinstance(old, CONTAINERS) and not is_atomic(schema, old):
            # The fields below the old value have no owner any longer.
            sets.insert(changes.removed, path, all_below(schema, old))


def _compare_items(schema: Schema, old: list[Any], new: list[Any], path: tuple[str, ...], changes: Changes) -> None:
    items = schema.items or ANY
    before, after = by_element(schema, old), by_element(schema, new)
    for element, item in after.items():
        was = before.get(element, MISSING)
        if was is MISSING:
            sets.insert(changes.touched, (*path, element), all_below(items, item))
        elif was == item:
            continue
        elif isinstance(was, list):
            # The element had several items before, which have no fields.
            sets.insert(changes.touched, (*path, element))
        else:
            _compare(items, was, item, (*path, element), changes)
    for element, item in before.items():
        if element not in after:
            sets.insert(changes.removed, (*path, element), all_below(items, item))
