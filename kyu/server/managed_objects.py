"""
Objects seen as sets of fields: how an applied configuration is merged, and what a write changed.

All functions return new containers along the changed paths and share the rest with their arguments.

Called by: managed.py. Calls: managed_fields.py for the sets. Kubernetes: structured-merge-diff/typed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kyu.server import managed_sets as sets
from kyu.server.managed_fields import ANY, CONTAINERS, all_below, by_element, child_schema, element_of
from kyu.server.managed_sets import SELF, FieldSet
from kyu.server.schema_node import MISSING, Schema


def is_whole(schema: Schema, value: Any) -> bool:
    """Whether such a value has one owner: a scalar, or atomic."""
    if isinstance(value, dict):
        return schema.is_atomic_map
    return not (isinstance(value, list) and schema.is_shared_list)


def merge(schema: Schema, live: Any, config: Any) -> Any:
    """The live value with the configuration laid over it. Nothing is removed: null leaves a shared value alone."""
    if not live or is_whole(schema, live):
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
    """Items that only one side has keep the order of that side; for those that both have, the applied order counts.

    The stored list is walked. An item that is not applied stays where it is. One that is applied is a mark if it is the
    next that both have: all that is applied up to it goes there. If it is not, it comes later, in its applied place.
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
    """Take away what the applier set the last time and nobody owns now; what becomes empty by it becomes null.

    A field of a struct counts as owned if anything below it is: a struct goes when its last owner has let go of it.
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
    if not isinstance(value, list) or is_whole(schema, value):
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
    """What a write did: paths that are new or have another value, and paths that are gone."""

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
    """Note the differences between two structs or maps."""
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
    # A field that is null on one side is there, and empty: only what is in it comes or goes.
    if old is None and new and not is_whole(schema, new):
        old = type(new)()
    elif new is None and old and not is_whole(schema, old):
        new = type(old)()
    if isinstance(old, dict) and isinstance(new, dict) and not schema.is_atomic_map:
        compare_fields(schema, old, new, path, changes)
    elif isinstance(old, list) and isinstance(new, list) and not is_whole(schema, new):
        _compare_items(schema, old, new, path, changes)
    else:
        sets.insert(changes.touched, path, all_below(schema, new))
        if isinstance(old, CONTAINERS) and not is_whole(schema, old):
            # Another sort of value: nobody owns any longer what was below it.
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
            # It stood there several times, and has had no fields.
            sets.insert(changes.touched, (*path, element))
        else:
            _compare(items, was, item, (*path, element), changes)
    for element, item in before.items():
        if element not in after:
            sets.insert(changes.removed, (*path, element), all_below(items, item))
