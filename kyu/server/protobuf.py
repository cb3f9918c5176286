"""
Reads request bodies in the protobuf form that kubectl and typed Go clients send for built-in kinds.

A body is the four bytes ``k8s\\0`` and an envelope with the kind and the bytes of the object. The numbers of the fields
come from the generated tables (builtin_data.py); everything is turned to the JSON that the same client would have sent.
Only reading is here: answers are always JSON, which every client accepts.

Called by: server/bodies.py. Kubernetes: apimachinery/pkg/runtime/serializer/protobuf, generated.proto.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

import msgspec

from kyu.api.meta import Json
from kyu.server import errors
from kyu.server.builtin_data import GroupVersionData, is_known, load

MAGIC: Final = b"k8s\x00"
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MAX_DEPTH: Final = 64
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# The field that some kinds are known by in any group.
OPTIONS_KINDS: Final = frozenset({"DeleteOptions", "CreateOptions", "UpdateOptions", "PatchOptions", "GetOptions"})

Raw: TypeAlias = int | bytes


class Unreadable(Exception):
    """The bytes are no protobuf of the kind."""


def decode(body: bytes) -> Json:
    """The object in JSON, with its apiVersion and kind; a 400 if it cannot be read."""
    if not body.startswith(MAGIC):
        raise errors.bad_request(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
        )
    try:
        envelope = dict(_fields(body[len(MAGIC) :]))
        named = dict(_fields(_bytes(envelope.get(1, b""))))
        api_version, kind = _text(named.get(1, b"")), _text(named.get(2, b""))
        data, type_ = find_type(api_version, kind)
        obj = _Reader(data).message(type_, _bytes(envelope.get(2, b"")), 0)
    except (Unreadable, struct.error, UnicodeDecodeError, OverflowError) as error:
        raise errors.bad_request(f"unable to decode protobuf: {error}") from None
    return {"apiVersion": api_version, "kind": kind, **obj}


def find_type(api_version: str, kind: str) -> tuple[GroupVersionData, str]:
    group, _, version = api_version.rpartition("/")
    if kind in OPTIONS_KINDS:
        group, version = "", "v1"
    if not is_known(group, version):
        raise Unreadable(f'no kind "{kind}" is registered for version "{api_version}"')
    data = load(group, version)
    name = data.name_by_kind.get((group, version, kind))
    if name is None:
        raise Unreadable(f'no kind "{kind}" is registered for version "{api_version}"')
    return data, name


def _fields(data: bytes) -> Iterator[tuple[int, Raw]]:
    """The numbered values of a message."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, form = tag >> 3, tag & 7
        value: Raw
        if form == VARINT:
            value, position = _varint(data, position)
        elif form in (FIXED64, FIXED32):
            size = 8 if form == FIXED64 else 4
            value, position = data[position : position + size], position + size
        elif form == BYTES:
            size, position = _varint(data, position)
            value, position = data[position : position + size], position + size
        else:
            raise Unreadable(f"wire type {form} of field {number}")
        if position > len(data):
            raise Unreadable("unexpected end of the message")
        yield number, value


def _varint(data: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise Unreadable("a number does not end")
        byte = data[position]
        result |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return result & 0xFFFF_FFFF_FFFF_FFFF, position


def _bytes(value: Raw) -> bytes:
    if isinstance(value, int):
        raise Unreadable("a number stands where bytes are wanted")
    return value


def _text(value: Raw) -> str:
    return _bytes(value).decode()


def _signed(value: Raw) -> int:
    if isinstance(value, bytes):
        raise Unreadable("bytes stand where a number is wanted")
    return value - 2**64 if value >= 2**63 else value


class _Reader:
    """Reads messages whose fields are in the tables of one group version."""

    def __init__(self, data: GroupVersionData) -> None:
        self._wire = data.wire

    def message(self, type_: str, data: bytes, depth: int) -> Json:
        if depth > MAX_DEPTH:
            raise Unreadable("the message is nested too deeply")
        table = self._wire.get(type_, {})
        result: Json = {}
        for number, raw in _fields(data):
            name, field_type = table.get(str(number), ("", ""))
            if not field_type:
                continue
            if not name:
                result.update(self.message(field_type, _bytes(raw), depth + 1))
            elif field_type.startswith("[]"):
                result.setdefault(name, []).append(self._value(field_type[2:], raw, depth))
            elif field_type.startswith("map:"):
                key, value = self._entry(field_type[4:], _bytes(raw), depth)
                result.setdefault(name, {})[key] = value
            else:
                result[name] = self._value(field_type, raw, depth)
        return result

    def _entry(self, type_: str, data: bytes, depth: int) -> tuple[str, Any]:
        parts = dict(_fields(data))
        return _text(parts.get(1, b"")), self._value(type_, parts.get(2, _nothing(type_)), depth)

    def _value(self, type_: str, raw: Raw, depth: int) -> Any:
        match type_:
            case "string":
                return _text(raw)
            case "int":
                return _signed(raw)
            case "bool":
                return bool(_signed(raw))
            case "double":
                return struct.unpack("<d", _bytes(raw))[0]
            case "bytes":
                return base64.b64encode(_bytes(raw)).decode()
            case "time" | "microtime":
                return _time(_bytes(raw), "seconds" if type_ == "time" else "microseconds")
            case "duration":
                return _duration(_bytes(raw))
            case "quantity":
                return _text(dict(_fields(_bytes(raw))).get(1, b"0"))
            case "intorstring":
                return _int_or_string(_bytes(raw))
            case "raw":
                return _embedded(_bytes(raw))
        if type_.startswith("list:"):
            return [self._value(type_[5:], item, depth) for _, item in _fields(_bytes(raw))]
        return self.message(type_, _bytes(raw), depth + 1)


def _nothing(type_: str) -> Raw:
    """The value of a map entry that was left out because it is empty."""
    return 0 if type_ in ("int", "bool") else b""


def _time(data: bytes, precision: str) -> str | None:
    """Seconds and nanoseconds since 1970; nothing at all is no time."""
    parts = dict(_fields(data))
    if not parts:
        return None
    moment = EPOCH + timedelta(seconds=_signed(parts.get(1, 0)), microseconds=_signed(parts.get(2, 0)) // 1000)
    return moment.replace(tzinfo=None).isoformat(timespec=precision) + "Z"


def _duration(data: bytes) -> str:
    nanoseconds = _signed(dict(_fields(data)).get(1, 0))
    seconds, rest = divmod(nanoseconds, 10**9)
    return f"{seconds}s" if not rest else f"{nanoseconds}ns"


def _int_or_string(data: bytes) -> int | str:
    parts = dict(_fields(data))
    return _text(parts.get(3, b"")) if _signed(parts.get(1, 0)) == 1 else _signed(parts.get(2, 0))


def _embedded(data: bytes) -> Any:
    """JSON that is carried as bytes."""
    text = _bytes(dict(_fields(data)).get(1, b""))
    try:
        return msgspec.json.decode(text) if text else None
    except msgspec.DecodeError as error:
        raise Unreadable(f"embedded JSON: {error}") from None
