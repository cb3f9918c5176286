"""
Creates and patches of controllers in the same process, without HTTP: no path, no authorization, no form to choose, and
no bytes of an answer.

The write itself is the same as that of any client. It has begun when the call returns; what is left is to wait for the
disk.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Literal

from kyu.api.meta import Json, Key, Kind
from kyu.server import errors
from kyu.server.admission.request import Written
from kyu.server.decode import object
from kyu.server.exchange import User
from kyu.server.options import WriteOptions
from kyu.server.paths import Target
from kyu.server.registry import Registry, Resource
from kyu.server.storage.batches import Unwritable
from kyu.server.verbs.objects import Objects
from kyu.server.verbs.write import Writes
from kyu.write_fairness import Begun


class InProcessWrites:
    """Writes of controllers in the same process. ``user`` is their name in admission; they have all rights."""

    def __init__(self, registry: Registry, objects: Objects, writes: Writes, user: User) -> None:
        self._registry = registry
        self._objects = objects
        self._writes = writes
        self._user = user

    def add(self, kind: Kind, body: Json, manager: str) -> Begun[tuple[int, Json]]:
        """Create an object; return the code, and the shared object or the Status of a refusal."""
        namespace = body.get("metadata", {}).get("namespace", "")
        typed = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        try:
            target = self._target(kind, Key(namespace, ""), "", "create")
            if target.namespace == "":
                raise errors.method_not_allowed()
            written = self._writes.create_by(target, typed, _options(manager), self._user)
        except errors.StatusError as error:
            return Begun(partial(_refused, error))
        return Begun(partial(self._stored, target.resource, written))

    def merge(
        self, kind: Kind, key: Key, body: Json, subresource: Literal["", "status"], manager: str
    ) -> Begun[tuple[int, Json]]:
        """Apply a merge patch; return the same as ``add``."""
        try:
            target = self._target(kind, key, subresource, "patch")
            written = self._writes.merge_by(target, body, _options(manager), self._user)
        except errors.StatusError as error:
            return Begun(partial(_refused, error))
        return Begun(partial(self._stored, target.resource, written))

    def _target(self, kind: Kind, key: Key, subresource: str, verb: str) -> Target:
        resource = self._registry.find(kind.group, kind.version, kind.plural)
        if resource is None or (subresource and subresource not in resource.subresources):
            raise errors.no_such_resource()
        # Reviews are answered and not stored.
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
        return code, object.typed(resource, self._objects.shared(resource, written.record))


@lru_cache
def _options(manager: str) -> WriteOptions:
    return WriteOptions(manager)


async def _refused(error: errors.StatusError) -> tuple[int, Json]:
    return error.code, error.status()
