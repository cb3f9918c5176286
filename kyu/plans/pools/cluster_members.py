"""
The worker clusters of a MasterQueue: one ResourceFlavor for each cluster that reports its nodes as ClusterMetrics.

A node counts for the first group whose labels it carries, by the rules that serve CapacityQuotas too. A cluster
without a recent report is silent, as a pool is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from kyu.api import quantity
from kyu.api.actions import View
from kyu.api.clusters.capacity import ClusterMetrics
from kyu.api.meta import Json, Key, selects
from kyu.api.pools import MasterQueue, MasterQueueFlavor, PoolState, PoolStatus
from kyu.kinds import metadata
from kyu.plans.clusters.reports import sent_usage, silent_since, unused
from kyu.plans.clusters.supply import Amounts, FlavorRule, GroupRule, SupplyTable
from kyu.plans.pools.states import Member, leaving, silent, since


@dataclass(frozen=True, slots=True)
class ReportedCluster:
    """A ClusterMetrics that a group selects, and what it offers to each ResourceFlavor."""

    raw: Json
    amounts: Amounts

    def quotas(self, flavor: str) -> dict[str, str]:
        return {
            resource: quantity.render(resource, amount)
            for (name, resource), amount in sorted(self.amounts.items())
            if name == flavor
        }


def reported_clusters(table: SupplyTable, view: View, queue: MasterQueue) -> dict[str, ReportedCluster]:
    """Return the clusters that a group of the MasterQueue selects, by name."""
    groups = [group for group in queue.spec.flavors if group.cluster_flavor is not None]
    found: dict[str, ReportedCluster] = {}
    sent: Mapping[tuple[str, str, str], int] | None = None
    for raw in view.list_json(ClusterMetrics.KIND) if groups else ():
        name = metadata.name_of(raw)
        chosen = [group for group in groups if selects_cluster(group, raw)]
        if not chosen:
            continue
        supply = table.supply(queue.metadata.name, raw, (group_rule(queue, chosen, raw),))
        if supply.requested and sent is None:
            sent = sent_usage(view)
        found[name] = ReportedCluster(raw, unused(name, supply, sent or {}))
    table.keep(queue.metadata.name, set(found))
    return found


def selects_cluster(group: MasterQueueFlavor, raw: Json) -> bool:
    clusters = group.cluster_flavor
    return (
        clusters is not None
        and not metadata.is_deleted(raw)
        and selects(clusters.cluster_selector, metadata.labels_of(raw))
    )


def group_rule(queue: MasterQueue, groups: list[MasterQueueFlavor], raw: Json) -> GroupRule:
    """Return the rule that assigns the nodes of a cluster to the groups that select it."""
    flavors = [flavor_rule(queue, group, metadata.name_of(raw)) for group in groups]
    nodes = (raw.get("status") or {}).get("nodes") or ()
    resources = {resource for node in nodes for resource in node.get("allocatableResources") or {}}
    return GroupRule(tuple(sorted(resources)), tuple(flavors), next((one for one in flavors if not one.labels), None))


def flavor_rule(queue: MasterQueue, group: MasterQueueFlavor, cluster: str) -> FlavorRule:
    clusters = group.cluster_flavor
    assert clusters is not None
    labels = tuple(sorted(clusters.node_labels.items()))
    return FlavorRule(flavor_name(queue, group, cluster), labels, clusters.tolerations, ())


def flavor_name(queue: MasterQueue, group: MasterQueueFlavor, cluster: str) -> str:
    return f"{queue.metadata.name}-{group.name}-{cluster}"


def cluster_members(
    view: View,
    queue: MasterQueue,
    group: MasterQueueFlavor,
    reports: Mapping[str, ReportedCluster],
    now: datetime,
) -> Iterator[Member]:
    """Yield the clusters of a group, by name: those that report or did, then those that are not selected any more."""
    known = {pool.name: pool for pool in queue.status.pools if pool.flavor == group.name}
    chosen = {name: one for name, one in reports.items() if selects_cluster(group, one.raw)}
    for name in sorted(chosen):
        member = find_cluster(view, queue, group, chosen[name], known.get(name), now)
        if member is not None:
            yield member
    for name, before in known.items():
        if name in chosen:
            continue
        deleted = view.find_json(ClusterMetrics.KIND, Key("", name)) is None
        member = leaving(view, queue, group, before, now, "PoolSilent" if deleted else "NotSelected")
        if member is not None:
            yield member


def find_cluster(
    view: View,
    queue: MasterQueue,
    group: MasterQueueFlavor,
    report: ReportedCluster,
    before: PoolStatus | None,
    now: datetime,
) -> Member | None:
    """Return the member for a cluster, or None if it was lost long ago or has no node of the group."""
    assert group.cluster_flavor is not None
    name = metadata.name_of(report.raw)
    flavor = flavor_name(queue, group, name)
    heard = silent_since(view, report.raw)
    expires = heard + timedelta(seconds=group.cluster_flavor.report_timeout) if heard is not None else None
    is_live = expires is None or now < expires
    quotas = report.quotas(flavor)
    if before is None and (not is_live or not quotas):
        return None
    state: PoolState = "Live" if is_live else "Stale"
    reason = "" if is_live else "PoolSilent"
    next_at = expires if is_live else None
    member = Member(group, name, flavor, state, since(state, before, now), reason, quotas, next_at=next_at)
    if is_live or before is None:
        return member
    return silent(view, queue, member, before, now)
