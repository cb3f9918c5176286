"""
Decode the body of a request: JSON, YAML or protobuf.

Duplicate fields are reported like unknown ones. The fast decoder keeps the last of two fields silently. So a body is
decoded a second time, slowly, unless its length proves that nothing was lost.

Kubernetes: apimachinery/pkg/runtime/serializer.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from kyu.api import documents
from kyu.api.meta import Json, Kind
from kyu.server import errors
from kyu.server.decode import protobuf
from kyu.server.exchange import Request, encode
from kyu.server.go_words import json_name

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
BUILT_IN_TYPES = (JSON, YAML, PROTOBUF)
CUSTOM_TYPES = (JSON, YAML)
STEP_FIELDS = frozenset({"op", "path", "from", "value"})

MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_decode = msgspec.json.Decoder().decode
_decode_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def decode(request: Request, kind: Kind, *, is_custom: bool = False) -> tuple[Json, list[str]]:
    """Return the object in the body, and the paths of duplicate fields."""
    accepted = CUSTOM_TYPES if is_custom else BUILT_IN_TYPES
    content_type = request.content_type or JSON
    if content_type not in accepted:
        raise errors.unsupported_media_type(accepted)
    if content_type == PROTOBUF:
        return protobuf.decode(request.body), []
    value = parse_yaml(request.body) if content_type == YAML else parse_json(request.body)
    if value is None:
        # An empty body is an object without fields.
        return {}, []
    if not isinstance(value, dict):
        found = f"json: cannot unmarshal {json_name(value)} into Go value of type"
        wanted = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
        raise errors.bad_request(f"couldn't get version/kind; json parse error: {found} {wanted}")
    return value, duplicates(request.body, value) if content_type == JSON else []


def decode_patch(body: bytes) -> tuple[Any, list[str]]:
    """Return the patch, and warnings about duplicate fields and fields that no operation of a JSON patch has."""
    value = parse_json(body)
    duplicate_paths = duplicates(body, value) if isinstance(value, dict | list) else []
    if not isinstance(value, list):
        return value, [f'duplicate field "{path}"' for path in duplicate_paths]
    by_step: dict[str, list[str]] = {}
    for path in duplicate_paths:
        by_step.setdefault(path.partition(".")[0], []).append(path)
    return value, [
        text
        for index, step in enumerate(value)
        for text in _step_problems(f"[{index}].", step, by_step.get(f"[{index}]", []))
    ]


def _step_problems(start: str, step: Any, duplicate_paths: list[str]) -> Iterator[str]:
    unknown = [start + name for name in step if name not in STEP_FIELDS] if isinstance(step, dict) else []
    for path in unknown:
        yield f'json patch unknown field "{path}"'
    for path in duplicate_paths:
        # Kubernetes does not descend into unknown fields.
        if path.startswith(start) and not path.startswith(tuple(unknown)):
            yield f'json patch duplicate field "{path}"'


def section(body: Json, name: str) -> Json:
    """Return an object inside a body, empty if it is absent."""
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise errors.bad_request(f"json: cannot unmarshal {json_name(value)} into {name} of type object")
    return value


class SplitBody(NamedTuple):
    """A JSON object with one field that stays undecoded."""

    name: str
    text: bytes
    besides: Json

    def is_complete(self, body: bytes) -> bool:
        """Return whether the body has no whitespace and no duplicate fields, outside of the undecoded field."""
        return len(encode({**self.besides, self.name: msgspec.Raw(self.text)})) == len(body.strip())


def split_body(body: bytes, name: str) -> SplitBody | None:
    """Split a body at a field. Return None if it has no such field, or is no JSON object."""
    try:
        parts = _decode_parts(body)
        part = parts.pop(name, None)
        return None if part is None else SplitBody(name, bytes(part), {key: _decode(raw) for key, raw in parts.items()})
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def split_object(body: Json, name: str) -> SplitBody:
    """Split an object at a field that it has."""
    return SplitBody(name, encode(body[name]), {key: value for key, value in body.items() if key != name})


def parse_json(body: bytes) -> Any:
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise errors.bad_request(f"couldn't get version/kind; json parse error: {error}") from error


def parse_yaml(body: bytes) -> Any:
    if body[:1] == b"{":
        # Many clients send JSON as YAML, which it is.
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return _decode(body)
    try:
        found = documents.parse(body.decode())
    except ValueError as error:
        raise errors.bad_request(f"error converting YAML to JSON: {error}") from error
    if len(found) > 1:
        raise errors.bad_request("error converting YAML to JSON: the body holds more than one document")
    return found[0].value if found else None


def duplicates(body: bytes, value: Json | list[Any]) -> list[str]:
    """Return the paths of duplicate fields, in order."""
    if len(encode(value)) == len(body.strip()):
        # The shortest encoding is as long as the body, so no field was dropped.
        return []
    return list(dict.fromkeys(_duplicates(json.loads(body, object_pairs_hook=_Pairs), "")))


class _Pairs:
    """A JSON object with all its pairs, duplicates included."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs


def _duplicates(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for name, item in value.pairs:
            here = f"{path}.{name}" if path else name
            if name in seen:
                yield here
            seen.add(name)
            yield from _duplicates(item, here)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _duplicates(item, f"{path}[{index}]")
