"""
The parts that Kyu reads of Kubernetes' own kinds: Namespace, Node, Pod, LimitRange, RuntimeClass, PriorityClass, Job.

Only fields that some decision depends on are here; all others stay in the JSON, untouched. ``PodTemplateSpec`` is also
the shape of a Workload's pod sets.

Kubernetes: core/v1, batch/v1, node/v1, scheduling/v1.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from kyu.api.fields import Field, Int32, ResourceList, Time
from kyu.api.meta import Condition, Json, Kind, LabelSelector, Object, ObjectMeta, Wire

TaintEffect: TypeAlias = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class Taint(Wire, frozen=True):
    """A taint keeps pods without a matching toleration off a node."""

    key: str
    """Name of the taint."""
    effect: str
    """Effect on pods without a matching toleration: NoSchedule, PreferNoSchedule or NoExecute."""
    value: str = ""
    """Value of the taint."""
    time_added: Time | None = None
    """Time at which a NoExecute taint was added to the node."""


class Toleration(Wire, frozen=True):
    """Taints that a pod tolerates. An empty key with ``Exists`` matches all taints, an empty effect all effects."""

    key: str = ""
    """Name of the taint; empty means every taint, and needs the operator Exists."""
    operator: str = ""
    """Equal (the default) compares the value too, Exists only the key."""
    value: str = ""
    """Value of the taint; not with Exists."""
    effect: str = ""
    """Effect of the taint; empty means every effect."""
    toleration_seconds: Annotated[int | None, Field(format="int64")] = None
    """How long a NoExecute taint is tolerated; without it, for ever."""

    def tolerates(self, taint: Taint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return self.operator in ("", "Equal") and bool(self.key) and self.value == taint.value


class ResourceClaim(Wire, frozen=True):
    name: str
    request: str = ""


class ResourceRequirements(Wire, frozen=True):
    requests: ResourceList = {}
    """Amounts that are reserved, by resource."""
    limits: ResourceList = {}
    """Largest amounts that may be used, by resource."""
    claims: tuple[ResourceClaim, ...] = ()
    """Names of the pod's resource claims that the container uses."""


class ContainerPort(Wire, frozen=True):
    container_port: int
    host_port: int = 0
    protocol: str = "TCP"


class Container(Wire, frozen=True):
    name: Annotated[str, Field(required=True)] = ""
    """Name, unique in the pod."""
    image: str = ""
    """Image to run."""
    resources: ResourceRequirements = ResourceRequirements()
    """Requests and limits of the container."""
    restart_policy: str = ""
    """Always makes an init container a sidecar: it keeps running beside the others."""
    ports: tuple[ContainerPort, ...] = ()
    """Ports that the container listens on."""


class NodeSelectorRequirement(Wire, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Wire, frozen=True):
    """A term of a node selector: all requirements must match. A term without any requirement matches no node."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Wire, frozen=True):
    """A node selector: at least one term must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Wire, frozen=True):
    weight: int
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Wire, frozen=True):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    """Nodes that the pod may run on."""
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()
    """Nodes that are preferred."""


class Affinity(Wire, frozen=True):
    node_affinity: NodeAffinity | None = None
    """Node affinity of the pod."""
    pod_affinity: Json | None = None
    """Pod affinity of the pod."""
    pod_anti_affinity: Json | None = None
    """Pod anti-affinity of the pod."""


class TopologySpreadConstraint(Wire, frozen=True):
    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: int | None = None


class PodSchedulingGate(Wire, frozen=True):
    name: str


class PodResourceClaim(Wire, frozen=True):
    name: str
    """Name of the claim within the pod."""
    resource_claim_name: str = ""
    """Name of a ResourceClaim that exists."""
    resource_claim_template_name: str = ""
    """Name of the ResourceClaimTemplate from which each pod gets its claim."""


class PodSpec(Wire, frozen=True):
    containers: Annotated[tuple[Container, ...], Field(required=True, list_type="map", list_keys=("name",))] = ()
    """Containers that run together."""
    init_containers: Annotated[tuple[Container, ...], Field(list_type="map", list_keys=("name",))] = ()
    """Containers that run before the others, one after another, and sidecars."""
    overhead: ResourceList = {}
    """Overhead of the runtime for each pod."""
    resources: ResourceRequirements = ResourceRequirements()
    """Requests and limits of the pod as a whole."""
    node_selector: dict[str, str] = {}
    """Labels that the node must have."""
    affinity: Affinity | None = None
    """Affinity to nodes and pods."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints that the pod tolerates."""
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    """Rules for spreading the pods."""
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    """The pod is not scheduled while any of these is present."""
    resource_claims: tuple[PodResourceClaim, ...] = ()
    """Devices that the pod claims."""
    runtime_class_name: str = ""
    """Name of the RuntimeClass."""
    priority_class_name: str = ""
    """Name of the PriorityClass."""
    priority: Int32 | None = None
    """Priority from the PriorityClass."""
    node_name: str = ""
    """Node that the pod is bound to."""
    scheduler_name: str = ""
    """Scheduler that binds the pod."""
    restart_policy: str = ""
    """Whether containers that ended are started again: Always, OnFailure or Never."""
    active_deadline_seconds: int | None = None
    """How long the pod may run."""
    termination_grace_period_seconds: int | None = None
    """Time between the termination signal and the kill."""


class PodTemplateSpec(Wire, frozen=True):
    """A template of pods."""

    metadata: ObjectMeta = ObjectMeta()
    """Labels and annotations of the pods."""
    spec: PodSpec = PodSpec()
    """Spec of the pods."""


class PodStatus(Wire, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    start_time: str = ""
    conditions: tuple[Condition, ...] = ()


class Pod(Object, frozen=True):
    KIND: ClassVar[Kind] = Kind("", "v1", "Pod", "pods")

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class NamespaceStatus(Wire, frozen=True):
    phase: str = "Active"


class Namespace(Object, frozen=True):
    KIND: ClassVar[Kind] = Kind("", "v1", "Namespace", "namespaces", namespaced=False)

    status: NamespaceStatus = NamespaceStatus()


class NodeSpec(Wire, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(Wire, frozen=True):
    capacity: ResourceList = {}
    allocatable: ResourceList = {}
    conditions: tuple[Condition, ...] = ()


class Node(Object, frozen=True):
    KIND: ClassVar[Kind] = Kind("", "v1", "Node", "nodes", namespaced=False)

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class LimitRangeItem(Wire, frozen=True):
    type: str
    max: ResourceList = {}
    min: ResourceList = {}
    default: ResourceList = {}
    default_request: ResourceList = {}
    max_limit_request_ratio: ResourceList = {}


class LimitRangeSpec(Wire, frozen=True):
    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(Object, frozen=True):
    KIND: ClassVar[Kind] = Kind("", "v1", "LimitRange", "limitranges")

    spec: LimitRangeSpec = LimitRangeSpec()


class Overhead(Wire, frozen=True):
    pod_fixed: ResourceList = {}


class RuntimeClassScheduling(Wire, frozen=True):
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class RuntimeClass(Object, frozen=True):
    KIND: ClassVar[Kind] = Kind("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", namespaced=False)

    handler: str = ""
    overhead: Overhead = Overhead()
    scheduling: RuntimeClassScheduling | None = None


class PriorityClass(Object, frozen=True):
    KIND: ClassVar[Kind] = Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False)

    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"
    description: str = ""


class JobSpec(Wire, frozen=True):
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = "NonIndexed"
    suspend: bool = False
    template: PodTemplateSpec = PodTemplateSpec()
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    managed_by: str = ""


class Job(Object, frozen=True):
    """The fields of a Job that manifests are checked against, besides the schema of the server. Controllers read its
    JSON.
    """

    KIND: ClassVar[Kind] = Kind("batch", "v1", "Job", "jobs")

    spec: JobSpec = JobSpec()


KINDS: tuple[type[Object], ...] = (Namespace, Node, Pod, LimitRange, RuntimeClass, PriorityClass, Job)

# Kinds without a projection. They are read as JSON.
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
SECRET = Kind("", "v1", "Secret", "secrets")
DEFINITION = Kind(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
