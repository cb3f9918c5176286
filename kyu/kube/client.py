"""
The client of a Kubernetes API: the verbs, on kinds and JSON.

Each verb is prepare (pure) → send → parse (pure). The transport is a socket or a call in the same process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import Any

from kyu.api.meta import Json, Key, Kind
from kyu.kube import errors, requests
from kyu.kube.requests import Call, Part, Propagation, Tell, Transport

PAGE = 500


class Client:
    def __init__(self, transport: Transport, manager: str = "kyu") -> None:
        self._transport = transport
        self.manager = manager

    @property
    def parallel(self) -> int:
        """Return the number of calls that may wait for their answers at the same time."""
        return self._transport.parallel

    async def get(self, kind: Kind, key: Key, *, subresource: str = "") -> Json:
        return await self._ask(requests.get(kind, key, subresource))

    async def find(self, kind: Kind, key: Key) -> Json | None:
        """Return the object, or None if it does not exist."""
        try:
            return await self.get(kind, key)
        except errors.NotFound:
            return None

    async def list(
        self, kind: Kind, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> tuple[list[Json], str]:
        """Return all objects, read in pages, and the version of the list."""
        items: list[Json] = []
        version = token = ""
        while True:
            page = await self.page(kind, namespace, labels=labels, fields=fields, limit=PAGE, token=token)
            items += page["items"]
            # All pages show the state of the first one.
            version = version or page["metadata"]["resourceVersion"]
            token = page["metadata"].get("continue", "")
            if not token:
                return items, version

    async def page(
        self, kind: Kind, namespace: str | None, *, labels: str = "", fields: str = "", limit: int, token: str = ""
    ) -> Json:
        options = {"labelSelector": labels, "fieldSelector": fields, "limit": str(limit), "continue": token}
        return await self._ask(requests.list_page(kind, namespace, {k: v for k, v in options.items() if v}))

    async def watch(
        self, kind: Kind, namespace: str | None = None, *, version: str, labels: str = "", fields: str = ""
    ) -> AsyncIterator[tuple[str, Json]]:
        """Yield type and object of each change after the version, with BOOKMARKs, until the server ends the watch."""
        options = {"resourceVersion": version, "labelSelector": labels, "fieldSelector": fields}
        call = requests.watch(kind, namespace, {k: v for k, v in options.items() if v})
        async for line in self._transport.lines(call):
            yield requests.parse_event(line)

    async def follow(
        self, kind: Kind, namespace: str | None = None, *, version: str, tell: Tell, labels: str = ""
    ) -> None:
        """Call ``tell`` with each change, at once if the server is in the same process."""
        options = {"resourceVersion": version, **({"labelSelector": labels} if labels else {})}
        await self._transport.follow(requests.watch(kind, namespace, options), tell)

    async def create(self, kind: Kind, body: Json, *, subresource: str = "") -> Json:
        return await self._ask(requests.create(kind, body, self.manager, subresource))

    def add(self, kind: Kind, body: Json) -> Awaitable[Json]:
        """Create an object and return the shared answer, which must not be changed.

        With an in-process server the write has begun when this returns.
        """
        return self._transport.add(kind, body, self.manager)

    async def update(self, kind: Kind, body: Json, *, subresource: str = "") -> Json:
        return await self._ask(requests.update(kind, body, self.manager, subresource))

    async def patch(self, kind: Kind, key: Key, body: Any, *, subresource: str = "") -> Json:
        return await self._ask(requests.patch(kind, key, body, self.manager, subresource))

    def merge(self, kind: Kind, key: Key, body: Json, *, subresource: Part = "") -> Awaitable[Json]:
        """Merge a patch, and return the shared answer as ``add`` does."""
        return self._transport.merge(kind, key, body, subresource, self.manager)

    async def apply(
        self, kind: Kind, body: Json, *, manager: str = "", subresource: str = "", force: bool = True
    ) -> Json:
        call = requests.apply(kind, body, manager or self.manager, subresource=subresource, force=force)
        return await self._ask(call)

    async def delete(
        self,
        kind: Kind,
        key: Key,
        *,
        uid: str = "",
        propagation: Propagation = "Background",
        grace_seconds: int | None = None,
    ) -> Json:
        return await self._ask(
            requests.delete(kind, key, uid=uid, propagation=propagation, grace_seconds=grace_seconds)
        )

    async def logs(self, key: Key, options: Mapping[str, str]) -> AsyncIterator[bytes]:
        """Yield the lines of a pod's log."""
        path = f"/api/v1/namespaces/{key.namespace}/pods/{key.name}/log"
        async for line in self._transport.lines(Call("GET", path, query=dict(options))):
            yield line

    async def raw(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """Return the body of a GET of a path that is no object."""
        answer = await self._transport.send(Call("GET", path, query=dict(query or {})))
        if answer.status >= 400:
            raise errors.from_answer(answer.status, answer.body, answer.headers)
        return answer.body

    async def close(self) -> None:
        await self._transport.close()

    async def _ask(self, call: Call) -> Json:
        return requests.parse(await self._transport.send(call))
