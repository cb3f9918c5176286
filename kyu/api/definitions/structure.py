"""
Validation and defaulting of a JSON value by a schema, with errors in the words of the API server.

It covers the parts of schemas that ``crds.py`` uses: types, bounds, enums, patterns, required fields, unique lists. CEL
rules are not evaluated here: ``rules/`` has the same rules as functions. It replaces the server's validation for
manifests in files and objects in webhooks.

Kubernetes: apiextensions-apiserver pkg/apiserver/validation
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import Any

from kyu.api import quantity
from kyu.api.errors import FieldError, duplicate, invalid, not_supported, required, too_long, too_many, type_invalid
from kyu.api.meta import Json


def check(schema: Json, value: Any, path: str = "") -> Iterator[FieldError]:
    """Yield all errors of the value and its members."""
    if schema.get("x-kubernetes-int-or-string"):
        yield from _check_quantity(schema, value, path)
        return
    wanted = schema.get("type")
    if wanted is not None and not _is_a(value, wanted):
        actual = json_type(value)
        yield type_invalid(path, actual, f'{path} in body must be of type {wanted}: "{actual}"')
        return
    if "enum" in schema and value not in schema["enum"]:
        yield not_supported(path, value, schema["enum"])
    if isinstance(value, str):
        yield from _check_text(schema, value, path)
    elif isinstance(value, dict):
        yield from _check_object(schema, value, path)
    elif isinstance(value, list):
        yield from _check_list(schema, value, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _check_number(schema, value, path)


def _check_object(schema: Json, value: Json, path: str) -> Iterator[FieldError]:
    for name in schema.get("required", ()):
        if name not in value:
            yield required(_member(path, name))
    if "maxProperties" in schema and len(value) > schema["maxProperties"]:
        yield too_many(path, len(value), schema["maxProperties"])
    properties, additional = schema.get("properties", {}), schema.get("additionalProperties")
    for name, item in value.items():
        if name in properties:
            yield from check(properties[name], item, _member(path, name))
        elif isinstance(additional, dict):
            yield from check(additional, item, _member(path, name))


def _check_list(schema: Json, value: list[Any], path: str) -> Iterator[FieldError]:
    if len(value) < schema.get("minItems", 0):
        yield invalid(path, len(value), f"{path} in body should have at least {schema['minItems']} items")
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        yield too_many(path, len(value), schema["maxItems"])
        return
    for index, item in enumerate(value):
        yield from check(schema.get("items", {}), item, f"{path}[{index}]")
    keys = schema.get("x-kubernetes-list-map-keys", ())
    if keys or schema.get("x-kubernetes-list-type") == "set":
        yield from _check_unique(value, keys, path)


def _check_unique(value: list[Any], keys: list[str], path: str) -> Iterator[FieldError]:
    seen: list[Any] = []
    for index, item in enumerate(value):
        identity = {key: item[key] for key in keys if key in item} if keys and isinstance(item, dict) else item
        if identity in seen:
            yield duplicate(f"{path}[{index}]", identity)
        seen.append(identity)


def _check_text(schema: Json, value: str, path: str) -> Iterator[FieldError]:
    if len(value) < schema.get("minLength", 0):
        yield invalid(path, value, f"{path} in body should be at least {schema['minLength']} chars long")
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        yield too_long(path, value, schema["maxLength"])
    elif "pattern" in schema and not _pattern(schema["pattern"]).search(value):
        yield invalid(path, value, f"{path} in body should match '{schema['pattern']}'")
    if schema.get("format") == "date-time" and not _is_time(value):
        yield invalid(path, value, f'{path} in body must be of type date-time: "{value}"')


def _check_number(schema: Json, value: float, path: str) -> Iterator[FieldError]:
    if "minimum" in schema and value < schema["minimum"]:
        yield invalid(path, value, f"{path} in body should be greater than or equal to {schema['minimum']}")
    bits = {"int32": 31, "int64": 63}.get(schema.get("format", ""))
    if bits is not None and not -(2**bits) <= value < 2**bits:
        yield invalid(path, value, f"must be a number of type {schema['format']}")


def _check_quantity(schema: Json, value: Any, path: str) -> Iterator[FieldError]:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        actual = json_type(value)
        yield type_invalid(path, actual, f'{path} in body must be of type integer or string: "{actual}"')
        return
    faults = list(_check_text(schema, value, path)) if isinstance(value, str) else []
    yield from faults
    try:
        quantity.parse(value)
    except quantity.QuantityError as error:
        # The pattern accepts some texts that are not quantities, such as 1e1.5.
        if not faults:
            yield invalid(path, value, str(error))


def unknown(schema: Json, value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of fields that the schema does not have."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from unknown(schema.get("items") or {}, item, f"{path}[{index}]")
    elif isinstance(value, dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        properties, additional = schema.get("properties"), schema.get("additionalProperties")
        for name, item in value.items():
            if properties is not None and name in properties:
                yield from unknown(properties[name], item, _member(path, name))
            elif isinstance(additional, dict):
                yield from unknown(additional, item, _member(path, name))
            elif properties is not None and not additional:
                yield _member(path, name)


def apply_defaults(schema: Json, value: Any) -> Any:
    """Return a copy of the value with every missing default filled in, also inside the defaults."""
    if isinstance(value, dict):
        properties, additional = schema.get("properties", {}), schema.get("additionalProperties")
        filled = dict(value)
        for name, field in properties.items():
            if "default" in field and filled.get(name) is None:
                filled[name] = field["default"]
        for name, item in filled.items():
            inside = properties.get(name, additional)
            if isinstance(inside, dict):
                filled[name] = apply_defaults(inside, item)
        return filled
    if isinstance(value, list) and "items" in schema:
        return [apply_defaults(schema["items"], item) for item in value]
    return value


def defaults_of(schema: Json) -> Json:
    """Return only the parts of a schema that contain defaults, or an empty schema."""
    kept: Json = {word: schema[word] for word in ("default",) if word in schema}
    properties = {name: defaults_of(field) for name, field in schema.get("properties", {}).items()}
    if properties := {name: field for name, field in properties.items() if field}:
        kept["properties"] = properties
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict) and (inside := defaults_of(schema[word])):
            kept[word] = inside
    return kept


def json_type(value: Any) -> str:
    """Return the JSON schema type of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int():
            return "integer"
        case float():
            return "number"
        case dict():
            return "object"
        case _:
            return "array"


def _is_a(value: Any, wanted: str) -> bool:
    actual = json_type(value)
    if wanted == "integer":
        return actual == "integer" or (actual == "number" and float(value).is_integer())
    return actual == wanted or (wanted == "number" and actual == "integer")


def _is_time(value: str) -> bool:
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _member(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


@lru_cache
def _pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of our schemas. Only $ differs in Python: it would also match before a last newline."""
    return re.compile(re.sub(r"\$$", r"\\Z", pattern), re.ASCII)
