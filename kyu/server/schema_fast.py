"""
The quick answer for the common case: is this object valid at all?

A structural schema is compiled once to a JSON Schema validator that runs outside Python. It only says yes or no. Yes
ends the check; after a no, schema_checks.py walks the object and finds the words. Both must agree on what is valid, so
the compiled form is never more lenient; where a schema cannot be compiled, everything is walked.

Called by: schema.py. The only file that imports jsonschema_rs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import jsonschema_rs

from kyu.api.meta import Json
from kyu.server.schema_node import Schema

# Keywords that mean the same in both worlds.
SAME: Final = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern",
    "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "required", "format",
)  # fmt: skip
TYPED_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})


class Fast:
    """One compiled schema."""

    def __init__(self, schema: Schema) -> None:
        try:
            options = jsonschema_rs.RegexOptions()
            self._validator = jsonschema_rs.Draft4Validator(
                compiled(schema, is_root=True), validate_formats=True, pattern_options=options
            )
        except (ValueError, jsonschema_rs.ValidationError):
            self._validator = None

    def is_valid(self, obj: Json) -> bool:
        """True is certain; False may only mean that one must look closer."""
        if self._validator is None:
            return False
        try:
            return bool(self._validator.is_valid(obj))
        except ValueError:
            return False


def compiled(schema: Schema, *, is_root: bool = False) -> Json:
    """The same rules as a plain JSON Schema. The metadata of the object itself is checked elsewhere."""
    raw = schema.raw
    result: Json = {key: raw[key] for key in SAME if key in raw}
    if schema.is_int_or_string:
        result["type"] = ["integer", "string"]
    elif schema.type:
        result["type"] = schema.type
    if schema.type == "integer" and schema.format == "int32":
        result.setdefault("minimum", -(2**31))
        result.setdefault("maximum", 2**31 - 1)
    if schema.nullable and "type" in result:
        types = result["type"] if isinstance(result["type"], list) else [result["type"]]
        result["type"] = [*types, "null"]
    if "enum" in raw:
        result["enum"] = [*raw["enum"], None] if schema.nullable else raw["enum"]
    for key in ("allOf", "anyOf", "oneOf"):
        if key in raw:
            result[key] = [compiled(Schema(part, schema.definitions)) for part in raw[key]]
    if "not" in raw:
        result["not"] = compiled(Schema(raw["not"], schema.definitions))
    properties = {name: child for name, child in schema.properties.items() if not (is_root and name in TYPED_FIELDS)}
    if properties:
        result["properties"] = {name: compiled(child) for name, child in properties.items()}
    if schema.additional is not None:
        result["additionalProperties"] = compiled(schema.additional)
    if schema.items is not None:
        result["items"] = compiled(schema.items)
    return result


@lru_cache(maxsize=4096)
def _pattern(pattern: str) -> Any:
    try:
        return jsonschema_rs.Draft4Validator({"pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions())
    except (ValueError, jsonschema_rs.ValidationError):
        return None


def matches(pattern: str, text: str) -> bool:
    """Whether a user's pattern is found in a text, in linear time. A pattern that cannot be read matches everything."""
    validator = _pattern(pattern)
    return validator is None or bool(validator.is_valid(text))


def is_pattern(pattern: str) -> bool:
    return _pattern(pattern) is not None


@lru_cache(maxsize=64)
def _format(name: str) -> Any:
    return jsonschema_rs.Draft4Validator({"format": name}, validate_formats=True)


def has_format(name: str, text: str) -> bool:
    """Whether a text has a format; every text has a format that is unknown."""
    return bool(_format(name).is_valid(text))
