"""
What to send for each verb: pure functions from kind, key and body to a Call, and from an Answer to JSON.

Called by: kube/client.py. Kubernetes: the URL scheme of the API, the patch types, the options in the query.
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
# What of an object is written: all but its status, or the status alone.
Part = Literal["", "status"]

encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


# Nothing in it has to be written differently in a URL.
_is_plain = re.compile(r"[A-Za-z0-9/_.~-]*").fullmatch


@lru_cache(maxsize=256)
def _encoded(query: tuple[tuple[str, str], ...]) -> str:
    """The same few questions are asked again and again."""
    return urlencode(query)


class Call(msgspec.Struct, frozen=True):
    """One request, before any transport has touched it."""

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


# Given the type and the object of an event. The object may be shared: only read it.
Tell = Callable[[str, Json], None]


class Transport(Protocol):
    """How calls reach a server: over a socket, or by a plain call in the same process.

    ``parallel``: how many calls may reasonably wait for their answers at the same time.
    """

    @property
    def parallel(self) -> int: ...

    async def send(self, call: Call) -> Answer: ...

    def add(self, kind: Kind, body: Json, manager: str) -> Awaitable[Json]:
        """A create, which has begun when this returns if that can be. The answer may be shared: only read it."""

    def merge(self, kind: Kind, key: Key, body: Json, subresource: Part, manager: str) -> Awaitable[Json]:
        """A merge patch: the same."""

    def lines(self, call: Call) -> AsyncIterator[bytes]:
        """The lines of an answer without end; an answer of failure is raised."""

    async def follow(self, call: Call, tell: Tell) -> None:
        """Tell of each event of a watch until the server ends it; an ERROR is raised."""

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
    """A merge patch: null deletes, maps merge, everything else replaces."""
    path = object_path(kind, key, subresource)
    return Call("PATCH", path, {"fieldManager": manager}, _headers(MERGE_PATCH), encode(body))


def apply(kind: Kind, body: Json, manager: str, *, subresource: str = "", force: bool = True) -> Call:
    metadata = body["metadata"]
    path = object_path(kind, Key(metadata.get("namespace", ""), metadata["name"]), subresource)
    typed = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
    query = {"fieldManager": manager, "force": "true" if force else "false"}
    return Call("PATCH", path, query, _headers(APPLY_PATCH), encode(typed))


def delete(kind: Kind, key: Key, *, uid: str, propagation: Propagation, grace_seconds: int | None) -> Call:
    options: Json = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
    if uid:
        options["preconditions"] = {"uid": uid}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    return Call("DELETE", object_path(kind, key), {}, _headers(JSON), encode(options))


def parse(answer: Answer) -> Json:
    """The object of a good answer; a bad one is raised as what it means."""
    if answer.status >= 400:
        raise errors.from_answer(answer.status, answer.body, answer.headers)
    return _decode(answer.body)


def parse_event(line: bytes) -> tuple[str, Json]:
    """Type and object of a line of a watch; an ERROR is raised."""
    event = _decode(line)
    type_, body = event.get("type", ""), event.get("object", {})
    refuse_error(type_, body)
    return type_, body


def refuse_error(type_: str, body: Json) -> None:
    """Raise what an ERROR means."""
    if type_ == "ERROR":
        raise errors.of_status(body)


def _headers(content_type: str = "") -> dict[str, str]:
    accept = {"accept": JSON}
    return {**accept, "content-type": content_type} if content_type else accept
