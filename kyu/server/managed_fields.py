"""
The fields of a value as a set: those that an applied configuration sets, and all that came or went with a value.

The schema decides how deep a field can be shared: a scalar, and a list or map that is *atomic*, is one field; a list
of type map or set is shared item by item; all other maps are shared field by field. So is what the schema does not
describe, with its lists atomic.

Of most maps the names alone tell the set. It is made once for each choice of names that a place of the schema has seen,
and shared: nobody changes a set.

Called by: managed.py, managed_objects.py, managed_shape.py. Kubernetes: structured-merge-diff/typed.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kyu.server import managed_sets as sets
from kyu.server.managed_sets import LEAF, SELF, FieldSet
from kyu.server.schema_node import MISSING, Schema

ANY: Final = Schema({"x-kubernetes-preserve-unknown-fields": True})
CONTAINERS: Final = (dict, list)
SCALARS: Final = frozenset({"string", "integer", "number", "boolean"})
# How many choices of names one place of a schema remembers. Maps have other names each time.
KEPT_NAMES: Final = 64
# How many names of items one list of a schema remembers.
KEPT_ELEMENTS: Final = 4096


class ShapeError(Exception):
    """A value that the schema cannot hold; the message is for the user."""


class Deep(NamedTuple):
    """A field whose value tells what is below it."""

    name: str
    element: str
    schema: Schema
    is_declared: bool


class Named(NamedTuple):
    """The set of fields of a map that has certain names, made as if none of them had anything below it.

    That is the whole set if ``deep`` is empty; else what is below the deep fields has to be added.
    """

    inner: FieldSet
    # The same with the map itself.
    whole: FieldSet
    deep: tuple[Deep, ...]


def child_schema(schema: Schema, name: str) -> Schema:
    return schema.properties.get(name) or schema.additional or ANY


def element_of(schema: Schema, item: Any) -> str:
    """Which item of a shared list this is; keys that it leaves out count with their defaults, if they have one."""
    key = schema.single_key
    if key and type(item) is dict and type(text := item.get(key)) is str:
        # Most items are named by a text, and many have the same name.
        known: dict[str, str] = schema.elements
        found = known.get(text)
        return _learned_element(known, key, text) if found is None else found
    if schema.list_type == "set":
        return sets.value_element(item) if not isinstance(item, CONTAINERS) else f"v:{sets.encoded(item)}"
    return _element_by_keys(schema, item)


def _learned_element(known: dict[str, str], key: str, text: str) -> str:
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
    """The fields that a configuration sets: its leaves, its list items, its empty maps, and every key of a map."""
    named: Named = schema.named.get(tuple(value)) or _learned(schema, value)
    return _applied(named, value, named.inner) if named.deep else named.inner


def _applied_whole(schema: Schema, value: Any) -> FieldSet:
    """The same with the value itself, which is all there is to say of what is no map."""
    if not isinstance(value, dict) or schema.is_atomic_map:
        return LEAF
    named: Named = schema.named.get(tuple(value)) or _learned(schema, value)
    whole = _applied(named, value, named.whole) if named.deep else named.whole
    return whole if len(whole) > 1 else LEAF


def _applied(named: Named, value: dict[str, Any], leaves: FieldSet) -> FieldSet:
    """The set of leaves, with what is below those that are none."""
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
            # A struct or list in which nothing is set.
            del result[element]
    return result


def _applied_items(schema: Schema, value: list[Any]) -> FieldSet:
    items = schema.items or ANY
    result = {element_of(schema, item): _applied_whole(items, item) for item in value}
    if len(result) < len(value):
        raise ShapeError("an item stands twice")
    return result


def all_below(schema: Schema, value: Any) -> FieldSet:
    """The node of a value that came or went as a whole: it and every path below it."""
    if not value:
        return LEAF
    if isinstance(value, dict):
        if schema.is_atomic_map:
            return LEAF
        named: Named = schema.named.get(tuple(value)) or _learned(schema, value)
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
        # Those that have the same keys are one value without fields.
        node[element] = LEAF if element in node else all_below(items, item)
    node[SELF] = LEAF
    return node


def by_element(schema: Schema, items: list[Any]) -> dict[str, Any]:
    """The items of a shared list. Those that have the same keys are one value without fields: the list of them."""
    result: dict[str, Any] = {}
    for item in items:
        element = element_of(schema, item)
        result[element] = [result[element], item] if element in result else item
    return result


def _learned(schema: Schema, value: dict[str, Any]) -> Named:
    """What is not known yet of maps with such names."""
    if len(schema.named) >= KEPT_NAMES:
        schema.named.clear()
    names = tuple(value)
    named = schema.named[names] = _make_named(schema, names)
    return named


def _make_named(schema: Schema, names: tuple[str, ...]) -> Named:
    inner = {f"f:{name}": LEAF for name in names}
    fields = ((name, child_schema(schema, name)) for name in names)
    deep = tuple(Deep(n, f"f:{n}", child, n in schema.properties) for n, child in fields if not _is_leaf(child))
    return Named(inner, {**inner, SELF: LEAF}, deep)


def _is_leaf(schema: Schema) -> bool:
    """Whatever a value of the schema is, it has one owner. One of another type is never stored."""
    if schema.type == "object":
        return schema.is_atomic_map
    if schema.type == "array":
        return not schema.is_shared_list
    return schema.type in SCALARS or schema.is_int_or_string
