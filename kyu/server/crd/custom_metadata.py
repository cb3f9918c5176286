"""
The metadata of a custom object in its canonical form.

Nearly all metadata is in this form already, because the server wrote it. A quick check here finds that out;
server/schema/typed.py decodes the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from kyu.api.meta import Json
from kyu.server.schema import typed
from kyu.server.schema.published import object_meta


def read(given: Any, stored: Json) -> tuple[Json, list[str]]:
    """Return a copy in the canonical form, and the unknown fields.

    Fields that are shared with the stored metadata have that form. managedFields are large and are checked where they
    are used.
    """
    if not isinstance(given, dict):
        return typed.decode(object_meta(), given, "ObjectMeta")
    if _is_canonical(given, stored):
        return dict(given), []
    has_entries = _are_entries(given.get("managedFields"))
    plain = {name: value for name, value in given.items() if name != "managedFields" or not has_entries}
    metadata, unknown = typed.decode(object_meta(), plain, "ObjectMeta")
    # In a custom object, invalid managedFields are ignored. In a built-in object they would stop the tracking.
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
    """Accept ``2026-01-31T23:59:59Z`` and no other notation."""
    if type(value) is not str or len(value) != 20 or value[4:20:3] != "--T::Z":
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 < value < 2**63


# The check whether a field is in its canonical form. Other fields are decoded.
CANONICAL: Final[Mapping[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("name", "generateName", "namespace", "uid", "resourceVersion"), _is_text),
    **dict.fromkeys(("labels", "annotations"), _are_texts),
    "creationTimestamp": _is_time,
    "generation": _is_count,
    "managedFields": _are_entries,
}
