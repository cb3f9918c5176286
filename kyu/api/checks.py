"""
AdmissionCheck, ProvisioningRequestConfig, MultiKueueCluster and MultiKueueConfig.

An AdmissionCheck is a condition for admission besides quota. It names its controller and that controller's parameters;
the three other kinds are such parameters.

Kueue: apis/kueue/v1beta2
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from kyu.api.fields import DNS_LABEL, DNS_SUBDOMAIN, LABEL_KEY, Field, Int32, ResourceName, Rule, unique_by
from kyu.api.meta import Condition, Kind, Object, Wire
from kyu.api.queues import GROUP, IMMUTABLE, VERSION

PROVISIONING_CONTROLLER = "kueue.x-k8s.io/provisioning-request"
MULTIKUEUE_CONTROLLER = "kueue.x-k8s.io/multikueue"

ClusterName: TypeAlias = Annotated[str, Field(max_length=256)]


class AdmissionCheckParametersReference(Wire, frozen=True):
    api_group: Annotated[str, Field(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)]
    """Group of the parameters' kind."""
    kind: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$")]
    """Kind of the parameters."""
    name: Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)]
    """Name of the parameters."""


class AdmissionCheckSpec(Wire, frozen=True):
    controller_name: Annotated[str, Field(min_length=1, max_length=253, rules=(IMMUTABLE,))]
    """Controller that runs the check."""
    parameters: AdmissionCheckParametersReference | None = None
    """Object with the controller's settings for this check."""


class AdmissionCheckStatus(Wire, frozen=True):
    conditions: Annotated[tuple[Condition, ...], unique_by("type", max_items=16)] = ()
    """Active says whether the controller can run the check."""


class AdmissionCheck(Object, frozen=True):
    """A condition, besides quota, that a workload must meet before it is admitted."""

    KIND: ClassVar[Kind] = Kind(GROUP, VERSION, "AdmissionCheck", "admissionchecks", namespaced=False)

    spec: AdmissionCheckSpec = AdmissionCheckSpec("")
    """Controller and settings of the check."""
    status: AdmissionCheckStatus = AdmissionCheckStatus()
    """Whether the check works."""


class ProvisioningRequestRetryStrategy(Wire, frozen=True):
    backoff_limit_count: Annotated[Int32, Field(default=3)] = 3
    """How often a failed request is retried."""
    backoff_base_seconds: Annotated[Int32, Field(default=60)] = 60
    """Wait before the first retry; it doubles with each retry."""
    backoff_max_seconds: Annotated[Int32, Field(default=1800)] = 1800
    """Longest wait."""


class ProvisioningRequestPodSetUpdatesNodeSelector(Wire, frozen=True):
    key: Annotated[str, Field(min_length=1, max_length=317, pattern=LABEL_KEY)]
    """Node label."""
    value_from_provisioning_class_detail: Annotated[str, Field(min_length=1, max_length=32768)]
    """Detail of the finished request that holds the value."""


class ProvisioningRequestPodSetUpdates(Wire, frozen=True):
    node_selector: Annotated[
        tuple[ProvisioningRequestPodSetUpdatesNodeSelector, ...], unique_by("key", max_items=8)
    ] = ()
    """Node labels that are added to the node selectors of the pods."""


class ProvisioningRequestConfigSpec(Wire, frozen=True):
    provisioning_class_name: Annotated[str, Field(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)]
    """Provisioning class, a name that the autoscaler knows."""
    parameters: Annotated[dict[str, str], Field(max_properties=100, items=Field(max_length=255))] = {}
    """Parameters of the provisioning class."""
    managed_resources: Annotated[tuple[ResourceName, ...], Field(list_type="set", max_items=100)] = ()
    """Only pod sets that use one of these get a request; empty means all pod sets."""
    retry_strategy: Annotated[
        ProvisioningRequestRetryStrategy,
        Field(default={"backoffLimitCount": 3, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800}),
    ] = ProvisioningRequestRetryStrategy()
    """How failed requests are retried."""
    pod_set_updates: ProvisioningRequestPodSetUpdates | None = None
    """Node labels that the pods get from the finished request."""
    pod_set_merge_policy: Literal["IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"] | None = None
    """How pod sets are merged into entries of the request."""


class ProvisioningRequestConfig(Object, frozen=True):
    """Settings for requesting the nodes of a workload from the cluster autoscaler."""

    KIND: ClassVar[Kind] = Kind(
        GROUP, VERSION, "ProvisioningRequestConfig", "provisioningrequestconfigs", namespaced=False
    )

    spec: ProvisioningRequestConfigSpec = ProvisioningRequestConfigSpec("")
    """Settings of the requests."""


class KubeConfig(Wire, frozen=True):
    location: Annotated[str, Field(min_length=1, max_length=256)]
    """Name of the Secret (its key kubeconfig is read), or path of the file."""
    location_type: Annotated[Literal["Secret", "Path"], Field(default="Secret")] = "Secret"
    """Whether location is a Secret or a path."""


class ClusterProfileReference(Wire, frozen=True):
    name: Annotated[str, Field(min_length=1, max_length=256)]
    """Name of the ClusterProfile."""


class ClusterSource(Wire, frozen=True):
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.kubeConfig) != has(self.clusterProfileRef)",
            "exactly one of kubeConfig and clusterProfileRef must be set",
        ),
    )

    kube_config: KubeConfig | None = None
    """Credentials in a kubeconfig."""
    cluster_profile_ref: ClusterProfileReference | None = None
    """Credentials from a ClusterProfile."""


class MultiKueueClusterSpec(Wire, frozen=True):
    cluster_source: ClusterSource
    """How to reach the cluster."""


class MultiKueueClusterStatus(Wire, frozen=True):
    conditions: Annotated[tuple[Condition, ...], unique_by("type", max_items=16)] = ()
    """Active says whether the cluster is connected."""


class MultiKueueCluster(Object, frozen=True):
    """A worker cluster that workloads can be sent to."""

    KIND: ClassVar[Kind] = Kind(GROUP, VERSION, "MultiKueueCluster", "multikueueclusters", namespaced=False)

    spec: MultiKueueClusterSpec = MultiKueueClusterSpec(ClusterSource())
    """How to reach it."""
    status: MultiKueueClusterStatus = MultiKueueClusterStatus()
    """Whether the cluster is connected."""


class MultiKueueConfigSpec(Wire, frozen=True):
    clusters: Annotated[
        tuple[ClusterName, ...],
        Field(
            list_type="atomic",
            min_items=1,
            max_items=20,
            rules=(Rule("self.all(a, self.filter(b, b == a).size() == 1)", "must be unique"),),
        ),
    ]
    """Names of the MultiKueueClusters, in the order in which they are tried."""
    quota_management: Literal["Manual", "Automated"] | None = None
    """Whether the quota of the manager is derived from that of the workers."""


class MultiKueueConfig(Object, frozen=True):
    """The worker clusters of one admission check."""

    KIND: ClassVar[Kind] = Kind(GROUP, VERSION, "MultiKueueConfig", "multikueueconfigs", namespaced=False)

    spec: MultiKueueConfigSpec = MultiKueueConfigSpec(())
    """The clusters."""
