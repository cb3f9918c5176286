"""
A Kubernetes client without asyncio, for commands that make a few requests and print the answer.

It shares the requests and the parsing with the other client (kube/requests.py). It needs only the standard library, so
that a command starts fast.

Kubernetes: the API conventions.
"""

from __future__ import annotations

import contextlib
import http.client
import ssl
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from kyu.api.meta import Json, Key, Kind
from kyu.kube import errors, requests
from kyu.kube.kubeconfig import Credentials
from kyu.kube.requests import Answer, Call, Propagation

PAGE = 500
MOST_BYTES = 65536


class Unreachable(Exception):
    """The server at the address does not answer."""


class BlockingClient:
    """A client with one connection and one request at a time; watches and logs open their own connections.

    ``timeout_seconds``: the longest silence of the server before a request fails; without it, requests wait for ever.
    """

    def __init__(
        self, credentials: Credentials, manager: str = "kyu", *, timeout_seconds: float | None = None
    ) -> None:
        self.credentials = credentials
        self._timeout_seconds = timeout_seconds
        self.manager = manager
        self._address = urlsplit(credentials.server)
        self._connection: http.client.HTTPConnection | None = None

    def get(self, kind: Kind, key: Key) -> Json:
        return self._ask(requests.get(kind, key))

    def find(self, kind: Kind, key: Key) -> Json | None:
        """Return the object, or None if it does not exist."""
        try:
            return self.get(kind, key)
        except errors.NotFound:
            return None

    def list_versioned(
        self, kind: Kind, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> tuple[list[Json], str]:
        """Return all objects, read in pages, and the version of the list."""
        items: list[Json] = []
        options = {"labelSelector": labels, "fieldSelector": fields, "limit": str(PAGE)}
        query = {name: value for name, value in options.items() if value}
        while True:
            page = self._ask(requests.list_page(kind, namespace, query))
            items += page["items"]
            token = page["metadata"].get("continue", "")
            if not token:
                return items, page["metadata"]["resourceVersion"]
            query["continue"] = token

    def list(self, kind: Kind, namespace: str | None = None, *, labels: str = "", fields: str = "") -> Sequence[Json]:
        return self.list_versioned(kind, namespace, labels=labels, fields=fields)[0]

    def create(self, kind: Kind, body: Json) -> Json:
        return self._ask(requests.create(kind, body, self.manager))

    def patch(self, kind: Kind, key: Key, body: Any, *, subresource: str = "") -> Json:
        return self._ask(requests.patch(kind, key, body, self.manager, subresource))

    def apply(
        self, kind: Kind, body: Json, *, force: bool = False, dry_run: bool = False, manager: str = ""
    ) -> Json:
        """Apply an object; ``manager`` is the owner of its fields, the client itself if empty."""
        return self._ask(requests.apply(kind, body, manager or self.manager, force=force, dry_run=dry_run))

    def delete(
        self, kind: Kind, key: Key, *, propagation: Propagation = "Background", grace_seconds: int | None = None
    ) -> Json:
        return self._ask(requests.delete(kind, key, uid="", propagation=propagation, grace_seconds=grace_seconds))

    def watch(
        self,
        kind: Kind,
        namespace: str | None,
        *,
        version: str,
        labels: str = "",
        fields: str = "",
        timeout_seconds: float | None = None,
    ) -> Iterator[tuple[str, Json]]:
        """Yield each change after the version, until the server or the timeout ends the watch."""
        options = {"resourceVersion": version, "labelSelector": labels, "fieldSelector": fields}
        if timeout_seconds is not None:
            options["timeoutSeconds"] = str(max(1, round(timeout_seconds)))
        call = requests.watch(kind, namespace, {name: value for name, value in options.items() if value})
        for line in self._lines(call):
            yield requests.parse_event(line)

    def logs(self, key: Key, options: Mapping[str, str]) -> Iterator[bytes]:
        path = f"/api/v1/namespaces/{key.namespace}/pods/{key.name}/log"
        yield from self._lines(Call("GET", path, query=dict(options)))

    def raw(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        answer = self._send(Call("GET", path, query=dict(query or {})))
        if answer.status >= 400:
            raise errors.from_answer(answer.status, answer.body, answer.headers)
        return answer.body

    def table(self, path: str, accept: str, labels: str = "") -> Json:
        """Return the server-side table of a list or an object."""
        query = {"labelSelector": labels} if labels else {}
        return self._ask(Call("GET", path, query=query, headers={"accept": accept}))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, call: Call) -> Json:
        return requests.parse(self._send(call))

    def _send(self, call: Call) -> Answer:
        fresh = self._connection is None
        try:
            return self._exchange(call)
        except Unreachable:
            # The server may have closed the idle connection; a read can be repeated.
            self.close()
            if fresh or call.method != "GET":
                raise
            return self._exchange(call)

    def _exchange(self, call: Call) -> Answer:
        if self._connection is None:
            self._connection = self._connect()
        with self._reached():
            response = self._request(self._connection, call)
            headers = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, response.read(), headers)

    def _lines(self, call: Call) -> Iterator[bytes]:
        with contextlib.closing(self._connect()) as connection, self._reached():
            response = self._request(connection, call)
            if response.status >= 400:
                headers = {name.lower(): value for name, value in response.getheaders()}
                raise errors.from_answer(response.status, response.read(), headers)
            rest = b""
            # Not readline: it cannot tell a broken answer from a complete one.
            while read := response.read1(MOST_BYTES):
                *lines, rest = (rest + read).split(b"\n")
                yield from (line + b"\n" for line in lines)
            if rest:
                yield rest

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        """Turn all network errors into Unreachable."""
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"{self.credentials.server} does not answer: {error}") from error

    def _request(self, connection: http.client.HTTPConnection, call: Call) -> http.client.HTTPResponse:
        headers = {"user-agent": f"{self.manager}/cli", **call.headers, **self.credentials.headers()}
        connection.request(call.method, self._address.path.rstrip("/") + call.target, call.body or None, headers)
        return connection.getresponse()

    def _connect(self) -> http.client.HTTPConnection:
        host, context = self._address.hostname or "", self.credentials.ssl_context()
        if isinstance(context, ssl.SSLContext):
            return http.client.HTTPSConnection(
                host, self._address.port, context=context, timeout=self._timeout_seconds
            )
        return http.client.HTTPConnection(host, self._address.port, timeout=self._timeout_seconds)
