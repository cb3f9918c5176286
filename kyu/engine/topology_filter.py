"""
Which nodes a pod may go to, and which it likes best.

The rules of kube-scheduler for taints, node selectors and node affinity, in the order in which a miss is reported.
They apply only where a leaf is one host: a rack has no taints.

Called by: engine/topology_counts.py, once per (filter, tree); plans/binding.py, for pods that we bind ourselves.
Kueue: pkg/cache/scheduler/tas_flavor_snapshot.go, the exclusion of leaves; Kubernetes: component-helpers nodeaffinity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kyu.api.core import NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration
from kyu.engine.topology_types import NodeInfo, PodFilter

REPELLING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


def find_miss(node: NodeInfo, pod_filter: PodFilter, flavor_tolerations: Sequence[Toleration]) -> str | None:
    """What keeps the pod off the node, first taints, then selector, then required affinity; None if nothing does."""
    for taint in node.taints:
        if taint.effect not in REPELLING_EFFECTS:
            continue
        if not any(is_tolerated(taint, t) for t in (*pod_filter.tolerations, *flavor_tolerations)):
            return f'taint "{render_taint(taint)}"'
    if any(node.labels.get(key) != value for key, value in pod_filter.node_selector):
        return "nodeSelector"
    if pod_filter.required_terms is not None and not any(matches(node, t) for t in pod_filter.required_terms):
        return "affinity"
    return None


def preference(node: NodeInfo, pod_filter: PodFilter) -> int:
    """The sum of the weights of the preferred terms that the node matches."""
    return sum(preferred.weight for preferred in pod_filter.preferred_terms if matches(node, preferred.preference))


def is_tolerated(taint: Taint, toleration: Toleration) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.key != "" and toleration.value == taint.value


def render_taint(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def matches(node: NodeInfo, term: NodeSelectorTerm) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.name}
    return all(_holds(r, node.labels) for r in term.match_expressions) and all(
        _holds(r, fields) for r in term.match_fields
    )


def _holds(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement, value)
        case _:
            return False  # an operator that does not exist matches nothing, as in kube-scheduler


def _compares(requirement: NodeSelectorRequirement, value: str | None) -> bool:
    """Gt and Lt compare whole numbers; anything else on either side does not match."""
    if value is None or len(requirement.values) != 1:
        return False
    try:
        have, limit = int(value), int(requirement.values[0])
    except ValueError:
        return False
    return have > limit if requirement.operator == "Gt" else have < limit
