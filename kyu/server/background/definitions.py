"""
Serves the kinds of CustomResourceDefinitions: from the moment their names are free until the definition is deleted.

The registry is changed here and nowhere else.

Kubernetes: apiextensions-apiserver/pkg/controller/{status,establish,finalizer}.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from kyu import log
from kyu.api.meta import Json
from kyu.server import errors, representations
from kyu.server.auth import auth
from kyu.server.background.worklist import Worklist
from kyu.server.crd import crd, custom
from kyu.server.crd import names as crd_names
from kyu.server.exchange import User
from kyu.server.fieldmanager import manager
from kyu.server.options import DeleteOptions
from kyu.server.registry import Registry, Resource, storage_name
from kyu.server.storage.batches import Unwritable
from kyu.server.storage.records import Change, Record
from kyu.server.storage.store import Store
from kyu.server.verbs.delete import Deletion
from kyu.server.verbs.objects import Objects
from kyu.server.verbs.watch import Hub

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
FINALIZER = User("system:apiextensions", (auth.MASTERS,))
# The field manager of what the server writes by itself.
SERVER = "kube-apiserver"


class Definitions:
    def __init__(
        self,
        store: Store,
        registry: Registry,
        hub: Hub,
        objects: Objects,
        deletion: Deletion,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._registry = registry
        self._hub = hub
        self._objects = objects
        self._deletion = deletion
        self._clock = clock
        # The served generation of each definition, and whether the definition is being deleted.
        self._served: dict[str, tuple[int, bool]] = {}
        self._due: Worklist[str] = Worklist()
        # The names that definitions have, by the definition.
        self._names: dict[str, Json] = {}
        stored = [representations.decode(record.value) for record in store.objects(DEFINITIONS)]
        for definition in stored:
            self._names[definition["metadata"]["name"]] = (definition.get("status") or {}).get("acceptedNames") or {}
        for definition in stored:
            self._take(definition)
        store.listen(self._heard)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self._look_at(await self._due.take())

    def _heard(self, change: Change) -> None:
        record = change.record
        if record.resource == DEFINITIONS:
            definition = representations.decode(record.value)
            if change.type == "DELETED":
                self._withdraw(definition)
            else:
                self._take(definition)
        elif change.type == "DELETED" and record.resource in self._served:
            # The last object of a kind that is going may have gone.
            self._due.put(record.resource)

    async def _look_at(self, name: str) -> None:
        record = self._store.latest(DEFINITIONS, "", name)
        if record is None:
            return
        definition = representations.decode(record.value)
        try:
            if definition["metadata"].get("deletionTimestamp"):
                await self._clean(record, definition)
            else:
                await self._establish(definition)
        except (errors.StatusError, Unwritable) as error:
            log.warning("definition not served", name=name, error=error)
            self._due.put_later(name)

    async def _establish(self, definition: Json) -> None:
        status = crd_names.status_of(definition, self._acceptance(definition), self._clock())
        if status != definition.get("status"):
            await self._write(self._owned({**definition, "status": status}, definition))

    async def _clean(self, record: Record, definition: Json) -> None:
        """Delete the objects of the kind; when none is left, let the definition go."""
        storage = _storage(definition)
        if self._store.count(storage) and (status := crd.cleaning_status(definition)) != definition.get("status"):
            await self._write(self._owned({**definition, "status": status}, definition))
            return
        if (resource := self._registry.stored(storage)) is not None:
            options = DeleteOptions(propagation="Background")
            await self._deletion.delete_all(resource, list(self._store.objects(storage)), options, FINALIZER)
        if self._store.count(storage) == 0:
            await self._release(record, definition)

    async def _release(self, record: Record, definition: Json) -> None:
        metadata = definition["metadata"]
        left = [name for name in metadata.get("finalizers") or () if name != crd.CLEANUP_FINALIZER]
        if not left:
            await self._objects.remove(record)
        elif left != metadata.get("finalizers"):
            await self._write({**definition, "metadata": {**metadata, "finalizers": left}})

    def _owned(self, new: Json, old: Json) -> Json:
        """Return the definition with the server as the owner of its status."""
        resource = self._resource()
        return manager.track_update(resource.schema, old, new, resource.writer(SERVER, self._clock(), "status"))

    def _resource(self) -> Resource:
        resource = self._registry.stored(DEFINITIONS)
        assert resource is not None
        return resource

    async def _write(self, definition: Json) -> None:
        await self._objects.put(self._resource(), definition).done

    # The registry.

    def _take(self, definition: Json) -> None:
        """Reserve the names at once, so that the next definition cannot have them; the status follows."""
        acceptance = self._acceptance(definition)
        self._names[definition["metadata"]["name"]] = acceptance.names
        if acceptance.is_complete:
            self._serve(definition)
        self._due.put(definition["metadata"]["name"])

    def _acceptance(self, definition: Json) -> crd_names.Acceptance:
        name, group = definition["metadata"]["name"], definition["spec"]["group"]
        others = [names for other, names in self._names.items() if other != name and _group(other) == group]
        others += [
            {"plural": resource.kind.plural, "kind": resource.kind.kind}
            for version in self._registry.versions(group)
            for resource in self._registry.resources(group, version)
            if not resource.is_custom
        ]
        accepted = (definition.get("status") or {}).get("acceptedNames") or {}
        return crd_names.accept(definition["spec"]["names"], accepted, others)

    def _serve(self, definition: Json) -> None:
        metadata = definition["metadata"]
        name, state = metadata["name"], (metadata.get("generation", 0), "deletionTimestamp" in metadata)
        if self._served.get(name) == state:
            return
        was_served = name in self._served
        spec = definition["spec"]
        if was_served:
            self._registry.remove(spec["group"], spec["names"]["plural"])
        self._registry.add(custom.resources_of(definition))
        self._served[name] = state

    def _withdraw(self, definition: Json) -> None:
        """Stop serving a kind; other definitions may have its names now."""
        spec, name = definition["spec"], definition["metadata"]["name"]
        self._names.pop(name, None)
        for other in self._names:
            if _group(other) == spec["group"]:
                self._due.put(other)
        if self._served.pop(name, None) is not None:
            self._registry.remove(spec["group"], spec["names"]["plural"])
            self._hub.close_all(_storage(definition))


def _storage(definition: Json) -> str:
    return storage_name(definition["spec"]["group"], definition["spec"]["names"]["plural"])


def _group(name: str) -> str:
    """``widgets.example.com`` is of the group ``example.com``."""
    return name.partition(".")[2]
