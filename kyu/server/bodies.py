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
from typing import Any, NamedTuple

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
# What a step of a JSON patch can have.
STEP_FIELDS = frozenset({"op", "path", "from", "value"})

MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_decode = msgspec.json.Decoder().decode
_decode_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


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
    """The patch, and what is told of it: fields that stand twice, and fields that no step of a JSON patch has."""
    value = parse_json(body)
    twice = duplicates(body, value) if isinstance(value, dict | list) else []
    if not isinstance(value, list):
        return value, [f'duplicate field "{path}"' for path in twice]
    return value, [text for index, step in enumerate(value) for text in _told_of_step(f"[{index}].", step, twice)]


def _told_of_step(start: str, step: Any, twice: list[str]) -> Iterator[str]:
    unknown = [start + name for name in step if name not in STEP_FIELDS] if isinstance(step, dict) else []
    for path in unknown:
        yield f'json patch unknown field "{path}"'
    for path in twice:
        # What is unknown is not looked into.
        if path.startswith(start) and not path.startswith(tuple(unknown)):
            yield f'json patch duplicate field "{path}"'


def section(body: Json, name: str) -> Json:
    """An object inside a body, empty if it is absent."""
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise errors.bad_request(f"json: cannot unmarshal {json_name(value)} into {name} of type object")
    return value


class Parted(NamedTuple):
    """A JSON object of which one field is not read: it may be known by its text."""

    name: str
    text: bytes
    # All other fields.
    besides: Json

    def is_all_of(self, body: bytes) -> bool:
        """Whether it is in the shortest form, and nothing was lost by reading it. Of the text nothing is said."""
        return len(encode({**self.besides, self.name: msgspec.Raw(self.text)})) == len(body.strip())


def parted(body: bytes, name: str) -> Parted | None:
    """An object with such a field; None if it is none, or cannot be read."""
    try:
        parts = _decode_parts(body)
        part = parts.pop(name, None)
        return None if part is None else Parted(name, bytes(part), {key: _decode(raw) for key, raw in parts.items()})
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def in_parts(body: Json, name: str) -> Parted:
    """An object that was never text, and has such a field."""
    return Parted(name, encode(body[name]), {key: value for key, value in body.items() if key != name})


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


def duplicates(body: bytes, value: Json | list[Any]) -> list[str]:
    """Paths that stand twice in the same object of a JSON body, in order."""
    if len(encode(value)) == len(body.strip()):
        # Written anew in the shortest form it is as long as before, so nothing was dropped.
        return []
    return list(dict.fromkeys(_duplicates(json.loads(body, object_pairs_hook=_Pairs), "")))


class _Pairs:
    """A JSON object with all that was written into it."""

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
