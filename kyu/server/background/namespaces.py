"""
Empties namespaces that are being deleted, then removes them.

Kubernetes: pkg/controller/namespace.
"""

from __future__ import annotations

from kyu import log
from kyu.server import errors, representations
from kyu.server.auth import auth
from kyu.server.background.worklist import Worklist
from kyu.server.exchange import User
from kyu.server.options import DeleteOptions
from kyu.server.registry import Registry, Resource
from kyu.server.storage.batches import Unwritable
from kyu.server.storage.records import Change, Record
from kyu.server.storage.store import Store
from kyu.server.verbs.delete import Deletion
from kyu.server.verbs.objects import Objects

FINALIZER = "kubernetes"
CLEANER = User("system:serviceaccount:kube-system:namespace-controller", (auth.MASTERS,))


class Cleaner:
    """The controller that empties namespaces which are being deleted, and removes them."""

    def __init__(self, store: Store, registry: Registry, objects: Objects, deletion: Deletion) -> None:
        self._store = store
        self._registry = registry
        self._objects = objects
        self._deletion = deletion
        self._terminating: set[str] = set()
        self._due: Worklist[str] = Worklist()
        for record in store.objects("namespaces"):
            self._note(record)
        self._stop = store.listen(self._heard)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            while True:
                await self._clean(await self._due.take())
        finally:
            self._stop()

    def _heard(self, change: Change) -> None:
        record = change.record
        if record.resource == "namespaces":
            if change.type == "DELETED":
                self._terminating.discard(record.name)
            else:
                self._note(record)
        elif change.type == "DELETED" and record.namespace in self._terminating and self._is_empty(record.namespace):
            self._due.put(record.namespace)

    def _note(self, record: Record) -> None:
        if record.is_ending:
            self._terminating.add(record.name)
            self._due.put(record.name)

    async def _clean(self, name: str) -> None:
        try:
            left = await self._delete_content(name)
            if not left:
                await self._finalize(name)
        except (errors.StatusError, Unwritable) as error:
            log.warning("namespace not cleaned", namespace=name, error=error)
            self._due.put_later(name)

    async def _delete_content(self, name: str) -> bool:
        """Delete all objects in the namespace; return whether some are left (finalizers, grace periods)."""
        options = DeleteOptions(propagation="Background")
        for resource in self._namespaced():
            content = [record for record in self._store.objects(resource.storage, name) if not record.is_ending]
            await self._deletion.delete_all(resource, content, options, CLEANER)
        return not self._is_empty(name)

    def _namespaced(self) -> list[Resource]:
        stored = [self._registry.stored(storage) for storage in self._store.resources()]
        return [resource for resource in stored if resource is not None and resource.kind.namespaced]

    def _is_empty(self, name: str) -> bool:
        return not any(self._store.has_objects(resource.storage, name) for resource in self._namespaced())

    async def _finalize(self, name: str) -> None:
        record = self._store.latest("namespaces", "", name)
        resource = self._registry.stored("namespaces")
        if record is None or resource is None:
            return
        obj = representations.decode(record.value)
        spec = obj.get("spec") or {}
        left = [finalizer for finalizer in spec.get("finalizers") or () if finalizer != FINALIZER]
        released = {**obj, "spec": {**spec, "finalizers": left}}
        if resource.rules.is_finally_deleted(released):
            await self._objects.remove(record)
        elif left != (spec.get("finalizers") or []):
            await self._objects.put(resource, released).done
