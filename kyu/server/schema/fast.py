"""
A quick yes for valid objects, by JSON Schema validators that run outside Python.

A structural schema is compiled once per question: is the object valid, are all its fields known, are all its defaults
set? Only a yes counts. After a no, Python walks the object, finds the messages and does the work. So a compiled schema
may be too strict, never too lenient. If a schema cannot be compiled, every object is walked.

The only file that imports jsonschema_rs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeAlias

import jsonschema_rs

from kyu.api.meta import Json
from kyu.server.schema import formats
from kyu.server.schema.node import MISSING, Schema

Compiler: TypeAlias = Callable[[Schema], Json]

# Keywords with the same meaning in both kinds of schema.
SAME: Final = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern",
    "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "required", "format",
)  # fmt: skip
TYPE_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})
UNDECIDED: Final[Json] = {"not": {}}
POSIX: Final = {"alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "lower": "a-z", "upper": "A-Z", "word": r"\w"}
MAX_DEPTH: Final = 100


class TooDeep(Exception):
    """The schema is recursive, so its objects are always walked."""


def is_certain(schema: Schema, question: Compiler, obj: Any) -> bool:
    """Return whether the answer to a question is certainly yes."""
    known = schema.validators
    if question not in known:
        known[question] = _validator(schema, question)
    validator = known[question]
    try:
        return validator is not None and bool(validator.is_valid(obj))
    except ValueError:
        return False


def _validator(schema: Schema, question: Compiler) -> Any:
    try:
        options = jsonschema_rs.RegexOptions()
        return jsonschema_rs.Draft4Validator(question(schema), validate_formats=True, pattern_options=options)
    except (ValueError, jsonschema_rs.ValidationError, TooDeep, RecursionError):
        return None


def valid(schema: Schema) -> Json:
    """Compile: does the value obey its schema?"""
    raw = schema.raw
    result: Json = {key: raw[key] for key in SAME if key in raw}
    if "pattern" in raw and _rust_pattern(raw["pattern"]) is None:
        return UNDECIDED
    if schema.is_embedded or (schema.format in formats.CHECKS and schema.format != "date-time"):
        return UNDECIDED
    types = ["integer", "string"] if schema.is_int_or_string else [schema.type] if schema.type else []
    if types:
        result["type"] = [*types, "null"] if schema.nullable else types
    if schema.type == "integer" and schema.format == "int32":
        result.setdefault("minimum", -(2**31))
        result.setdefault("maximum", 2**31 - 1)
    elif schema.type == "integer" or schema.is_int_or_string:
        result.setdefault("minimum", -(2**63))
        result.setdefault("maximum", 2**63 - 1)
    if "enum" in raw:
        result["enum"] = [*raw["enum"], None] if schema.nullable else raw["enum"]
    for key in ("allOf", "anyOf", "oneOf"):
        if key in raw:
            result[key] = [valid(Schema(part, schema.definitions)) for part in raw[key]]
    if "not" in raw:
        result["not"] = valid(Schema(raw["not"], schema.definitions))
    if _is_undecided([result.get("not"), result.get("oneOf")]):
        # In these, a part that is too strict would make the whole too lenient.
        return UNDECIDED
    return _with_children(result, schema, valid)


def _is_undecided(question: Any) -> bool:
    if isinstance(question, dict):
        return question == UNDECIDED or any(map(_is_undecided, question.values()))
    return isinstance(question, list) and any(map(_is_undecided, question))


def known(schema: Schema) -> Json:
    """Compile: is every field declared?"""
    result: Json = {}
    if not schema.preserves_unknown and schema.additional is None:
        result["additionalProperties"] = False
    if not schema.preserves_unknown and schema.items is None:
        # The content of an undeclared list is unknown.
        result["items"] = {"not": {"type": ["array", "object"]}}
    result = _with_children(result, schema, known)
    if schema.is_embedded:
        result["properties"] = {**result.get("properties", {}), **{name: {} for name in TYPE_FIELDS}}
    return result


def defaulted(schema: Schema) -> Json:
    """Compile: is every default set?"""
    if not schema.has_defaults:
        return {}
    result: Json = {}
    if not schema.nullable and schema.default is not MISSING:
        result["not"] = {"type": "null"}
    if required := [name for name, child in schema.defaulted.items() if child.default is not MISSING]:
        result["required"] = required
    return _with_children(result, schema, defaulted)


def without_nulls(schema: Schema) -> Json:
    """Compile: is there no null to drop?"""
    may_be_null = schema.nullable or schema.default is not MISSING
    return _with_children({} if may_be_null else {"not": {"type": "null"}}, schema, without_nulls)


def sound(schema: Schema) -> Json:
    """Compile all of these questions: is there nothing to drop, to set or to reject?"""
    return {"allOf": [known(schema), without_nulls(schema), defaulted(schema), valid(schema)]}


def fits(schema: Schema, depth: int = 0) -> Json:
    """Compile: does an applied configuration have declared fields and right types?"""
    if depth > MAX_DEPTH:
        raise TooDeep(schema.name)
    types = {"integer": ["number"], "number": ["number"]}.get(schema.type, [schema.type] if schema.type else [])
    result: Json = {"type": [*types, "null"]} if types else {}
    if schema.properties:
        result["properties"] = {name: fits(child, depth + 1) for name, child in schema.properties.items()}
    if schema.additional is not None:
        result["additionalProperties"] = fits(schema.additional, depth + 1)
    elif schema.properties and not schema.preserves_unknown:
        result["additionalProperties"] = False
    if schema.items is not None:
        result["items"] = fits(schema.items, depth + 1)
        if schema.list_type == "set":
            # Nulls of a set cannot be told apart.
            result["items"]["not"] = {"type": "null"}
    return result


def _with_children(result: Json, schema: Schema, question: Compiler) -> Json:
    if schema.properties:
        result["properties"] = {name: question(child) for name, child in schema.properties.items()}
    if schema.additional is not None:
        result["additionalProperties"] = question(schema.additional)
    if schema.items is not None:
        result["items"] = question(schema.items)
    return result


@lru_cache(maxsize=4096)
def _rust_pattern(pattern: str) -> Any:
    try:
        return jsonschema_rs.Draft4Validator({"pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions())
    except (ValueError, jsonschema_rs.ValidationError):
        return None


@lru_cache(maxsize=4096)
def _python_pattern(pattern: str) -> re.Pattern[str] | None:
    r"""Compile the forms of Go that the Rust engine does not parse: inline flags, POSIX classes, ``\z``."""
    flags = "".join(re.findall(r"\(\?([imsU]+)\)", pattern)).replace("U", "")
    plain = re.sub(r"\(\?[imsU]+\)", "", pattern).replace(r"\z", r"\Z")
    plain = re.sub(r"\[:(\w+):\]", lambda match: POSIX.get(match[1], match[0]), plain)
    try:
        return re.compile(f"(?{flags})(?:{plain})" if flags else plain)
    except re.error:
        return None


def matches(pattern: str, text: str) -> bool:
    """Return whether a pattern matches a part of the text. Invalid patterns were rejected with the definition."""
    if (validator := _rust_pattern(pattern)) is not None:
        return bool(validator.is_valid(text))
    compiled = _python_pattern(pattern)
    return compiled is None or compiled.search(text) is not None


def is_pattern(pattern: str) -> bool:
    return _rust_pattern(pattern) is not None or _python_pattern(pattern) is not None


@lru_cache(maxsize=64)
def _format(name: str) -> Any:
    return jsonschema_rs.Draft4Validator({"format": name}, validate_formats=True)


def has_format(name: str, text: str) -> bool:
    """Return whether a string has a format. An unknown format allows every string."""
    return bool(_format(name).is_valid(text))
