"""
Get, list and watch.

A list shows one state, however many pages it takes: the token of a page holds the version of the first, and what has
changed since is taken back. Other requests are served while a long page is made.

Kubernetes: apiserver/pkg/endpoints/handlers/get.go, pkg/storage/continue.go.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import random
import time
from collections.abc import AsyncGenerator, Iterator
from itertools import islice

import msgspec

from kyu.api.meta import Json
from kyu.server import errors, metadata, representations, selectors
from kyu.server.exchange import Request, Response
from kyu.server.options import ListOptions, list_options
from kyu.server.paths import Target
from kyu.server.pauses import Pauses
from kyu.server.registry import Resource
from kyu.server.storage.records import Change, Record
from kyu.server.storage.store import Expired, Store
from kyu.server.verbs.watch import Hub, Matches, Watcher

# A version of the future is waited for this long: the client may have it from another connection.
FUTURE_SECONDS = 3.0
# Longer lists are made while they are sent, for which a client has this time.
STREAMED_BYTES = 1024 * 1024
LIST_SECONDS = 60.0
LIST_BYTES_PER_SECOND = 256 * 1024
# A limit beyond this is none.
MOST_RECORDS = 10**9
SHORTEST_WATCH_SECONDS = 1800
TOO_OLD_LIST = "The resourceVersion for the provided list is too old."
TOO_OLD_TOKEN = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without"
    " the continue parameter, or use the continue token in this response to retrieve the remainder of the results."
    " Continuing with the provided token results in an inconsistent list - objects that were created, modified, or"
    " deleted between the time the first chunk was returned and now may show up in the list."
)


class _Token(msgspec.Struct, array_like=True):
    """The start of the next page. Version 0 goes on with the newest state."""

    version: int
    namespace: str
    name: str


class Reads:
    def __init__(self, store: Store, hub: Hub) -> None:
        self._store = store
        self._hub = hub

    async def get(self, request: Request, target: Target) -> Response:
        resource = target.resource
        await self._wait_for(_version(request.query.get("resourceVersion", "")))
        form = representations.choose(resource, request.accept, request.query.get("includeObject", ""))
        return Response(200, form.one(self._find(resource, *target.key)) + b"\n")

    def _find(self, resource: Resource, namespace: str, name: str) -> Record:
        record = self._store.find(resource.storage, namespace, name)
        if record is None:
            raise errors.not_found(resource.kind, name)
        return record

    async def collection(self, request: Request, target: Target) -> Response:
        resource, namespace = target.resource, target.namespace
        options = list_options(request.query)
        include = request.query.get("includeObject", "")
        form = representations.choose(resource, request.accept, include, is_list=True, is_watch=options.is_watch)
        if options.is_watch:
            return await self._watch(resource, options, form, namespace)
        page, head = await self.page(resource, options, namespace)
        return Response(200, await list_body(request, form, page, head))

    async def page(self, resource: Resource, options: ListOptions, namespace: str | None) -> tuple[list[Record], Json]:
        """Return the records that a list shows, and its metadata."""
        version, token, undo = await self._state(resource, options)
        matches = matcher(resource, options)
        after = (token.namespace, token.name) if token else None
        records = self._store.page(resource.storage, namespace, after, undo)
        # A list of any state has no pages.
        limit = 0 if options.version == "0" else min(max(0, options.limit), MOST_RECORDS)
        page, has_more = await _cut(records, matches, limit)
        if has_more and _names_one(resource, options):
            has_more = False
        head: Json = {"resourceVersion": str(version)}
        if has_more:
            head["continue"] = _render_token(_Token(version, *page[-1].key))
            if matches is None:
                rest = self._store.count_after(resource.storage, namespace, page[-1].key, undo)
                head["remainingItemCount"] = max(1, rest)
        return page, head

    async def _state(self, resource: Resource, options: ListOptions) -> tuple[int, _Token | None, list[Change]]:
        """Return the version that the list shows, its start, and the changes to take back."""
        if options.token:
            if options.version and options.version != "0":
                raise errors.bad_request("specifying resource version is not allowed when using continue")
            token = _parse_token(options.token)
            if token.version == 0:
                return self._store.version, token, []
            try:
                return token.version, token, await self._store.changes(resource.storage, token.version)
            except Expired:
                again = _render_token(_Token(0, token.namespace, token.name))
                raise errors.expired(TOO_OLD_TOKEN, continue_token=again) from None
        if not options.version:
            return self._store.version, None, []
        version = _version(options.version, is_list=True)
        await self._wait_for(version)
        # With a limit and no word about the match, an older version is shown as it was.
        is_exact = options.version_match == "Exact" or (not options.version_match and options.limit > 0 and version)
        if not is_exact:
            return self._store.version, None, []
        try:
            return version, None, await self._store.changes(resource.storage, version)
        except Expired:
            raise errors.expired(TOO_OLD_LIST) from None

    async def _wait_for(self, version: int) -> None:
        if version <= self._store.version:
            return
        arrived = asyncio.Event()
        stop = self._store.listen(lambda change: arrived.set() if change.record.version >= version else None)
        try:
            async with asyncio.timeout(FUTURE_SECONDS):
                await arrived.wait()
        except TimeoutError:
            message = f"Timeout: Too large resource version: {version}, current: {self._store.version}"
            cause = errors.cause("ResourceVersionTooLarge", "Too large resource version")
            raise errors.timeout(message, causes=[cause]) from None
        finally:
            stop()

    async def _watch(
        self, resource: Resource, options: ListOptions, form: representations.Form, namespace: str | None
    ) -> Response:
        watcher = Watcher(self._hub, self._store, resource, form, namespace, matcher(resource, options))
        seconds = options.timeout_seconds or random.uniform(SHORTEST_WATCH_SECONDS, 2 * SHORTEST_WATCH_SECONDS)
        version = _version(options.version)
        wants_present = options.initial_events or (version == 0 and options.initial_events is None)
        now = self._store.version
        if not wants_present and version == 0:
            version = now
        floor = now if wants_present else version
        watcher.start(after=floor, timeout_seconds=seconds, bookmarks=options.bookmarks)
        if wants_present:
            watcher.put_first(self._store.objects(resource.storage, namespace))
            if options.bookmarks:
                watcher.put_bookmark(ends_initial_events=True)
        elif version < now:
            await self._put_history(watcher, resource, version, now)
        return Response(200, watcher)

    async def _put_history(self, watcher: Watcher, resource: Resource, after: int, until: int) -> None:
        try:
            watcher.put_history(await self._store.changes(resource.storage, after, until))
        except Expired as error:
            watcher.put_error(errors.expired(f"too old resource version: {error}").status())


class ListStream:
    """A long list that is made while the client reads it, so that no more of it is in memory than one part.

    A client that reads very slowly would keep old states of the objects alive, so there is a bound on the time.
    """

    def __init__(self, parts: Iterator[bytes], size: int) -> None:
        self._parts = parts
        self._seconds = LIST_SECONDS + size / LIST_BYTES_PER_SECOND
        self._is_closed = False

    async def parts(self) -> AsyncGenerator[bytes, None]:
        deadline = time.monotonic() + self._seconds
        pauses = Pauses()
        for part in self._parts:
            if self._is_closed or time.monotonic() > deadline:
                raise TimeoutError
            yield part
            await pauses()

    def close(self) -> None:
        self._is_closed = True


async def list_body(request: Request, form: representations.Form, page: list[Record], head: Json) -> bytes | ListStream:
    """Return a list; a long one is made while it is sent to another process."""
    size = sum(len(record.value) for record in page)
    if request.host and size > STREAMED_BYTES:
        return ListStream(form.many(page, head), size)
    return await joined(form.many(page, head))


def matcher(resource: Resource, options: ListOptions) -> Matches | None:
    """Return the test of the selectors on a record; None without selectors."""
    labels = selectors.parse_labels(options.label_selector) if options.label_selector else None
    fields = None
    if options.field_selector:
        fields = selectors.parse_fields(options.field_selector, resource.field_labels)
    if labels is None and fields is None:
        return None

    def matches(record: Record) -> bool:
        if labels is not None and not labels.matches(record.labels):
            return False
        return fields is None or fields.matches(representations.served_object(resource, record))

    return matches


def _names_one(resource: Resource, options: ListOptions) -> bool:
    """Return whether the selector can match one object of a namespace at most."""
    if not options.field_selector:
        return False
    return "metadata.name" in selectors.parse_fields(options.field_selector, resource.field_labels).equal


async def joined(parts: Iterator[bytes]) -> bytes:
    """Return all parts together; other requests are served while a long list is made."""
    done: list[bytes] = []
    pauses = Pauses()
    for part in parts:
        done.append(part)
        await pauses()
    return b"".join(done)


async def _cut(records: Iterator[Record], matches: Matches | None, limit: int) -> tuple[list[Record], bool]:
    """Return the records of one page, and whether others follow: with a selector, perhaps none that match."""
    if matches is None:
        page = list(islice(records, limit + 1) if limit else records)
        return (page[:limit], True) if limit and len(page) > limit else (page, False)
    found: list[Record] = []
    pauses = Pauses()
    # The records are taken before the first pause: an object that is deleted meanwhile stays in the page.
    for record in list(records):
        if limit and len(found) == limit:
            return found, True
        if matches(record):
            found.append(record)
        await pauses()
    return found, False


def _version(text: str, *, is_list: bool = False) -> int:
    """Parse the version of a request. A text that is no number is 400 for a list, and 500 for a get or watch."""
    if not text or metadata.is_version(text):
        return int(text or 0)
    why = "value out of range" if text.isdigit() else "invalid syntax"
    fault = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": {why}'
    raise errors.bad_request(f"invalid resource version: {fault}") if is_list else errors.internal(fault)


def _render_token(token: _Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def _parse_token(text: str) -> _Token:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Token)
    except (binascii.Error, ValueError) as error:
        raise errors.bad_request(f"invalid continue token: continue key is not valid: {error}") from error
