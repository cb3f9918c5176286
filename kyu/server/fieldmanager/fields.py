"""
The fields of a value as a set: the fields of an applied configuration, and all fields below a value.

The schema decides which fields have an owner. A scalar, an *atomic* list and an *atomic* map are one field. A list of
type map or set has an owner for each item, and any other map for each field. Values without a schema are treated alike,
with atomic lists.

The names of a map mostly determine its set. Such a set is built once for each choice of names, and shared: sets are
never changed.

Kubernetes: structured-merge-diff/typed.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kyu.server.fieldmanager import sets
from kyu.server.fieldmanager.sets import LEAF, SELF, FieldSet
from kyu.server.schema.node import MISSING, Schema

ANY: Final = Schema({"x-kubernetes-preserve-unknown-fields": True})
CONTAINERS: Final = (dict, list)
SCALARS: Final = frozenset({"string", "integer", "number", "boolean"})
# Sets that one place of a schema keeps. Maps, unlike structs, have other names each time.
KEPT_NAMES: Final = 64
# Item elements that one list of a schema keeps.
KEPT_ELEMENTS: Final = 4096


class ShapeError(Exception):
    """A value that the schema cannot hold. The message is for the user."""


class NestedField(NamedTuple):
    """A field whose set depends on its value."""

    name: str
    element: str
    schema: Schema
    is_declared: bool


class NamedFields(NamedTuple):
    """The set of fields of a map with certain names, as if all of them were leaves.

    If ``deep`` is not empty, the fields below these have to be added.
    """

    inner: FieldSet
    # The same set with the map itself.
    whole: FieldSet
    deep: tuple[NestedField, ...]


def child_schema(schema: Schema, name: str) -> Schema:
    return schema.properties.get(name) or schema.additional or ANY


def element_of(schema: Schema, item: Any) -> str:
    """Return the element of an item of a shared list. Absent keys have their defaults."""
    key = schema.single_key
    if key and type(item) is dict and type(text := item.get(key)) is str:
        # Most items have one key, which is a string, and many have the same.
        known: dict[str, str] = schema.elements
        found = known.get(text)
        return _remember_element(known, key, text) if found is None else found
    if schema.list_type == "set":
        return sets.value_element(item) if not isinstance(item, CONTAINERS) else f"v:{sets.encoded(item)}"
    return _element_by_keys(schema, item)


def _remember_element(known: dict[str, str], key: str, text: str) -> str:
    if len(known) >= KEPT_ELEMENTS:
        known.clear()
    known[text] = sets.keys_element((key,), (text,))
    return known[text]


def _element_by_keys(schema: Schema, item: Any) -> str:
    if not isinstance(item, dict):
        kind = "a null element" if item is None else "non-map elements"
        raise ShapeError(f"associative list with keys may not have {kind}")
    keys = [(name, item[name] if name in item else _default_key(schema, name)) for name in schema.sorted_keys]
    try:
        if given := [(name, value) for name, value in keys if value is not MISSING]:
            return sets.keys_element(*zip(*given, strict=True))
    except TypeError:
        raise ShapeError(f"the keys of a list item must be scalars: {item!r}") from None
    listed = " ".join(f'"{name}"' for name in schema.list_map_keys)
    message = f"associative list with keys has an element that omits all key fields [{listed}]"
    raise ShapeError(f"{message} (and doesn't have default values for any key fields)")


def _default_key(schema: Schema, name: str) -> Any:
    field = schema.items.properties.get(name) if schema.items is not None else None
    return MISSING if field is None else field.default


def applied_set(schema: Schema, value: dict[str, Any]) -> FieldSet:
    """Return the fields that a configuration sets: leaves, list items, empty maps and keys of maps."""
    named: NamedFields = schema.named.get(tuple(value)) or _remember_names(schema, value)
    return _applied(named, value, named.inner) if named.deep else named.inner


def _applied_whole(schema: Schema, value: Any) -> FieldSet:
    """Return the fields of a value with the value itself."""
    if not isinstance(value, dict) or schema.is_atomic_map:
        return LEAF
    named: NamedFields = schema.named.get(tuple(value)) or _remember_names(schema, value)
    whole = _applied(named, value, named.whole) if named.deep else named.whole
    return whole if len(whole) > 1 else LEAF


def _applied(named: NamedFields, value: dict[str, Any], leaves: FieldSet) -> FieldSet:
    """Replace the leaves that have fields below them."""
    result = dict(leaves)
    for name, element, child, is_declared in named.deep:
        item = value[name]
        if isinstance(item, dict):
            if not item or child.is_atomic_map:
                continue
            node = applied_set(child, item) if is_declared else _applied_whole(child, item)
        elif isinstance(item, list) and child.is_shared_list:
            node = _applied_items(child, item)
            if node and not is_declared:
                node[SELF] = LEAF
        else:
            continue
        if node or not is_declared:
            result[element] = node
        else:
            # An empty struct or list has no owner.
            del result[element]
    return result


def _applied_items(schema: Schema, value: list[Any]) -> FieldSet:
    items = schema.items or ANY
    result = {element_of(schema, item): _applied_whole(items, item) for item in value}
    if len(result) < len(value):
        raise ShapeError("duplicate items")
    return result


def all_below(schema: Schema, value: Any) -> FieldSet:
    """Return the node of a value that was added or removed, with every path below it."""
    if not value:
        return LEAF
    if isinstance(value, dict):
        if schema.is_atomic_map:
            return LEAF
        named: NamedFields = schema.named.get(tuple(value)) or _remember_names(schema, value)
        if not named.deep:
            return named.whole
        node = dict(named.whole)
        for name, element, child, _ in named.deep:
            node[element] = all_below(child, value[name])
        return node
    if not isinstance(value, list) or not schema.is_shared_list:
        return LEAF
    items, node = schema.items or ANY, FieldSet()
    for item in value:
        element = element_of(schema, item)
        # Items with equal keys are one value without fields.
        node[element] = LEAF if element in node else all_below(items, item)
    node[SELF] = LEAF
    return node


def by_element(schema: Schema, items: list[Any]) -> dict[str, Any]:
    """Return the items of a shared list by element. Items with equal keys become a list, which has no fields."""
    result: dict[str, Any] = {}
    for item in items:
        element = element_of(schema, item)
        result[element] = [result[element], item] if element in result else item
    return result


def _remember_names(schema: Schema, value: dict[str, Any]) -> NamedFields:
    if len(schema.named) >= KEPT_NAMES:
        schema.named.clear()
    names = tuple(value)
    named = schema.named[names] = _named_fields(schema, names)
    return named


def _named_fields(schema: Schema, names: tuple[str, ...]) -> NamedFields:
    inner = {f"f:{name}": LEAF for name in names}
    fields = ((name, child_schema(schema, name)) for name in names)
    deep = tuple(NestedField(n, f"f:{n}", child, n in schema.properties) for n, child in fields if not _is_leaf(child))
    return NamedFields(inner, {**inner, SELF: LEAF}, deep)


def _is_leaf(schema: Schema) -> bool:
    """Return whether every value of the schema has a single owner. Values of other types are never stored."""
    if schema.type == "object":
        return schema.is_atomic_map
    if schema.type == "array":
        return not schema.is_shared_list
    return schema.type in SCALARS or schema.is_int_or_string
