"""
Settings of Kueue that Kyu reads and validates, but does not use.

Kueue's files are accepted unchanged, so such a setting is no error. A warning tells the administrator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import attrgetter

from kyu.api.config import features
from kyu.api.config.config import Configuration

FIXED_NAMES = "the names are those of the installation"
BIND_ADDRESS = "the address is that of --webhook-bind-address"
OWN_ADMISSION = "the API server of `kyu up` applies the rules itself"
SERVED_BY_API = "`kyu up` serves health, metrics and pending workloads at the address of its API"
NO_PROFILES = "worker clusters are reached by kubeconfigs only"
# Reasons, by the path of the setting in the file.
NOT_FOLLOWED = {
    "webhook.host": BIND_ADDRESS,
    "webhook.port": BIND_ADDRESS,
    "internalCertManagement.webhookServiceName": FIXED_NAMES,
    "internalCertManagement.webhookSecretName": FIXED_NAMES,
    "tls": "webhooks and metrics are served with the defaults of TLS",
    "pprofBindAddress": "Kyu serves no profiler",
    "controller": "all controllers run in one loop",
    "clientConnection": "requests have no rate limit; changes are written in batches",
    "leaderElection.resourceLock": "the lock is always a Lease",
    "integrations.externalFrameworks": "Kyu queues only the kinds that it knows",
    "multiKueue.externalFrameworks": "Kyu sends only the kinds that it knows to other clusters",
    "multiKueue.clusterProfile": NO_PROFILES,
    "resources.deviceClassMappings": "devices of resource claims are not counted",
}
# Settings that are used on a cluster, but not in embedded mode.
NOT_FOLLOWED_EMBEDDED = {
    "health": SERVED_BY_API,
    "metrics.bindAddress": SERVED_BY_API,
    "visibilityServer": SERVED_BY_API,
    "webhook.certDir": OWN_ADMISSION,
    "internalCertManagement.enable": OWN_ADMISSION,
}
NO_SWITCH = "Kyu has no such switch"
NO_DEVICES = "devices of resource claims are not counted"
ONLY_SPEED = "it concerns the speed of Kueue only"
# Feature gates that an administrator may set without any effect.
GATES_NOT_FOLLOWED = {
    "DeferRayServiceFinalizationForRedisCleanup": NO_SWITCH,
    "FastQuotaReleaseInPodIntegration": "quota is returned when the pod has ended",
    "FinishOrphanedWorkloads": NO_SWITCH,
    "KueueDRAIntegration": NO_DEVICES,
    "KueueDRAIntegrationConsumableCapacity": NO_DEVICES,
    "KueueDRAIntegrationExtendedResource": NO_DEVICES,
    "KueueDRAIntegrationPartitionableDevices": NO_DEVICES,
    "KueueDRARejectWorkloadsWhenDRADisabled": NO_DEVICES,
    "LWSImmutableGroupSize": NO_SWITCH,
    "MultiKueueAdaptersForCustomJobs": "Kyu sends only the kinds that it knows to other clusters",
    "MultiKueueAllowInsecureKubeconfigs": "kubeconfigs of workers must not read files, run programs or skip TLS",
    "MultiKueueIncrementalDispatcherConfig": NO_SWITCH,
    "MultiKueueRemoteSpecSync": NO_SWITCH,
    "PodIntegrationValidateGroupOwner": NO_SWITCH,
    "RemoveFinalizersWithStrictPatch": NO_SWITCH,
    "SchedulerLibraryIntegration": "Kyu has a scheduler of its own",
    "SchedulerLongRequeueInterval": "a workload is tried again when the quota that it waits for has changed",
    "ShortWorkloadNames": NO_SWITCH,
    "SkipAncestorCheckForDeletedWorkloads": NO_SWITCH,
    "SparkApplicationIntegration": "enable the kind in integrations.frameworks",
    "TASAssignmentsEncodingByHostnamePrefix": NO_SWITCH,
    "TASCacheNodeMatchResults": ONLY_SPEED,
    "TASCacheTopologyTree": ONLY_SPEED,
    "TASCachingRemainingResources": ONLY_SPEED,
    "TASMultiLayerTopology": NO_SWITCH,
    "TASReplaceNodeDueToNotReadyOverFixedTime": "use TASReplaceNodeOnPodTermination",
    "TASReplaceNodeOnNodeTaints": NO_SWITCH,
    "TLSOptions": NO_SWITCH,
    "ValidateRayAndSparkJobUpdates": NO_SWITCH,
    "VectorizedResourceRequests": ONLY_SPEED,
    "WorkloadIdentifierAnnotations": NO_SWITCH,
    "WorkloadRequestUseMergePatch": "Kyu always writes merge patches",
    "ElasticJobsViaWorkloadSlicesWithTAS": "an elastic job with a topology request is queued again when it grows",
    "MultiKueueClusterProfile": NO_PROFILES,
    "MultiKueueOrchestratedPreemption": "every worker cluster preempts as its queues say",
}
DEFAULTS = Configuration()


def warnings(configuration: Configuration) -> Iterator[str]:
    """Yield a warning for each setting that differs from its default and has no effect."""
    yield from _without_effect(configuration, NOT_FOLLOWED)
    for name, reason in GATES_NOT_FOLLOWED.items():
        default = features.GATE_BY_NAME[name].is_on
        if configuration.feature_gates.get(name, default) != default:
            yield f"featureGates.{name} has no effect: {reason}"


def embedded_warnings(configuration: Configuration) -> Iterator[str]:
    """Yield a warning for each setting that has an effect on a cluster only."""
    yield from _without_effect(configuration, NOT_FOLLOWED_EMBEDDED)


def _without_effect(configuration: Configuration, reasons: Mapping[str, str]) -> Iterator[str]:
    for path, reason in reasons.items():
        value = attrgetter(attribute(path))
        if value(configuration) != value(DEFAULTS):
            yield f"{path} has no effect: {reason}"


def attribute(path: str) -> str:
    """Convert ``a.someSetting`` to the name of the attribute in Python."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in path)
