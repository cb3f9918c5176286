"""
How lists and maps of a schema are merged, as far as a CustomResourceDefinition may say it.

Items of a list map are told apart by keys, so each item must have all of them; items of a set are compared whole.

Called by: crd_schema.py. Kubernetes: apiextensions-apiserver/pkg/apis/apiextensions/validation
"""

from __future__ import annotations

from typing import Any, Final

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.server.builtin_checks import one_of

LIST_TYPE: Final = "x-kubernetes-list-type"
LIST_KEYS: Final = "x-kubernetes-list-map-keys"
MAP_TYPE: Final = "x-kubernetes-map-type"
LIST_TYPES: Final = ("atomic", "set", "map")
MAP_TYPES: Final = ("atomic", "granular")


def validate_map(raw: Json, path: str) -> list[FieldError]:
    kind = raw.get(MAP_TYPE)
    if kind is None:
        return []
    return [*_wanted_type(raw, path, "object", MAP_TYPE), *one_of(f"{path}.{MAP_TYPE}", kind, MAP_TYPES)]


def validate_list(raw: Json, path: str) -> list[FieldError]:
    kind, keys = raw.get(LIST_TYPE), raw.get(LIST_KEYS) or []
    where = f"{path}.{LIST_TYPE}"
    found = _wanted_type(raw, path, "array", LIST_TYPE) if kind is not None else []
    found += one_of(where, kind, LIST_TYPES)
    if keys and kind != "map":
        detail = f"must be map if {LIST_KEYS} is non-empty"
        found.append(fields.required(where, detail) if kind is None else fields.invalid(where, kind, detail))
    if kind not in ("set", "map"):
        return found
    items: Any = raw.get("items")
    if isinstance(items, dict) and items.get("nullable"):
        detail = f"cannot be nullable when {LIST_TYPE} is {kind}"
        found.append(fields.forbidden(f"{path}.items.nullable", detail))
    if kind == "map":
        return found + _validate_list_map(items, keys, path)
    return found + (_validate_set(items, path) if raw.get("type") == "array" and isinstance(items, dict) else [])


def _wanted_type(raw: Json, path: str, wanted: str, reason: str) -> list[FieldError]:
    kind = raw.get("type") or ""
    if kind == wanted:
        return []
    detail = f"must be {wanted} if {reason} is specified"
    return [fields.invalid(f"{path}.type", kind, detail) if kind else fields.required(f"{path}.type", detail)]


def _validate_set(items: Json, path: str) -> list[FieldError]:
    """Items are compared whole, so nobody can own a part of one."""
    detail, kind = f"must be atomic as item of a list with {LIST_TYPE}=set", items.get(LIST_TYPE)
    if items.get("type") == "array" and kind not in (None, "atomic"):
        return [fields.invalid(f"{path}.items.{LIST_TYPE}", kind, detail)]
    if items.get("type") == "object" and items.get(MAP_TYPE) != "atomic":
        return [fields.invalid(f"{path}.items.{MAP_TYPE}", kind, detail)]
    return []


def _validate_list_map(items: Any, keys: list[str], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    if not keys:
        found.append(fields.required(f"{path}.{LIST_KEYS}", f"must not be empty if {LIST_TYPE} is map"))
    if items is None:
        found.append(fields.required(f"{path}.items", f"must have a schema if {LIST_TYPE} is map"))
    elif isinstance(items, list):
        found.append(fields.invalid(f"{path}.items", items, f"must only have a single schema if {LIST_TYPE} is map"))
    elif items.get("type") != "object":
        detail = f"must be object if parent array's {LIST_TYPE} is map"
        found.append(fields.invalid(f"{path}.items.type", items.get("type") or "", detail))
    else:
        found += _validate_keys(items, keys, path)
    return found


def _validate_keys(items: Json, keys: list[str], path: str) -> list[FieldError]:
    found, properties = list[FieldError](), items.get("properties") or {}
    for index, key in enumerate(keys):
        where = f"{path}.items.properties[{key}]"
        if key in keys[:index]:
            found.append(fields.invalid(f"{path}.{LIST_KEYS}", keys, "must not contain duplicate entries"))
        if (known := properties.get(key)) is None:
            found.append(fields.invalid(f"{path}.{LIST_KEYS}", keys, "entries must all be names of item properties"))
            continue
        if known.get("type") in ("array", "object"):
            detail = f"must be a scalar type if parent array's {LIST_TYPE} is map"
            found.append(fields.invalid(f"{where}.type", items["type"], detail))
        if key not in (items.get("required") or ()) and known.get("default") is None:
            detail = f"this property is in {LIST_KEYS}, so it must have a default or be a required property"
            found.append(fields.required(f"{where}.default", detail))
        if known.get("nullable"):
            detail = f"this property is in {LIST_KEYS}, so it cannot be nullable"
            found.append(fields.forbidden(f"{where}.nullable", detail))
    return found
