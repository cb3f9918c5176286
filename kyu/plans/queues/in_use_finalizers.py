"""
Finalizers of objects that others use: a flavor or check that queues list, a topology, a queue with running jobs. A
deleted object stays until its last user is gone.

Kueue: pkg/controller/core/{clusterqueue,resourceflavor,admissioncheck}_controller.go, tas/topology_controller.go
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from kyu.api.actions import Action, Patch, View
from kyu.api.kueue import RESOURCE_IN_USE_FINALIZER, ClusterQueue, ResourceFlavor
from kyu.api.meta import Json, Key, Kind, Ref, key_of


def plan(kind: Kind, is_used: Callable[[View, str], bool], view: View, key: Key, now: datetime) -> list[Action]:
    """Plan for an object whose users are found by its name."""
    raw = view.find_json(kind, key)
    if raw is None or "deletionTimestamp" not in raw["metadata"]:
        return keep(kind, view, key, now)
    return [] if is_used(view, key.name) else release(kind, raw)


def keep(kind: Kind, view: View, key: Key, now: datetime) -> list[Action]:
    """Add the finalizer to an object that no webhook gave it to."""
    raw = view.find_json(kind, key)
    if raw is None or "deletionTimestamp" in raw["metadata"]:
        return []
    present = raw["metadata"].get("finalizers") or ()
    if RESOURCE_IN_USE_FINALIZER in present:
        return []
    return [finalizers(kind, raw, [*present, RESOURCE_IN_USE_FINALIZER])]


def release(kind: Kind, raw: Json) -> list[Action]:
    present = raw["metadata"].get("finalizers") or ()
    kept = [name for name in present if name != RESOURCE_IN_USE_FINALIZER]
    return [finalizers(kind, raw, kept)] if len(kept) < len(present) else []


def finalizers(kind: Kind, raw: Json, names: list[str]) -> Patch:
    """Patch the whole list, onto the version that was seen: others have finalizers of their own in it."""
    version = raw["metadata"].get("resourceVersion", "")
    return Patch(Ref(kind, key_of(raw)), {"metadata": {"finalizers": names}}, resource_version=version)


# Users of an object.


def is_listed_flavor(view: View, name: str) -> bool:
    return any(
        flavor.name == name
        for queue in view.list(ClusterQueue)
        for group in queue.spec.resource_groups
        for flavor in group.flavors
    )


def is_listed_check(view: View, name: str) -> bool:
    strategies = (queue.spec.admission_checks_strategy for queue in view.list(ClusterQueue))
    return any(rule.name == name for strategy in strategies if strategy for rule in strategy.admission_checks)


def is_topology_of_flavor(view: View, name: str) -> bool:
    return any(flavor.spec.topology_name == name for flavor in view.list(ResourceFlavor))
