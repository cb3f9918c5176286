r"""
Decode request bodies in protobuf, which kubectl and typed Go clients send for built-in kinds.

A body is the four bytes ``k8s\0`` and an envelope with the kind and the bytes of the object. The generated tables of
server/schema/published.py have the field numbers. The result is the JSON that the same client would have sent. Answers
are always JSON, which every client accepts.

Kubernetes: apimachinery/pkg/runtime/serializer/protobuf, generated.proto.
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
from kyu.server.bounds import MOST_VALUES
from kyu.server.schema.published import GroupVersionData, is_known, load

MAGIC: Final = b"k8s\x00"
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MAX_DEPTH: Final = 64
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# These kinds are served in every group.
OPTIONS_KINDS: Final = frozenset({"DeleteOptions", "CreateOptions", "UpdateOptions", "PatchOptions", "GetOptions"})

Raw: TypeAlias = int | bytes


class Unreadable(Exception):
    """The bytes are no protobuf message of the kind."""


def decode(body: bytes) -> Json:
    """Return the object with its apiVersion and kind; raise a 400 if it cannot be decoded."""
    if not body.startswith(MAGIC):
        raise errors.bad_request(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
        )
    try:
        envelope = dict(_fields(body[len(MAGIC) :], Budget()))
        named = dict(_fields(_bytes(envelope.get(1, b"")), Budget()))
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
    # The bodies of subresources of core kinds belong to other groups.
    both = load(group, version), load("", "v1")
    data = next((one for one in both if (group, version, kind) in one.name_by_kind), both[0])
    name = data.name_by_kind.get((group, version, kind))
    if name is None:
        raise Unreadable(f'no kind "{kind}" is registered for version "{api_version}"')
    return data, name


class Budget:
    """The number of values that may still be read from one body."""

    def __init__(self) -> None:
        self.left = MOST_VALUES

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Unreadable(f"the body has more than {MOST_VALUES} values")


def _fields(data: bytes, budget: Budget) -> Iterator[tuple[int, Raw]]:
    """Yield the numbered values of a message."""
    position, end = 0, len(data)
    while position < end:
        budget.spend()
        tag, position = _varint(data, position)
        number, form = tag >> 3, tag & 7
        value: Raw
        if form == BYTES:
            size, position = _varint(data, position)
            value, position = data[position : position + size], position + size
        elif form == VARINT:
            value, position = _varint(data, position)
        elif form in (FIXED64, FIXED32):
            size = 8 if form == FIXED64 else 4
            value, position = data[position : position + size], position + size
        else:
            raise Unreadable(f"wire type {form} of field {number}")
        if position > end:
            raise Unreadable("unexpected end of the message")
        yield number, value


def _varint(data: bytes, position: int) -> tuple[int, int]:
    if position < len(data) and (byte := data[position]) < 0x80:
        return byte, position + 1
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
    """A decoder of messages with the tables of one group version."""

    def __init__(self, data: GroupVersionData) -> None:
        self._wire = data.wire
        self._budget = Budget()

    def _parts(self, data: bytes) -> dict[int, Raw]:
        return dict(_fields(data, self._budget))

    def message(self, type_: str, data: bytes, depth: int) -> Json:
        if depth > MAX_DEPTH:
            raise Unreadable("the message is nested too deeply")
        table = self._wire.get(type_, {})
        result: Json = {}
        for number, raw in _fields(data, self._budget):
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
        parts = self._parts(data)
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
                return _time(self._parts(_bytes(raw)), "seconds" if type_ == "time" else "microseconds")
            case "duration":
                return _duration(self._parts(_bytes(raw)))
            case "quantity":
                return _text(self._parts(_bytes(raw)).get(1, b"0"))
            case "intorstring":
                return _int_or_string(self._parts(_bytes(raw)))
            case "raw":
                return _embedded(self._parts(_bytes(raw)))
        if type_.startswith("list:"):
            return [self._value(type_[5:], item, depth) for _, item in _fields(_bytes(raw), self._budget)]
        return self.message(type_, _bytes(raw), depth + 1)


def _nothing(type_: str) -> Raw:
    """Return the value of a map entry without a value."""
    return 0 if type_ in ("int", "bool") else b""


def _time(parts: dict[int, Raw], precision: str) -> str | None:
    """Decode a time; a message without fields is null."""
    if not parts:
        return None
    moment = EPOCH + timedelta(seconds=_signed(parts.get(1, 0)), microseconds=_signed(parts.get(2, 0)) // 1000)
    return moment.replace(tzinfo=None).isoformat(timespec=precision) + "Z"


def _duration(parts: dict[int, Raw]) -> str:
    nanoseconds = _signed(parts.get(1, 0))
    seconds, rest = divmod(nanoseconds, 10**9)
    return f"{seconds}s" if not rest else f"{nanoseconds}ns"


def _int_or_string(parts: dict[int, Raw]) -> int | str:
    return _text(parts.get(3, b"")) if _signed(parts.get(1, 0)) == 1 else _signed(parts.get(2, 0))


def _embedded(parts: dict[int, Raw]) -> Any:
    """Decode JSON that is carried as bytes."""
    text = _bytes(parts.get(1, b""))
    try:
        return msgspec.json.decode(text) if text else None
    except msgspec.DecodeError as error:
        raise Unreadable(f"embedded JSON: {error}") from None
