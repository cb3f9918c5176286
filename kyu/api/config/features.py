"""
The feature gates of Kueue, by name, with their stage and default.

A gate is on or off for the life of the process. Alpha gates are off and beta gates are on by default. ``AllAlpha`` and
``AllBeta`` change the default of a whole stage; a stable gate is locked. Kyu accepts every gate, also gates without an
effect (see ``unused.py``).

Kueue: pkg/features/kube_features.go
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Literal

import msgspec

Stage = Literal["Alpha", "Beta", "Stable", "Deprecated"]
ALPHA: Final = "Alpha"
BETA: Final = "Beta"
STABLE: Final = "Stable"
DEPRECATED: Final = "Deprecated"


class Gate(msgspec.Struct, frozen=True):
    """A feature gate and its effect."""

    name: str
    stage: Stage
    help: str
    default: bool | None = None

    @property
    def is_on(self) -> bool:
        """Return whether the gate is on by default."""
        return self.stage in (BETA, STABLE) if self.default is None else self.default


GATES: tuple[Gate, ...] = (
    Gate("PartialAdmission", BETA, "Shrink a job down to minCount."),
    Gate("FlavorFungibility", BETA, "WhenCanBorrow / whenCanPreempt are honoured."),
    Gate("VisibilityOnDemand", BETA, "Pending-workloads API."),
    Gate("DisableWaitForPodsReady", ALPHA, "Opt out of the new default-on waitForPodsReady; to vanish in 0.21."),
    Gate("PrioritySortingWithinCohort", BETA, "Priority before age between queues of a cohort."),
    Gate("FairSharingPreemptWithinNominal", BETA, "A queue inside its nominal quota may preempt regardless of shares."),
    Gate("FairSharingPrioritizeNonBorrowing", BETA, "Non-borrowing subtrees go first at each tree level."),
    Gate("MultiKueue", BETA, "Multi-cluster dispatch."),
    Gate("TopologyAwareScheduling", BETA, "TAS as a whole."),
    Gate("LocalQueueMetrics", BETA, "Local_queue_* metrics."),
    Gate("TASProfileMixed", BETA, "Best-fit for constrained, least-free for unconstrained requests."),
    Gate("AdmissionFairSharing", BETA, "Usage-based ordering of LocalQueues (still needs config + CQ mode)."),
    Gate("TASFailedNodeReplacement", BETA, "Swap one failed node under a running workload."),
    Gate("ElasticJobsViaWorkloadSlices", BETA, "Elastic jobs."),
    Gate("ElasticJobsViaWorkloadSlicesWithTAS", ALPHA, "Elastic + TAS."),
    Gate("TASFailedNodeReplacementFailFast", BETA, "Evict when the first swap attempt fails."),
    Gate("TASReplaceNodeOnPodTermination", BETA, "Node counts as failed when not ready and its pods end."),
    Gate("SkipReassignmentForPodOwnedWorkloads", BETA, "No re-placement for single-pod workloads."),
    Gate("TASReplaceNodeDueToNotReadyOverFixedTime", DEPRECATED, "Old 30 s not-ready rule."),
    Gate("ManagedJobsNamespaceSelectorAlwaysRespected", STABLE, "Namespace selector also binds labelled jobs."),
    Gate("TASBalancedPlacement", ALPHA, "Even spread over domains."),
    Gate("TASAssignmentsEncodingByHostnamePrefix", BETA, "Smaller stored assignments."),
    Gate("KueueDRAIntegration", BETA, "Quota for DRA device classes."),
    Gate("KueueDRAIntegrationExtendedResource", BETA, "DRA through extended resource names."),
    Gate("KueueDRARejectWorkloadsWhenDRADisabled", BETA, "Refuse DRA workloads when the integration is off."),
    Gate("KueueDRAIntegrationPartitionableDevices", BETA, "Counter sources (MIG-like)."),
    Gate("KueueDRAIntegrationConsumableCapacity", ALPHA, "Capacity sources (shared devices)."),
    Gate("MultiKueueAdaptersForCustomJobs", BETA, "Generic adapter for external kinds."),
    Gate("WorkloadRequestUseMergePatch", ALPHA, "Merge patch instead of server-side apply on Workloads."),
    Gate("MultiKueueKubeConfigPathValidation", ALPHA, "Restrict kubeconfig paths; on in Kyu.", default=True),
    Gate("ReclaimablePods", BETA, "Return quota of finished pods."),
    Gate("MultiKueueClusterProfile", ALPHA, "Credentials from ClusterProfile."),
    Gate("FailureRecoveryPolicy", ALPHA, "Force-delete opted-in pods stuck terminating."),
    Gate("TLSOptions", BETA, "Tls block of the config."),
    Gate("RemoveFinalizersWithStrictPatch", BETA, "Race-safe finalizer removal."),
    Gate("TASReplaceNodeOnNodeTaints", BETA, "Evict when a node becomes tainted against the pods."),
    Gate("AssignQueueLabelsForPods", BETA, "Cluster-queue-name / local-queue-name on pods."),
    Gate("TASMultiLayerTopology", BETA, "Up to three slice layers."),
    Gate("SchedulingEquivalenceHashing", BETA, "Skip equal inadmissible workloads in BestEffortFIFO."),
    Gate("CustomMetricLabels", ALPHA, "Metrics.customLabels."),
    Gate("SparkApplicationIntegration", ALPHA, "SparkApplication kind."),
    Gate("MultiKueueOrchestratedPreemption", ALPHA, "Only one worker cluster preempts at a time."),
    Gate("PriorityBoost", ALPHA, "Priority-boost annotation."),
    Gate("AdmissionGatedBy", BETA, "Admission-gated-by annotation."),
    Gate("ShortWorkloadNames", ALPHA, "Generated names ≤63."),
    Gate("FastQuotaReleaseInPodIntegration", ALPHA, "Free quota when pod deletion starts."),
    Gate("RejectUpdatesToCQWithInvalidOnFlavors", ALPHA, "Strict onFlavors on update."),
    Gate("FinishOrphanedWorkloads", BETA, "Finish workloads whose owner vanished."),
    Gate("MultiKueueIncrementalDispatcherConfig", BETA, "StepSize setting."),
    Gate("MultiKueueIncrementalDispatcherRespectConfigOrder", BETA, "Use the listed cluster order."),
    Gate("ConcurrentAdmission", ALPHA, "Try several flavors in parallel, migrate later."),
    Gate("QuotaCheckStrategy", BETA, "IgnoreUndeclared resources."),
    Gate("MetricForWorkloadCreationLatency", BETA, "One metric."),
    Gate("TASRespectNodeAffinityPreferred", ALPHA, "Score preferred node affinity."),
    Gate("MultiKueueManagerQuotaAutomation", ALPHA, "Derive manager quota from workers."),
    Gate("WorkloadIdentifierAnnotations", BETA, "Group / prebuilt names as annotations."),
    Gate("WorkloadPriorityClassDefaulting", ALPHA, "Class called default applied automatically."),
    Gate("MetricsForCohorts", BETA, "Cohort metrics and *_info."),
    Gate("CleanupProvisioningRequestsOnEviction", BETA, "Delete requests of evicted workloads."),
    Gate("TASHandleOverlappingFlavors", BETA, "Flavors sharing nodes counted once."),
    Gate("UnadmittedWorkloadsObservability", BETA, "Granular pending reasons and metric.", default=False),
    Gate("TASRecomputeAssignmentWithinSchedulingCycle", BETA, "Retry placement in the same cycle."),
    Gate("UnadmittedWorkloadsExplicitStatus", BETA, "Write QuotaReserved/Admitted=False at once.", default=False),
    Gate("DeferRayServiceFinalizationForRedisCleanup", BETA, "Let KubeRay clean Redis before release."),
    Gate("TASCacheNodeMatchResults", BETA, "Speed only."),
    Gate("TASCachingRemainingResources", BETA, "Speed only."),
    Gate("TASCacheTopologyTree", ALPHA, "Speed only."),
    Gate("SchedulerLibraryIntegration", ALPHA, "Experiment with sigs scheduler-library."),
    Gate("VectorizedResourceRequests", BETA, "Speed only."),
    Gate("WorkloadValidateResourcesAreNonNegative", BETA, "Refuse negative requests."),
    Gate("TASValidateWorkloadSliceSize", BETA, "Refuse bad slice sizes."),
    Gate("WorkloadValidationForPodSetMetadata", BETA, "Validate template labels/annotations."),
    Gate("PrioritizePreemptorWorkloads", ALPHA, "Preemptors keep the head of the queue while victims leave."),
    Gate("SchedulerTimestampPreemptionBuffer", ALPHA, "Only workloads 5 minutes older preempt equal priority."),
    Gate("SchedulerLongRequeueInterval", ALPHA, "Retry inadmissible workloads less often."),
    Gate("LWSImmutableGroupSize", BETA, "Freeze LWS size."),
    Gate("FlavorFungibilityPreserveScanProgress", BETA, "Do not restart the flavor scan each cycle."),
    Gate("SkipAncestorCheckForDeletedWorkloads", BETA, "Tolerate missing owners while deleting."),
    Gate("MultiKueueRemoteSpecSync", BETA, "Forward RayService config edits to the worker."),
    Gate("RecomputeAssignmentUponPreemptionTargetsOverlap", ALPHA, "Pick other victims when targets clash."),
    Gate("PodIntegrationValidateGroupOwner", BETA, "Do not adopt foreign workloads as pod group."),
    Gate("ValidateRayAndSparkJobUpdates", BETA, "Check updates that drop the queue label."),
    Gate("HierarchicalCohorts", STABLE, "Cohorts of cohorts."),
    Gate("ObjectRetentionPolicies", STABLE, "Delete finished and deactivated workloads after a while."),
    Gate("PropagateBatchJobLabelsToWorkload", STABLE, "Labels of Jobs on their workloads."),
    Gate("MultiKueueWaitForWorkloadAdmitted", STABLE, "A worker wins when it has admitted, not reserved."),
    Gate("MultiKueueRedoAdmissionOnEvictionInWorker", STABLE, "Dispatch again after an eviction in the worker."),
    Gate("SkipFinalizersForPodsSuspendedByParent", STABLE, "No finalizers on pods of managed parents."),
    Gate("MultiKueueAllowInsecureKubeconfigs", DEPRECATED, "Take kubeconfigs of workers without checking them."),
)

GATE_BY_NAME: Mapping[str, Gate] = {gate.name: gate for gate in GATES}
STAGE_SWITCHES: Mapping[str, Stage] = {"AllAlpha": ALPHA, "AllBeta": BETA}


class FeatureGates(msgspec.Struct, frozen=True):
    """The gates that are on."""

    enabled_names: frozenset[str]

    def enabled(self, name: str) -> bool:
        if name not in GATE_BY_NAME:
            raise AssertionError(f"there is no feature gate {name}")
        return name in self.enabled_names


def feature_gates(settings: Mapping[str, bool]) -> FeatureGates:
    """Return the gates with these settings. A gate's own setting overrides that of its stage."""
    return _feature_gates(tuple(settings.items()))


@lru_cache(maxsize=64)
def _feature_gates(items: tuple[tuple[str, bool], ...]) -> FeatureGates:
    """Compute the gates once: plans ask for them with each object."""
    settings = dict(items)
    stages = {STAGE_SWITCHES[name]: value for name, value in settings.items() if name in STAGE_SWITCHES}
    return FeatureGates(
        frozenset(gate.name for gate in GATES if settings.get(gate.name, stages.get(gate.stage, gate.is_on)))
    )


def why_refused(name: str, value: bool) -> str:
    """Return why the setting is refused, or an empty text."""
    if name in STAGE_SWITCHES:
        return ""
    gate = GATE_BY_NAME.get(name)
    if gate is None:
        return "there is no such feature gate"
    if gate.stage == STABLE and not value:
        return "the feature is stable and cannot be switched off"
    return ""


DEFAULT_GATES = feature_gates({})
