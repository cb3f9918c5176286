"""
Rows of embedded mode only: what the controllers of a cluster would do. Jobs get pods, pods get nodes and go with them,
and who asks for capacity gets an answer.

Used by: embedded.py. Calls: plans/pods.py (every kind), plans/binding.py, plans/pods_lost.py, plans/capacity.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from kyu.api.actions import View
from kyu.api.core import Node, Pod
from kyu.api.meta import Json, Key, Kind, key_of
from kyu.api.pools import MasterQueue
from kyu.controllers.loop import Controller, Owned, Watch
from kyu.plans import binding, capacity, pods, pods_job, pods_lost, pool_nodes, provisioning

# Pods are bound in one pass for all, so the row has one key.
ALL_PODS = Key("", "pods")
# Requests compete for the same nodes, so they are answered in one pass too.
ALL_REQUESTS = Key("", "requests")


def controllers() -> tuple[Controller, ...]:
    return (
        *(pods_row(kind, plan) for kind, plan in pods.PLANS.items()),
        Controller(
            "virtual-node",
            pool_nodes.plan,
            (Watch(MasterQueue.KIND, virtual_nodes_of), Watch(Node.KIND, matters=node_changed)),
        ),
        Controller("orphaned-pods", pods_job.plan_orphan, (Watch(Pod.KIND, matters=may_be_orphan),)),
        Controller(
            "lost-pods",
            pods_lost.plan,
            (Watch(Pod.KIND, matters=appears_bound), Watch(Node.KIND, pods_of_node, is_gone)),
        ),
        Controller(
            "binding",
            binding.plan,
            (Watch(Pod.KIND, all_pods, binding_changed), Watch(Node.KIND, all_pods, node_changed)),
        ),
        Controller(
            "capacity",
            capacity.plan,
            (
                Watch(provisioning.REQUEST, all_requests),
                Watch(provisioning.POD_TEMPLATE, all_requests),
                Watch(Pod.KIND, all_requests, binding_changed),
                Watch(Node.KIND, all_requests, node_changed),
            ),
        ),
    )


def pods_row(kind: Kind, plan: pods.Plan) -> Controller:
    children = tuple(child for child in pods.CHILD_KINDS if child != kind)
    return Controller(f"pods/{kind.plural}", plan, (Watch(kind),), Owned(children, kind))


def all_pods(view: View, obj: Json) -> Iterable[Key]:
    return (ALL_PODS,)


def all_requests(view: View, obj: Json) -> Iterable[Key]:
    return (ALL_REQUESTS,) if view.list_json(provisioning.REQUEST) else ()


def virtual_nodes_of(view: View, obj: Json) -> Iterable[Key]:
    for group in (obj.get("spec") or {}).get("flavors") or ():
        if name := (group.get("natsFlavor") or {}).get("virtualNode"):
            yield Key("", name)


def pods_of_node(view: View, obj: Json) -> Iterable[Key]:
    name = obj["metadata"]["name"]
    for pod in view.list_json(Pod.KIND):
        if pods_lost.node_of(pod) == name:
            yield key_of(pod)


def is_gone(old: Json | None, new: Json | None) -> bool:
    return new is None


def appears_bound(old: Json | None, new: Json | None) -> bool:
    """One that is seen for the first time, and has a node already: as all are when Kyu starts."""
    return old is None and new is not None and bool(pods_lost.node_of(new))


def may_be_orphan(old: Json | None, new: Json | None) -> bool:
    return new is not None and bool(new["metadata"].get("finalizers"))


def binding_changed(old: Json | None, new: Json | None) -> bool:
    """A pod waits for a node, or one has left its node."""
    if new is None or is_over(new):
        return old is not None and not is_over(old)
    return not (new.get("spec") or {}).get("nodeName")


def is_over(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def node_changed(old: Json | None, new: Json | None) -> bool:
    """Heartbeats change the status all the time; what matters is what a node offers."""
    return old is None or new is None or offer(old) != offer(new)


def offer(node: Json) -> object:
    status = node.get("status") or {}
    ready = [c.get("status") for c in status.get("conditions") or () if c.get("type") == "Ready"]
    return (node.get("spec"), node["metadata"].get("labels"), status.get("allocatable"), ready)
