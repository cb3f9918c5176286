"""
Settings of Kueue that are read and judged, and that Kyu does not follow: whoever sets one is told so.

Files of Kueue are taken as they are, so such a setting is no fault. Silence would be one.

Used by: config_file.py, app.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import attrgetter

from kyu.api.config import Configuration

NO_WEBHOOKS = "Kyu has no webhooks"
SERVED_BY_API = "`kyu up` serves health and metrics at the address of its API"
NO_PROFILES = "worker clusters are reached by kubeconfigs only"
# By the path in the file.
NOT_FOLLOWED = {
    "webhook": NO_WEBHOOKS,
    "internalCertManagement": NO_WEBHOOKS,
    "tls": "Kyu has no webhooks, and its metrics are served with the defaults of TLS",
    "metrics.enableClusterQueueResources": "what queues hold and use is always told, their quotas never are",
    "metrics.customLabels": "metrics have the labels of Kueue only",
    "metrics.localQueueMetrics": "metrics are those of ClusterQueues",
    "pprofBindAddress": "there is no profiler behind a port",
    "visibilityServer": "pending workloads are shown by `kyu jobs` and `kyu why`",
    "controller": "all controllers take turns in one loop",
    "clientConnection": "requests are not limited by a rate: what changes together is written together",
    "leaderElection.resourceLock": "the lock is always a Lease",
    "integrations.externalFrameworks": "only the kinds that Kyu knows are queued",
    "multiKueue.externalFrameworks": "only kinds that Kyu knows are sent to other clusters",
    "multiKueue.clusterProfile": NO_PROFILES,
    "resources.deviceClassMappings": "devices of resource claims are not counted",
}
# What controllers follow on a cluster, and the embedded ones do not.
NOT_FOLLOWED_EMBEDDED = {"health": SERVED_BY_API, "metrics.bindAddress": SERVED_BY_API}
# Feature gates that somebody may switch on, and wait for what does not come.
GATES_NOT_FOLLOWED = {
    "ElasticJobsViaWorkloadSlicesWithTAS": "an elastic job that is placed by topology is queued again when it grows",
    "MultiKueueClusterProfile": NO_PROFILES,
    "MultiKueueManagerQuotaAutomation": "quotas are those that somebody has set",
    "MultiKueueOrchestratedPreemption": "every worker cluster preempts as its queues say",
}
DEFAULTS = Configuration()


def warnings(configuration: Configuration) -> Iterator[str]:
    """A line for each setting that differs from its default and has no effect."""
    yield from _without_effect(configuration, NOT_FOLLOWED)
    for name, reason in GATES_NOT_FOLLOWED.items():
        if configuration.feature_gates.get(name):
            yield f"featureGates.{name} has no effect: {reason}"


def embedded_warnings(configuration: Configuration) -> Iterator[str]:
    """The same for what has an effect on a cluster only."""
    yield from _without_effect(configuration, NOT_FOLLOWED_EMBEDDED)


def _without_effect(configuration: Configuration, reasons: Mapping[str, str]) -> Iterator[str]:
    for path, reason in reasons.items():
        value = attrgetter(attribute(path))
        if value(configuration) != value(DEFAULTS):
            yield f"{path} has no effect: {reason}"


def attribute(path: str) -> str:
    """``a.someSetting`` as it is called in Python."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in path)
