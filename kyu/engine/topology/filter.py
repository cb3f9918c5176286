"""
The rules of kube-scheduler for taints, node selectors and node affinity.

The rules apply only if a leaf of the topology is one host: a rack has no taints.

Called by: engine/topology/counts.py, once per (filter, tree); plans/pods/binding.py, for pods that Kyu binds.
Kueue: pkg/cache/scheduler/tas_flavor_snapshot.go, the exclusion of leaves; Kubernetes: component-helpers nodeaffinity.
"""

from __future__ import annotations

from collections.abc import Sequence

from kyu.api.core import NodeSelectorTerm, Taint, Toleration
from kyu.api.labels import holds
from kyu.engine.topology.types import NodeInfo, PodFilter

REPELLING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


def find_miss(node: NodeInfo, pod_filter: PodFilter, flavor_tolerations: Sequence[Toleration]) -> str | None:
    """Return why the node excludes the pod, or None: taints first, then node selector, then required affinity."""
    for taint in node.taints:
        if taint.effect not in REPELLING_EFFECTS:
            continue
        if not any(t.tolerates(taint) for t in (*pod_filter.tolerations, *flavor_tolerations)):
            return f'taint "{render_taint(taint)}"'
    if any(node.labels.get(key) != value for key, value in pod_filter.node_selector):
        return "nodeSelector"
    if pod_filter.required_terms is not None and not any(matches(node, t) for t in pod_filter.required_terms):
        return "affinity"
    return None


def preference(node: NodeInfo, pod_filter: PodFilter) -> int:
    """Return the sum of the weights of the preferred terms that the node matches."""
    return sum(preferred.weight for preferred in pod_filter.preferred_terms if matches(node, preferred.preference))


def render_taint(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def matches(node: NodeInfo, term: NodeSelectorTerm) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.name}
    return all(holds(r, node.labels) for r in term.match_expressions) and all(
        holds(r, fields) for r in term.match_fields
    )
