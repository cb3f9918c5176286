"""
The metadata of a custom object, as it is written after it was read: see schema_typed.py, which does the work.

Nearly all metadata is in that form already, because the server itself wrote it: this is found out here, in less time.

Called by: server/custom.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from kyu.api.meta import Json
from kyu.server import schema_typed
from kyu.server.builtin_data import object_meta


def read(given: Any, stored: Json) -> tuple[Json, list[str]]:
    """A copy in the canonical form, and the unknown fields. What was taken over from the stored metadata has that form.

    managedFields are passed by if they are entries at all: they are large, and checked where they are used.
    """
    if not isinstance(given, dict):
        return schema_typed.decode(object_meta(), given, "ObjectMeta")
    if _is_canonical(given, stored):
        return dict(given), []
    has_entries = _are_entries(given.get("managedFields"))
    plain = {name: value for name, value in given.items() if name != "managedFields" or not has_entries}
    metadata, unknown = schema_typed.decode(object_meta(), plain, "ObjectMeta")
    # No entries are none that anybody gave; of a built-in kind they would be a wish to forget them.
    if has_entries:
        metadata["managedFields"] = given["managedFields"]
    return metadata, unknown


def _is_canonical(given: Json, stored: Json) -> bool:
    for name, value in given.items():
        if value is None or value is not stored.get(name):
            test = CANONICAL.get(name)
            if test is None or not test(value):
                return False
    return True


def _are_entries(value: Any) -> bool:
    return type(value) is list and bool(value) and all(type(entry) is dict for entry in value)


def _is_text(value: Any) -> bool:
    return type(value) is str and value != ""


def _are_texts(value: Any) -> bool:
    return type(value) is dict and bool(value) and all(type(text) is str for text in value.values())


def _is_time(value: Any) -> bool:
    """``2026-01-31T23:59:59Z`` and no other spelling."""
    if type(value) is not str or len(value) != 20 or value[4:20:3] != "--T::Z":
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 < value < 2**63


# What a value must be to be written as it was read; whatever is not named here is looked at closely.
CANONICAL: Final[Mapping[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("name", "generateName", "namespace", "uid", "resourceVersion"), _is_text),
    **dict.fromkeys(("labels", "annotations"), _are_texts),
    "creationTimestamp": _is_time,
    "generation": _is_count,
    "managedFields": _are_entries,
}
