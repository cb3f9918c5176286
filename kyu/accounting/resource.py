"""
The API of the ledger: `GET /apis/accounting.kyu.dev/v1/[namespaces/NAME/]attempts`.

It is a resource that can only be listed, so RBAC applies: users read the lines of their namespaces, administrators
all lines. Filters are parameters of the query; the answer comes in pages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import msgspec

from kyu.accounting.ledger import Ledger, Position
from kyu.api.accounting import ATTEMPT, JobAttempt
from kyu.api.meta import Json
from kyu.kinds import conditions
from kyu.server import errors
from kyu.server.builtin.kind import BuiltinKind
from kyu.server.exchange import Request, Response, json_response
from kyu.server.paths import Target
from kyu.server.registry import Resource
from kyu.server.schema.node import Schema

EXACT = ("submitter", "queue", "state", "job")


def make_resource() -> Resource:
    return Resource(
        kind=ATTEMPT,
        singular="attempt",
        list_kind="AttemptList",
        schema=Schema({"type": "object"}),
        rules=BuiltinKind(ATTEMPT),
        verbs=("list",),
    )


class AttemptsPage:
    """The verb that lists attempts. One request at a time reads the files."""

    def __init__(self, ledger: Ledger, created_at: Callable[[str], str]) -> None:
        self._ledger = ledger
        self._created_at = created_at
        self._slot = asyncio.Semaphore(1)

    async def list(self, request: Request, target: Target) -> Response:
        query = request.query
        try:
            start = Position.parse(query["continue"]) if query.get("continue") else Position()
            # Another user may have had a namespace of this name before.
            created = self._created_at(target.namespace) if target.namespace else ""
            wanted = line_filter(target.namespace or "", created, query)
        except ValueError as error:
            raise errors.bad_request(str(error)) from error
        async with self._slot:
            page = await asyncio.to_thread(self._ledger.read, start, wanted)
        body: Json = {
            "kind": "AttemptList",
            "apiVersion": ATTEMPT.api_version,
            "metadata": {"continue": str(page.next)} if page.next is not None else {},
            "items": [as_object(attempt) for attempt in page.attempts],
        }
        return json_response(200, body)


def as_object(attempt: JobAttempt) -> Json:
    """Return a line as an object, so that kubectl can list it."""
    meta = {"name": attempt.pod, "namespace": attempt.namespace, "uid": attempt.uid, "creationTimestamp": attempt.ended}
    return {"metadata": meta, "status": msgspec.to_builtins(attempt)}


def line_filter(namespace: str, created: str, query: Mapping[str, str]) -> Callable[[bytes], JobAttempt | None]:
    """Return the function that reads a line if it is wanted; raise ValueError for a time that is none."""
    since, until = (moment(query.get(name, "")) for name in ("since", "until"))
    exact = {name: query[name] for name in EXACT if query.get(name)}
    # A line that does not contain the text is skipped before it is decoded.
    marks = [f'"namespace":"{namespace}"'.encode()] if namespace else []
    marks += [msgspec.json.encode(value) for value in exact.values()]

    def wanted(line: bytes) -> JobAttempt | None:
        if not all(mark in line for mark in marks):
            return None
        try:
            attempt = msgspec.json.decode(line, type=JobAttempt)
        except msgspec.DecodeError:
            return None
        if namespace and (attempt.namespace != namespace or attempt.started < created):
            return None
        if (since and attempt.ended < since) or (until and attempt.ended >= until):
            return None
        return attempt if all(getattr(attempt, name) == value for name, value in exact.items()) else None

    return wanted


def moment(text: str) -> str:
    """Return a time in the form of the ledger."""
    if not text:
        return ""
    parsed = datetime.fromisoformat(text)
    if parsed.tzinfo is None:
        raise ValueError(f"{text}: the time has no zone")
    return conditions.timestamp(parsed.astimezone(UTC))
