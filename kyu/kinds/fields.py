"""
Reading and changing one field of a JSON object by its path, without ever failing on a missing part.

A path is a tuple of keys and list positions. Reading gives an empty value where the path ends early; changing gives a
new object that shares all that lies beside the path. A change is sent as the difference of two objects.

Kubernetes: JSON merge patch (RFC 7386).
"""

from __future__ import annotations

from typing import Any, TypeAlias

from kyu.api.meta import Json

Path: TypeAlias = tuple[str | int, ...]


def value_at(obj: Json, path: Path) -> object:
    """Return the value at the path, or None if any part of it is missing."""
    value: object = obj
    for step in path:
        if type(value) is dict:
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def json_at(obj: Json, path: Path) -> Json:
    """Return the object at the path, or an empty one."""
    value = value_at(obj, path)
    return value if type(value) is dict else {}


def list_at(obj: Json, path: Path) -> list[Json]:
    """Return the objects of the list at the path, or none."""
    value = value_at(obj, path)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def int_at(obj: Json, path: Path, default: int = 0) -> int:
    value = value_at(obj, path)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def text_at(obj: Json, path: Path) -> str:
    value = value_at(obj, path)
    return value if isinstance(value, str) else ""


class Misshapen(ValueError):
    """Something stands in the way of a path: a text or a list where a mapping should be."""

    def __init__(self, path: Path, value: object) -> None:
        super().__init__(f"{show(path)} is {value!r}, where a mapping or a list should be")


def with_value(obj: Json, path: Path, value: object) -> Json:
    """Return a copy of the object with the value at the path. Only the parts on the path are copied."""
    if not path:
        assert isinstance(value, dict), "an object is replaced by an object"
        return value
    root: Json = dict(obj)
    node: Any = root
    for depth, step in enumerate(path[:-1]):
        inner = node.get(step) if type(node) is dict else inside(node, step, path[:depth])
        if inner is not None and type(inner) is not dict and type(inner) is not list:
            raise Misshapen(path[: depth + 1], inner)
        copied = {} if inner is None else inner.copy()
        node[step] = copied
        node = copied
    inside(node, path[-1], path[:-1])
    node[path[-1]] = value
    return root


def mapping_in(obj: Json, path: Path) -> Json:
    """Return the mapping at the path of an object that may be changed. Put an empty one if there is none."""
    node: Any = obj
    for depth, step in enumerate(path):
        inner = node.get(step) if type(node) is dict else inside(node, step, path[:depth])
        if inner is None:
            inner = node[step] = {}
        node = inner
    if type(node) is not dict:
        raise Misshapen(path, node)
    return node


def inside(node: Any, step: str | int, path: Path) -> Any:
    """Return the value at a step of the node at the path: of a mapping, or of a list that is long enough."""
    if type(node) is dict:
        return node.get(step)
    if type(node) is list and isinstance(step, int) and step < len(node):
        return node[step]
    raise Misshapen(path, node)


def merge_patch(old: Json, new: Json) -> Json:
    """Return the JSON merge patch from old to new; empty if they are equal. Lists are replaced as a whole."""
    patch: Json = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            if inner := merge_patch(before, value):
                patch[key] = inner
        elif key not in old or before != value:
            patch[key] = value
    return patch


def merged(old: Json, patch: Json) -> Json:
    """Return the object with a JSON merge patch applied. Parts that do not change are shared."""
    result = dict(old)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            before = old.get(name)
            result[name] = merged(before if isinstance(before, dict) else {}, value)
        else:
            result[name] = value
    return result


def show(path: Path) -> str:
    """Return the path as Kubernetes writes it in errors: ``spec.replicatedJobs[0].template``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
