"""
What is left of a request body when it has been read into a typed object of a built-in kind and written again.

Kubernetes keeps built-in kinds as Go structs, and clients see the traces: unknown fields are gone, null is nothing, an
empty value that may be left out is left out, others are written even when empty, quantities and times take their
canonical form, and a value of the wrong type makes the body unreadable. Each field has a letter for how it is written
when it is empty (see ``EMPTY``); a field without one is written exactly if it is there.

Called by: server/resources.py for built-in kinds, and for the metadata of custom ones.
"""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from typing import Any, Final

from kyu.api import quantity
from kyu.api.meta import Json
from kyu.server.schema_node import Schema

# Left out when empty: "o" values, "z" times. Always there: "s" struct, "n" null, "e" "", "i" 0, "b" false, ...
OMITTED: Final = frozenset("oz")
EMPTY: Final[dict[str, Any]] = {"n": None, "e": "", "i": 0, "b": False, "q": "0", "d": "0s"}
JSON_NAMES: Final = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}
INT32: Final = range(-(2**31), 2**31)
INT64: Final = range(-(2**63), 2**63)


class TypeMismatch(Exception):
    """The body cannot be read into the kind."""


def decode(schema: Schema, obj: Any, kind: str) -> tuple[Json, list[str]]:
    """The object in its canonical form, and the paths of unknown fields in the order of the body."""
    unknown: list[str] = []
    result = _decode(schema, obj, "", _Reading(kind, unknown))
    if not isinstance(result, dict):
        raise TypeMismatch(f"json: cannot unmarshal {_name(obj)} into Go value of type {kind}")
    return result, unknown


class _Reading:
    """What one reading has found so far."""

    __slots__ = ("kind", "unknown")

    def __init__(self, kind: str, unknown: list[str]) -> None:
        self.kind = kind
        self.unknown = unknown

    def mismatch(self, value: Any, path: str, wanted: str) -> TypeMismatch:
        where = f"Go struct field {self.kind}.{path}"
        return TypeMismatch(f"json: cannot unmarshal {_name(value)} into {where} of type {wanted}")


def _name(value: Any) -> str:
    return JSON_NAMES.get(type(value), "null")


def _decode(schema: Schema, value: Any, path: str, reading: _Reading) -> Any:
    if schema.properties:
        return _decode_struct(schema, value, path, reading)
    if schema.additional is not None:
        return _decode_map(schema.additional, value, path, reading)
    if schema.items is not None:
        if not isinstance(value, list):
            raise reading.mismatch(value, path, "array")
        items = schema.items
        return [
            empty(items, reading) if item is None else _decode(items, item, f"{path}[{index}]", reading)
            for index, item in enumerate(value)
        ]
    return _decode_scalar(schema, value, path, reading)


def _decode_struct(schema: Schema, value: Any, path: str, reading: _Reading) -> Json:
    if not isinstance(value, dict):
        raise reading.mismatch(value, path, schema.name.rpartition(".")[2] or "object")
    properties, shape = schema.properties, schema.shape
    result: Json = {}
    for name, item in value.items():
        here = f"{path}.{name}" if path else name
        child = properties.get(name)
        if child is None:
            reading.unknown.append(here)
        elif item is not None:
            decoded = _decode(child, item, here, reading)
            if decoded or shape.get(name) not in OMITTED:
                result[name] = decoded
    for name, code in shape.items():
        if name not in result and code not in OMITTED:
            result[name] = _decode(properties[name], {}, "", reading) if code == "s" else EMPTY[code]
    return result


def _decode_map(values: Schema, value: Any, path: str, reading: _Reading) -> Json:
    if not isinstance(value, dict):
        raise reading.mismatch(value, path, "map")
    return {
        name: empty(values, reading) if item is None else _decode(values, item, f"{path}.{name}", reading)
        for name, item in value.items()
    }


def empty(schema: Schema, reading: _Reading) -> Any:
    """What null becomes where it cannot be left out: in a list and as the value of a map."""
    if schema.properties:
        return _decode_struct(schema, {}, "", reading)
    return {"string": "", "integer": 0, "number": 0, "boolean": False}.get(schema.type)


def _decode_scalar(schema: Schema, value: Any, path: str, reading: _Reading) -> Any:
    match schema.type:
        case "string":
            if not isinstance(value, str):
                raise reading.mismatch(value, path, "string")
            return _decode_text(schema, value, path)
        case "integer":
            bounds = INT32 if schema.format == "int32" else INT64
            if isinstance(value, bool) or not isinstance(value, int) or value not in bounds:
                raise reading.mismatch(value, path, schema.format or "int64")
        case "number":
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise reading.mismatch(value, path, "float64")
        case "boolean":
            if not isinstance(value, bool):
                raise reading.mismatch(value, path, "bool")
        case _:
            if schema.name.endswith(".Quantity"):
                return _decode_quantity(value)
            if schema.is_int_or_string and (isinstance(value, bool) or not isinstance(value, int | str)):
                raise reading.mismatch(value, path, "intstr.IntOrString")
    return value


def _decode_quantity(value: Any) -> str:
    try:
        if isinstance(value, bool):
            raise quantity.QuantityError
        return str(quantity.parse(value))
    except quantity.QuantityError:
        pattern = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
        raise TypeMismatch(f"quantities must match the regular expression '{pattern}'") from None


def _decode_text(schema: Schema, value: str, path: str) -> str:
    if schema.format == "byte":
        try:
            base64.b64decode(value.replace("\n", "").replace("\r", ""), validate=True)
        except binascii.Error:
            raise TypeMismatch(f"illegal base64 data in {path}") from None
    elif schema.format == "date-time":
        return canonical_time(value, "microseconds" if schema.name.endswith("MicroTime") else "seconds")
    return value


def canonical_time(text: str, precision: str) -> str:
    """A time in UTC with whole seconds, or with six digits of them."""
    try:
        if "T" not in text:
            raise ValueError(text)
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError(text)
    except ValueError:
        layout = '"2006-01-02T15:04:05Z07:00"'
        raise TypeMismatch(f'parsing time "{text}" as {layout}: cannot parse "{text}"') from None
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=precision) + "Z"
