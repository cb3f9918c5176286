"""
ClusterMetrics: the nodes of a worker cluster as it reports them. CapacityQuota: a quota that follows such reports.

ClusterMetrics has KubeStellar's own shape, so that its agent and `kyu cluster publish` can both write it. The shape has
no room for the time of a report or for the origin of usage. `kyu cluster publish` adds both as annotations.

KubeStellar: galaxy/clustermetrics/api/v1alpha1
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from kyu.api.core import Taint
from kyu.api.definitions.crds import PrinterColumn
from kyu.api.definitions.single import definition_of
from kyu.api.fields import Field, Int32, ObjectName, ResourceList, Time, unique_by
from kyu.api.meta import Condition, Json, Kind, LabelSelector, Object, Wire

# The time of the last report, by the clock of the publisher.
REPORTED_AT = "kyu.dev/reported-at"
# Requests of pods that the hub did not send, as JSON: {node: {resource: amount}}.
FOREIGN_USAGE = "kyu.dev/foreign-usage"
# The price of the cluster, a number, for placement by cost.
COST = "kyu.dev/cost"

ShrinkPolicy: TypeAlias = Literal["Hold", "Drain", "Preempt"]
ReportState: TypeAlias = Literal["Live", "Stale", "Lost"]


class NodeMetrics(Wire, frozen=True):
    """A node of the cluster."""

    name: str = ""
    """Name of the node."""
    allocatable_resources: ResourceList = {}
    """Resources that the node has for pods."""
    allocated_resource_requests: ResourceList = {}
    """Requests of the running pods of the node."""
    allocated_resource_limits: ResourceList = {}
    """Limits of the running pods of the node."""
    taints: tuple[Taint, ...] = ()
    """Taints of the node."""
    labels: dict[str, str] = {}
    """Labels of the node."""
    unschedulable: bool = False
    """Whether the node takes no new pods."""


class ClusterMetricsSpec(Wire, frozen=True):
    """Empty: ClusterMetrics only reports."""


class ClusterMetricsStatus(Wire, frozen=True):
    nodes: tuple[NodeMetrics, ...] = ()
    """The nodes of the cluster."""


class ClusterMetrics(Object, frozen=True):
    """Capacity and usage of the nodes of the cluster of the same name."""

    KIND: ClassVar[Kind] = Kind(
        "galaxy.kubestellar.io", "v1alpha1", "ClusterMetrics", "clustermetrics", namespaced=False
    )

    spec: ClusterMetricsSpec = ClusterMetricsSpec()
    """Empty: ClusterMetrics only reports."""
    status: ClusterMetricsStatus = ClusterMetricsStatus()
    """The last report."""


class CapacityQuotaSpec(Wire, frozen=True):
    cluster_queue: Annotated[ObjectName, Field(required=True)] = ""
    """ClusterQueue whose nominal quota follows the capacity. It must exist, with its flavors and resources."""
    cluster_selector: LabelSelector = LabelSelector()
    """ClusterMetrics that count; without one, all."""
    default_flavor: ObjectName = ""
    """Flavor of nodes that match no other; without one, the first flavor without nodeLabels of each resource group."""
    resources: Annotated[tuple[str, ...], Field(list_type="set", max_items=64)] = ()
    """Resources whose quota follows; without any, all resources of the ClusterQueue."""
    percent: Annotated[int, Field(format="int32", minimum=1, default=100)] = 100
    """Part of the capacity that the ClusterQueue gets; all parts of a cluster together should be at most 100."""
    shrink_policy: Annotated[ShrinkPolicy, Field(default="Hold")] = "Hold"
    """Hold keeps the quota of admitted workloads; Drain admits nothing new; Preempt evicts what does not fit."""
    settle_seconds: Annotated[int, Field(format="int32", minimum=0, default=5)] = 5
    """How long a smaller capacity must last before the quota shrinks."""
    stale_seconds: Annotated[int, Field(format="int32", minimum=20, default=30)] = 30
    """Age of a report from which it is frozen."""
    lost_seconds: Annotated[int, Field(format="int32", minimum=20, default=300)] = 300
    """Age of a report from which its cluster does not count."""


class ClusterReport(Wire, frozen=True):
    name: str
    """Name of the cluster."""
    state: ReportState
    """Live; Stale (its last report counts); Lost (it does not count)."""
    since: Time = ""
    """Time of the last change of the state."""
    nodes: Int32 = 0
    """Nodes that count."""
    excluded: Int32 = 0
    """Nodes that are unschedulable, have a taint that no flavor tolerates, or match no flavor."""


class FollowedResource(Wire, frozen=True):
    name: str
    """Name of the resource."""
    capacity: str
    """Amount that the clusters offer to this ClusterQueue."""
    quota: str
    """The nominal quota that is set."""
    shrinking_since: Time | None = None
    """Time since when the capacity is below the quota."""


class FollowedFlavor(Wire, frozen=True):
    name: str
    """Name of the ResourceFlavor."""
    resources: Annotated[tuple[FollowedResource, ...], unique_by("name", max_items=64)] = ()
    """Its resources."""


class CapacityQuotaStatus(Wire, frozen=True):
    conditions: Annotated[tuple[Condition, ...], unique_by("type", max_items=16)] = ()
    """Ready: the quota follows. Degraded: a cluster is stale or lost, or more is promised than there is."""
    clusters: Annotated[tuple[ClusterReport, ...], Field(list_type="atomic", max_items=1024)] = ()
    """The clusters, by name."""
    live_clusters: Int32 = 0
    """Number of live clusters."""
    flavors: Annotated[tuple[FollowedFlavor, ...], Field(list_type="atomic", max_items=256)] = ()
    """The flavors of the ClusterQueue."""


class CapacityQuota(Object, frozen=True):
    """A ClusterQueue whose nominal quota follows the capacity that clusters report."""

    KIND: ClassVar[Kind] = Kind("kyu.dev", "v1alpha1", "CapacityQuota", "capacityquotas", namespaced=False)

    spec: CapacityQuotaSpec = CapacityQuotaSpec()
    """The ClusterQueue, and the clusters that it follows."""
    status: CapacityQuotaStatus = CapacityQuotaStatus()
    """Clusters and amounts as last seen."""


AGE = PrinterColumn("Age", ".metadata.creationTimestamp", "Time since it was created", "date")


def definitions() -> list[Json]:
    """Return the CustomResourceDefinitions of ClusterMetrics and CapacityQuota."""
    columns = (
        PrinterColumn("ClusterQueue", ".spec.clusterQueue", "The ClusterQueue whose quota follows"),
        PrinterColumn("Ready", ".status.conditions[?(@.type=='Ready')].status", "Whether the quota follows"),
        PrinterColumn("Clusters", ".status.liveClusters", "Live clusters", "integer"),
        PrinterColumn("Degraded", ".status.conditions[?(@.type=='Degraded')].status", "Whether something is wrong"),
        AGE,
    )
    return [
        definition_of(ClusterMetrics, ("cmet", "cmets"), ()),
        definition_of(CapacityQuota, ("capq",), columns),
    ]
