"""
JSON patch (RFC 6902) and merge patch (RFC 7396), with the habits of the library that Kubernetes uses.

Some of its habits differ from the letter of the RFC and clients rely on them: ``replace`` of a key that is absent adds
it, ``copy`` of one copies null, ``test`` of an absent path against null passes, an index may count from the end, and
what stands before the first slash of a path does not count.
The object that is given is never changed. What a merge patch does not mention, its result shares with the object, so
that those who compare the two need not look there; the result of a JSON patch shares nothing.

Called by: server/writes.py. Strategic merge patch is in strategic.py, server-side apply in managed.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kyu.api.meta import Json
from kyu.server import errors
from kyu.server.go_words import json_name

MAX_OPERATIONS = 10_000


class PatchFailed(Exception):
    """An operation that does not fit the object."""


def clone(value: Any) -> Any:
    """A deep copy of JSON; several times faster than ``copy.deepcopy``."""
    if isinstance(value, dict):
        return {key: clone(item) if isinstance(item, dict | list) else item for key, item in value.items()}
    if isinstance(value, list):
        return [clone(item) if isinstance(item, dict | list) else item for item in value]
    return value


def carry_over(name: str, source: Json, target: Json) -> None:
    """Let a field of the target be as it is in the source, also if it is not there."""
    if name in source:
        target[name] = source[name]
    else:
        target.pop(name, None)


def merge_patch(obj: Json, patch: Any) -> Json:
    """Null deletes, maps merge, everything else replaces."""
    if patch is None:
        raise errors.bad_request("Invalid JSON Patch")
    if not isinstance(patch, dict):
        found = f"cannot unmarshal {json_name(patch)} into Go value of type map[string]interface {{}}"
        raise errors.bad_request(f"error decoding patch: json: {found}")
    return merged(obj, patch)


def merged(value: Any, patch: Json) -> Json:
    """The same for a part of an object, whatever it was before."""
    result: Json = dict(value) if isinstance(value, dict) else {}
    for key, change in patch.items():
        if change is None:
            result.pop(key, None)
        elif isinstance(change, dict):
            result[key] = merged(result.get(key), change)
        else:
            result[key] = _without_nulls(change) if isinstance(change, list) and _has_null(change) else change
    return result


def _without_nulls(value: Any) -> Any:
    """A list as it is set: its maps have nothing to merge with, so a null in one of them is nothing."""
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return merged(None, value) if isinstance(value, dict) else value


def _has_null(value: Json | list[Any]) -> bool:
    """Whether a map in it has a null. Most have none, and are then taken as they are."""
    if isinstance(value, dict):
        return None in value.values() or any(isinstance(v, dict | list) and _has_null(v) for v in value.values())
    return any(isinstance(item, dict | list) and _has_null(item) for item in value)


class Operation(msgspec.Struct, frozen=True):
    """One step of a JSON patch as it is sent."""

    op: str = ""
    path: str = ""
    from_: str = msgspec.field(name="from", default="")
    value: Any = None


def json_patch(obj: Json, operations: Any) -> Json:
    """All operations or none: the first that fails refuses the patch."""
    try:
        found = msgspec.convert([] if operations is None else operations, list[Operation | None])
        steps = [Operation() if step is None else step for step in found]
    except msgspec.ValidationError as error:
        if isinstance(operations, list):
            raise errors.bad_request(f"error decoding patch: {error}") from None
        wrong = f"json: cannot unmarshal {json_name(operations)} into Go value of type []handlers.jsonPatchOp"
        raise errors.bad_request(f"error decoding patch: {wrong}") from None
    if len(steps) > MAX_OPERATIONS:
        message = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(steps)}"
        raise errors.too_large(message)
    result: Json = clone(obj)
    try:
        for step in steps:
            _apply(result, step)
    except PatchFailed:
        raise errors.rejected_patch() from None
    return result


def _apply(document: Json, step: Operation) -> None:
    match step.op:
        case "add":
            _add(document, step.path, clone(step.value))
        case "remove":
            _remove(document, step.path)
        case "replace":
            _replace(document, step.path, clone(step.value))
        case "move":
            value = _find(document, step.from_)
            _remove(document, step.from_)
            _add(document, step.path, value)
        case "copy":
            container, last = _parent(document, step.from_)
            copied = container.get(last) if isinstance(container, dict) else _child(container, last)
            _add(document, step.path, clone(copied))
        case "test":
            _test(document, step.path, step.value)
        case _:
            raise PatchFailed(f"unknown operation {step.op}")


def _parts(pointer: str) -> list[str]:
    _, slash, rest = pointer.partition("/")
    if not slash:
        raise PatchFailed(f"the path {pointer!r} has no slash")
    return [part.replace("~1", "/").replace("~0", "~") for part in rest.split("/")]


def _parent(document: Json, pointer: str) -> tuple[Any, str]:
    """The container that holds the last part of a path, and that part."""
    *path, last = _parts(pointer)
    value: Any = document
    for part in path:
        value = _child(value, part)
    if not isinstance(value, dict | list):
        raise PatchFailed(f"nothing at {pointer}")
    return value, last


def _child(container: Any, part: str) -> Any:
    if isinstance(container, dict) and part in container:
        return container[part]
    if isinstance(container, list):
        return container[_index(part, container, beyond=0)]
    raise PatchFailed(f"no {part!r} here")


def _index(part: str, items: Sequence[Any], *, beyond: int) -> int:
    """An index of the list; ``beyond`` 1 allows the place after the last item."""
    try:
        index = int(part)
    except ValueError:
        raise PatchFailed(f"{part!r} is no index") from None
    if index < 0:
        index += len(items) + beyond
    if not 0 <= index < len(items) + beyond:
        raise PatchFailed(f"index {part} is out of range")
    return index


def _find(document: Json, pointer: str) -> Any:
    container, last = _parent(document, pointer)
    return _child(container, last)


def _add(document: Json, pointer: str, value: Any) -> None:
    container, last = _parent(document, pointer)
    if isinstance(container, dict):
        container[last] = value
    elif last == "-":
        container.append(value)
    else:
        container.insert(_index(last, container, beyond=1), value)


def _remove(document: Json, pointer: str) -> None:
    container, last = _parent(document, pointer)
    _child(container, last)
    del container[last if isinstance(container, dict) else _index(last, container, beyond=0)]


def _replace(document: Json, pointer: str, value: Any) -> None:
    if not pointer and isinstance(value, dict):
        # The whole object. No other operation can name it.
        document.clear()
        document.update(value)
        return
    container, last = _parent(document, pointer)
    container[last if isinstance(container, dict) else _index(last, container, beyond=0)] = value


def _test(document: Json, pointer: str, value: Any) -> None:
    container, last = _parent(document, pointer)
    try:
        found = _child(container, last)
    except PatchFailed:
        if value is not None:
            raise
        return
    if not same(found, value):
        raise PatchFailed(f"{pointer} is not the tested value")


def same(left: Any, right: Any) -> bool:
    """Equality of JSON, where true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)
