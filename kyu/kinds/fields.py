"""
Reading and changing one field of a JSON object by its path, without ever failing on a missing part.

A path is a tuple of keys and list positions. Reading gives an empty value where the path ends early; changing gives a
new object that shares all that lies beside the path. A change is sent as the difference of two objects.

Used by: every kind. Kubernetes: JSON merge patch (RFC 7386).
"""

from __future__ import annotations

from typing import Any, TypeAlias

from kyu.api.meta import Json

Path: TypeAlias = tuple[str | int, ...]


def value_at(obj: Json, path: Path) -> object:
    """What stands at the path, or None where any part of it is missing."""
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
    """The object at the path; an empty one where it is missing."""
    value: object = obj
    for step in path:
        if type(value) is dict:
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return {}
    return value if type(value) is dict else {}


def list_at(obj: Json, path: Path) -> list[Json]:
    """The objects of the list at the path; none where it is missing."""
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
    """A copy of the object with the value at the path; only what lies on the path is copied."""
    if not path:
        assert isinstance(value, dict), "an object is replaced by an object"
        return value
    root: Json = dict(obj)
    node: Any = root
    for end, step in enumerate(path[:-1], start=1):
        node = opened(node, step, path[:end])
    last = path[-1]
    if type(node) is list and not (isinstance(last, int) and last < len(node)):
        raise Misshapen(path[:-1], node)
    node[last] = value
    return root


class Draft:
    """A copy of an object to write into: what is not asked for here is shared with the original."""

    def __init__(self, obj: Json) -> None:
        self.object: Json = dict(obj)
        self._opened: dict[Path, Any] = {(): self.object}

    def mapping(self, path: Path) -> Json:
        """The mapping at the path, as part of the copy; a new one where there is none."""
        found = self._part(path)
        if type(found) is not dict:
            raise Misshapen(path, found)
        return found

    def _part(self, path: Path) -> Any:
        found = self._opened.get(path)
        if found is None:
            found = self._opened[path] = opened(self._part(path[:-1]), path[-1], path)
        return found


def opened(node: Any, step: str | int, path: Path) -> Any:
    """What stands at a step of the node, replaced by a copy that may be changed. The path is for the error."""
    if type(node) is dict:
        inner = node.get(step)
    elif isinstance(step, int) and step < len(node):
        inner = node[step]
    else:
        raise Misshapen(path[:-1], node)
    if inner is None:
        inner = {}
    elif type(inner) is not dict and type(inner) is not list:
        raise Misshapen(path, inner)
    node[step] = copied = inner.copy()
    return copied


def merge_patch(old: Json, new: Json) -> Json:
    """The JSON merge patch that turns old to new; empty when they are equal. Lists are replaced as a whole."""
    patch: Json = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            if inner := merge_patch(before, value):
                patch[key] = inner
        elif key not in old or before != value:
            patch[key] = value
    return patch


def show(path: Path) -> str:
    """The path as Kubernetes writes it in errors: ``spec.replicatedJobs[0].template``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
