"""
The nodes that a pod may use because of the pods there: affinity, anti-affinity and topology spread.

A term names a kind of place (a node label, such as the zone) and pods by their labels. Places are counted, not nodes:
a pod that must be near another may go to any node in the other's zone.

Kubernetes: kube-scheduler's InterPodAffinity and PodTopologySpread plugins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from kyu.api.core import Pod
from kyu.api.meta import Json, LabelSelector, selects
from kyu.engine.topology.types import NodeInfo

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass(slots=True)
class Neighbours:
    """The places of the pods, by the topologies that terms name."""

    node_by_name: dict[str, NodeInfo]
    placed: list[tuple[Pod, str]] = field(default_factory=list)
    # The pods with anti-affinity, which repel others.
    keeping_away: list[tuple[Pod, str]] = field(default_factory=list)

    def add(self, pod: Pod, node: str) -> None:
        self.placed.append((pod, node))
        if pod.spec.affinity is not None and pod.spec.affinity.pod_anti_affinity:
            self.keeping_away.append((pod, node))


def find_miss(pod: Pod, node: NodeInfo, neighbours: Neighbours) -> str | None:
    """Return why the pod cannot be on the node because of other pods, or None."""
    affinity = pod.spec.affinity
    if affinity is not None:
        for term in required(affinity.pod_affinity):
            if not near(term, pod, node, neighbours) and not is_first(term, pod, neighbours):
                return "node(s) didn't match pod affinity rules"
        if any(near(term, pod, node, neighbours) for term in required(affinity.pod_anti_affinity)):
            return "node(s) didn't match pod anti-affinity rules"
    for other, place in neighbours.keeping_away:
        terms = required(other.spec.affinity.pod_anti_affinity if other.spec.affinity else None)
        for term in terms:
            if is_meant(term, other, pod) and same_place(term, node, place, neighbours):
                return "node(s) didn't satisfy existing pods anti-affinity rules"
    for constraint in pod.spec.topology_spread_constraints:
        if constraint.when_unsatisfiable == "DoNotSchedule":
            if constraint.topology_key not in node.labels:
                return "node(s) didn't match pod topology spread constraints (missing required label)"
            if skew(pod, node, neighbours, constraint.topology_key, constraint.label_selector) > constraint.max_skew:
                return "node(s) didn't match pod topology spread constraints"
    return None


def score(pod: Pod, node: NodeInfo, neighbours: Neighbours) -> int:
    """Return the score of the node: preferred terms by weight, less the unevenness of the spread."""
    total = 0
    affinity = pod.spec.affinity
    if affinity is not None:
        for sign, part in ((1, affinity.pod_affinity), (-1, affinity.pod_anti_affinity)):
            for preferred in (part or {}).get(PREFERRED) or ():
                if near(preferred.get("podAffinityTerm") or {}, pod, node, neighbours):
                    total += sign * int(preferred.get("weight", 1))
    for constraint in pod.spec.topology_spread_constraints:
        if constraint.when_unsatisfiable == "ScheduleAnyway":
            total -= skew(pod, node, neighbours, constraint.topology_key, constraint.label_selector)
    return total


def required(part: Json | None) -> Sequence[Json]:
    return (part or {}).get(REQUIRED) or ()


def near(term: Json, pod: Pod, node: NodeInfo, neighbours: Neighbours) -> bool:
    return any(
        is_meant(term, pod, other) and same_place(term, node, place, neighbours) for other, place in neighbours.placed
    )


def is_first(term: Json, pod: Pod, neighbours: Neighbours) -> bool:
    """Return whether the pod matches its own term and no other pod does: then it may go anywhere."""
    return is_meant(term, pod, pod) and not any(is_meant(term, pod, other) for other, _ in neighbours.placed)


def is_meant(term: Json, owner: Pod, other: Pod) -> bool:
    """Return whether the term of its owner selects the other pod."""
    namespaces: Iterable[str] = term.get("namespaces") or ()
    if other.metadata.namespace not in (namespaces or (owner.metadata.namespace,)):
        return False
    return selects(selector(term), other.metadata.labels)


def selector(term: Json) -> LabelSelector | None:
    found = term.get("labelSelector")
    return None if found is None else msgspec.convert(found, LabelSelector)


def same_place(term: Json, node: NodeInfo, other: str, neighbours: Neighbours) -> bool:
    key = term.get("topologyKey", "")
    known = neighbours.node_by_name.get(other)
    return known is not None and key in node.labels and node.labels[key] == known.labels.get(key)


def skew(pod: Pod, node: NodeInfo, neighbours: Neighbours, key: str, wanted: LabelSelector | None) -> int:
    """Return how many more such pods this place would have than the emptiest one."""
    places = {n.labels[key] for n in neighbours.node_by_name.values() if key in n.labels}
    counts: Counter[str] = Counter()
    for other, name in neighbours.placed:
        known = neighbours.node_by_name.get(name)
        if known is None or key not in known.labels or other.metadata.namespace != pod.metadata.namespace:
            continue
        if selects(wanted, other.metadata.labels):
            counts[known.labels[key]] += 1
    own = counts[node.labels.get(key, "")] + int(selects(wanted, pod.metadata.labels))
    return own - min((counts[place] for place in places), default=0)
