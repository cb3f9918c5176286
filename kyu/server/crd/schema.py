"""
Validation of the schemas of a CustomResourceDefinition: they must be structural.

A schema uses only supported keywords (``_words``), is structural (``_structure``), has valid defaults (``_defaults``),
and its CEL rules compile (schema_rules.py). As in Kubernetes, the first two are both reported, and the later ones only
if these pass.

Kubernetes: apiextensions-apiserver/pkg/apis/apiextensions/validation, apiserver/schema, apiserver/schema/defaulting
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

import msgspec

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.server.crd import schema_rules
from kyu.server.crd.schema_lists import list_faults, map_faults
from kyu.server.schema import cel, checks, fast, schema
from kyu.server.schema.node import MISSING, Schema

Level: TypeAlias = Literal["root", "item", "field"]

PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
EMBEDDED: Final = "x-kubernetes-embedded-resource"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"
TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
UNSUPPORTED: Final = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
JUNCTORS: Final = ("allOf", "anyOf", "oneOf")
EITHER: Final = [{"type": "integer"}, {"type": "string"}]
# The keywords that are not allowed inside of these, with the word that the error uses.
NOT_NESTED: Final = {
    "type": "empty", "additionalProperties": "undefined", "default": "undefined", "title": "empty",
    "description": "empty", "nullable": "false", "externalDocs": "undefined", PRESERVE: "false", EMBEDDED: "false",
    INT_OR_STRING: "false", "x-kubernetes-list-map-keys": "empty", "x-kubernetes-list-type": "undefined",
    "x-kubernetes-map-type": "undefined", "x-kubernetes-validations": "empty",
}  # fmt: skip
# The keywords at the root of a schema with a status subresource.
ROOT_FIELDS: Final = (
    "description", "type", "format", "title", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum",
    "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "multipleOf", "required", "items",
    "properties", "externalDocs", "example", PRESERVE, "x-kubernetes-validations",
)  # fmt: skip
TYPE_FIELDS: Final = ("apiVersion", "kind")


def validate_root(raw: Json, path: str, *, has_status: bool = False) -> list[FieldError]:
    """Return all errors of the schema of a version."""
    found: list[FieldError] = []
    if has_status and any(name not in ROOT_FIELDS for name, value in raw.items() if value):
        shown = " ".join(_title(name) for name in ROOT_FIELDS)
        detail = f"only [{shown}] fields are allowed at the root of the schema if the status subresource is enabled"
        found.append(fields.invalid(path, raw, detail))
    if raw.get("nullable"):
        found.append(fields.forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    words = list(_words(raw, path, is_root=True))
    if not _has_unsupported(raw):
        found += sorted([*_structure(raw, path, "root"), *_completeness(raw, raw, path, path)], key=str)
        found += [] if found else _defaults(raw, path, is_resource=True)
    elif not words:
        found.append(fields.invalid(path, "", "OpenAPIV3Schema 'schema' is not supported"))
    found += words
    return found or list(schema_rules.compile_faults(raw, path))


def _title(name: str) -> str:
    """Return the name in Go: ``XValidations`` for ``x-kubernetes-validations``."""
    words = name.replace("x-kubernetes", "x").split("-")
    return "".join(word[0].upper() + word[1:] for word in words)


def _parts(raw: Json) -> Iterator[tuple[str, Json]]:
    """Yield all schemas inside of a schema."""
    for group in ("properties", "patternProperties", "definitions"):
        for name, child in (raw.get(group) or {}).items():
            yield f".{group}[{name}]", child
    for name in ("items", "additionalProperties", "not"):
        if isinstance(child := raw.get(name), dict):
            yield f".{name}", child
    for name in JUNCTORS:
        for index, child in enumerate(raw.get(name) or ()):
            yield f".{name}[{index}]", child


def _has_unsupported(raw: Json) -> bool:
    return any(raw.get(name) for name in (*UNSUPPORTED, "$schema")) or any(
        _has_unsupported(child) for _, child in _parts(raw)
    )


def _words(
    raw: Json, path: str, *, is_root: bool = False, where: str = "", in_metadata: bool = False
) -> Iterator[FieldError]:
    """Yield unsupported keywords. ``where`` is the top-level field in which no default is allowed."""
    kind: str = raw.get("type") or ""
    if kind and kind not in TYPES:
        yield fields.not_supported(f"{path}.type", kind, TYPES)
    if kind == "null":
        yield fields.forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    if where and raw.get("default") is not None:
        yield fields.forbidden(f"{path}.default", f"must not be set in top-level {where}")
    yield from (fields.forbidden(f"{path}.{name}", f"{name} is not supported") for name in UNSUPPORTED if raw.get(name))
    if isinstance(raw.get("items"), list):
        yield fields.forbidden(f"{path}.items", "items must be a schema object and not an array")
    if in_metadata and raw.get(EMBEDDED):
        yield fields.forbidden(f"{path}.{EMBEDDED}", "must not be used inside of resource meta")
    if raw.get("uniqueItems"):
        detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield fields.forbidden(f"{path}.uniqueItems", detail)
    if raw.get("properties") and raw.get("additionalProperties") not in (None, True):
        detail = "additionalProperties and properties are mutual exclusive"
        yield fields.forbidden(f"{path}.additionalProperties", detail)
    if raw.get(PRESERVE) is False:
        yield fields.invalid(f"{path}.{PRESERVE}", False, "must be true or undefined")
    yield from map_faults(raw, path)
    yield from list_faults(raw, path)
    yield from schema_rules.word_faults(raw, path)
    for step, child in _parts(raw):
        name = step.removeprefix(".properties[").removesuffix("]")
        is_meta = name in (*TYPE_FIELDS, "metadata") and (is_root or bool(raw.get(EMBEDDED)))
        below = name if is_root and is_meta else where
        yield from _words(child, f"{path}{step}", where=below, in_metadata=in_metadata or is_meta)


def _structure(raw: Json, path: str, level: Level) -> Iterator[FieldError]:
    yield from _type_faults(raw, path, level)
    items, additional = raw.get("items"), raw.get("additionalProperties")
    if raw.get("type") == "array" and items is None:
        yield fields.required(f"{path}.items", "must be specified")
    if additional is not None and level == "root":
        yield fields.forbidden(f"{path}.additionalProperties", "must not be used at the root")
    if raw.get(INT_OR_STRING):
        detail = f"must be false if {INT_OR_STRING} is true"
        yield from (fields.invalid(f"{path}.{name}", True, detail) for name in (PRESERVE, EMBEDDED) if raw.get(name))
    if raw.get(EMBEDDED):
        yield from _embedded_faults(raw, path)
    if level == "root" or raw.get(EMBEDDED):
        yield from _type_field_faults(raw, path, level)
    yield from _nested_parts(raw, path)
    for name, child in (raw.get("properties") or {}).items():
        yield from _structure(child, f"{path}.properties[{name}]", "field")
    if isinstance(items, dict):
        yield from _structure(items, f"{path}.items", "item")
    if isinstance(additional, dict):
        yield from _structure(additional, f"{path}.additionalProperties", "field")


def _type_faults(raw: Json, path: str, level: Level) -> Iterator[FieldError]:
    kind, where = raw.get("type") or "", f"{path}.type"
    if raw.get(EMBEDDED) and kind != "object":
        detail = f"must be object if {EMBEDDED} is true"
        yield fields.invalid(where, kind, detail) if kind else fields.required(where, detail)
    elif not kind and not raw.get(INT_OR_STRING) and not raw.get(PRESERVE):
        place = {"root": "at the root", "item": "for specified array items", "field": "for specified object fields"}
        yield fields.required(where, f"must not be empty {place[level]}")
    elif level == "root" and kind and kind != "object":
        yield fields.invalid(where, kind, "must be object at the root")


def _embedded_faults(raw: Json, path: str) -> Iterator[FieldError]:
    if raw.get("additionalProperties") is not None:
        yield fields.forbidden(f"{path}.additionalProperties", f"must not be used if {EMBEDDED} is set")
    if not raw.get(PRESERVE) and not raw.get("properties"):
        yield fields.required(f"{path}.properties", f"must not be empty if {EMBEDDED} is true without {PRESERVE}")


def _type_field_faults(raw: Json, path: str, level: Level) -> Iterator[FieldError]:
    """Check kind, apiVersion and metadata. At the root, a schema may only restrict names."""
    properties = raw.get("properties") or {}
    for name in TYPE_FIELDS:
        if name in properties and properties[name].get("type") != "string":
            where = f"{path}.properties[{name}].type"
            yield fields.invalid(where, properties[name].get("type") or "", "must be string")
    if "metadata" not in properties:
        return
    metadata, where = properties["metadata"], f"{path}.properties[metadata]"
    if metadata.get("type") != "object":
        yield fields.invalid(f"{where}.type", metadata.get("type") or "", "must be object")
    said = {name for name, value in metadata.items() if value} - {"type", "default", "properties"}
    if level == "root" and (said or set(metadata.get("properties") or ()) - {"name", "generateName"}):
        detail = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        yield fields.forbidden(where, detail)


def _nested_parts(raw: Json, path: str) -> Iterator[FieldError]:
    """Check ``allOf`` and the like. The only types that they may have are those of an integer or string."""
    for name in JUNCTORS:
        if name == "anyOf" and raw.get("anyOf") == EITHER:
            continue
        for index, part in enumerate(raw.get(name) or ()):
            if name == "allOf" and index == 0 and part.get("anyOf") == EITHER:
                part = {key: value for key, value in part.items() if key != "anyOf"}
            yield from _nested(part, f"{path}.{name}[{index}]")
    if isinstance(raw.get("not"), dict):
        yield from _nested(raw["not"], f"{path}.not")
    if (pattern := raw.get("pattern")) and not fast.is_pattern(pattern):
        yield fields.invalid(f"{path}.pattern", pattern, "must be a valid regular expression, but isn't")


def _nested(raw: Json, path: str) -> Iterator[FieldError]:
    for name, wanted in NOT_NESTED.items():
        if raw.get(name) if wanted != "undefined" else raw.get(name) is not None:
            yield fields.forbidden(f"{path}.{name}", f"must be {wanted} to be structural")
    properties = raw.get("properties") or {}
    if "metadata" in properties:
        yield fields.forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")
    for name, child in properties.items():
        yield from _nested(child, f"{path}.properties[{name}]")
    if isinstance(raw.get("items"), dict):
        yield from _nested(raw["items"], f"{path}.items")
    yield from _nested_parts(raw, path)


def _completeness(nested: Json, raw: Json, path: str, where: str) -> Iterator[FieldError]:
    """Check that a field in ``allOf`` and the like is also a field of the schema itself."""
    parts = [(f"{where}.{name}[{at}]", part) for name in JUNCTORS for at, part in enumerate(nested.get(name) or ())]
    if isinstance(nested.get("not"), dict):
        parts.append((f"{where}.not", nested["not"]))
    for at, part in parts:
        for name, child in (part.get("properties") or {}).items():
            place, known = f"{path}.properties[{name}]", (raw.get("properties") or {}).get(name)
            if known is None:
                yield fields.required(place, f"because it is defined in {at}.properties[{name}]")
            else:
                yield from _completeness({"allOf": [child]}, known, place, f"{at}.properties[{name}]")
        yield from _completeness(part, raw, path, at)


def _defaults(raw: Json, path: str, *, is_resource: bool = False) -> Iterator[FieldError]:
    if raw.get("default") is not None:
        yield from _default_faults(raw, f"{path}.default", is_resource=is_resource or bool(raw.get(EMBEDDED)))
    for name, child in (raw.get("properties") or {}).items():
        yield from _defaults(child, f"{path}.properties[{name}]")
    if isinstance(raw.get("items"), dict):
        yield from _defaults(raw["items"], f"{path}.items")


def _default_faults(raw: Json, path: str, *, is_resource: bool) -> Iterator[FieldError]:
    node, value = Schema(raw), raw["default"]
    if schema.unknown_parts(node, value, is_resource=is_resource):
        yield fields.invalid(path, value, "must not have unknown fields")
    if is_resource and isinstance(value, dict) and (missing := [name for name in TYPE_FIELDS if not value.get(name)]):
        yield from (fields.required(f"{path}.{name}") for name in missing)
        return
    if wrong := checks.faults(node, value, MISSING, ""):
        yield from (_moved(error, path) for error in wrong)
    else:
        broken: list[FieldError] = []
        cel.check_rules(node, value, MISSING, path, broken)
        yield from broken


def _moved(error: FieldError, path: str) -> FieldError:
    below = "" if error.field in ("", "<nil>") else f".{error.field}"
    return msgspec.structs.replace(error, field=path + below)
