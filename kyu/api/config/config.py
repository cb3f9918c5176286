"""
Configuration: the one settings object, in the shape of Kueue's v1beta2 file, with every default filled in.

Kueue's files are read unchanged, v1beta1 too. Reading is strict: an unknown field is refused by its path, since a
misspelt setting that is silently ignored is worse than none.

``file.py`` reads a file into it and validates the values.
Kueue: apis/config/v1beta2, pkg/config
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from kyu.api.config.features import DEFAULT_GATES, FeatureGates, feature_gates
from kyu.api.duration import Duration
from kyu.api.meta import Json, LabelSelector, LabelSelectorRequirement
from kyu.api.quantity import QuantityValue

GROUP = "config.kueue.x-k8s.io"
NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"
ALL_AT_ONCE_DISPATCHER = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once"
INCREMENTAL_DISPATCHER = "kueue.x-k8s.io/multikueue-dispatcher-incremental"

PreemptionStrategy: TypeAlias = Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
BOTH_STRATEGIES: tuple[PreemptionStrategy, ...] = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")


class Section(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """A part of the configuration: camelCase in the file, unknown fields refused."""


class Selector(LabelSelector, frozen=True, forbid_unknown_fields=True):
    """A label selector in a settings file."""


class ControllerWebhook(Section, frozen=True):
    port: int = 9443
    host: str = ""
    cert_dir: str = "/tmp/k8s-webhook-server/serving-certs"


class LeaderElectionConfiguration(Section, frozen=True):
    leader_elect: bool = True
    lease_duration: Duration = Duration(seconds=15)
    renew_deadline: Duration = Duration(seconds=10)
    retry_period: Duration = Duration(seconds=2)
    resource_lock: str = "leases"
    resource_name: str = "c1f6bfd2.kueue.x-k8s.io"
    resource_namespace: str = ""


class ControllerMetricsCustomLabel(Section, frozen=True):
    name: str
    source_label_key: str = ""
    source_annotation_key: str = ""
    source_kind: Literal["ClusterQueue", "LocalQueue", "Cohort", "Workload"] = "ClusterQueue"
    tracked_values: tuple[str, ...] = ()

    @property
    def label_key(self) -> str:
        """Return the label that the value is read from; empty if it is an annotation."""
        return "" if self.source_annotation_key else self.source_label_key or self.name


class LocalQueueMetrics(Section, frozen=True):
    enable: bool = True
    local_queue_selector: Selector | None = None
    """LocalQueues to report; absent means all."""


class ControllerMetrics(Section, frozen=True):
    bind_address: str = ":8443"
    """Address of the metrics endpoint; "0" switches it off."""
    enable_cluster_queue_resources: bool = False
    custom_labels: tuple[ControllerMetricsCustomLabel, ...] = ()
    local_queue_metrics: LocalQueueMetrics = LocalQueueMetrics()


class ControllerHealth(Section, frozen=True):
    health_probe_bind_address: str = ":8081"
    readiness_endpoint_name: str = "readyz"
    liveness_endpoint_name: str = "healthz"


class ControllerConfigurationSpec(Section, frozen=True):
    group_kind_concurrency: dict[str, int] = {}
    cache_sync_timeout: Duration = Duration(minutes=2)


class TLSOptions(Section, frozen=True):
    min_version: str = ""
    cipher_suites: tuple[str, ...] = ()
    curve_preferences: tuple[int, ...] = ()


class InternalCertManagement(Section, frozen=True):
    enable: bool = True
    webhook_service_name: str = "kueue-webhook-service"
    webhook_secret_name: str = "kueue-webhook-server-cert"


class RequeuingStrategy(Section, frozen=True):
    timestamp: Literal["Eviction", "Creation"] = "Eviction"
    """Start of the wait of an evicted workload: its eviction, or its creation, which keeps its place in the queue."""
    backoff_limit_count: int | None = None
    """Number of requeues after which the workload is deactivated; absent means never."""
    backoff_base_seconds: int = 60
    backoff_max_seconds: int = 3600


class WaitForPodsReady(Section, frozen=True):
    timeout: Duration = Duration(minutes=30)
    """How long the pods of an admitted workload may take to become ready before it is evicted."""
    block_admission: bool = False
    """Admit the next workload only when the pods of all admitted ones are ready."""
    requeuing_strategy: RequeuingStrategy = RequeuingStrategy()
    recovery_timeout: Duration | None = None
    """How long pods that failed later may take to be ready again; absent means ``timeout``, 0s means for ever."""

    @property
    def effective_recovery_timeout(self) -> Duration:
        return self.timeout if self.recovery_timeout is None else self.recovery_timeout


class ClientConnection(Section, frozen=True):
    qps: float = 300
    """Requests per second to the API server; negative means no limit."""
    burst: int = 500


class Integrations(Section, frozen=True):
    frameworks: tuple[str, ...] = ("batch/job",)
    external_frameworks: tuple[str, ...] = ()
    label_keys_to_copy: tuple[str, ...] = ()


class IncrementalDispatcherConfig(Section, frozen=True):
    step_size: int = 3


class MultiKueueExternalFramework(Section, frozen=True):
    name: str


class ClusterProfileAccessProvider(Section, frozen=True):
    name: str
    exec_config: Json = {}


class ClusterProfile(Section, frozen=True):
    access_providers: tuple[ClusterProfileAccessProvider, ...] = ()
    credentials_providers: tuple[ClusterProfileAccessProvider, ...] = ()


class MultiKueue(Section, frozen=True):
    gc_interval: Duration = Duration(minutes=1)
    """Period of garbage collection on worker clusters; 0s means never."""
    origin: str = "multikueue"
    worker_lost_timeout: Duration = Duration(minutes=15)
    dispatcher_name: str = ALL_AT_ONCE_DISPATCHER
    external_frameworks: tuple[MultiKueueExternalFramework, ...] = ()
    cluster_profile: ClusterProfile | None = None
    incremental_dispatcher_config: IncrementalDispatcherConfig | None = None


class FairSharingConfiguration(Section, frozen=True):
    """Settings of fair sharing. Their presence switches fair sharing on."""

    preemption_strategies: tuple[PreemptionStrategy, ...] = ()

    @property
    def effective_strategies(self) -> tuple[PreemptionStrategy, ...]:
        return self.preemption_strategies or BOTH_STRATEGIES


class AdmissionFairSharingConfiguration(Section, frozen=True):
    usage_half_life_time: Duration = Duration()
    """Half-life of past usage; 0s means that it is forgotten at once."""
    usage_sampling_interval: Duration = Duration(minutes=5)
    resource_weights: dict[str, float] = {}
    """Weight of each resource; absent means 1."""


class ResourceTransformation(Section, frozen=True):
    input: str
    strategy: Literal["Retain", "Replace"] = "Retain"
    multiply_by: str = ""
    outputs: dict[str, QuantityValue] = {}


class CelDeviceSelector(Section, frozen=True):
    expression: str


class DeviceSelector(Section, frozen=True):
    cel: CelDeviceSelector | None = None


class DeviceClassSource(Section, frozen=True):
    name: str
    driver: str
    device_selector: DeviceSelector = DeviceSelector()


class DeviceClassSourceConfig(Section, frozen=True):
    counter: DeviceClassSource | None = None
    capacity: DeviceClassSource | None = None


class DeviceClassMapping(Section, frozen=True):
    name: str
    device_class_names: tuple[str, ...] = ()
    sources: tuple[DeviceClassSourceConfig, ...] = ()


class ResourcesConfiguration(Section, frozen=True):
    quota_check_strategy: Literal["BlockUndeclared", "IgnoreUndeclared"] = "BlockUndeclared"
    """Whether a resource that no resource group of the queue covers makes the workload inadmissible."""
    exclude_resource_prefixes: tuple[str, ...] = ()
    transformations: tuple[ResourceTransformation, ...] = ()
    device_class_mappings: tuple[DeviceClassMapping, ...] = ()


class WorkloadRetentionPolicy(Section, frozen=True):
    after_finished: Duration | None = None
    after_deactivated_by_kueue: Duration | None = None


class ObjectRetentionPolicies(Section, frozen=True):
    workloads: WorkloadRetentionPolicy | None = None


class VisibilityServerConfiguration(Section, frozen=True):
    bind_address: str = "0.0.0.0"
    bind_port: int = 8082


class Configuration(Section, frozen=True):
    """All settings, with the defaults of those that a file leaves out."""

    api_version: str = f"{GROUP}/v1beta2"
    kind: str = "Configuration"
    namespace: str = "kueue-system"
    webhook: ControllerWebhook = ControllerWebhook()
    leader_election: LeaderElectionConfiguration = LeaderElectionConfiguration()
    metrics: ControllerMetrics = ControllerMetrics()
    health: ControllerHealth = ControllerHealth()
    pprof_bind_address: str = ""
    controller: ControllerConfigurationSpec = ControllerConfigurationSpec()
    tls: TLSOptions | None = None
    manage_jobs_without_queue_name: bool = False
    managed_jobs_namespace_selector: Selector | None = None
    """Namespaces whose jobs are managed; absent means all but kube-system and our own."""
    internal_cert_management: InternalCertManagement = InternalCertManagement()
    wait_for_pods_ready: WaitForPodsReady | None = WaitForPodsReady()
    client_connection: ClientConnection = ClientConnection()
    integrations: Integrations = Integrations()
    multi_kueue: MultiKueue = MultiKueue()
    fair_sharing: FairSharingConfiguration | None = None
    admission_fair_sharing: AdmissionFairSharingConfiguration | None = None
    resources: ResourcesConfiguration = ResourcesConfiguration()
    feature_gates: dict[str, bool] = {}
    object_retention_policies: ObjectRetentionPolicies | None = None
    visibility_server: VisibilityServerConfiguration = VisibilityServerConfiguration()

    @property
    def gates(self) -> FeatureGates:
        return feature_gates(self.feature_gates) if self.feature_gates else DEFAULT_GATES

    def custom_labels(self, source_kind: str) -> tuple[ControllerMetricsCustomLabel, ...]:
        """Return the labels that objects of the kind add to metrics; none without the feature gate."""
        if not self.metrics.custom_labels or not self.gates.enabled("CustomMetricLabels"):
            return ()
        return tuple(label for label in self.metrics.custom_labels if label.source_kind == source_kind)

    @property
    def managed_namespaces(self) -> LabelSelector:
        """Return the selector of the namespaces whose jobs are managed, with the default filled in."""
        if self.managed_jobs_namespace_selector is not None:
            return self.managed_jobs_namespace_selector
        others = LabelSelectorRequirement(NAMESPACE_NAME_LABEL, "NotIn", ("kube-system", self.namespace))
        return LabelSelector(match_expressions=(others,))


def decode_extra(type_: type, value: Any) -> Any:
    """Decode a duration, which msgspec cannot. A number means nanoseconds, as in Go."""
    if type_ is Duration and isinstance(value, str):
        return Duration.parse(value)
    if type_ is Duration and isinstance(value, int) and not isinstance(value, bool):
        return Duration(microseconds=value // 1000)
    raise ValueError(f"expected a duration such as 90s or 30m, got {value!r}")
