"""
Quick answers for the common case, in which nothing is wrong and nothing is to be done.

A structural schema is compiled, once per question, to a JSON Schema validator that runs outside Python: is the object
valid, are all its fields known, are all its defaults there? Only a yes counts. After a no, Python walks the object,
finds the words and does the work. So a compiled form may be too strict, never too lenient; where a schema cannot be
compiled, everything is walked.

Called by: schema.py, managed_shape.py, schema_checks.py. The only file that imports jsonschema_rs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeAlias

import jsonschema_rs

from kyu.api.meta import Json
from kyu.server import formats
from kyu.server.schema_node import MISSING, Schema

Compiler: TypeAlias = Callable[[Schema], Json]

# Keywords that mean the same in both worlds.
SAME: Final = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern",
    "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "required", "format",
)  # fmt: skip
TYPE_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})
LOOK_CLOSER: Final[Json] = {"not": {}}
POSIX: Final = {"alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "lower": "a-z", "upper": "A-Z", "word": r"\w"}
MAX_DEPTH: Final = 100


class TooDeep(Exception):
    """A recursive schema: it is always walked."""


def is_certain(schema: Schema, question: Compiler, obj: Any) -> bool:
    """Whether the answer to a question about an object is surely yes. Validators are kept with the schema."""
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
    """Does the value obey every rule of its schema?"""
    raw = schema.raw
    result: Json = {key: raw[key] for key in SAME if key in raw}
    if "pattern" in raw and _rust_pattern(raw["pattern"]) is None:
        return LOOK_CLOSER
    if schema.is_embedded or (schema.format in formats.CHECKS and schema.format != "date-time"):
        return LOOK_CLOSER
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
    if _is_doubtful([result.get("not"), result.get("oneOf")]):
        # Here a part that is not sure to fit could make the whole fit.
        return LOOK_CLOSER
    return _with_children(result, schema, valid)


def _is_doubtful(question: Any) -> bool:
    if isinstance(question, dict):
        return question == LOOK_CLOSER or any(map(_is_doubtful, question.values()))
    return isinstance(question, list) and any(map(_is_doubtful, question))


def known(schema: Schema) -> Json:
    """Is every field in the schema?"""
    result: Json = {}
    if not schema.preserves_unknown and schema.additional is None:
        result["additionalProperties"] = False
    if not schema.preserves_unknown and schema.items is None:
        # A list where none belongs: what is in it is unknown.
        result["items"] = {"not": {"type": ["array", "object"]}}
    result = _with_children(result, schema, known)
    if schema.is_embedded:
        result["properties"] = {**result.get("properties", {}), **{name: {} for name in TYPE_FIELDS}}
    return result


def filled(schema: Schema) -> Json:
    """Is every field there that has a default? Parts of the schema without defaults are not looked at."""
    if not schema.has_defaults:
        return {}
    result: Json = {}
    if not schema.nullable and schema.default is not MISSING:
        result["not"] = {"type": "null"}
    if required := [name for name, child in schema.defaulted.items() if child.default is not MISSING]:
        result["required"] = required
    return _with_children(result, schema, filled)


def without_nulls(schema: Schema) -> Json:
    """Is there no null that would have to go?"""
    may_be_null = schema.nullable or schema.default is not MISSING
    return _with_children({} if may_be_null else {"not": {"type": "null"}}, schema, without_nulls)


def sound(schema: Schema) -> Json:
    """All of these at once: is there nothing to drop, nothing to fill in and nothing to refuse?"""
    return {"allOf": [known(schema), without_nulls(schema), filled(schema), valid(schema)]}


def fits(schema: Schema, depth: int = 0) -> Json:
    """Could the object be a part of a whole one: known fields and right types, whatever else is missing?"""
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
            # What is nothing cannot be told from other nothings.
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
    """For the few forms of Go that the other engine does not read: flags inside, classes by name, the very end."""
    flags = "".join(re.findall(r"\(\?([imsU]+)\)", pattern)).replace("U", "")
    plain = re.sub(r"\(\?[imsU]+\)", "", pattern).replace(r"\z", r"\Z")
    plain = re.sub(r"\[:(\w+):\]", lambda match: POSIX.get(match[1], match[0]), plain)
    try:
        return re.compile(f"(?{flags})(?:{plain})" if flags else plain)
    except re.error:
        return None


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern is found in a text. A pattern that cannot be read was refused with the definition."""
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
    """Whether a text has a format; every text has a format that is unknown."""
    return bool(_format(name).is_valid(text))
