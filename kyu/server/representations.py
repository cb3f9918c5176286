"""
How an object is written for a client: whole, as a row of a Table, or as its metadata alone.

The Accept header chooses the form. All forms have the same three methods, so that get, list and watch need not know
which one they serve. The whole form joins the stored bytes without reading them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from kyu.api.meta import Json
from kyu.server import errors
from kyu.server.exchange import encode
from kyu.server.registry import Resource
from kyu.server.storage.records import Record
from kyu.server.tables import table

decode: Callable[[bytes], Json] = msgspec.json.Decoder(dict[str, Any]).decode

JSON = "application/json"
# The media types of Kubernetes. Here all answers are in the first of them.
MEDIA_TYPES = (JSON, "application/yaml", "application/vnd.kubernetes.protobuf")
STREAMED_TYPES = (f"{JSON};stream=watch", "application/vnd.kubernetes.protobuf;stream=watch")
# A part is made without a pause, and written as one chunk.
RECORDS_PER_PART = 50
BYTES_PER_PART = 128 * 1024
META_VERSIONS = ("v1", "v1beta1")


class Form(Protocol):
    @property
    def key(self) -> object:
        """Forms with equal keys write equal bytes, so what is made for one watcher is sent to others. None: never."""

    def one(self, record: Record) -> bytes: ...

    def many(self, records: Sequence[Record], metadata: Json) -> Iterator[bytes]:
        """Yield a list in parts of bounded size; other requests are served in between."""

    def in_event(self, record: Record, *, is_first: bool) -> bytes: ...

    def bookmark(self, metadata: Json, *, is_first: bool) -> Json:
        """Return an object without content, whose version says how far a watch has come."""


def choose(
    resource: Resource, accept: str, include: str = "", *, is_list: bool = False, is_watch: bool = False
) -> Form:
    """Return the first form of the Accept header that is served; 406 if there is none."""
    if accept in (JSON, "", "*/*"):
        return Whole(resource)
    is_known = resource.is_custom
    for clause in accept.split(","):
        media_type, *parameters = (part.strip() for part in clause.split(";"))
        is_known |= media_type in MEDIA_TYPES
        if media_type not in (JSON, "*/*"):
            continue
        values = dict(p.split("=", 1) for p in parameters if "=" in p)
        wanted = values.get("as", "")
        if not wanted:
            return Whole(resource)
        if values.get("g") != "meta.k8s.io" or values.get("v") not in META_VERSIONS:
            continue
        api_version = f"meta.k8s.io/{values['v']}"
        if wanted == "Table":
            return Table(resource, api_version, include or "Metadata")
        if wanted in ("PartialObjectMetadata", "PartialObjectMetadataList"):
            _check_number(resource, wanted, is_list=is_list and not is_watch)
            return MetadataOnly(resource, api_version)
    if is_watch and is_known:
        raise errors.not_acceptable(STREAMED_TYPES)
    raise errors.not_acceptable(MEDIA_TYPES) if is_known else errors.unknown_form(MEDIA_TYPES, is_list=is_list)


def _check_number(resource: Resource, wanted: str, *, is_list: bool) -> None:
    """Metadata of one object are not those of a list."""
    if wanted.endswith("List") == is_list:
        return
    kind = resource.kind
    package = kind.group.partition(".")[0] or "core"
    one = "unstructured.Unstructured" if resource.is_custom else f"{package}.{kind.kind}"
    found = f"a list (*{one}List)" if is_list else f"not a list (*{one})"
    raise errors.wrong_form(f"you requested {wanted}, but the requested object is {found}")


def served_value(resource: Resource, record: Record) -> bytes:
    """Return the object in the version of the resource, without kind and apiVersion."""
    if not resource.needs_conversion:
        return record.value
    return encode(served_object(resource, record))


def served_object(resource: Resource, record: Record) -> Json:
    """Return the object in the version of the resource, decoded, without kind and apiVersion."""
    obj = decode(record.value)
    if resource.needs_conversion:
        assert resource.convert is not None
        obj = resource.convert(obj, resource.stored_version, resource.kind.version)
    return obj


def object_key(resource: Resource) -> object:
    """Return the key under which a change keeps the decoded object, for watchers in the same process."""
    return "object", resource.kind.version


class Whole:
    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self.key: object = ("whole", resource.kind.version)

    def one(self, record: Record) -> bytes:
        return self._resource.prefix + served_value(self._resource, record)[1:]

    def many(self, records: Sequence[Record], metadata: Json) -> Iterator[bytes]:
        """Items of built-in kinds have no kind of their own; those of custom kinds do."""
        resource = self._resource
        if resource.is_custom:
            metadata = {"continue": "", **metadata}
        api_version = resource.kind.api_version
        head = {"kind": resource.list_kind, "apiVersion": api_version, "metadata": metadata}
        start = resource.prefix if resource.is_custom else b"{"
        return _in_parts(head, "items", records, lambda record: start + served_value(resource, record)[1:])

    def in_event(self, record: Record, *, is_first: bool) -> bytes:
        return self.one(record)

    def bookmark(self, metadata: Json, *, is_first: bool) -> Json:
        kind = self._resource.kind
        return {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}


class MetadataOnly:
    def __init__(self, resource: Resource, api_version: str) -> None:
        self._resource = resource
        self._api_version = api_version
        self.key: object = ("metadata", api_version)

    def one(self, record: Record) -> bytes:
        return encode(partial(decode(record.value), self._api_version))

    def many(self, records: Sequence[Record], metadata: Json) -> Iterator[bytes]:
        head = {"kind": "PartialObjectMetadataList", "apiVersion": self._api_version, "metadata": metadata}
        if not records:
            # In this form alone, an empty list is null.
            return iter([encode({**head, "items": None}) + b"\n"])
        return _in_parts(head, "items", records, self.one)

    def in_event(self, record: Record, *, is_first: bool) -> bytes:
        return self.one(record)

    def bookmark(self, metadata: Json, *, is_first: bool) -> Json:
        return partial({"metadata": metadata}, self._api_version)


class Table:
    # A row has the age at the time of writing, and only the first of a watch has columns: nothing to share.
    key = None

    def __init__(self, resource: Resource, api_version: str, include: str) -> None:
        if include not in ("None", "Metadata", "Object"):
            text = f"includeObject: Invalid value: \"{include}\": must be 'Metadata', 'Object', 'None', or empty"
            raise errors.bad_request(f"Unable to convert to Table as requested: {text}")
        self._resource = resource
        self._api_version = api_version
        self._include = include

    def one(self, record: Record) -> bytes:
        # The object of a dry run has no version.
        metadata = {"resourceVersion": str(record.version)} if record.version else {}
        return encode(self._table([record], metadata, with_columns=True))

    def many(self, records: Sequence[Record], metadata: Json) -> Iterator[bytes]:
        head = self._table([], metadata, with_columns=True)
        del head["rows"]
        now = table.now()
        return _in_parts(head, "rows", records, lambda record: encode(self._row(record, now)))

    def in_event(self, record: Record, *, is_first: bool) -> bytes:
        return encode(self._table([record], {"resourceVersion": str(record.version)}, with_columns=is_first))

    def bookmark(self, metadata: Json, *, is_first: bool) -> Json:
        empty = {"metadata": {"name": "", **metadata}}
        row = {**self._row_of(empty, table.now()), "object": partial({"metadata": metadata}, self._api_version)}
        head = {"resourceVersion": metadata["resourceVersion"]}
        return {**self._table([], head, with_columns=is_first), "rows": [row]}

    def _table(self, records: Sequence[Record], metadata: Json, *, with_columns: bool) -> Json:
        now = table.now()
        return {
            "kind": "Table",
            "apiVersion": self._api_version,
            "metadata": metadata,
            "columnDefinitions": table.definitions(self._resource) if with_columns else None,
            "rows": [self._row(record, now) for record in records],
        }

    def _row(self, record: Record, now: Any) -> Json:
        return self._row_of(served_object(self._resource, record), now)

    def _row_of(self, obj: Json, now: Any) -> Json:
        row: Json = {"cells": table.cells(self._resource, obj, now)}
        if conditions := table.conditions(self._resource, obj):
            row["conditions"] = conditions
        match self._include:
            case "Object":
                kind = self._resource.kind
                return {**row, "object": {"kind": kind.kind, "apiVersion": kind.api_version, **obj}}
            case "Metadata":
                return {**row, "object": partial(obj, self._api_version)}
            case _:
                return {**row, "object": None}


def _in_parts(head: Json, name: str, records: Sequence[Record], render: Callable[[Record], bytes]) -> Iterator[bytes]:
    """Yield the head with one more field: the list of the rendered records."""
    yield b'%b,"%b":[' % (encode(head)[:-1], name.encode())
    lines: list[bytes] = []
    size, separator = 0, b""
    for record in records:
        lines.append(render(record))
        size += len(lines[-1])
        if size >= BYTES_PER_PART or len(lines) >= RECORDS_PER_PART:
            yield separator + b",".join(lines)
            lines, size, separator = [], 0, b","
    yield (separator if lines else b"") + b",".join(lines) + b"]}\n"


def partial(obj: Json, api_version: str) -> Json:
    return {"kind": "PartialObjectMetadata", "apiVersion": api_version, "metadata": obj["metadata"]}
