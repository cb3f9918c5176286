"""
The bounds on the content of a request: how much work an object may make for all later readers and writers of it.

Kubernetes bounds the body (3 MiB), the stored object (1.5 MiB, by etcd) and the annotations (256 KiB). Here the number
of JSON values, of labels and of owners is bounded too: each costs time in checks, in managedFields and in every watch.

Bounds on connections and on bytes in memory are in server/http/limits.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json, Kind
from kyu.server import errors
from kyu.server.exchange import Request, encode

# etcd: --max-request-bytes.
MOST_STORED_BYTES: Final = 1536 * 1024
MOST_VALUES: Final = 20_000
# CustomResourceDefinitions are large, and only administrators write them.
MOST_DEFINITION_VALUES: Final = 200_000
MOST_ITEMS: Final = 1_000
MOST_YAML_BYTES: Final = 1024 * 1024
MOST_METADATA_BYTES: Final = 256 * 1024
# Every write reads the fields of all managers. Kubernetes merges managers beyond ten, but not those that apply.
FEW_MANAGERS: Final = 10
# All objects are in memory. The objects of a namespace may take this part of it, or this many bytes on a small machine.
NAMESPACE_PART_OF_MEMORY: Final = 16
LEAST_NAMESPACE_BYTES: Final = 256 * 1024 * 1024
MOST_LABELS: Final = 2_000
# A time of some seconds that no clock reaches: Kubernetes has this bound for Pods.
MOST_SECONDS: Final = 2**31 - 1

# Linux: PATH_MAX is 4,096, and the folder of a pod comes before its paths; NAME_MAX is 255.
MOST_PATH_BYTES: Final = 1_024
MOST_NAME_BYTES: Final = 255
SHOWN_LENGTH: Final = 100
NO_NUL: Final = "must not contain the character NUL"

_LONG_SECONDS = re.compile(rb'Seconds":\d{10}')
# Any long text: a search for the names of paths would look at every character of it.
_LONG_TEXT = re.compile(rb'":"[^"]{256}')
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/"


def check_body(request: Request) -> None:
    """Raise 413 if reading the body would make more values than any object needs."""
    body = request.body
    most = MOST_DEFINITION_VALUES if request.path.startswith(DEFINITIONS) else MOST_VALUES
    if len(body) <= most or "protobuf" in request.content_type:
        # The decoder of protobuf counts by itself.
        return
    if "yaml" in request.content_type and body[:1] != b"{":
        if len(body) > MOST_YAML_BYTES:
            raise errors.too_large(f"YAML of more than {MOST_YAML_BYTES} bytes is not read; send JSON")
        if _marks(body) + body.count(b"\n") > most:
            raise _too_many_values(most)
    elif _marks(body) > most and (_has_strings_beyond(body, most) or _marks(_outside_strings(body)) > most):
        raise _too_many_values(most)


def _has_strings_beyond(text: bytes, most: int) -> bool:
    """Return whether a JSON text has more strings than so many values and their keys. It counts without a copy."""
    return text.count(b'"') - text.count(b'\\"') > 4 * most


def _outside_strings(text: bytes) -> bytes:
    """Return a JSON text without its strings, which may have many commas."""
    return b"".join(text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])


def _marks(text: bytes) -> int:
    """Return a number that is not smaller than that of the JSON values in the text."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _too_many_values(most: int) -> errors.StatusError:
    return errors.too_large(f"the body has more than {most} values")


def check_object(kind: Kind, obj: Json, *, is_custom: bool) -> None:
    """Raise 422 if the object has more entries or bytes of metadata, or longer lists, than an object may have.

    The rules of built-in kinds compare the items of a list with each other; schemas of custom kinds bound their lists.
    """
    metadata = obj.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    found = list[FieldError]()
    for name in ("labels", "annotations"):
        if entries := metadata.get(name):
            found += _entry_problems(f"metadata.{name}", entries, MOST_LABELS)
    for name in ("ownerReferences", "finalizers"):
        items = metadata.get(name)
        if isinstance(items, list) and len(items) > MOST_ITEMS:
            found.append(fields.too_many(f"metadata.{name}", len(items), MOST_ITEMS))
    managers = metadata.get("managedFields")
    if isinstance(managers, list) and len(managers) > FEW_MANAGERS and len(encode(managers)) > MOST_METADATA_BYTES:
        found.append(fields.too_long("metadata.managedFields", "", MOST_METADATA_BYTES))
    # A short text has no long list.
    if not is_custom and kind.kind != "CustomResourceDefinition" and len(encode(obj)) > 4 * MOST_ITEMS:
        found += (problem for name, part in obj.items() if name != "metadata" for problem in _long_lists(part, name))
    if found:
        raise errors.invalid(kind, str(metadata.get("name", "")), found)


def _long_lists(value: Any, path: str) -> Iterator[FieldError]:
    if isinstance(value, list):
        if len(value) > MOST_ITEMS:
            yield fields.too_many(path, len(value), MOST_ITEMS)
            return
        for index, item in enumerate(value):
            if isinstance(item, dict | list):
                yield from _long_lists(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, dict | list):
                yield from _long_lists(item, f"{path}.{key}")


def _entry_problems(path: str, entries: Any, most: int) -> list[FieldError]:
    if not isinstance(entries, Mapping):
        return []
    if len(entries) > most:
        return [fields.too_many(path, len(entries), most)]
    # Characters first: bytes are counted only where there could be too many of them.
    if 4 * sum(len(key) + len(str(value)) for key, value in entries.items()) <= MOST_METADATA_BYTES:
        return []
    size = sum(len(key.encode()) + len(str(value).encode()) for key, value in entries.items())
    return [fields.too_long(path, "", MOST_METADATA_BYTES)] if size > MOST_METADATA_BYTES else []


def check_stored(kind: Kind, name: str, value: bytes) -> None:
    """Raise 413 if an object is too large to be kept."""
    if len(value) > MOST_STORED_BYTES:
        text = f'{errors.qualified(kind)} "{name}" has {len(value)} bytes; an object has at most {MOST_STORED_BYTES}'
        raise errors.too_large(text)


def most_namespace_bytes(memory_bytes: int) -> int:
    """Return how many bytes the objects of one namespace may have, on a machine with so much memory."""
    return max(LEAST_NAMESPACE_BYTES, memory_bytes // NAMESPACE_PART_OF_MEMORY)


def check_spec(kind: Kind, obj: Json, old: Json | None) -> None:
    """Raise 422 if a new spec has a text that no process can be given, or a time that no clock reaches."""
    spec = obj.get("spec")
    if not isinstance(spec, dict) or (old is not None and old.get("spec") == spec):
        return
    text = encode(spec)
    # One look at the text for all objects, a look at each value for the few that have something like it.
    if not (rb"\u0000" in text or _LONG_SECONDS.search(text) or _LONG_TEXT.search(text)):
        return
    if found := list(_spec_problems(spec, "spec", "")):
        raise errors.invalid(kind, obj["metadata"].get("name", ""), found)


def _spec_problems(value: Any, path: str, field: str) -> Iterator[FieldError]:
    if isinstance(value, dict):
        for key, item in value.items():
            if "\0" in key:
                yield fields.invalid(path, key.replace("\0", "?"), NO_NUL)
            yield from _spec_problems(item, f"{path}.{key}", key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _spec_problems(item, f"{path}[{index}]", field)
    elif isinstance(value, str):
        if "\0" in value:
            yield fields.invalid(path, value.replace("\0", "?")[:SHOWN_LENGTH], NO_NUL)
        is_path = field.endswith(("Path", "PathExpr", "path", "workingDir"))
        if is_path and len(value.encode()) > MOST_PATH_BYTES:
            yield fields.too_long(path, "", MOST_PATH_BYTES)
        elif is_path and any(len(part.encode()) > MOST_NAME_BYTES for part in value.split("/")):
            yield fields.invalid(path, value[:SHOWN_LENGTH], f"must have no part of more than {MOST_NAME_BYTES} bytes")
    elif isinstance(value, int) and field.endswith("Seconds") and value > MOST_SECONDS:
        yield fields.invalid(path, value, f"must be less than or equal to {MOST_SECONDS}")
