"""
What a workload must pass besides quota, and where it may be sent: AdmissionCheck, ProvisioningRequestConfig,
MultiKueueCluster, MultiKueueConfig.

An AdmissionCheck names its controller and that controller's parameters; the three other kinds are such parameters.

Used by: plans, and through ``kueue.py`` by all others. Kueue: apis/kueue/v1beta2
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
    """Controller that carries the check out."""
    parameters: AdmissionCheckParametersReference | None = None
    """Object with the controller's settings for this check."""


class AdmissionCheckStatus(Wire, frozen=True):
    conditions: Annotated[tuple[Condition, ...], unique_by("type", max_items=16)] = ()
    """Active says whether the controller can carry the check out."""


class AdmissionCheck(Object, frozen=True):
    """Something that must be true of a workload, besides quota, before it is admitted."""

    KIND: ClassVar[Kind] = Kind(GROUP, VERSION, "AdmissionCheck", "admissionchecks", namespaced=False)

    spec: AdmissionCheckSpec = AdmissionCheckSpec("")
    """Who checks, and with which settings."""
    status: AdmissionCheckStatus = AdmissionCheckStatus()
    """Whether the check works."""


class ProvisioningRequestRetryStrategy(Wire, frozen=True):
    backoff_limit_count: Annotated[Int32, Field(default=3)] = 3
    """How often a failed request is made again."""
    backoff_base_seconds: Annotated[Int32, Field(default=60)] = 60
    """Wait before the first repetition; it doubles each time."""
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
    """Node labels that the pods ask for in addition."""


class ProvisioningRequestConfigSpec(Wire, frozen=True):
    provisioning_class_name: Annotated[str, Field(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)]
    """Way of provisioning, a name that the autoscaler knows."""
    parameters: Annotated[dict[str, str], Field(max_properties=100, items=Field(max_length=255))] = {}
    """Parameters of the way of provisioning."""
    managed_resources: Annotated[tuple[ResourceName, ...], Field(list_type="set", max_items=100)] = ()
    """Only pod sets that use one of these get a request; empty means all pod sets."""
    retry_strategy: Annotated[
        ProvisioningRequestRetryStrategy,
        Field(default={"backoffLimitCount": 3, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800}),
    ] = ProvisioningRequestRetryStrategy()
    """What to do when a request failed."""
    pod_set_updates: ProvisioningRequestPodSetUpdates | None = None
    """What the pods get from the finished request."""
    pod_set_merge_policy: Literal["IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"] | None = None
    """Which pod sets share an entry of the request."""


class ProvisioningRequestConfig(Object, frozen=True):
    """How to ask the cluster autoscaler for the nodes of a workload."""

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
    """Credentials by way of a ClusterProfile."""


class MultiKueueClusterSpec(Wire, frozen=True):
    cluster_source: ClusterSource
    """How to reach the cluster."""


class MultiKueueClusterStatus(Wire, frozen=True):
    conditions: Annotated[tuple[Condition, ...], unique_by("type", max_items=16)] = ()
    """Active says whether the cluster is reached."""


class MultiKueueCluster(Object, frozen=True):
    """A cluster that workloads can be sent to."""

    KIND: ClassVar[Kind] = Kind(GROUP, VERSION, "MultiKueueCluster", "multikueueclusters", namespaced=False)

    spec: MultiKueueClusterSpec = MultiKueueClusterSpec(ClusterSource())
    """How to reach it."""
    status: MultiKueueClusterStatus = MultiKueueClusterStatus()
    """Whether it is reached."""


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
    """Names of the MultiKueueClusters, in the order in which they are asked."""
    quota_management: Literal["Manual", "Automated"] | None = None
    """Whether the quota of the manager follows that of the workers."""


class MultiKueueConfig(Object, frozen=True):
    """The clusters that one admission check sends workloads to."""

    KIND: ClassVar[Kind] = Kind(GROUP, VERSION, "MultiKueueConfig", "multikueueconfigs", namespaced=False)

    spec: MultiKueueConfigSpec = MultiKueueConfigSpec(())
    """The clusters."""
