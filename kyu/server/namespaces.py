"""
Namespaces: nothing is created where there is none, and one that is deleted takes its content along.

Called by: server/admission.py; the cleaner by app.py, through the Api, unless the server runs alone.
Kubernetes: plugin/pkg/admission/namespace/lifecycle, pkg/controller/namespace.
"""

from __future__ import annotations

import asyncio

from kyu import log
from kyu.api.meta import Json, Kind
from kyu.server import auth, errors, forms
from kyu.server.attempts import Attempt
from kyu.server.deletion import Deletion
from kyu.server.exchange import User
from kyu.server.objects import Objects
from kyu.server.options import DeleteOptions
from kyu.server.records import Change, Record
from kyu.server.registry import Registry, Resource
from kyu.server.store import Store, Unwritable
from kyu.server.worklist import Worklist

NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
# They can never be deleted.
IMMORTAL = frozenset({"default", "kube-system", "kube-public"})
FINALIZER = "kubernetes"
CLEANER = User("system:serviceaccount:kube-system:namespace-controller", (auth.MASTERS,))


class Lifecycle:
    """Refuses new content where there is no namespace, or none that stays."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def admit(self, attempt: Attempt) -> None:
        kind = attempt.resource.kind
        if attempt.old is not None or not kind.namespaced or attempt.subresource:
            return
        name = attempt.new["metadata"]["namespace"]
        record = self._store.latest("namespaces", "", name)
        if record is None:
            raise errors.not_found(NAMESPACE, name)
        if record.is_ending:
            own = attempt.new["metadata"].get("name", "")
            text = f"unable to create new content in namespace {name} because it is being terminated"
            cause = errors.cause("NamespaceTerminating", f"namespace {name} is being terminated", "metadata.namespace")
            raise errors.forbidden(kind, own, text, causes=[cause])

    def objection(self, resource: Resource, obj: Json, user: User) -> None:
        name = obj["metadata"]["name"]
        if resource.storage == "namespaces" and name in IMMORTAL:
            raise errors.forbidden(resource.kind, name, "this namespace may not be deleted")


class Cleaner:
    """Empties namespaces that are being deleted, then lets them go."""

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
        """Until cancelled."""
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
        elif change.type == "DELETED" and record.namespace in self._terminating:
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
        except (errors.ApiError, Unwritable) as error:
            log.warning("namespace not cleaned", namespace=name, error=error)
            self._due.put_later(name)

    async def _delete_content(self, name: str) -> bool:
        """Delete everything in it; True if something holds out (finalizers, grace periods)."""
        stored = [self._registry.stored(storage) for storage in self._store.resources()]
        namespaced = [resource for resource in stored if resource is not None and resource.kind.namespaced]
        options = DeleteOptions(propagation="Background")
        content = [(resource, list(self._store.objects(resource.storage, name))) for resource in namespaced]
        await asyncio.gather(*(self._deletion.delete_all(*each, options, CLEANER) for each in content))
        return any(next(self._store.objects(resource.storage, name), None) is not None for resource in namespaced)

    async def _finalize(self, name: str) -> None:
        record = self._store.latest("namespaces", "", name)
        resource = self._registry.stored("namespaces")
        if record is None or resource is None:
            return
        obj = forms.decode(record.value)
        spec = obj.get("spec") or {}
        left = [finalizer for finalizer in spec.get("finalizers") or () if finalizer != FINALIZER]
        released = {**obj, "spec": {**spec, "finalizers": left}}
        if resource.rules.is_finally_deleted(released):
            await self._objects.remove(record)
        elif left != (spec.get("finalizers") or []):
            await self._objects.put(resource, released).done
