"""
The supply of a worker cluster: what its nodes offer to each flavor of a ClusterQueue.

A node belongs to one flavor of each resource group: the first whose nodeLabels it carries, else the default flavor. It
counts unless it is unschedulable, or has a taint that pods of the flavor need not tolerate. Usage by pods that the hub
did not send is subtracted, node by node, so that a full node takes nothing from others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from kyu.api import codec, quantity
from kyu.api.actions import View
from kyu.api.clusters.capacity import FOREIGN_USAGE, CapacityQuotaSpec, ClusterMetrics, NodeMetrics
from kyu.api.core import Taint, Toleration
from kyu.api.kueue import ClusterQueue, ResourceFlavor
from kyu.api.meta import Json, Key
from kyu.kinds import metadata

# Pods without a toleration are not placed on nodes with these taints.
KEEPS_OFF = frozenset({"NoSchedule", "NoExecute"})

# Amounts by flavor and resource, in the units of quantity.amount.
Amounts = dict[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class FlavorRule:
    """The nodes of a flavor."""

    name: str
    labels: tuple[tuple[str, str], ...]
    tolerations: tuple[Toleration, ...]
    taints: tuple[tuple[str, str, str], ...]

    def carries(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(name) == value for name, value in self.labels)

    def admits(self, taint: Taint) -> bool:
        """Return whether pods of the flavor tolerate the taint: by its tolerations, or by its nodeTaints."""
        if taint.effect not in KEEPS_OFF or (taint.key, taint.value, taint.effect) in self.taints:
            return True
        return any(toleration.tolerates(taint) for toleration in self.tolerations)


@dataclass(frozen=True, slots=True)
class GroupRule:
    """The flavors of a resource group, in order, and the flavor of nodes that match none."""

    resources: tuple[str, ...]
    flavors: tuple[FlavorRule, ...]
    default: FlavorRule | None

    def flavor_of(self, node: NodeMetrics) -> FlavorRule | None:
        """Return the flavor that the node counts for."""
        if node.unschedulable:
            return None
        found = next((one for one in self.flavors if one.labels and one.carries(node.labels)), self.default)
        if found is None or not all(found.admits(taint) for taint in node.taints):
            return None
        return found


def group_rules(view: View, queue: ClusterQueue, spec: CapacityQuotaSpec) -> tuple[GroupRule, ...]:
    """Return the rules of a ClusterQueue, by its ResourceFlavors. A flavor that does not exist has no nodes."""
    rules = []
    for group in queue.spec.resource_groups:
        found = [view.get(ResourceFlavor, Key("", entry.name)) for entry in group.flavors]
        flavors = [flavor_rule(one) for one in found if one is not None]
        if spec.default_flavor:
            default = next((one for one in flavors if one.name == spec.default_flavor), None)
        else:
            default = next((one for one in flavors if not one.labels), None)
        followed = [name for name in group.covered_resources if not spec.resources or name in spec.resources]
        rules.append(GroupRule(tuple(followed), tuple(flavors), default))
    return tuple(rules)


def flavor_rule(flavor: ResourceFlavor) -> FlavorRule:
    return FlavorRule(
        flavor.metadata.name,
        tuple(sorted(flavor.spec.node_labels.items())),
        flavor.spec.tolerations,
        tuple((taint.key, taint.value, taint.effect) for taint in flavor.spec.node_taints),
    )


@dataclass(frozen=True, slots=True)
class ClusterSupply:
    """The offer of a cluster. ``requested``: by all pods, if the report does not say which of them are foreign."""

    amounts: Amounts = field(default_factory=dict)
    requested: Amounts = field(default_factory=dict)
    nodes: int = 0
    excluded: int = 0


def find_supply(metrics: ClusterMetrics, rules: Sequence[GroupRule]) -> ClusterSupply:
    """Add up the nodes of a report."""
    foreign = foreign_usage(metrics)
    amounts: Amounts = {}
    requested: Amounts = {}
    counted = 0
    for node in metrics.status.nodes:
        flavors = [(rule, found) for rule in rules if (found := rule.flavor_of(node)) is not None]
        counted += bool(flavors)
        used = node.allocated_resource_requests if foreign is None else foreign.get(node.name, {})
        for rule, flavor in flavors:
            for resource in rule.resources:
                place = flavor.name, resource
                has = max(0, quantity.amount(resource, node.allocatable_resources.get(resource, 0)))
                taken = min(has, max(0, quantity.amount(resource, used.get(resource, 0))))
                if foreign is None:
                    requested[place] = quantity.add(requested.get(place, 0), taken)
                    taken = 0
                amounts[place] = quantity.add(amounts.get(place, 0), has - taken)
    return ClusterSupply(amounts, requested, counted, len(metrics.status.nodes) - counted)


def foreign_usage(metrics: ClusterMetrics) -> Mapping[str, Mapping[str, quantity.QuantityValue]] | None:
    """Return the foreign requests by node, or None if the report does not have them.

    If they cannot be read, all requests count as foreign: a quota that is too small does less harm.
    """
    text = metrics.metadata.annotations.get(FOREIGN_USAGE)
    if text is None:
        return None
    try:
        found = msgspec.json.decode(text.encode(), type=dict[str, dict[str, str | int]])
        for used in found.values():
            for amount in used.values():
                quantity.parse(amount)
    except (msgspec.DecodeError, quantity.QuantityError):
        return {node.name: node.allocated_resource_requests for node in metrics.status.nodes}
    return found


class SupplyTable:
    """The supplies of all clusters, added up anew only for reports that have changed."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[Json, tuple[GroupRule, ...], ClusterSupply]] = {}

    def supply(self, quota: str, raw: Json, rules: tuple[GroupRule, ...]) -> ClusterSupply:
        """Return the supply of the cluster that the ClusterMetrics describes, for one CapacityQuota."""
        place = quota, raw["metadata"]["name"]
        known = self._known.get(place)
        if known is not None and known[1] == rules and (known[0] is raw or says_the_same(known[0], raw)):
            supply = known[2]
        else:
            supply = find_supply(codec.decode_as(ClusterMetrics, raw), rules)
        self._known[place] = raw, rules, supply
        return supply

    def keep(self, quota: str, clusters: set[str]) -> None:
        """Forget the other clusters of a CapacityQuota."""
        for place in [place for place in self._known if place[0] == quota and place[1] not in clusters]:
            del self._known[place]


def says_the_same(one: Json, other: Json) -> bool:
    """Return whether two reports have the same content. Their times may differ."""
    usages = [metadata.annotations_of(report).get(FOREIGN_USAGE) for report in (one, other)]
    return usages[0] == usages[1] and one.get("status") == other.get("status")
