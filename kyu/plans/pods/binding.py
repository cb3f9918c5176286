"""
The scheduler of embedded mode: binds each waiting pod to a node, in place of kube-scheduler.

One pass over all pods: those that are bound take their part of the nodes, then those that wait are placed one after
the other, the highest priority first, each on the node that fits it best. A pod that fits nowhere is told why, with
the number of nodes for each reason. A queued pod also needs room in its Workload (plans/quota/coverage.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kyu.api import quantity
from kyu.api.actions import Action, Bind, Event, Patch, View, WakeAt
from kyu.api.core import Node, Pod, PodSpec
from kyu.api.meta import Key, Ref, find_condition
from kyu.engine.topology import filter
from kyu.engine.topology.types import NodeInfo, PodFilter
from kyu.plans.pods import affinity
from kyu.plans.pods.affinity import Neighbours
from kyu.plans.quota.coverage import PODS, Coverage, pod_amounts

DEFAULT_SCHEDULER = "default-scheduler"
# How often a pod without quota is looked at.
LOOK_AGAIN = timedelta(seconds=1)
# Pods that one plan binds or answers. A plan is one step: thousands of pods in it would hold up all else for a second.
PODS_PER_PLAN = 128
UNSCHEDULABLE = "node(s) were unschedulable"
NOT_READY = "node(s) were not ready"


@dataclass(slots=True)
class NodeRoom:
    """One node, and what is left of it."""

    info: NodeInfo
    free: dict[str, int]

    def find_shortage(self, wanted: Mapping[str, int]) -> str | None:
        """Return the first resource that the node lacks."""
        return next((name for name, amount in wanted.items() if amount > self.free.get(name, 0)), None)

    def take(self, wanted: Mapping[str, int]) -> None:
        for name, amount in wanted.items():
            self.free[name] = self.free.get(name, 0) - amount

    def fullness(self, wanted: Mapping[str, int]) -> float:
        """Return the mean share of cpu and memory in use with this pod: 0 is empty, 1 is full."""
        shares = [
            1 - (self.free.get(name, 0) - wanted.get(name, 0)) / total
            for name in ("cpu", "memory")
            if (total := self.info.allocatable.get(name, 0))
        ]
        return sum(shares) / len(shares) if shares else 0.0


@dataclass(slots=True)
class NodesAndPods:
    rooms: dict[str, NodeRoom]
    neighbours: Neighbours
    waiting: list[Pod] = field(default_factory=list)


def plan(view: View, key: Key, now: datetime) -> list[Action]:
    pods = view.list(Pod)
    if not any(not pod.spec.node_name and is_waiting(pod) for pod in pods):
        # Most passes end here: a pod that runs or ends makes no other one wait.
        return []
    cluster, coverage = survey(view.list(Node), pods), Coverage(view)
    result: list[Action] = []
    answered = 0
    for pod in sorted(cluster.waiting, key=order):
        if answered >= PODS_PER_PLAN:
            return [*result, WakeAt(now)]
        raw = view.find_json(Pod.KIND, pod.key)
        why = coverage.take(raw, pod_amounts(pod.spec)) if raw is not None else None
        if why is None:
            actions = place(pod, cluster, now)
        else:
            actions = refuse(pod, f"not covered by quota: {why}", now)
            # No change of a pod or node may tell when the Workload has room again.
            result.append(WakeAt(now + LOOK_AGAIN))
        answered += bool(actions)
        result += actions
    return result


def survey(nodes: Iterable[Node], pods: Iterable[Pod]) -> NodesAndPods:
    infos = [node_info(node) for node in nodes]
    rooms = {info.name: NodeRoom(info, dict(info.allocatable)) for info in infos}
    cluster = NodesAndPods(rooms, Neighbours({info.name: info for info in infos}))
    for pod in pods:
        if pod.status.phase in ("Succeeded", "Failed"):
            continue
        if pod.spec.node_name:
            if (room := rooms.get(pod.spec.node_name)) is not None:
                room.take(pod_amounts(pod.spec))
                cluster.neighbours.add(pod, pod.spec.node_name)
        elif is_waiting(pod):
            cluster.waiting.append(pod)
    return cluster


def is_waiting(pod: Pod) -> bool:
    ours = pod.spec.scheduler_name in ("", DEFAULT_SCHEDULER)
    over = pod.status.phase in ("Succeeded", "Failed")
    return ours and not over and not pod.spec.scheduling_gates and not pod.metadata.deletion_timestamp


def node_info(node: Node) -> NodeInfo:
    ready = find_condition(node.status.conditions, "Ready")
    return NodeInfo(
        name=node.metadata.name,
        labels=node.metadata.labels,
        allocatable={name: quantity.amount(name, value) for name, value in node.status.allocatable.items()},
        taints=node.spec.taints,
        # A node that says nothing about itself is taken as it is.
        ready=ready is None or ready.status == "True",
        unschedulable=node.spec.unschedulable,
    )


def pod_filter(spec: PodSpec) -> PodFilter:
    node_affinity = spec.affinity.node_affinity if spec.affinity else None
    required = node_affinity.required_during_scheduling_ignored_during_execution if node_affinity else None
    preferred = node_affinity.preferred_during_scheduling_ignored_during_execution if node_affinity else ()
    return PodFilter(
        node_selector=tuple(spec.node_selector.items()),
        required_terms=None if required is None else required.node_selector_terms,
        preferred_terms=preferred,
        tolerations=spec.tolerations,
    )


def order(pod: Pod) -> tuple[int, str, str, str]:
    created = pod.metadata.creation_timestamp or ""
    return (-(pod.spec.priority or 0), created, pod.metadata.namespace, pod.metadata.name)


def place(pod: Pod, cluster: NodesAndPods, now: datetime) -> list[Action]:
    match take_room(pod, cluster):
        case NodeRoom() as room:
            return bind(pod, room.info.name)
        case message:
            return refuse(pod, message, now)


def take_room(pod: Pod, cluster: NodesAndPods) -> NodeRoom | str:
    """Take room on the best node for the pod, or return why there is none."""
    wanted, wishes = pod_amounts(pod.spec), pod_filter(pod.spec)
    misses: Counter[str] = Counter()
    fitting: list[NodeRoom] = []
    for room in cluster.rooms.values():
        miss = find_miss(pod, room, wanted, wishes, cluster.neighbours)
        if miss is None:
            fitting.append(room)
        else:
            misses[miss] += 1
    if not fitting:
        return explain(misses, len(cluster.rooms))
    best = choose(pod, fitting, wanted, wishes, cluster.neighbours)
    best.take(wanted)
    cluster.neighbours.add(pod, best.info.name)
    return best


def find_miss(
    pod: Pod, room: NodeRoom, wanted: Mapping[str, int], wishes: PodFilter, neighbours: Neighbours
) -> str | None:
    if room.info.unschedulable:
        return UNSCHEDULABLE
    if not room.info.ready:
        return NOT_READY
    miss = filter.find_miss(room.info, wishes, ())
    if miss is not None:
        if miss.startswith("taint"):
            return f"node(s) had untolerated {miss}"
        return "node(s) didn't match Pod's node affinity/selector"
    shortage = room.find_shortage(wanted)
    if shortage is not None:
        return "Too many pods" if shortage == PODS else f"Insufficient {shortage}"
    return affinity.find_miss(pod, room.info, neighbours)


def choose(
    pod: Pod, fitting: list[NodeRoom], wanted: Mapping[str, int], wishes: PodFilter, neighbours: Neighbours
) -> NodeRoom:
    """Return the node that the pod prefers, then the emptiest, then the first by name."""

    def rank(room: NodeRoom) -> tuple[int, int, float, str]:
        repelled = sum(
            taint.effect == "PreferNoSchedule"
            and not any(toleration.tolerates(taint) for toleration in wishes.tolerations)
            for taint in room.info.taints
        )
        liked = filter.preference(room.info, wishes)
        liked += affinity.score(pod, room.info, neighbours)
        return (repelled, -liked, room.fullness(wanted), room.info.name)

    return min(fitting, key=rank)


def explain(misses: Counter[str], total: int) -> str:
    if not total:
        return "no nodes available to schedule pods"
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(misses.items()))
    return f"0/{total} nodes are available: {reasons}."


def bind(pod: Pod, node: str) -> list[Action]:
    """Bind the pod. The server sets the condition PodScheduled with the node, as for a Binding."""
    ref = Ref(Pod.KIND, pod.key)
    message = f"Successfully assigned {pod.key} to {node}"
    return [
        Bind(ref, node),
        Event(ref, "Normal", "Scheduled", message, pod.metadata.uid),
    ]


def refuse(pod: Pod, message: str, now: datetime) -> list[Action]:
    """Report why the pod has no node, if that has changed."""
    present = find_condition(pod.status.conditions, "PodScheduled")
    if present is not None and present.status == "False" and present.message == message:
        return []
    time = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    if present is not None and present.status == "False" and present.last_transition_time:
        time = present.last_transition_time
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    others = [
        {"type": c.type, "status": c.status, "reason": c.reason, "message": c.message}
        | {"lastTransitionTime": c.last_transition_time}
        for c in pod.status.conditions
        if c.type != "PodScheduled"
    ]
    ref = Ref(Pod.KIND, pod.key)
    return [
        Patch(ref, {"status": {"conditions": [*others, {**condition, "lastTransitionTime": time}]}}, "status"),
        Event(ref, "Warning", "FailedScheduling", message, pod.metadata.uid),
    ]
