"""
Creates and patches of those in the same process, without the shape of HTTP: no path to take apart, no rights to look
up, no form to choose, and no bytes of an answer.

The write itself is the same as that of any client. It has begun when the call returns; what is left is to wait for the
disk.

Called by: server/api.py. Calls: server/writes.py.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Literal

from kyu.api.meta import Json, Key, Kind
from kyu.server import errors, intake
from kyu.server.attempts import Written
from kyu.server.exchange import User
from kyu.server.objects import Objects
from kyu.server.options import WriteOptions
from kyu.server.registry import Registry, Resource
from kyu.server.store import Unwritable
from kyu.server.targets import Target
from kyu.server.writes import Writes
from kyu.turns import Begun


class Inside:
    """``user`` is who they are to those who may object to a write; they may do everything."""

    def __init__(self, registry: Registry, objects: Objects, writes: Writes, user: User) -> None:
        self._registry = registry
        self._objects = objects
        self._writes = writes
        self._user = user

    def add(self, kind: Kind, body: Json, manager: str) -> Begun[tuple[int, Json]]:
        """A create: its code, and the object, which is shared, or the Status of a refusal."""
        namespace = body.get("metadata", {}).get("namespace", "")
        typed = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        try:
            target = self._target(kind, Key(namespace, ""), "", "create")
            if target.namespace == "":
                raise errors.method_not_allowed()
            written = self._writes.create_by(target, typed, _options(manager), self._user)
        except errors.ApiError as error:
            return Begun(partial(_refused, error))
        return Begun(partial(self._stored, target.resource, written))

    def merge(
        self, kind: Kind, key: Key, body: Json, subresource: Literal["", "status"], manager: str
    ) -> Begun[tuple[int, Json]]:
        """A merge patch: the same."""
        try:
            target = self._target(kind, key, subresource, "patch")
            written = self._writes.merge_by(target, body, _options(manager), self._user)
        except errors.ApiError as error:
            return Begun(partial(_refused, error))
        return Begun(partial(self._stored, target.resource, written))

    def _target(self, kind: Kind, key: Key, subresource: str, verb: str) -> Target:
        resource = self._registry.find(kind.group, kind.version, kind.plural)
        if resource is None or (subresource and subresource not in resource.subresources):
            raise errors.no_such_resource()
        # What cannot be read is answered and not stored.
        if verb not in resource.verbs or "get" not in resource.verbs:
            raise errors.method_not_allowed()
        return Target(resource, key.namespace if resource.kind.namespaced else None, key.name, subresource)

    async def _stored(self, resource: Resource, written: Written) -> tuple[int, Json]:
        try:
            if written.done is not None:
                await written.done
        except Unwritable as error:
            return await _refused(errors.unavailable(f"the change could not be stored: {error}"))
        code = 201 if written.created else 200
        if written.obj is not None and not resource.needs_conversion:
            return code, written.obj
        # Nothing has changed, or what was converted may look different when it is read again.
        return code, intake.typed(resource, self._objects.lent(resource, written.record))


@lru_cache
def _options(manager: str) -> WriteOptions:
    return WriteOptions(manager)


async def _refused(error: errors.ApiError) -> tuple[int, Json]:
    return error.code, error.status()
