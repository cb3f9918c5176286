"""
The Workload: the pods of one job, its quota and its state.

The spec has the number and shape of the pods. The status has the admission, the states of the checks, and conditions.
The topology assignment is stored in a compressed form, which ``placement.py`` reads and writes.

Kueue: apis/kueue/v1beta2/workload_types.go
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from kyu.api.core import PodTemplateSpec, Toleration
from kyu.api.fields import (
    DNS_SUBDOMAIN,
    AdmissionCheckReference,
    Count,
    Field,
    Int32,
    ObjectName,
    PodSetReference,
    Positive,
    ResourceList,
    Rule,
    Time,
    unique_by,
)
from kyu.api.meta import Condition, Kind, Object, Wire, find_condition, is_true
from kyu.api.queues import GROUP, TOLERATION_RULES, VERSION

CheckState: TypeAlias = Literal["Pending", "Ready", "Retry", "Rejected"]

# Condition types of a Workload.
QUOTA_RESERVED = "QuotaReserved"
ADMITTED = "Admitted"
FINISHED = "Finished"
EVICTED = "Evicted"
PREEMPTED = "Preempted"
REQUEUED = "Requeued"
PODS_READY = "PodsReady"

Level: TypeAlias = Annotated[str, Field(max_length=63)]
PodLabel: TypeAlias = Annotated[str, Field(max_length=317)]


class PodsetSliceRequiredTopologyConstraint(Wire, frozen=True):
    topology: Annotated[Level, Field(min_length=1)]
    """Level, as a node label, that a slice must not leave."""
    size: Positive
    """Pods in a slice."""


class PodSetTopologyRequest(Wire, frozen=True):
    """The topology request of a pod set: how close together its pods must be."""

    required: Level | None = None
    """All pods in one domain of this level, or the workload waits."""
    preferred: Level | None = None
    """All pods in one domain of this level if possible, else of a wider one."""
    unconstrained: bool | None = None
    """Pods may be in any domain, but count against the capacity of the nodes."""
    pod_index_label: PodLabel | None = None
    """Pod label that holds the rank of the pod."""
    sub_group_index_label: PodLabel | None = None
    """Pod label that holds the rank of the group of pods."""
    sub_group_count: Count | None = None
    """Number of groups of pods, each ranked by itself."""
    pod_set_group_name: Annotated[str | None, Field(max_length=256)] = None
    """Pod sets with the same name are placed together, and in the same flavor."""
    pod_set_slice_required_topology: Level | None = None
    """Level that a slice of the pods must not leave."""
    pod_set_slice_size: Int32 | None = None
    """Pods in a slice."""
    podset_slice_required_topology_constraints: Annotated[
        tuple[PodsetSliceRequiredTopologyConstraint, ...], Field(list_type="atomic", max_items=3)
    ] = ()
    """Slices within slices, from the widest level to the narrowest."""


class PodSet(Wire, frozen=True):
    """Pods of one shape."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("!has(self.minCount) || self.minCount <= self.count", "minCount must not be greater than count"),
    )

    template: PodTemplateSpec
    """Shape of each pod."""
    name: Annotated[PodSetReference, Field(default="main")] = "main"
    """Name, unique in the workload."""
    count: Annotated[Count, Field(default=1)] = 1
    """Number of pods."""
    min_count: Positive | None = None
    """Fewest pods that the job can start with; absent when it needs all. At most one pod set may have it."""
    topology_request: PodSetTopologyRequest | None = None
    """How close together the pods must be."""


class PriorityClassRef(Wire, frozen=True):
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(self.group == 'kueue.x-k8s.io') == (self.kind == 'WorkloadPriorityClass')",
            "group kueue.x-k8s.io goes with kind WorkloadPriorityClass, scheduling.k8s.io with PriorityClass",
        ),
    )

    group: Literal["kueue.x-k8s.io", "scheduling.k8s.io"]
    """Group of the class."""
    kind: Literal["WorkloadPriorityClass", "PriorityClass"]
    """Kind of the class."""
    name: Annotated[str, Field(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)]
    """Name of the class."""


class PreemptionGate(Wire, frozen=True):
    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of the gate."""


class WorkloadSpec(Wire, frozen=True):
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("!has(self.priorityClassRef) || has(self.priority)", "priorityClassRef needs a priority"),
    )

    pod_sets: Annotated[tuple[PodSet, ...], unique_by("name", min_items=1, max_items=18)] = ()
    """Pod sets of the job. Immutable while quota is reserved."""
    queue_name: ObjectName = ""
    """LocalQueue of the namespace. Immutable while quota is reserved."""
    priority_class_ref: PriorityClassRef | None = None
    """Class that the priority comes from."""
    priority: Int32 | None = None
    """Workloads with a higher priority go first."""
    active: Annotated[bool, Field(default=True)] = True
    """With false the workload is evicted and stays pending until it is true again."""
    maximum_execution_time_seconds: Positive | None = None
    """How long the workload may be admitted, all times together, before it is deactivated."""
    preemption_gates: Annotated[tuple[PreemptionGate, ...], unique_by("name", max_items=8)] = ()
    """While one of these gates is closed, the workload preempts no other."""


class TopologyAssignmentSliceLevelIndividualValues(Wire, frozen=True):
    roots: Annotated[
        tuple[str, ...], Field(list_type="atomic", min_items=1, max_items=100000, items=Field(max_length=63))
    ]
    """Part of each value between the common prefix and suffix, in the order of the domains."""
    prefix: Level | None = None
    """Prefix that all values share."""
    suffix: Level | None = None
    """Suffix that all values share."""


class TopologyAssignmentSliceLevelValues(Wire, frozen=True):
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("has(self.universal) != has(self.individual)", "exactly one of universal and individual must be set"),
    )

    universal: Level | None = None
    """The value that all domains of the slice have."""
    individual: TopologyAssignmentSliceLevelIndividualValues | None = None
    """The value of each domain."""


class TopologyAssignmentSlicePodCounts(Wire, frozen=True):
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("has(self.universal) != has(self.individual)", "exactly one of universal and individual must be set"),
    )

    universal: Positive | None = None
    """The number of pods in every domain of the slice."""
    individual: Annotated[
        tuple[int, ...],
        Field(list_type="atomic", min_items=1, max_items=100000, items=Field(format="int32", minimum=1)),
    ] = ()
    """The number of pods in each domain."""


class TopologyAssignmentSlice(Wire, frozen=True):
    """Domains with their pods; common prefixes and suffixes are stored once."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.podCounts.individual) || self.podCounts.individual.size() == self.domainCount",
            "podCounts.individual must have one entry for each domain",
        ),
        Rule(
            "self.valuesPerLevel.all(v, !has(v.individual) || v.individual.roots.size() == self.domainCount)",
            "individual roots must have one entry for each domain",
        ),
    )

    domain_count: Positive
    """Number of domains."""
    values_per_level: Annotated[
        tuple[TopologyAssignmentSliceLevelValues, ...], Field(list_type="atomic", min_items=1, max_items=16)
    ]
    """Values of the domains, one entry for each level."""
    pod_counts: TopologyAssignmentSlicePodCounts
    """Pods in the domains."""


class TopologyAssignment(Wire, frozen=True):
    """The domains that the pods are assigned to."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.slices.all(s, s.valuesPerLevel.size() == self.levels.size())",
            "valuesPerLevel must have one entry for each level",
        ),
    )

    levels: Annotated[
        tuple[str, ...], Field(list_type="atomic", min_items=1, max_items=16, items=Field(max_length=317))
    ]
    """Node labels that name the domains, from the widest level to the narrowest."""
    slices: Annotated[
        tuple[TopologyAssignmentSlice, ...], Field(required=True, list_type="atomic", max_items=1000)
    ] = ()
    """The domains."""


class PodSetAssignment(Wire, frozen=True):
    name: Annotated[PodSetReference, Field(default="main")] = "main"
    """Name of the pod set."""
    flavors: dict[str, ObjectName] = {}
    """Flavor of each resource."""
    resource_usage: ResourceList = {}
    """Quota that all pods of the set hold together."""
    count: Count | None = None
    """Number of admitted pods; it can be less than requested."""
    topology_assignment: TopologyAssignment | None = None
    """Domains of the pods."""
    delayed_topology_request: Literal["Pending", "Ready"] | None = None
    """Pending while the assignment waits for the nodes."""


class Admission(Wire, frozen=True):
    cluster_queue: ObjectName = ""
    """ClusterQueue whose quota is held."""
    pod_set_assignments: Annotated[tuple[PodSetAssignment, ...], unique_by("name", max_items=18)] = ()
    """Flavors, quota and domains of each pod set."""


class RequeueState(Wire, frozen=True):
    count: Count | None = None
    """How many times the workload was requeued."""
    requeue_at: Time | None = None
    """Earliest time of the next attempt."""


class ReclaimablePod(Wire, frozen=True):
    name: PodSetReference
    """Name of the pod set."""
    count: Annotated[Count, Field(required=True)] = 0
    """Pods that no longer need their quota."""


class PodSetUpdate(Wire, frozen=True):
    """Additions of a check to the pods of a pod set. A conflict with existing values fails the admission."""

    name: PodSetReference
    """Name of the pod set."""
    labels: dict[str, str] = {}
    """Labels to add."""
    annotations: dict[str, str] = {}
    """Annotations to add."""
    node_selector: dict[str, str] = {}
    """Node selector to add."""
    tolerations: Annotated[tuple[Toleration, ...], Field(list_type="atomic", max_items=8, rules=TOLERATION_RULES)] = ()
    """Tolerations to add."""


class AdmissionCheckState(Wire, frozen=True):
    name: AdmissionCheckReference
    """Name of the AdmissionCheck."""
    state: CheckState
    """Pending, Ready, Retry (release the quota and try again) or Rejected (deactivate)."""
    last_transition_time: Annotated[Time, Field(required=True)] = ""
    """When the state changed."""
    message: Annotated[str, Field(required=True, max_length=32768)] = ""
    """Message of the check."""
    requeue_after_seconds: Count | None = None
    """After Retry, how long to wait at least."""
    retry_count: Count | None = None
    """Number of retries."""
    pod_set_updates: Annotated[tuple[PodSetUpdate, ...], Field(list_type="atomic", max_items=18)] = ()
    """Additions of the check to the pods."""


class PodSetRequest(Wire, frozen=True):
    name: PodSetReference
    """Name of the pod set."""
    resources: ResourceList = {}
    """Requests of all its pods together, after defaults, overhead, exclusions and transformations."""


class WorkloadSchedulingStatsEviction(Wire, frozen=True):
    reason: Annotated[str, Field(max_length=316)]
    """Reason of the eviction."""
    underlying_cause: Annotated[str, Field(required=True, max_length=316)] = ""
    """Underlying cause, if any."""
    count: Annotated[Count, Field(required=True)] = 0
    """Number of evictions."""


class SchedulingStats(Wire, frozen=True):
    evictions: Annotated[
        tuple[WorkloadSchedulingStatsEviction, ...], unique_by("reason", "underlyingCause", max_items=256)
    ] = ()
    """Evictions, by reason."""


class UnhealthyNode(Wire, frozen=True):
    name: Annotated[str, Field(max_length=63)]
    """Name of the node."""


class PreemptionGateState(Wire, frozen=True):
    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of the gate."""
    position: Literal["Closed", "Open"]
    """Whether the workload may preempt."""
    last_transition_time: Annotated[Time, Field(required=True)] = ""
    """When the position changed."""


class WorkloadStatus(Wire, frozen=True):
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(oldSelf.clusterName) || !has(self.clusterName) || oldSelf.clusterName == self.clusterName",
            "clusterName cannot be changed once set",
        ),
        Rule(
            "!has(self.clusterName) || !has(self.nominatedClusterNames) || self.nominatedClusterNames.size() == 0",
            "clusterName and nominatedClusterNames exclude each other",
        ),
    )

    conditions: Annotated[tuple[Condition, ...], unique_by("type", max_items=16)] = ()
    """Conditions: QuotaReserved, Admitted, PodsReady, Evicted, Preempted, Requeued, Finished."""
    admission: Admission | None = None
    """Quota that is reserved, and its flavors."""
    requeue_state: RequeueState | None = None
    """Earliest time of the next attempt after pods did not become ready."""
    reclaimable_pods: Annotated[tuple[ReclaimablePod, ...], unique_by("name", max_items=18)] = ()
    """Pods that no longer need their quota."""
    admission_checks: Annotated[tuple[AdmissionCheckState, ...], unique_by("name", max_items=8)] = ()
    """States of the admission checks."""
    resource_requests: Annotated[tuple[PodSetRequest, ...], unique_by("name", max_items=18)] = ()
    """Requests of a pending workload."""
    accumulated_past_execution_time_seconds: Int32 | None = None
    """How long the workload was admitted before its last eviction."""
    scheduling_stats: SchedulingStats | None = None
    """Counts of evictions."""
    nominated_cluster_names: Annotated[
        tuple[str, ...], Field(list_type="atomic", max_items=20, items=Field(max_length=256))
    ] = ()
    """Worker clusters that may admit the workload."""
    cluster_name: Annotated[str | None, Field(max_length=256)] = None
    """Worker cluster that runs the workload."""
    unhealthy_nodes: Annotated[tuple[UnhealthyNode, ...], unique_by("name", max_items=8)] = ()
    """Nodes of this workload that failed and are to be replaced."""
    preemption_gates: Annotated[tuple[PreemptionGateState, ...], unique_by("name", max_items=8)] = ()
    """Positions of the gates; a gate that is not listed is closed."""


# Rules that compare the spec with the status.
_CONDITION = (
    "has({0}.status) && has({0}.status.conditions) && "
    "{0}.status.conditions.exists(c, c.type == '{1}' && c.status == 'True')"
)
_WAS_RESERVED = _CONDITION.format("oldSelf", QUOTA_RESERVED)
_IS_RESERVED = _CONDITION.format("self", QUOTA_RESERVED)
_WAS_ADMITTED = _CONDITION.format("oldSelf", ADMITTED)
_IS_ADMITTED = _CONDITION.format("self", ADMITTED)
_BOTH_REFS = "has(oldSelf.spec.priorityClassRef) && has(self.spec.priorityClassRef)"


class Workload(Object, frozen=True):
    """One job in the queue: its pods, its quota and its state."""

    KIND: ClassVar[Kind] = Kind(GROUP, VERSION, "Workload", "workloads")
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"!({_IS_RESERVED} && has(self.status.admission)) || "
            "self.spec.podSets.size() == self.status.admission.podSetAssignments.size()",
            "podSetAssignments must have one entry for each pod set",
        ),
        Rule(
            f"!({_WAS_RESERVED}) || has(oldSelf.spec.priorityClassRef) == has(self.spec.priorityClassRef)",
            "priorityClassRef cannot be added or removed while quota is reserved",
        ),
        Rule(
            f"!({_WAS_RESERVED} && {_BOTH_REFS}) || "
            "(oldSelf.spec.priorityClassRef.group == self.spec.priorityClassRef.group && "
            "oldSelf.spec.priorityClassRef.kind == self.spec.priorityClassRef.kind)",
            "group and kind of priorityClassRef cannot be changed while quota is reserved",
        ),
        Rule(
            f"!({_WAS_RESERVED} && {_BOTH_REFS}) || self.spec.priorityClassRef.kind != 'PriorityClass' || "
            "oldSelf.spec.priorityClassRef.name == self.spec.priorityClassRef.name",
            "the PriorityClass of priorityClassRef cannot be changed while quota is reserved",
        ),
        Rule(
            f"!({_WAS_RESERVED} && {_IS_RESERVED}) || (has(oldSelf.spec.queueName) == has(self.spec.queueName) && "
            "(!has(self.spec.queueName) || oldSelf.spec.queueName == self.spec.queueName))",
            "queueName cannot be changed while quota is reserved",
        ),
        Rule(
            f"!({_WAS_ADMITTED} && {_IS_ADMITTED}) || "
            "(has(oldSelf.spec.maximumExecutionTimeSeconds) == has(self.spec.maximumExecutionTimeSeconds) && "
            "(!has(self.spec.maximumExecutionTimeSeconds) || "
            "oldSelf.spec.maximumExecutionTimeSeconds == self.spec.maximumExecutionTimeSeconds))",
            "maximumExecutionTimeSeconds cannot be changed while admitted",
        ),
    )

    spec: WorkloadSpec = WorkloadSpec()
    """Pod sets, queue and priority."""
    status: WorkloadStatus = WorkloadStatus()
    """Admission, checks and conditions."""

    def condition(self, type_: str) -> Condition | None:
        return find_condition(self.status.conditions, type_)

    def is_true(self, type_: str) -> bool:
        return is_true(self.status.conditions, type_)
