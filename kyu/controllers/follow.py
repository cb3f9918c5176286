"""
Follow the objects of an API server: built-in kinds at once, custom kinds as soon as their definition is established.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kyu.api.core import DEFINITION
from kyu.api.meta import Json, Kind
from kyu.kube.cache import Cache, Reflector
from kyu.kube.client import Client

BINDING = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    namespaced=False,
)
# API groups built into Kubernetes; all others come with a CustomResourceDefinition.
BUILT_IN_GROUPS = frozenset(
    {"", "admissionregistration.k8s.io", "apps", "batch", "node.k8s.io", "scheduling.k8s.io", "apiextensions.k8s.io"}
)


class Follower:
    """Keeps the objects of some kinds in a cache. Nothing waits for bindings of policies: older clusters have none."""

    def __init__(self, client: Client, cache: Cache, kinds: Callable[[], frozenset[Kind]]) -> None:
        self._client = client
        self._cache = cache
        self._kinds = kinds
        self._served: set[Kind] = set()
        self._followed: set[Kind] = set()
        self._new_kinds = asyncio.Event()
        # Set when all served objects were listed: from then on the view can be relied on.
        self.started = asyncio.Event()
        cache.subscribe(self._definition_changed, DEFINITION)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            always = {kind for kind in self._kinds() if not is_custom(kind)} - {BINDING} | {DEFINITION}
            for kind in always:
                group.create_task(Reflector(self._client, self._cache, kind).run())
            await self._cache.synced()
            self._follow_served(group)
            await self._cache.synced()
            self.started.set()
            for kind in self._kinds() & {BINDING}:
                group.create_task(Reflector(self._client, self._cache, kind).run())
            while True:
                await self._new_kinds.wait()
                self._follow_served(group)

    def _follow_served(self, group: asyncio.TaskGroup) -> None:
        """Start a reflector for each custom kind that is served by now."""
        self._new_kinds.clear()
        for kind in (self._kinds() & self._served) - self._followed:
            self._followed.add(kind)
            group.create_task(Reflector(self._client, self._cache, kind).run())

    def _definition_changed(self, kind: Kind, old: Json | None, new: Json | None) -> None:
        if new is not None:
            self._served |= served_kinds(new)
            self._new_kinds.set()


def is_custom(kind: Kind) -> bool:
    return kind.group not in BUILT_IN_GROUPS


def served_kinds(definition: Json) -> set[Kind]:
    """Return the kinds of an established CustomResourceDefinition."""
    conditions = (definition.get("status") or {}).get("conditions") or ()
    if not any(c.get("type") == "Established" and c.get("status") == "True" for c in conditions):
        return set()
    spec = definition["spec"]
    names = spec["names"]
    return {
        Kind(spec["group"], version["name"], names["kind"], names["plural"], spec["scope"] == "Namespaced")
        for version in spec["versions"]
        if version.get("served")
    }
