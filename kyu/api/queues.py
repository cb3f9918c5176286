"""
The objects that define quota: ResourceFlavor, Topology, ClusterQueue, Cohort, LocalQueue, priority classes.

A ClusterQueue holds quota for flavors of resources. Cohorts group ClusterQueues so that they lend to each other. A
LocalQueue is the way of one namespace to a ClusterQueue. Attributes that the API server defaults have that default here
too, except the preemption policies: in one case an absent policy differs from ``Never``.

Kueue: apis/kueue/v1beta2
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from kyu.api.core import Taint, Toleration
from kyu.api.fields import (
    LABEL_KEY,
    AdmissionCheckReference,
    Field,
    Int32,
    ObjectName,
    ResourceList,
    ResourceName,
    Rule,
    StopPolicy,
    Time,
    unique_by,
)
from kyu.api.meta import Condition, Kind, LabelSelector, Object, Wire
from kyu.api.quantity import QuantityValue

GROUP = "kueue.x-k8s.io"
VERSION = "v1beta2"
HOSTNAME_LABEL = "kubernetes.io/hostname"

QueueingStrategy: TypeAlias = Literal["StrictFIFO", "BestEffortFIFO"]
# The annotation of a StrictFIFO ClusterQueue that asks for a strategy which Kueue does not have, and its value.
QUEUEING_STRATEGY_ANNOTATION = "kyu.dev/queueing-strategy"
BACKFILL = "Backfill"
FlavorFungibilityPolicy: TypeAlias = Literal["MayStopSearch", "TryNextFlavor"]
FlavorFungibilityPreference: TypeAlias = Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"]
AdmissionMode: TypeAlias = Literal["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"]

IMMUTABLE = Rule("self == oldSelf", "field is immutable")
TAINT_EFFECTS = "['NoSchedule', 'PreferNoSchedule', 'NoExecute']"
TAINT_RULES = (
    Rule(f"self.all(t, t.effect in {TAINT_EFFECTS})", "effect must be NoSchedule, PreferNoSchedule or NoExecute"),
)
TOLERATION_RULES = (
    Rule(
        "self.all(t, has(t.key) || (has(t.operator) && t.operator == 'Exists'))", "an empty key needs operator Exists"
    ),
    Rule(
        "self.all(t, !has(t.tolerationSeconds) || (has(t.effect) && t.effect == 'NoExecute'))",
        "tolerationSeconds needs effect NoExecute",
    ),
    Rule("self.all(t, !has(t.operator) || t.operator in ['Equal', 'Exists'])", "operator must be Equal or Exists"),
    Rule(
        "self.all(t, !has(t.operator) || t.operator != 'Exists' || !has(t.value))",
        "operator Exists does not go with a value",
    ),
    Rule(
        f"self.all(t, !has(t.effect) || t.effect in {TAINT_EFFECTS})",
        "effect must be NoSchedule, PreferNoSchedule or NoExecute",
    ),
)


class ResourceFlavorSpec(Wire, frozen=True):
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.topologyName) || (has(self.nodeLabels) && self.nodeLabels.size() >= 1)",
            "at least one node label is needed with topologyName",
        ),
        Rule("!has(oldSelf.topologyName) || has(self.topologyName)", "topologyName cannot be removed"),
    )

    node_labels: Annotated[dict[str, str], Field(max_properties=8, map_type="atomic")] = {}
    """Labels of the nodes of this flavor. They are added to the node selector of admitted pods."""
    node_taints: Annotated[tuple[Taint, ...], Field(list_type="atomic", max_items=8, rules=TAINT_RULES)] = ()
    """Taints of the nodes of this flavor. Only pods that tolerate its NoSchedule and NoExecute taints can use it."""
    tolerations: Annotated[tuple[Toleration, ...], Field(list_type="atomic", max_items=8, rules=TOLERATION_RULES)] = ()
    """Tolerations that admitted pods get in addition; they also count when pods are matched with the taints."""
    topology_name: Annotated[ObjectName | None, Field(rules=(IMMUTABLE,))] = None
    """Name of the Topology of the nodes. It turns topology-aware scheduling on for this flavor."""


class ResourceFlavor(Object, frozen=True):
    """A kind of nodes, identified by labels and taints, that quota is given for."""

    KIND: ClassVar[Kind] = Kind(GROUP, VERSION, "ResourceFlavor", "resourceflavors", namespaced=False)

    spec: ResourceFlavorSpec = ResourceFlavorSpec()
    """Labels, taints and topology of the nodes."""


class TopologyLevel(Wire, frozen=True):
    node_label: Annotated[str, Field(min_length=1, max_length=316, pattern=LABEL_KEY)]
    """Node label whose values name the domains of this level, for example a rack label."""


TOPOLOGY_RULES = (
    Rule("self.all(a, self.filter(b, b == a).size() == 1)", "must be unique"),
    Rule(
        f"!self.exists(l, l.nodeLabel == '{HOSTNAME_LABEL}') || self[self.size() - 1].nodeLabel == '{HOSTNAME_LABEL}'",
        f"{HOSTNAME_LABEL} may only be the lowest level",
    ),
    Rule(
        "self == oldSelf || ("
        f"self[self.size() - 1].nodeLabel == '{HOSTNAME_LABEL}' && "
        f"oldSelf[oldSelf.size() - 1].nodeLabel == '{HOSTNAME_LABEL}')",
        f"levels may only be changed while {HOSTNAME_LABEL} is and stays the lowest level",
    ),
)


class TopologySpec(Wire, frozen=True):
    levels: Annotated[
        tuple[TopologyLevel, ...], Field(list_type="atomic", min_items=1, max_items=16, rules=TOPOLOGY_RULES)
    ]
    """Levels from the widest to the narrowest."""


class Topology(Object, frozen=True):
    """How the nodes are nested: blocks of racks of hosts, each level named by a node label."""

    KIND: ClassVar[Kind] = Kind(GROUP, VERSION, "Topology", "topologies", namespaced=False)

    spec: TopologySpec = TopologySpec(())
    """The levels."""


class ResourceQuota(Wire, frozen=True):
    name: ResourceName
    """Name of the resource, for example cpu or nvidia.com/gpu."""
    nominal_quota: QuantityValue
    """Quota of the resource in this flavor that this queue or cohort owns."""
    borrowing_limit: QuantityValue | None = None
    """How much may be borrowed from the cohort on top; without it, all that is unused there. Needs a cohort."""
    lending_limit: QuantityValue | None = None
    """How much of the unused nominal quota others may borrow; without it, all of it. Needs a cohort."""


class FlavorQuotas(Wire, frozen=True):
    name: ObjectName
    """Name of the ResourceFlavor. While no such object exists, the queue is not active."""
    resources: Annotated[tuple[ResourceQuota, ...], unique_by("name", min_items=1, max_items=64)]
    """Quota for each covered resource, in the same order."""


class ResourceGroup(Wire, frozen=True):
    """Resources that always come from the same flavor, and the flavors to try, in order."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.flavors.all(f, f.resources.size() == self.coveredResources.size())",
            "each flavor must list exactly the covered resources",
        ),
    )

    covered_resources: Annotated[
        tuple[ResourceName, ...], Field(list_type="atomic", min_items=1, max_items=64, required=True)
    ]
    """Resources of this group. A resource belongs to one group only."""
    flavors: Annotated[tuple[FlavorQuotas, ...], unique_by("name", min_items=1, max_items=64)]
    """Flavors in the order in which they are tried. A flavor belongs to one group only."""


class FlavorFungibility(Wire, frozen=True):
    """When to try the next flavor although this one would fit by borrowing or preemption."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.preference) || (has(self.whenCanBorrow) && self.whenCanBorrow == 'TryNextFlavor' && "
            "has(self.whenCanPreempt) && self.whenCanPreempt == 'TryNextFlavor')",
            "preference needs whenCanBorrow and whenCanPreempt to be TryNextFlavor",
        ),
    )

    when_can_borrow: Annotated[FlavorFungibilityPolicy, Field(default="MayStopSearch")] = "MayStopSearch"
    """MayStopSearch uses a flavor that fits by borrowing; TryNextFlavor tries the next flavors first."""
    when_can_preempt: Annotated[FlavorFungibilityPolicy, Field(default="TryNextFlavor")] = "TryNextFlavor"
    """MayStopSearch preempts in this flavor; TryNextFlavor tries the next flavors first."""
    preference: FlavorFungibilityPreference | None = None
    """Preference between borrowing and preemption after all flavors were tried. The default is BorrowingOverPreemption.
    """


class BorrowWithinCohort(Wire, frozen=True):
    policy: Annotated[Literal["Never", "LowerPriority"] | None, Field(default="Never")] = None
    """LowerPriority lets a workload that must borrow preempt workloads of lower priority in other queues."""
    max_priority_threshold: Int32 | None = None
    """Only workloads up to this priority are preempted; without it, all of lower priority."""


class ClusterQueuePreemption(Wire, frozen=True):
    """Workloads that a workload of this queue may preempt."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!(has(self.reclaimWithinCohort) && self.reclaimWithinCohort == 'Never' && has(self.borrowWithinCohort) && "
            "has(self.borrowWithinCohort.policy) && self.borrowWithinCohort.policy != 'Never')",
            "borrowWithinCohort needs reclaimWithinCohort to be other than Never",
        ),
    )

    reclaim_within_cohort: Annotated[Literal["Never", "LowerPriority", "Any"] | None, Field(default="Never")] = None
    """Whether a workload within the nominal quota reclaims quota that others of the cohort borrowed."""
    borrow_within_cohort: Annotated[BorrowWithinCohort | None, Field(default={})] = None
    """Whether a workload preempts others even though it must borrow. Not used with fair sharing."""
    within_cluster_queue: Annotated[
        Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] | None, Field(default="Never")
    ] = None
    """Whether a workload preempts others of its own queue."""


class AdmissionCheckStrategyRule(Wire, frozen=True):
    name: AdmissionCheckReference
    """Name of the AdmissionCheck."""
    on_flavors: Annotated[tuple[ObjectName, ...], Field(list_type="set", max_items=64)] = ()
    """Flavors that the check applies to; empty means all flavors."""


class AdmissionChecksStrategy(Wire, frozen=True):
    admission_checks: Annotated[
        tuple[AdmissionCheckStrategyRule, ...], unique_by("name", min_items=1, max_items=64), Field(required=True)
    ] = ()
    """Checks that a workload must pass after it has reserved quota."""


class FairSharing(Wire, frozen=True):
    weight: Annotated[QuantityValue | None, Field(default=1)] = None
    """Weight of the share; 2 gets twice as much as 1. With 0 the share counts as infinite."""


class FairSharingStatus(Wire, frozen=True):
    weighted_share: Annotated[int, Field(format="int64", required=True)] = 0
    """Largest share over nominal quota of any resource, in thousandths of what is lendable, divided by the weight."""


class AdmissionScope(Wire, frozen=True):
    admission_mode: AdmissionMode
    """UsageBasedAdmissionFairSharing orders workloads by the past usage of their LocalQueue."""


class ConcurrentAdmissionConstraints(Wire, frozen=True):
    last_acceptable_flavor_name: ObjectName | None = None
    """Last flavor in the list that needs no migration."""


class ConcurrentAdmissionMigration(Wire, frozen=True):
    mode: Literal["TryPreferredFlavors", "RetainFirstAdmission"]
    """Whether an admitted workload moves to a better flavor when there is room."""
    constraints: ConcurrentAdmissionConstraints | None = None
    """Limits of the migration."""


class ConcurrentAdmissionPolicy(Wire, frozen=True):
    migration: ConcurrentAdmissionMigration
    """Migration after the first admission."""


NEEDS_COHORT = (
    "self.resourceGroups.all(g, g.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit) && !has(r.lendingLimit))))"
)


class ClusterQueueSpec(Wire, frozen=True):
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"(has(self.cohortName) && self.cohortName != '') || !has(self.resourceGroups) || {NEEDS_COHORT}",
            "borrowingLimit and lendingLimit need a cohort",
        ),
    )

    resource_groups: Annotated[tuple[ResourceGroup, ...], Field(list_type="atomic", max_items=16)] = ()
    """Quota, by groups of resources that come from the same flavor."""
    cohort_name: ObjectName = ""
    """Cohort whose members lend to each other. It need not exist as an object."""
    queueing_strategy: Annotated[QueueingStrategy, Field(default="BestEffortFIFO")] = "BestEffortFIFO"
    """StrictFIFO: a workload that does not fit blocks later ones. BestEffortFIFO: later workloads may be admitted."""
    namespace_selector: LabelSelector | None = None
    """Namespaces whose workloads may use this queue. Absent means none, {} means all."""
    flavor_fungibility: Annotated[FlavorFungibility, Field(default={})] = FlavorFungibility()
    """Whether the next flavor is tried before borrowing or preempting in this one."""
    preemption: Annotated[ClusterQueuePreemption | None, Field(default={})] = None
    """Workloads that a workload of this queue may preempt."""
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    """Checks that a workload must pass after it has reserved quota."""
    stop_policy: Annotated[StopPolicy, Field(default="None")] = "None"
    """Hold stops admission and cancels reservations; HoldAndDrain also evicts admitted workloads."""
    fair_sharing: FairSharing | None = None
    """Weight of this queue when fair sharing is on."""
    admission_scope: AdmissionScope | None = None
    """Whether past usage counts in the order of admission."""
    concurrent_admission_policy: ConcurrentAdmissionPolicy | None = None
    """Try several flavors at once and migrate later; behind the gate ConcurrentAdmission."""


class ResourceUsage(Wire, frozen=True):
    name: ResourceName
    """Name of the resource."""
    total: QuantityValue = 0
    """How much is used, borrowed quota included."""
    borrowed: QuantityValue = 0
    """How much of it is borrowed from the cohort."""


class FlavorUsage(Wire, frozen=True):
    name: ObjectName
    """Name of the flavor."""
    resources: Annotated[tuple[ResourceUsage, ...], unique_by("name", max_items=64), Field(required=True)] = ()
    """Usage by resource."""


class ClusterQueueStatus(Wire, frozen=True):
    conditions: Annotated[tuple[Condition, ...], unique_by("type", max_items=16)] = ()
    """Active says whether the queue can admit, and if not, why."""
    flavors_reservation: Annotated[tuple[FlavorUsage, ...], unique_by("name", max_items=64)] = ()
    """Quota that is reserved, by flavor."""
    flavors_usage: Annotated[tuple[FlavorUsage, ...], unique_by("name", max_items=64)] = ()
    """Quota of admitted workloads, by flavor."""
    pending_workloads: Int32 = 0
    """Pending workloads."""
    reserving_workloads: Int32 = 0
    """Workloads that hold quota."""
    admitted_workloads: Int32 = 0
    """Workloads that are admitted and not finished."""
    fair_sharing: FairSharingStatus | None = None
    """Present when fair sharing is on."""


class ClusterQueue(Object, frozen=True):
    """A pool of quota that workloads of many namespaces are admitted to."""

    KIND: ClassVar[Kind] = Kind(GROUP, VERSION, "ClusterQueue", "clusterqueues", namespaced=False)

    spec: ClusterQueueSpec = ClusterQueueSpec()
    """Quota and policies."""
    status: ClusterQueueStatus = ClusterQueueStatus()
    """Usage, and counts of workloads."""


class CohortSpec(Wire, frozen=True):
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"(has(self.parentName) && self.parentName != '') || !has(self.resourceGroups) || {NEEDS_COHORT}",
            "borrowingLimit and lendingLimit need a parent",
        ),
    )

    parent_name: ObjectName = ""
    """Cohort that this one is part of. In a cycle no queue is scheduled until the cycle is broken."""
    resource_groups: Annotated[tuple[ResourceGroup, ...], Field(list_type="atomic", max_items=16)] = ()
    """Quota that all members share, on top of their own."""
    fair_sharing: FairSharing | None = None
    """Weight of this cohort among its siblings when fair sharing is on."""


class CohortStatus(Wire, frozen=True):
    fair_sharing: FairSharingStatus | None = None
    """Present when fair sharing is on."""


class Cohort(Object, frozen=True):
    """ClusterQueues and Cohorts that lend their unused quota to each other."""

    KIND: ClassVar[Kind] = Kind(GROUP, VERSION, "Cohort", "cohorts", namespaced=False)

    spec: CohortSpec = CohortSpec()
    """Place in the tree, and shared quota."""
    status: CohortStatus = CohortStatus()
    """Share of the cohort."""


class LocalQueueSpec(Wire, frozen=True):
    cluster_queue: Annotated[ObjectName, Field(rules=(IMMUTABLE,))] = ""
    """ClusterQueue that the workloads of this queue are admitted to."""
    stop_policy: Annotated[StopPolicy, Field(default="None")] = "None"
    """Hold stops admission and cancels reservations; HoldAndDrain also evicts admitted workloads."""
    fair_sharing: FairSharing | None = None
    """Weight of this queue in admission fair sharing."""


class LocalQueueResourceUsage(Wire, frozen=True):
    name: ResourceName
    """Name of the resource."""
    total: QuantityValue = 0
    """How much is used."""


class LocalQueueFlavorUsage(Wire, frozen=True):
    name: ObjectName
    """Name of the flavor."""
    resources: Annotated[
        tuple[LocalQueueResourceUsage, ...], unique_by("name", max_items=64), Field(required=True)
    ] = ()
    """Usage by resource."""


class LocalQueueAdmissionFairSharingStatus(Wire, frozen=True):
    consumed_resources: Annotated[ResourceList, Field(required=True)] = {}
    """Past usage, which decays with the half-life time."""
    last_update: Annotated[Time, Field(required=True)] = ""
    """When it was computed."""


class LocalQueueFairSharingStatus(Wire, frozen=True):
    weighted_share: Annotated[int, Field(format="int64", required=True)] = 0
    """Share of this queue."""
    admission_fair_sharing_status: LocalQueueAdmissionFairSharingStatus | None = None
    """Past usage of this queue."""


class LocalQueueStatus(Wire, frozen=True):
    conditions: Annotated[tuple[Condition, ...], unique_by("type", max_items=16)] = ()
    """Active says whether workloads of this queue can be admitted, and if not, why."""
    pending_workloads: Int32 = 0
    """Pending workloads."""
    reserving_workloads: Int32 = 0
    """Workloads that hold quota."""
    admitted_workloads: Int32 = 0
    """Workloads that are admitted and not finished."""
    flavors_reservation: Annotated[tuple[LocalQueueFlavorUsage, ...], unique_by("name", max_items=64)] = ()
    """Quota that is reserved, by flavor."""
    flavors_usage: Annotated[tuple[LocalQueueFlavorUsage, ...], unique_by("name", max_items=64)] = ()
    """Quota of admitted workloads, by flavor."""
    fair_sharing: LocalQueueFairSharingStatus | None = None
    """Past usage, when admission fair sharing is on."""


class LocalQueue(Object, frozen=True):
    """The queue that the users of one namespace submit to."""

    KIND: ClassVar[Kind] = Kind(GROUP, VERSION, "LocalQueue", "localqueues")

    spec: LocalQueueSpec = LocalQueueSpec()
    """ClusterQueue and policies of this queue."""
    status: LocalQueueStatus = LocalQueueStatus()
    """Usage, and counts of workloads."""


class WorkloadPriorityClass(Object, frozen=True):
    """A priority of workloads that does not change the priority of their pods."""

    KIND: ClassVar[Kind] = Kind(GROUP, VERSION, "WorkloadPriorityClass", "workloadpriorityclasses", namespaced=False)

    value: Annotated[Int32, Field(required=True)] = 0
    """The priority. A change reaches the workloads of this class."""
    description: Annotated[str, Field(max_length=2048)] = ""
    """Purpose of the class."""
