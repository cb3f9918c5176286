"""
The rows of embedded mode only, in place of the controllers of Kubernetes.

They make pods of jobs, bind pods to nodes, delete pods of lost nodes, and answer ProvisioningRequests.
"""

from __future__ import annotations

from collections.abc import Iterable

from kyu.api.actions import View
from kyu.api.core import Node, Pod
from kyu.api.meta import Json, Key, Kind, key_of
from kyu.api.pools import MasterQueue
from kyu.controllers.loop import Controller, Owned, Watch
from kyu.plans.pods import binding, jobs, lost, operators
from kyu.plans.pools import nodes
from kyu.plans.provisioning import capacity, requests

# All pods are bound by one plan, so the row has one key.
ALL_PODS = Key("", "pods")
# ProvisioningRequests compete for the same nodes, so one plan answers all.
ALL_REQUESTS = Key("", "requests")


def controllers() -> tuple[Controller, ...]:
    return (
        *(pods_row(kind, plan) for kind, plan in operators.PLANS.items()),
        Controller(
            "virtual-node",
            nodes.plan,
            (Watch(MasterQueue.KIND, virtual_nodes_of), Watch(Node.KIND, matters=node_changed)),
        ),
        Controller("orphaned-pods", jobs.plan_orphan, (Watch(Pod.KIND, matters=may_be_orphan),)),
        Controller(
            "lost-pods",
            lost.plan,
            (Watch(Pod.KIND, matters=appears_bound), Watch(Node.KIND, pods_of_node, is_gone)),
        ),
        Controller(
            "binding",
            binding.plan,
            (Watch(Pod.KIND, all_pods, binding_changed), Watch(Node.KIND, all_pods, node_changed)),
            # Each plan looks at all pods, also at thousands that fit nowhere.
            is_paced=True,
        ),
        Controller(
            "capacity",
            capacity.plan,
            (
                Watch(requests.REQUEST, all_requests),
                Watch(requests.POD_TEMPLATE, all_requests),
                Watch(Pod.KIND, all_requests, binding_changed),
                Watch(Node.KIND, all_requests, node_changed),
            ),
        ),
    )


def pods_row(kind: Kind, plan: operators.Plan) -> Controller:
    children = tuple(child for child in operators.CHILD_KINDS if child != kind)
    return Controller(f"pods/{kind.plural}", plan, (Watch(kind),), Owned(children, kind))


def all_pods(view: View, obj: Json) -> Iterable[Key]:
    return (ALL_PODS,)


def all_requests(view: View, obj: Json) -> Iterable[Key]:
    return (ALL_REQUESTS,) if view.list_json(requests.REQUEST) else ()


def virtual_nodes_of(view: View, obj: Json) -> Iterable[Key]:
    for group in (obj.get("spec") or {}).get("flavors") or ():
        if name := (group.get("natsFlavor") or {}).get("virtualNode"):
            yield Key("", name)


def pods_of_node(view: View, obj: Json) -> Iterable[Key]:
    name = obj["metadata"]["name"]
    for pod in view.list_json(Pod.KIND):
        if lost.node_of(pod) == name:
            yield key_of(pod)


def is_gone(old: Json | None, new: Json | None) -> bool:
    return new is None


def appears_bound(old: Json | None, new: Json | None) -> bool:
    """Return whether a pod that has a node is seen for the first time, as all are when Kyu starts."""
    return old is None and new is not None and bool(lost.node_of(new))


def may_be_orphan(old: Json | None, new: Json | None) -> bool:
    return new is not None and bool(new["metadata"].get("finalizers"))


def binding_changed(old: Json | None, new: Json | None) -> bool:
    """Return whether a pod waits for a node, or has left its node."""
    if new is None or is_over(new):
        return old is not None and not is_over(old)
    return not (new.get("spec") or {}).get("nodeName")


def is_over(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def node_changed(old: Json | None, new: Json | None) -> bool:
    """Return whether the capacity of a node has changed, unlike at a heartbeat."""
    return old is None or new is None or offer(old) != offer(new)


def offer(node: Json) -> object:
    status = node.get("status") or {}
    ready = [c.get("status") for c in status.get("conditions") or () if c.get("type") == "Ready"]
    return (node.get("spec"), node["metadata"].get("labels"), status.get("allocatable"), ready)
