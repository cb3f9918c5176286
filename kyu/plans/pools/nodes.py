"""
Virtual nodes: what pods for pools are bound to where no virtual kubelet stands in for it.

A virtual node is as large as can be, because quota has already decided; its taint keeps all pods off that do not say
that they may be offloaded. It exists while a MasterQueue names it. A node of that name that is none of ours stays.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from kyu.api.actions import Action, Apply, Delete, Patch, View
from kyu.api.core import Node
from kyu.api.kueue import HOSTNAME_LABEL
from kyu.api.meta import Json, Key, Ref
from kyu.api.pools import OFFLOAD_TAINT, MasterQueue
from kyu.plans.status import timestamp

MANAGER = "kyu-virtual-node"
VIRTUAL_LABEL = "kyu.dev/virtual-node"
ENOUGH = {"cpu": "10k", "memory": "2Ei", "pods": "10k", "nvidia.com/gpu": "10k", "ephemeral-storage": "2Ei"}
ENOUGH_OF_OTHERS = "1M"


def plan(view: View, key: Key, now: datetime) -> list[Action]:
    queues = [queue for queue in view.list(MasterQueue) if key.name in virtual_nodes(queue)]
    stored = view.find_json(Node.KIND, key)
    is_ours = stored is not None and VIRTUAL_LABEL in (stored["metadata"].get("labels") or {})
    if not queues:
        return [Delete(Ref(Node.KIND, key), stored["metadata"]["uid"])] if stored is not None and is_ours else []
    if stored is None:
        return [Apply(Node.KIND, node(key.name), MANAGER)]
    if not is_ours:
        return []
    actions: list[Action] = []
    wanted = node(key.name)["spec"]["taints"]
    if (stored.get("spec") or {}).get("taints") != wanted:
        # A new node has another taint, until it says that it is ready.
        actions.append(Patch(Ref(Node.KIND, key), {"spec": {"taints": wanted}}))
    resources = room(queues)
    status = stored.get("status") or {}
    if status.get("allocatable") != resources or not status.get("conditions"):
        actions.append(Patch(Ref(Node.KIND, key), {"status": ready(resources, now)}, "status"))
    return actions


def virtual_nodes(queue: MasterQueue) -> set[str]:
    return {
        group.nats_flavor.virtual_node
        for group in queue.spec.flavors
        if group.nats_flavor is not None and group.nats_flavor.virtual_node
    }


def node(name: str) -> Json:
    labels = {HOSTNAME_LABEL: name, "kubernetes.io/os": "linux", "type": "virtual-kubelet", VIRTUAL_LABEL: "true"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": [msgspec.to_builtins(OFFLOAD_TAINT)]},
    }


def room(queues: list[MasterQueue]) -> dict[str, str]:
    """Return more than enough of every resource of the pools."""
    names = {name for queue in queues for pool in queue.status.pools for name in pool.effective}
    return {**dict.fromkeys(sorted(names), ENOUGH_OF_OTHERS), **ENOUGH}


def ready(resources: dict[str, str], now: datetime) -> Json:
    since = timestamp(now)
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "VirtualNode",
        "message": "stands for the pools behind it",
    }
    return {
        "capacity": resources,
        "allocatable": resources,
        "conditions": [{**condition, "lastTransitionTime": since, "lastHeartbeatTime": since}],
    }
