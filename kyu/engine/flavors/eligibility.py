"""
Eligibility of a flavor for a pod set: taints, labels, topology.

The nodes of a flavor need not exist yet. So the pod set is matched against a node that has only the flavor's labels.
Selectors on other labels are ignored. The answer depends on pod set and flavor alone, and is cached until a flavor
changes.

Called by: engine/flavors/compiled.py. Kueue: pkg/scheduler/flavorassigner/flavorassigner.go, tas_flavorassigner.go
"""

from __future__ import annotations

from collections.abc import Mapping

from kyu.api.core import NodeSelectorRequirement, NodeSelectorTerm
from kyu.api.labels import holds
from kyu.api.queues import ResourceFlavorSpec
from kyu.engine.reasons import FlavorNotFound, FlavorReason, NodeAffinityMismatch, TopologyMismatch, UntoleratedTaint
from kyu.engine.request_shape import PodSetShape
from kyu.engine.state import State
from kyu.engine.topology.request import lacks_levels
from kyu.engine.tree import Flavor, FlavorGroup, Queue


def why_not(
    state: State, queue: Queue, group: FlavorGroup, flavor: Flavor, pod_set: PodSetShape
) -> FlavorReason | None:
    """Return the first reason why the pod set cannot use the flavor; None if it can."""
    spec = state.cluster.flavors.get(flavor.name)
    if spec is None:
        return FlavorNotFound(flavor.name)
    if (pod_set.topology is not None or spec.topology_name) and state.options.topology_aware_scheduling:
        mismatch = topology_mismatch(state, queue, group, flavor, pod_set)
        if mismatch is not None:
            return mismatch
    key, matches = (pod_set, flavor.name), state.cluster.matches
    if key not in matches:
        matches[key] = node_mismatch(spec, flavor.name, pod_set)
    return matches[key]


def topology_mismatch(
    state: State, queue: Queue, group: FlavorGroup, flavor: Flavor, pod_set: PodSetShape
) -> TopologyMismatch | None:
    spec = state.cluster.flavors[flavor.name]
    if not spec.topology_name:
        if pod_set.topology is None or not any(resource in group.resources for resource, _ in pod_set.raw):
            return None
        return TopologyMismatch(flavor.name, "no topology")
    if pod_set.topology is None and not queue.topology_only:
        return TopologyMismatch(flavor.name, "only topology")
    info = state.forest.flavor(flavor.name)
    if info is None:
        return TopologyMismatch(flavor.name, "unknown topology")
    if pod_set.topology is not None and lacks_levels(info.levels, pod_set.topology):
        return TopologyMismatch(flavor.name, "no level")
    return None


def node_mismatch(spec: ResourceFlavorSpec, flavor: str, pod_set: PodSetShape) -> FlavorReason | None:
    tolerations = (*pod_set.spec.tolerations, *spec.tolerations)
    for taint in spec.node_taints:
        if taint.effect == "PreferNoSchedule":
            continue
        if not any(toleration.tolerates(taint) for toleration in tolerations):
            return UntoleratedTaint(flavor, taint)
    return None if matches_labels(pod_set, spec.node_labels) else NodeAffinityMismatch(flavor)


def matches_labels(pod_set: PodSetShape, labels: Mapping[str, str]) -> bool:
    """
    Return whether the flavor's labels match the node selector and the required node affinity.

    Requirements on other labels are ignored. Terms are alternatives, so a term that is empty then matches every node.
    """
    if any(labels.get(key, value) != value for key, value in pod_set.spec.node_selector.items()):
        return False
    affinity = pod_set.spec.affinity.node_affinity if pod_set.spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is None:
        return True
    terms = [_own_expressions(term, labels) for term in required.node_selector_terms]
    if any(not term for term in terms):
        return True
    return any(all(holds(requirement, labels) for requirement in term) for term in terms)


def _own_expressions(term: NodeSelectorTerm, labels: Mapping[str, str]) -> list[NodeSelectorRequirement]:
    return [requirement for requirement in term.match_expressions if requirement.key in labels]
