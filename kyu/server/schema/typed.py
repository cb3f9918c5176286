"""
Decode a body to the canonical form of a built-in kind.

Kubernetes decodes built-in kinds to Go structs and encodes them again. So unknown fields and nulls are gone, empty
values are left out or written as their type wants it, and quantities and times have their canonical form. A value of
the wrong type is an error. Each field has a letter for its encoding when it is empty (see ``EMPTY``); a field without a
letter is written if it is present.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Any, Final

from kyu.api import quantity
from kyu.api.meta import Json
from kyu.server.go_words import json_name
from kyu.server.schema import go_times
from kyu.server.schema.node import Schema

# Left out when empty: "o" values, "z" times. Always there: "s" struct, "n" null, "e" "", "i" 0, "b" false, ...
OMITTED: Final = frozenset("oz")
EMPTY: Final[dict[str, Any]] = {"n": None, "e": "", "i": 0, "b": False, "q": "0", "d": "0s"}
# The types of Kubernetes that hold a schema or something else.
ALTERNATIVE: Final = "JSONSchemaPropsOr"
INT32: Final = range(-(2**31), 2**31)
INT64: Final = range(-(2**63), 2**63)


class TypeMismatch(Exception):
    """The body does not have the types of the kind."""


def decode(schema: Schema, obj: Any, kind: str) -> tuple[Json, list[str]]:
    """Return the object in its canonical form, and the paths of unknown fields in the order of the body."""
    if not isinstance(obj, dict):
        raise TypeMismatch(f"json: cannot unmarshal {json_name(obj)} into Go value of type {kind}")
    unknown: list[str] = []
    return _decode_struct(schema, obj, _Place("", "", kind, unknown)), unknown


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in the body."""

    # With list indexes, as messages about unknown fields have it.
    path: str
    # Without list indexes, as messages about types have it.
    fields: str
    struct: str
    unknown: list[str]

    def field(self, name: str, struct: str) -> _Place:
        path = f"{self.path}.{name}" if self.path else name
        return _Place(path, f"{self.fields}.{name}" if self.fields else name, struct, self.unknown)

    def item(self, index: int) -> _Place:
        return _Place(f"{self.path}[{index}]", self.fields, self.struct, self.unknown)

    def mismatch(self, value: Any, wanted: str) -> TypeMismatch:
        where = f"Go struct field {self.struct}.{self.fields}"
        return TypeMismatch(f"json: cannot unmarshal {json_name(value)} into {where} of type {wanted}")


def _go_type(schema: Schema) -> str:
    """Return the type of a field in Go."""
    if schema.properties:
        group, version, kind = ["", *schema.name.split(".")][-3:]
        return f"{version}.{kind}" if group else kind
    if schema.additional is not None:
        return f"map[string]{_go_type(schema.additional)}"
    if schema.items is not None:
        return f"[]{_go_type(schema.items)}"
    if schema.type == "integer":
        return schema.format or "int64"
    return {"boolean": "bool", "number": "float64"}.get(schema.type, schema.type)


def _decode(schema: Schema, value: Any, place: _Place) -> Any:
    if schema.properties:
        return _decode_struct(schema, value, place)
    if schema.additional is not None:
        return _decode_map(schema, schema.additional, value, place)
    if schema.items is not None:
        if not isinstance(value, list):
            raise place.mismatch(value, _go_type(schema))
        items = schema.items
        return [
            empty(items, place) if item is None else _decode(items, item, place.item(index))
            for index, item in enumerate(value)
        ]
    return _decode_scalar(schema, value, place)


def _decode_struct(schema: Schema, value: Any, place: _Place) -> Json:
    if not isinstance(value, dict):
        raise place.mismatch(value, _go_type(schema))
    properties, shape = schema.properties, schema.shape
    struct = schema.name.rpartition(".")[2] or place.struct
    result: Json = {}
    for name, item in value.items():
        child = properties.get(name)
        if child is None:
            place.unknown.append(f"{place.path}.{name}" if place.path else name)
        elif item is not None:
            # Plain strings are most of the fields, and need no decoding.
            is_plain = child.type == "string" and not child.format and isinstance(item, str)
            decoded = item if is_plain else _decode(child, item, place.field(name, struct))
            code = shape.get(name, "")
            # An empty list or map that cannot be left out is written as null.
            if decoded or not (code in OMITTED or (code == "n" and not child.properties)):
                result[name] = decoded
    for name, code in shape.items():
        if name not in result and code not in OMITTED:
            result[name] = _decode_struct(properties[name], {}, place) if code == "s" else EMPTY[code]
    return result


def _decode_map(schema: Schema, values: Schema, value: Any, place: _Place) -> Json:
    if not isinstance(value, dict):
        raise place.mismatch(value, _go_type(schema))
    return {
        name: empty(values, place) if item is None else _decode(values, item, place) for name, item in value.items()
    }


def empty(schema: Schema, place: _Place) -> Any:
    """Return the value that null becomes in a list or as the value of a map."""
    if schema.properties:
        return _decode_struct(schema, {}, place)
    if schema.name.endswith(".Quantity"):
        return "0"
    return {"string": "", "integer": 0, "number": 0, "boolean": False}.get(schema.type)


def _decode_scalar(schema: Schema, value: Any, place: _Place) -> Any:
    match schema.type:
        case "string":
            if not isinstance(value, str):
                raise place.mismatch(value, "string")
            return _decode_text(schema, value)
        case "integer":
            bounds = INT32 if schema.format == "int32" else INT64
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise place.mismatch(value, _go_type(schema))
            if isinstance(value, float) or value not in bounds:
                where = f"Go struct field {place.struct}.{place.fields} of type {_go_type(schema)}"
                raise TypeMismatch(f"json: cannot unmarshal number {value} into {where}")
        case "number":
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise place.mismatch(value, "float64")
        case "boolean":
            if not isinstance(value, bool):
                raise place.mismatch(value, "bool")
        case _:
            if schema.name.endswith(".Quantity"):
                return _decode_quantity(value)
            if ALTERNATIVE in schema.name:
                return _decode_alternative(schema, value, place)
            if schema.is_int_or_string and (isinstance(value, bool) or not isinstance(value, int | str)):
                raise place.mismatch(value, "int32")
    return value


def _decode_alternative(schema: Schema, value: Any, place: _Place) -> Any:
    """Decode a schema of a CustomResourceDefinition, or its alternative: a list, or a boolean."""
    prefix, _, alternative = schema.name.partition(ALTERNATIVE)
    if isinstance(value, dict):
        return _decode_struct(schema.definitions.node(f"{prefix}{ALTERNATIVE.removesuffix('Or')}"), value, place)
    if not isinstance(value, bool if alternative == "Bool" else list):
        raise place.mismatch(value, f"v1.{schema.name.rpartition('.')[2]}")
    return value


def _decode_quantity(value: Any) -> str:
    try:
        if isinstance(value, bool):
            raise quantity.QuantityError
        return str(quantity.parse(value))
    except quantity.QuantityError:
        pattern = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
        raise TypeMismatch(f"quantities must match the regular expression '{pattern}'") from None


def _decode_text(schema: Schema, value: str) -> str:
    if schema.format == "byte":
        plain = value.replace("\n", "").replace("\r", "")
        try:
            base64.b64decode(plain, validate=True)
        except ValueError:
            good = re.match(r"(?:[A-Za-z0-9+/]{4})*[A-Za-z0-9+/]*={0,2}", plain)
            raise TypeMismatch(f"illegal base64 data at input byte {good.end() if good else 0}") from None
    elif schema.format == "date-time":
        try:
            return go_times.canonical(value, has_microseconds=schema.name.endswith("MicroTime"))
        except go_times.TimeFault as error:
            raise TypeMismatch(str(error)) from None
    return value
