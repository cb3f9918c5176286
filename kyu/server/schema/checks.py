"""
Find all errors of an object by its schema, in the words of Kubernetes.

An update does not check values that did not change, so that a stricter schema does not block unrelated writes
(ratcheting). Items of a list have an old value only if the list has keys.

Kubernetes: kube-openapi/pkg/validation/validate, apiextensions-apiserver/pkg/apiserver/{schema/listtype,validation}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.server.json_values import same
from kyu.server.schema import fast, formats
from kyu.server.schema.node import MISSING, Schema
from kyu.server.validation.metadata import validate_labels

TYPES: Final[Mapping[type, str]] = {
    dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null",
}  # fmt: skip
INT_BITS: Final = {"int32": 32, "int64": 64}
# The path that Kubernetes writes where it knows no field.
NO_FIELD: Final = "<nil>"
# After these errors CEL rules do not run, because they may rely on valid values.
BLOCKING: Final = frozenset({"NotSupported", "Required", "TooLong", "TooMany", "TypeInvalid"})


def faults(schema: Schema, value: Any, old: Any, path: str) -> list[FieldError]:
    """Return the errors of a value and of all values in it. Duplicate items are found by ``check_lists``."""
    found: list[FieldError] = []
    check(schema, value, old, path, found)
    return found


def check(schema: Schema, value: Any, old: Any, path: str, found: list[FieldError]) -> None:
    if old is not MISSING and value == old:
        return
    fits = _check_type(schema, value, path, found) or _is_fraction(schema, value)
    if value is None:
        return
    if "enum" in schema.raw and not any(same(value, choice) for choice in schema.raw["enum"]):
        found.append(fields.not_supported(path, value, map(str, schema.raw["enum"])))
    if not fits:
        return
    _check_combinations(schema, value, path, found)
    if isinstance(value, dict):
        _check_object(schema, value, old, path, found)
    elif isinstance(value, list):
        _check_list(schema, value, old, path, found)
    elif isinstance(value, str):
        _check_text(schema, value, path, found)
    elif not isinstance(value, bool):
        _check_number(schema, value, path, found)


def _check_type(schema: Schema, value: Any, path: str, found: list[FieldError]) -> bool:
    actual = TYPES[type(value)]
    if actual == "integer" and not _fits_bits(value, 64):
        # Larger numbers are decoded as floats.
        actual = "number"
    if value is None and (schema.nullable or not (schema.type or schema.is_int_or_string)):
        return True
    if schema.is_int_or_string:
        wanted = "integer,string"
        fits = actual in ("integer", "string")
    else:
        wanted = schema.type
        fits = not wanted or actual == wanted or (wanted == "number" and actual == "integer")
        fits = fits or (wanted == "integer" and isinstance(value, float) and value.is_integer())
    if not fits and schema.format in formats.NAMES and value is not None:
        return _check_formatted(schema, actual, path, found)
    if not fits:
        if wanted == "integer" and actual == "number":
            found.append(_number_mismatch("integer (default format)", path))
        detail = f'{path} in body must be of type {wanted}: "{actual}"'
        found.append(fields.type_invalid(path, actual, detail))
    return fits


def _check_formatted(schema: Schema, actual: str, path: str, found: list[FieldError]) -> bool:
    """Report a value of another type by the format of its schema: Kubernetes checks the format in place of the type."""
    wanted = schema.format
    if actual in ("string", "array"):
        if schema.type not in ("integer", "number"):
            # Their type is not checked. A string is compared with the format later, a list never.
            return True
        wanted = schema.type
    else:
        # Kubernetes has no names for the other types.
        actual = {"integer": "int64", "number": "float64"}.get(actual, "")
    found.append(fields.type_invalid(path, actual, f'{path} in body must be of type {wanted}: "{actual}"'))
    return False


def _fits_bits(value: int | float, bits: int) -> bool:
    return -(1 << bits - 1) <= value < 1 << bits - 1


def _is_fraction(schema: Schema, value: Any) -> bool:
    """Return whether a number is no integer of its format. Kubernetes checks it as a number nevertheless."""
    is_number = isinstance(value, float) or (type(value) is int and not _fits_bits(value, 64))
    return is_number and schema.type == "integer" and schema.format in INT_BITS


def _check_combinations(schema: Schema, value: Any, path: str, found: list[FieldError]) -> None:
    """Check allOf, anyOf, oneOf and not. Kubernetes adds the errors of the first alternative."""
    raw = schema.raw

    def faults_of(part: Json) -> list[FieldError]:
        return faults(Schema(part, schema.definitions), value, MISSING, path)

    def alternatives(name: str) -> list[list[FieldError]]:
        return [faults_of(part) for part in raw.get(name) or ()]

    def refuse(text: str) -> None:
        found.append(fields.invalid(NO_FIELD, "", f'"{path}" must {text}'))

    if any(parts := alternatives("allOf")):
        refuse("validate all the schemas (allOf)" + (". None validated" if all(parts) else ""))
        found += [fault for part in parts for fault in part]
    if (parts := alternatives("anyOf")) and all(parts):
        refuse("validate at least one schema (anyOf)")
        found += parts[0]
    parts = alternatives("oneOf")
    if parts and (count := parts.count([])) != 1:
        result = f"Found {count} valid alternatives" if count else "Found none valid"
        refuse(f"validate one and only one schema (oneOf). {result}")
        found += parts[0] if not count else []
    if "not" in raw and not faults_of(raw["not"]):
        refuse("not validate the schema (not)")


def _check_object(schema: Schema, value: dict[str, Any], old: Any, path: str, found: list[FieldError]) -> None:
    raw = schema.raw
    found += [fields.required(_join(path, name)) for name in schema.required if name not in value]
    if len(value) > raw.get("maxProperties", len(value)):
        found.append(fields.too_many(path, len(value), raw["maxProperties"]))
    if len(value) < raw.get("minProperties", 0):
        text = f"{path} in body should have at least {raw['minProperties']} properties"
        found.append(fields.invalid(path, len(value), text))
    if schema.is_embedded:
        _check_embedded(value, path, found)
    before = old if isinstance(old, dict) else {}
    for name, item in value.items():
        child = schema.child(name)
        if child is not None:
            check(child, item, before.get(name, MISSING), _join(path, name), found)


def _check_embedded(value: dict[str, Any], path: str, found: list[FieldError]) -> None:
    """Check the type and the labels of an embedded object."""
    found += [fields.required(_join(path, name)) for name in ("apiVersion", "kind") if not value.get(name)]
    metadata = value.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    if isinstance(labels, dict):
        found += validate_labels(labels, _join(path, "metadata.labels"))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _check_list(schema: Schema, value: list[Any], old: Any, path: str, found: list[FieldError]) -> None:
    raw = schema.raw
    if len(value) > raw.get("maxItems", len(value)):
        found.append(fields.too_many(path, len(value), raw["maxItems"]))
    if len(value) < raw.get("minItems", 0):
        text = f"{path} in body should have at least {raw['minItems']} items"
        found.append(fields.invalid(path, len(value), text))
    if raw.get("uniqueItems"):
        _check_unique(value, path, found)
    if schema.items is None:
        return
    before = items_by_key(schema, old)
    for index, item in enumerate(value):
        check(schema.items, item, before.get(key_of(schema, item), MISSING), f"{path}[{index}]", found)


def key_of(schema: Schema, item: Any) -> str:
    """Return the key of an item of a list map; empty if it has none."""
    if schema.list_type != "map" or not isinstance(item, dict):
        return ""
    return repr([item.get(name) for name in schema.list_map_keys])


def items_by_key(schema: Schema, items: Any) -> dict[str, Any]:
    if schema.list_type != "map" or not isinstance(items, list):
        return {}
    return {key: item for item in items if (key := key_of(schema, item))}


def _check_unique(items: list[Any], path: str, found: list[FieldError]) -> None:
    for index, item in enumerate(items):
        if any(same(item, other) for other in items[:index]):
            found.append(fields.duplicate(f"{path}[{index}]", item))


def check_lists(schema: Schema, value: Any, old: Any, path: str, found: list[FieldError]) -> None:
    """Check that the items of a set, and the keys of the items of a list map, differ."""
    if value is old or (old is not MISSING and value == old):
        return
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for name, child in _listed(schema, value).items():
            if name in value:
                check_lists(child, value[name], before.get(name, MISSING), _join(path, name), found)
    elif isinstance(value, list):
        if len(value) > 1 and schema.list_type == "set":
            _check_unique(value, path, found)
        elif schema.list_type == "map":
            _check_keys(schema, value, path, found)
        if schema.items is not None and schema.items.has_list_rules:
            known = items_by_key(schema, old)
            for index, item in enumerate(value):
                before_item = known.get(key_of(schema, item), MISSING) if known else MISSING
                check_lists(schema.items, item, before_item, f"{path}[{index}]", found)


def _listed(schema: Schema, value: dict[str, Any]) -> Mapping[str, Schema]:
    """Return the fields of a value with such lists below them."""
    inner = schema.additional
    if inner is None or not inner.has_list_rules:
        return schema.listed
    return {**{name: inner for name in value if name not in schema.properties}, **schema.listed}


def _check_keys(schema: Schema, items: list[Any], path: str, found: list[FieldError]) -> None:
    seen: set[str] = set()
    for index, item in enumerate(items):
        if item is None:
            continue
        if not isinstance(item, dict):
            found.append(fields.invalid(f"{path}[{index}]", item, "must be an object for an array of list-type map"))
            return
        key = key_of(schema, item)
        if key in seen:
            shown = {name: item[name] for name in schema.list_map_keys if name in item}
            found.append(fields.duplicate(f"{path}[{index}]", shown))
        seen.add(key)


def _check_text(schema: Schema, value: str, path: str, found: list[FieldError]) -> None:
    """Check a string. Only the first error of length and pattern is reported."""
    raw = schema.raw
    if len(value) > raw.get("maxLength", len(value)):
        found.append(fields.too_long(path, value, raw["maxLength"]))
    elif len(value) < raw.get("minLength", 0):
        text = f"{path} in body should be at least {raw['minLength']} chars long"
        found.append(fields.invalid(path, value, text))
    elif "pattern" in raw and not fast.matches(raw["pattern"], value):
        found.append(fields.invalid(path, value, f"{path} in body should match '{raw['pattern']}'"))
    if not _has_format(schema.format, value):
        detail = f'{path} in body must be of type {schema.format}: "{value}"'
        found.append(fields.type_invalid(path, value, detail))


def _has_format(name: str, value: str) -> bool:
    """Return whether a string has a format. An unknown format allows every string."""
    if (check_ := formats.CHECKS.get(name)) is not None:
        return bool(check_(value))
    return name not in formats.SHARED or fast.has_format(name, value)


def _check_number(schema: Schema, value: int | float, path: str, found: list[FieldError]) -> None:
    raw = schema.raw
    minimum, maximum, factor = raw.get("minimum"), raw.get("maximum"), raw.get("multipleOf")
    wanted = []
    if factor is not None and value % factor:
        wanted.append(f"a multiple of {factor}")
    if maximum is not None and (value > maximum or (raw.get("exclusiveMaximum") and value == maximum)):
        wanted.append(f"less than {'' if raw.get('exclusiveMaximum') else 'or equal to '}{maximum}")
    if minimum is not None and (value < minimum or (raw.get("exclusiveMinimum") and value == minimum)):
        wanted.append(f"greater than {'' if raw.get('exclusiveMinimum') else 'or equal to '}{minimum}")
    found += [fields.invalid(path, value, f"{path} in body should be {text}") for text in wanted]
    bits = INT_BITS.get(schema.format)
    if bits is not None and schema.type == "integer" and not (_fits_bits(value, bits) and float(value).is_integer()):
        found.append(_number_mismatch(f"integer with format {schema.format}", path))


def _number_mismatch(wanted: str, path: str) -> FieldError:
    """Return the error for a number that its type cannot hold. Kubernetes gives no field for it."""
    return fields.invalid(NO_FIELD, "", f"Checked value must be of type {wanted} in {path}")
