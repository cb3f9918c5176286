"""
Pure functions from a verb, kind, key and body to a Call, and from an Answer to JSON.

Kubernetes: the URL scheme of the API, the patch types, the options in the query.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any, Final, Literal, Protocol
from urllib.parse import quote, urlencode

import msgspec

from kyu.api.meta import Json, Key, Kind
from kyu.kube import errors

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
Propagation = Literal["Background", "Foreground", "Orphan"]
# The written part of an object: all except its status, or the status alone.
Part = Literal["", "status"]

encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


# Matches paths that need no quoting in a URL.
_is_plain = re.compile(r"[A-Za-z0-9/_.~-]*").fullmatch


@lru_cache(maxsize=256)
def _encoded(query: tuple[tuple[str, str], ...]) -> str:
    """Encode a query; the same few queries repeat."""
    return urlencode(query)


class Call(msgspec.Struct, frozen=True):
    """A request, independent of the transport."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    body: bytes = b""

    @property
    def target(self) -> str:
        path = self.path if _is_plain(self.path) else quote(self.path)
        return f"{path}?{_encoded(tuple(self.query.items()))}" if self.query else path


class Answer(msgspec.Struct, frozen=True):
    status: int
    body: bytes
    headers: Mapping[str, str] = {}


# Called with the type and the object of an event. The object may be shared and must not be changed.
Tell = Callable[[str, Json], None]


class Transport(Protocol):
    """The way of calls to a server: over a socket, or by a function call in the same process.

    ``parallel`` is the number of calls that may wait for their answers at the same time.
    """

    @property
    def parallel(self) -> int: ...

    async def send(self, call: Call) -> Answer: ...

    def add(self, kind: Kind, body: Json, manager: str) -> Awaitable[Json]:
        """Create an object; begins at once if the server is in the same process. The answer may be shared."""

    def merge(self, kind: Kind, key: Key, body: Json, subresource: Part, manager: str) -> Awaitable[Json]:
        """Merge a patch, like ``add``."""

    def lines(self, call: Call) -> AsyncIterator[bytes]:
        """Yield the lines of an endless answer; raise an error answer."""

    async def follow(self, call: Call, tell: Tell) -> None:
        """Call ``tell`` with each event of a watch until the server ends it; raise an ERROR event."""

    async def close(self) -> None: ...


def collection_path(kind: Kind, namespace: str | None) -> str:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    return f"{root}/namespaces/{namespace}/{kind.plural}" if kind.namespaced and namespace else f"{root}/{kind.plural}"


def object_path(kind: Kind, key: Key, subresource: str = "") -> str:
    path = f"{collection_path(kind, key.namespace)}/{key.name}"
    return f"{path}/{subresource}" if subresource else path


def get(kind: Kind, key: Key, subresource: str = "") -> Call:
    return Call("GET", object_path(kind, key, subresource), headers=_headers())


def list_page(kind: Kind, namespace: str | None, options: Mapping[str, str]) -> Call:
    return Call("GET", collection_path(kind, namespace), query=dict(options), headers=_headers())


def watch(kind: Kind, namespace: str | None, options: Mapping[str, str]) -> Call:
    query = {"watch": "true", "allowWatchBookmarks": "true", **options}
    return Call("GET", collection_path(kind, namespace), query=query, headers=_headers())


def create(kind: Kind, body: Json, manager: str, subresource: str = "") -> Call:
    metadata = body.get("metadata", {})
    namespace = metadata.get("namespace", "")
    if subresource:
        path = object_path(kind, Key(namespace, metadata["name"]), subresource)
    else:
        path = collection_path(kind, namespace)
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
    return Call("POST", path, {"fieldManager": manager}, _headers(JSON), encode(body))


def update(kind: Kind, body: Json, manager: str, subresource: str = "") -> Call:
    metadata = body["metadata"]
    path = object_path(kind, Key(metadata.get("namespace", ""), metadata["name"]), subresource)
    typed = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
    return Call("PUT", path, {"fieldManager": manager}, _headers(JSON), encode(typed))


def patch(kind: Kind, key: Key, body: Any, manager: str, subresource: str = "") -> Call:
    """Return a merge patch: null deletes, maps merge, everything else replaces."""
    path = object_path(kind, key, subresource)
    return Call("PATCH", path, {"fieldManager": manager}, _headers(MERGE_PATCH), encode(body))


def apply(
    kind: Kind, body: Json, manager: str, *, subresource: str = "", force: bool = True, dry_run: bool = False
) -> Call:
    metadata = body["metadata"]
    path = object_path(kind, Key(metadata.get("namespace", ""), metadata["name"]), subresource)
    typed = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
    query = {"fieldManager": manager, "force": "true" if force else "false", **({"dryRun": "All"} if dry_run else {})}
    return Call("PATCH", path, query, _headers(APPLY_PATCH), encode(typed))


def delete(kind: Kind, key: Key, *, uid: str, propagation: Propagation, grace_seconds: int | None) -> Call:
    options: Json = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
    if uid:
        options["preconditions"] = {"uid": uid}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    return Call("DELETE", object_path(kind, key), {}, _headers(JSON), encode(options))


def parse(answer: Answer) -> Json:
    """Return the object of an answer; raise the error of a failure."""
    if answer.status >= 400:
        raise errors.from_answer(answer.status, answer.body, answer.headers)
    return _decode(answer.body)


def parse_event(line: bytes) -> tuple[str, Json]:
    """Return type and object of a line of a watch; raise an ERROR event."""
    event = _decode(line)
    type_, body = event.get("type", ""), event.get("object", {})
    refuse_error(type_, body)
    return type_, body


def refuse_error(type_: str, body: Json) -> None:
    """Raise the error of an ERROR event."""
    if type_ == "ERROR":
        raise errors.of_status(body)


def _headers(content_type: str = "") -> dict[str, str]:
    accept = {"accept": JSON}
    return {**accept, "content-type": content_type} if content_type else accept
