"""
The report of a cluster about itself: a ClusterMetrics from its nodes and pods.

Each bound pod that has not ended counts with its requests. Pods that the hub did not send are counted a second time, as
foreign usage, because the hub may not promise what they hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from kyu.api import codec, quantity
from kyu.api.clusters.capacity import FOREIGN_USAGE, REPORTED_AT, ClusterMetrics, NodeMetrics
from kyu.api.clusters.kubestellar import CLUSTER_LABEL
from kyu.api.core import Node, Pod
from kyu.api.meta import Json, is_true
from kyu.engine import requests
from kyu.kinds import metadata

# A Pod of a Job of a JobSet has two owners above it; more levels than this are not followed.
MOST_OWNERS = 4


@dataclass(frozen=True, slots=True)
class ClusterUsage:
    """A report: its nodes as JSON, and the foreign requests by node."""

    nodes: list[Json]
    foreign: Mapping[str, Mapping[str, str]]

    @property
    def names(self) -> set[str]:
        return {node["name"] for node in self.nodes}


def find_usage(nodes: Iterable[Json], pods: Iterable[Json], is_sent: Callable[[Json], bool]) -> ClusterUsage:
    """Return the report on these nodes and pods. ``is_sent``: whether the hub sent the pod."""
    asked: dict[str, Counter[str]] = {}
    limits: dict[str, Counter[str]] = {}
    foreign: dict[str, Counter[str]] = {}
    for raw in pods:
        pod = codec.decode_as(Pod, raw)
        if not pod.spec.node_name or pod.status.phase in ("Succeeded", "Failed"):
            continue
        amounts = Counter({**requests.amounts(requests.raw_requests(requests.complete(pod.spec, {}, {}))), "pods": 1})
        asked.setdefault(pod.spec.node_name, Counter()).update(amounts)
        limits.setdefault(pod.spec.node_name, Counter()).update(limits_of(pod))
        if not is_sent(raw):
            foreign.setdefault(pod.spec.node_name, Counter()).update(amounts)
    found = [node_metrics(raw, asked, limits) for raw in nodes]
    found.sort(key=lambda node: node.name)
    names = {node.name for node in found}
    return ClusterUsage(
        [msgspec.to_builtins(node) for node in found],
        {name: rendered(amounts) for name, amounts in sorted(foreign.items()) if name in names},
    )


def node_metrics(raw: Json, asked: Mapping[str, Counter[str]], limits: Mapping[str, Counter[str]]) -> NodeMetrics:
    """Return the report on a node. One that is not ready takes no pods."""
    node = codec.decode_as(Node, raw)
    name = node.metadata.name
    return NodeMetrics(
        name=name,
        allocatable_resources={key: str(value) for key, value in sorted(node.status.allocatable.items())},
        allocated_resource_requests=dict(rendered(asked.get(name, Counter()))),
        allocated_resource_limits=dict(rendered(limits.get(name, Counter()))),
        taints=node.spec.taints,
        labels=node.metadata.labels,
        unschedulable=node.spec.unschedulable or not is_true(node.status.conditions, "Ready"),
    )


def limits_of(pod: Pod) -> Counter[str]:
    sums = Counter[str]()
    for container in pod.spec.containers:
        for resource, value in container.resources.limits.items():
            sums[resource] += quantity.amount(resource, value)
    return sums


def rendered(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: quantity.render(name, amount) for name, amount in sorted(amounts.items()) if amount}


def is_sent_by_hub(obj: Json, find_owner: Callable[[str], Json | None], cluster: str, origin: str) -> bool:
    """Return whether the hub sent the object, or an owner of it. ``find_owner`` finds jobs by uid."""
    one: Json | None = obj
    for _ in range(MOST_OWNERS):
        if one is None:
            return False
        labels = metadata.labels_of(one)
        if labels.get(CLUSTER_LABEL) == cluster or labels.get(metadata.MULTI_KUEUE_ORIGIN) == origin:
            return True
        owners = one["metadata"].get("ownerReferences") or ()
        one = next((find_owner(owner["uid"]) for owner in owners if owner.get("controller")), None)
    return False


def body(cluster: str, usage: ClusterUsage, at: str) -> Json:
    """Return the ClusterMetrics without its status."""
    kind = ClusterMetrics.KIND
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": cluster,
            "labels": {"app.kubernetes.io/name": "clustermetrics", CLUSTER_LABEL: cluster},
            "annotations": {
                REPORTED_AT: at,
                FOREIGN_USAGE: msgspec.json.encode(usage.foreign, order="sorted").decode(),
            },
        },
        "spec": {},
    }
