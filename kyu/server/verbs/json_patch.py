"""
JSON patch (RFC 6902) and merge patch (RFC 7396), with the habits of the library that Kubernetes uses.

Some of its habits differ from the RFC, and clients rely on them. ``replace`` of an absent key adds it, and ``copy`` of
one copies null. ``test`` of an absent path against null passes. An index may count from the end, and the text before
the first slash of a path is ignored.

The given object is never changed. The result of a merge patch shares the parts that the patch does not mention, so that
a comparison of the two is quick. The result of a JSON patch shares nothing.

Strategic merge patch is in strategic_merge.py, server-side apply in server/fieldmanager/manager.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kyu.api.meta import Json
from kyu.server import errors
from kyu.server.exchange import encode
from kyu.server.go_words import json_name
from kyu.server.json_values import clone, same

# As kube-apiserver: larger patches, and copies that make an object grow without end, are refused (CVE-2019-1002100).
MAX_OPERATIONS = 10_000
MAX_COPIED_BYTES = 1024 * 1024
MAX_RESULT_BYTES = 3 * 1024 * 1024
# Deeper objects are refused by the decoder.
MAX_DEPTH = 1_000
# Places by which list items are moved when others are put before them or removed.
MAX_MOVED_ITEMS = 50_000_000


class PatchFailed(Exception):
    """An operation that does not fit the object."""


def merge_patch(obj: Json, patch: Any) -> Json:
    """Null deletes, maps merge, everything else replaces."""
    if patch is None:
        raise errors.bad_request("Invalid JSON Patch")
    if not isinstance(patch, dict):
        found = f"cannot unmarshal {json_name(patch)} into Go value of type map[string]interface {{}}"
        raise errors.bad_request(f"error decoding patch: json: {found}")
    return merged(obj, patch)


def merged(value: Any, patch: Json) -> Json:
    """Merge a patch into a part of an object, whatever its type was before."""
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
    """Return a list without the nulls in its maps: there is nothing that they could delete."""
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return merged(None, value) if isinstance(value, dict) else value


def _has_null(value: Json | list[Any]) -> bool:
    """Return whether a map in it has a null. Most have none, and are then taken as they are."""
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
    """Return the object with all operations applied; the first that fails refuses the patch."""
    if isinstance(operations, list) and len(operations) > MAX_OPERATIONS:
        message = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        raise errors.too_large(message)
    try:
        found = msgspec.convert([] if operations is None else operations, list[Operation | None])
    except msgspec.ValidationError as error:
        if isinstance(operations, list):
            raise errors.bad_request(f"error decoding patch: {error}") from None
        wrong = f"json: cannot unmarshal {json_name(operations)} into Go value of type []handlers.jsonPatchOp"
        raise errors.bad_request(f"error decoding patch: {wrong}") from None
    patched = _Patched(clone(obj))
    try:
        for step in found:
            patched.apply(step or Operation())
    except PatchFailed:
        raise errors.rejected_patch() from None
    # Moves can nest an object without end; its text cannot be made then.
    if len(encode(patched.document)) > MAX_RESULT_BYTES:
        raise errors.too_large(f"the patched object would have more than {MAX_RESULT_BYTES} bytes")
    return patched.document


class _Patched:
    """An object while it is patched, with the work that its patch has made so far."""

    def __init__(self, document: Json) -> None:
        self.document = document
        self._copied_bytes = 0
        self._moved_items = 0

    def apply(self, step: Operation) -> None:
        match step.op:
            case "add":
                self._add(step.path, clone(step.value))
            case "remove":
                self._remove(step.path)
            case "replace":
                _replace(self.document, step.path, clone(step.value))
            case "move":
                value = _find(self.document, step.from_)
                self._remove(step.from_)
                self._add(step.path, value)
            case "copy":
                self._copy(step)
            case "test":
                _test(self.document, step.path, step.value)
            case _:
                raise PatchFailed(f"unknown operation {step.op}")

    def _copy(self, step: Operation) -> None:
        container, last = _parent(self.document, step.from_)
        copied = container.get(last) if isinstance(container, dict) else _child(container, last)
        self._copied_bytes += len(encode(copied))
        if self._copied_bytes > MAX_COPIED_BYTES:
            raise errors.too_large(
                f"Unable to complete the copy, the accumulated size increase of copy is {self._copied_bytes},"
                f" exceeding the limit {MAX_COPIED_BYTES}"
            )
        self._add(step.path, clone(copied))

    def _add(self, pointer: str, value: Any) -> None:
        container, last = _parent(self.document, pointer)
        if isinstance(container, dict):
            container[last] = value
        elif last == "-":
            container.append(value)
        else:
            index = _index(last, container, beyond=1)
            self._count_moved(len(container) - index)
            container.insert(index, value)

    def _remove(self, pointer: str) -> None:
        container, last = _parent(self.document, pointer)
        _child(container, last)
        if isinstance(container, dict):
            del container[last]
            return
        index = _index(last, container, beyond=0)
        self._count_moved(len(container) - index)
        del container[index]

    def _count_moved(self, items: int) -> None:
        self._moved_items += items
        if self._moved_items > MAX_MOVED_ITEMS:
            raise errors.too_large("the operations of the patch move too many list items")


def _parts(pointer: str) -> list[str]:
    _, slash, rest = pointer.partition("/")
    if not slash:
        raise PatchFailed(f"the path {pointer!r} has no slash")
    if rest.count("/") > MAX_DEPTH:
        raise PatchFailed(f"the path has more than {MAX_DEPTH} parts")
    return [part.replace("~1", "/").replace("~0", "~") for part in rest.split("/")]


def _parent(document: Json, pointer: str) -> tuple[Any, str]:
    """Return the container that holds the last part of a path, and that part."""
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
    """Parse an index of the list; ``beyond`` 1 allows the place after the last item."""
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
