"""
Validation of the list and map types in a schema of a CustomResourceDefinition.

Keys identify the items of a list map, so each item must have all of them. Items of a set are compared as a whole.

Kubernetes: apiextensions-apiserver/pkg/apis/apiextensions/validation
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.server.validation.checks import one_of

LIST_TYPE: Final = "x-kubernetes-list-type"
LIST_KEYS: Final = "x-kubernetes-list-map-keys"
MAP_TYPE: Final = "x-kubernetes-map-type"
LIST_TYPES: Final = ("atomic", "set", "map")
MAP_TYPES: Final = ("atomic", "granular")


def map_faults(raw: Json, path: str) -> Iterator[FieldError]:
    if (kind := raw.get(MAP_TYPE)) is not None:
        yield from _type_faults(raw, path, "object", MAP_TYPE)
        yield from one_of(f"{path}.{MAP_TYPE}", kind, MAP_TYPES)


def list_faults(raw: Json, path: str) -> Iterator[FieldError]:
    kind, keys = raw.get(LIST_TYPE), raw.get(LIST_KEYS) or []
    where = f"{path}.{LIST_TYPE}"
    if kind is not None:
        yield from _type_faults(raw, path, "array", LIST_TYPE)
        yield from one_of(where, kind, LIST_TYPES)
    if keys and kind != "map":
        detail = f"must be map if {LIST_KEYS} is non-empty"
        yield fields.required(where, detail) if kind is None else fields.invalid(where, kind, detail)
    if kind not in ("set", "map"):
        return
    items: Any = raw.get("items")
    if isinstance(items, dict) and items.get("nullable"):
        yield fields.forbidden(f"{path}.items.nullable", f"cannot be nullable when {LIST_TYPE} is {kind}")
    if kind == "map":
        yield from _list_map_faults(items, keys, path)
    elif raw.get("type") == "array" and isinstance(items, dict):
        yield from _set_faults(items, path)


def _type_faults(raw: Json, path: str, wanted: str, reason: str) -> Iterator[FieldError]:
    kind, detail = raw.get("type") or "", f"must be {wanted} if {reason} is specified"
    if not kind:
        yield fields.required(f"{path}.type", detail)
    elif kind != wanted:
        yield fields.invalid(f"{path}.type", kind, detail)


def _set_faults(items: Json, path: str) -> Iterator[FieldError]:
    """Check the items of a set: a part of an item cannot have an owner."""
    detail, kind = f"must be atomic as item of a list with {LIST_TYPE}=set", items.get(LIST_TYPE)
    if items.get("type") == "array" and kind not in (None, "atomic"):
        yield fields.invalid(f"{path}.items.{LIST_TYPE}", kind, detail)
    elif items.get("type") == "object" and items.get(MAP_TYPE) != "atomic":
        yield fields.invalid(f"{path}.items.{MAP_TYPE}", kind, detail)


def _list_map_faults(items: Any, keys: list[str], path: str) -> Iterator[FieldError]:
    if not keys:
        yield fields.required(f"{path}.{LIST_KEYS}", f"must not be empty if {LIST_TYPE} is map")
    if items is None:
        yield fields.required(f"{path}.items", f"must have a schema if {LIST_TYPE} is map")
    elif isinstance(items, list):
        yield fields.invalid(f"{path}.items", items, f"must only have a single schema if {LIST_TYPE} is map")
    elif items.get("type") != "object":
        detail = f"must be object if parent array's {LIST_TYPE} is map"
        yield fields.invalid(f"{path}.items.type", items.get("type") or "", detail)
    else:
        yield from _key_faults(items, keys, path)


def _key_faults(items: Json, keys: list[str], path: str) -> Iterator[FieldError]:
    properties = items.get("properties") or {}
    for index, key in enumerate(keys):
        where = f"{path}.items.properties[{key}]"
        if key in keys[:index]:
            yield fields.invalid(f"{path}.{LIST_KEYS}", keys, "must not contain duplicate entries")
        if (known := properties.get(key)) is None:
            yield fields.invalid(f"{path}.{LIST_KEYS}", keys, "entries must all be names of item properties")
            continue
        if known.get("type") in ("array", "object"):
            detail = f"must be a scalar type if parent array's {LIST_TYPE} is map"
            yield fields.invalid(f"{where}.type", items["type"], detail)
        if key not in (items.get("required") or ()) and known.get("default") is None:
            detail = f"this property is in {LIST_KEYS}, so it must have a default or be a required property"
            yield fields.required(f"{where}.default", detail)
        if known.get("nullable"):
            yield fields.forbidden(f"{where}.nullable", f"this property is in {LIST_KEYS}, so it cannot be nullable")
