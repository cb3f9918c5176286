"""
Sets of field paths, in the form in which ``metadata.managedFields`` stores them.

A set is a tree of JSON maps. A key is a path element: ``f:NAME`` a field, ``k:{"port":80}`` an item of a list by its
keys, ``v:"x"`` an item of a set. A node without children is in the set. A node with children is in the set only if it
also has the key ``"."``. So a stored set needs no parsing. No operation changes its operands.

Kubernetes: structured-merge-diff/fieldpath.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

FieldSet: TypeAlias = dict[str, Any]

SELF: Final = "."
LEAF: Final[FieldSet] = {}


def is_member(node: FieldSet) -> bool:
    return not node or SELF in node


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    if not left or not right:
        return left or right
    result = dict(left)
    for element, node in right.items():
        mine = left.get(element)
        result[element] = node if mine is None else _joined(mine, node)
    return result


def _joined(left: FieldSet, right: FieldSet) -> FieldSet:
    children = {key: node for key, node in union(left, right).items() if key != SELF}
    if children and (is_member(left) or is_member(right)):
        children[SELF] = LEAF
    return children


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the paths of the left set that the right one lacks. A path is removed without the paths below it."""
    result: FieldSet = {}
    for element, node in left.items():
        if element == SELF:
            continue
        other = right.get(element)
        kept = node if other is None else _node(difference(node, other), is_member(node) and not is_member(other))
        if kept is not None:
            result[element] = kept
    return result


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    result: FieldSet = {}
    for element, node in left.items():
        if element == SELF or (other := right.get(element)) is None:
            continue
        kept = _node(intersection(node, other), is_member(node) and is_member(other))
        if kept is not None:
            result[element] = kept
    return result


def _node(children: FieldSet, member: bool) -> FieldSet | None:
    """Return a node of these children; None if neither it nor anything below is in the set."""
    if not children:
        return LEAF if member else None
    if member:
        children[SELF] = LEAF
    return children


def insert(root: FieldSet, path: tuple[str, ...], below: FieldSet = LEAF) -> None:
    """Add a path, with the paths below it, to a set that is being built."""
    node = root
    for element in path[:-1]:
        child = node.get(element)
        if child is None:
            child = node[element] = {}
        elif not child:
            child = node[element] = {SELF: LEAF}
        node = child
    present = node.get(path[-1])
    node[path[-1]] = dict(below) if present is None else _joined(present, below)


def paths(root: FieldSet, prefix: str = "") -> Iterator[str]:
    """Yield every path as users read it: ``.spec.ports[port=80,protocol="TCP"].name``."""
    for element in sorted(root):
        if element == SELF:
            continue
        node, here = root[element], prefix + shown(element)
        if is_member(node):
            yield here
        yield from paths(node, here)


def shown(element: str) -> str:
    form, text = element[:2], element[2:]
    if form == "f:":
        return f".{text}"
    if form == "k:":
        keys = msgspec.json.decode(text, type=dict[str, Any])
        return f"[{','.join(f'{key}={encoded(keys[key])}' for key in sorted(keys))}]"
    return f"[={text}]" if form == "v:" else f"[{text}]"


def encoded(value: Any) -> str:
    return msgspec.json.encode(value).decode()


@lru_cache(maxsize=16384, typed=True)
def keys_element(names: tuple[str, ...], values: tuple[Any, ...]) -> str:
    """Return the element of a list item; ``names`` must be sorted."""
    return f"k:{encoded(dict(zip(names, values, strict=True)))}"


@lru_cache(maxsize=4096, typed=True)
def value_element(value: Any) -> str:
    return f"v:{encoded(value)}"


def is_valid(root: Any) -> bool:
    """Return whether a map that a client wrote is a set."""
    if not isinstance(root, dict):
        return False
    return all(
        (element == SELF and node == LEAF) or (element[:2] in ("f:", "k:", "v:", "i:") and is_valid(node))
        for element, node in root.items()
    )
