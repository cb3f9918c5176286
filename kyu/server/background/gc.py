"""
The garbage collector: deletes objects without owners, and keeps an owner until its dependents are gone where asked to.

It hears every change. A deleted owner puts its dependents on the list, as does an object with one of the collector's
two finalizers, or with owners that do not exist. Each case is decided anew from the present state. So nothing depends
on the order of changes, and a restart only has to look at every object once.

Kubernetes: pkg/controller/garbagecollector.
"""

from __future__ import annotations

from kyu import log
from kyu.api.meta import Json
from kyu.server import errors, representations
from kyu.server.auth import auth
from kyu.server.background.worklist import Worklist
from kyu.server.exchange import User
from kyu.server.options import DeleteOptions, Propagation
from kyu.server.pauses import Pauses
from kyu.server.registry import Registry, Resource
from kyu.server.storage.batches import Unwritable
from kyu.server.storage.records import Change, Record
from kyu.server.storage.store import Store
from kyu.server.verbs.delete import FOREGROUND, ORPHAN, Deletion
from kyu.server.verbs.objects import Objects

COLLECTOR = User("system:serviceaccount:kube-system:generic-garbage-collector", (auth.MASTERS,))

Place = tuple[str, str, str]


class GarbageCollector:
    def __init__(self, store: Store, registry: Registry, objects: Objects, deletion: Deletion) -> None:
        self._store = store
        self._registry = registry
        self._objects = objects
        self._deletion = deletion
        # The objects that name a uid as an owner.
        self._dependents: dict[str, set[Place]] = {}
        self._due: Worklist[Place] = Worklist()
        for resource in store.resources():
            for record in store.objects(resource):
                self._add(record)
        self._stop = store.listen(self._heard)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            while True:
                await self._look_at(await self._due.take())
        finally:
            self._stop()

    # Hearing.

    def _heard(self, change: Change) -> None:
        record, previous = change.record, change.previous
        if previous is not None and previous.owners and previous.owners != record.owners:
            self._forget(previous, frozenset(record.owners))
        if change.type != "DELETED":
            self._add(record)
            return
        if previous is not None and previous.owners and previous.owners == record.owners:
            self._forget(previous, frozenset())
        for place in self._dependents.get(record.uid, ()):
            self._due.put(place)
        if previous is not None and previous.owners:
            # An owner that waits for its dependents may be free now.
            for reference in representations.decode(previous.value)["metadata"].get("ownerReferences") or ():
                if owner := self._owner_place(reference, previous.namespace):
                    self._due.put(owner)

    def _forget(self, record: Record, kept: frozenset[str]) -> None:
        """Remove an object from the dependents of its former owners."""
        place = _place(record)
        for uid in record.owners:
            found = self._dependents.get(uid) if uid not in kept else None
            if found is not None:
                found.discard(place)
                if not found:
                    del self._dependents[uid]

    def _add(self, record: Record) -> None:
        place = _place(record)
        for uid in record.owners:
            self._dependents.setdefault(uid, set()).add(place)
        # A cheap test on the bytes; the few that pass are read.
        if record.owners or (record.is_ending and _may_wait(record.value)):
            self._due.put(place)

    # Deciding.

    async def _look_at(self, place: Place) -> None:
        record = self._store.latest(*place)
        resource = self._registry.stored(place[0])
        if record is None or resource is None:
            return
        try:
            await self._decide(resource, record)
        except errors.StatusError as error:
            if error.code not in (404, 409):
                log.warning("garbage collection failed", resource=place[0], name=record.name, error=error)
                self._due.put_later(place)
        except Unwritable:
            self._due.put_later(place)

    async def _decide(self, resource: Resource, record: Record) -> None:
        obj = representations.decode(record.value)
        meta = obj["metadata"]
        finalizers = meta.get("finalizers") or ()
        if meta.get("deletionTimestamp"):
            if ORPHAN in finalizers:
                await self._orphan(resource, record, obj)
            elif FOREGROUND in finalizers:
                await self._delete_dependents(resource, record, obj)
            return
        references = meta.get("ownerReferences") or []
        if references:
            await self._check_owners(resource, record, obj, references)

    async def _check_owners(self, resource: Resource, record: Record, obj: Json, references: list[Json]) -> None:
        present: list[tuple[Json, Record]] = []
        pauses = Pauses()
        for reference in references:
            if (owner := self._find_owner(reference, record.namespace)) is not None:
                present.append((reference, owner))
            await pauses()
        if self._store.latest(record.resource, record.namespace, record.name) is not record:
            # Written meanwhile, so it is on the list again.
            return
        if not present:
            await self._delete(resource, record, "Background")
        elif all(_waits_for_dependents(owner) for _, owner in present):
            blocks = any(reference.get("blockOwnerDeletion") for reference, _ in present)
            has_own = bool(self._dependents.get(record.uid))
            await self._delete(resource, record, "Foreground" if blocks and has_own else "Background")
        elif len(present) < len(references):
            kept = [reference for reference, _ in present]
            await self._objects.put(resource, _with_owners(obj, kept)).done

    async def _orphan(self, resource: Resource, record: Record, obj: Json) -> None:
        pauses = Pauses()
        for place in list(self._dependents.get(record.uid, ())):
            await pauses()
            dependent, kind = self._store.latest(*place), self._registry.stored(place[0])
            if dependent is None or kind is None:
                continue
            body = representations.decode(dependent.value)
            references = [r for r in body["metadata"].get("ownerReferences") or () if r.get("uid") != record.uid]
            await self._objects.put(kind, _with_owners(body, references)).done
        if self._store.latest(record.resource, record.namespace, record.name) is record:
            await self._release(resource, record, obj, ORPHAN)

    async def _delete_dependents(self, resource: Resource, record: Record, obj: Json) -> None:
        is_blocked = False
        pauses = Pauses()
        for place in list(self._dependents.get(record.uid, ())):
            await pauses()
            dependent = self._store.latest(*place)
            if dependent is None:
                continue
            meta = representations.decode(dependent.value)["metadata"]
            mine = [r for r in meta.get("ownerReferences") or () if r.get("uid") == record.uid]
            is_blocked = is_blocked or any(r.get("blockOwnerDeletion") for r in mine)
            self._due.put(place)
        if not is_blocked and self._store.latest(record.resource, record.namespace, record.name) is record:
            await self._release(resource, record, obj, FOREGROUND)

    async def _release(self, resource: Resource, record: Record, obj: Json, finalizer: str) -> None:
        left = [name for name in obj["metadata"].get("finalizers") or () if name != finalizer]
        released = {**obj, "metadata": {**obj["metadata"], "finalizers": left}}
        if resource.rules.is_finally_deleted(released):
            await self._objects.remove(record)
        else:
            await self._objects.put(resource, released).done

    async def _delete(self, resource: Resource, record: Record, policy: Propagation) -> None:
        options = DeleteOptions(propagation=policy, uid=record.uid)
        deleted = self._deletion.delete_object(resource, record.namespace, record.name, options, COLLECTOR)
        if deleted.done is not None:
            await deleted.done

    # Owners.

    def _find_owner(self, reference: Json, namespace: str) -> Record | None:
        place = self._owner_place(reference, namespace)
        record = self._store.latest(*place) if place else None
        return record if record is not None and record.uid == reference.get("uid") else None

    def _owner_place(self, reference: Json, namespace: str) -> Place | None:
        resource = self._registry.find_kind(reference.get("apiVersion", ""), reference.get("kind", ""))
        if resource is None:
            return None
        return resource.storage, namespace if resource.kind.namespaced else "", reference.get("name", "")


def _place(record: Record) -> Place:
    return record.resource, record.namespace, record.name


def _with_owners(obj: Json, references: list[Json]) -> Json:
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": references}}


def _may_wait(value: bytes) -> bool:
    return b'"orphan"' in value or b'"foregroundDeletion"' in value


def _waits_for_dependents(owner: Record) -> bool:
    if not owner.is_ending or not _may_wait(owner.value):
        return False
    return FOREGROUND in (representations.decode(owner.value)["metadata"].get("finalizers") or ())
