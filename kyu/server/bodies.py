"""
The body of a request to JSON, whatever it was written in: JSON, YAML or protobuf.

A field that stands twice is found too, and reported like an unknown one. The fast reader keeps the last of the two and
says nothing, so the body is read a second time, slowly, unless its length proves that nothing was lost.

Called by: server/writes.py, server/deletion.py. Kubernetes: apimachinery/pkg/runtime/serializer.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import msgspec

from kyu.api import documents
from kyu.api.meta import Json, Kind
from kyu.server import errors, protobuf
from kyu.server.exchange import Request, encode
from kyu.server.go_words import json_name

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
BUILT_IN_TYPES = (JSON, YAML, PROTOBUF)
CUSTOM_TYPES = (JSON, YAML)

_decode = msgspec.json.Decoder().decode


def decode(request: Request, kind: Kind, *, is_custom: bool = False) -> tuple[Json, list[str]]:
    """The object in the body, and the paths of fields that stand in it twice."""
    accepted = CUSTOM_TYPES if is_custom else BUILT_IN_TYPES
    content_type = request.content_type or JSON
    if content_type not in accepted:
        raise errors.unsupported_media_type(accepted)
    if content_type == PROTOBUF:
        return protobuf.decode(request.body), []
    value = parse_yaml(request.body) if content_type == YAML else parse_json(request.body)
    if value is None:
        # Nothing is an object without fields.
        return {}, []
    if not isinstance(value, dict):
        found = f"json: cannot unmarshal {json_name(value)} into Go value of type"
        wanted = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
        raise errors.bad_request(f"couldn't get version/kind; json parse error: {found} {wanted}")
    return value, duplicates(request.body, value) if content_type == JSON else []


def decode_patch(body: bytes) -> tuple[Any, list[str]]:
    """The patch, and the paths of fields that stand in it twice; of the steps of a JSON patch these are not told."""
    value = parse_json(body)
    return value, duplicates(body, value) if isinstance(value, dict) else []


def section(body: Json, name: str) -> Json:
    """An object inside a body, empty if it is absent."""
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise errors.bad_request(f"json: cannot unmarshal {json_name(value)} into {name} of type object")
    return value


def parse_json(body: bytes) -> Any:
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise errors.bad_request(f"couldn't get version/kind; json parse error: {error}") from error


def parse_yaml(body: bytes) -> Any:
    if body[:1] == b"{":
        # Most who may send YAML send JSON, which is YAML too.
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return _decode(body)
    try:
        found = documents.parse(body.decode())
    except ValueError as error:
        raise errors.bad_request(f"error converting YAML to JSON: {error}") from error
    if len(found) > 1:
        raise errors.bad_request("error converting YAML to JSON: the body holds more than one document")
    return found[0].value if found else None


def duplicates(body: bytes, value: Json) -> list[str]:
    """Paths that stand twice in the same object of a JSON body, in order."""
    if len(encode(value)) == len(body.strip()):
        # Written anew in the shortest form it is as long as before, so nothing was dropped.
        return []
    return list(dict.fromkeys(_duplicates(json.loads(body, object_pairs_hook=_Pairs), "")))


class _Pairs(dict[str, Any]):
    """A JSON object that remembers which of its names came twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.twice: list[str] = []
        if len(self) < len(pairs):
            seen: set[str] = set()
            for name, _ in pairs:
                if name in seen:
                    self.twice.append(name)
                seen.add(name)


def _duplicates(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, _Pairs):
        for name in value.twice:
            yield f"{path}.{name}" if path else name
        for name, item in value.items():
            yield from _duplicates(item, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _duplicates(item, f"{path}[{index}]")
