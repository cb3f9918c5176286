"""
MasterQueue: quota from pools that announce themselves on NATS, from worker clusters, and from flavors of this cluster.

A MasterQueue lists groups of flavors. A group of NATS pools becomes one ResourceFlavor per live pool, and a group of
clusters one per cluster that reports; a local group is a link to a ResourceFlavor that exists. The view holds the last
report of a pool as a PoolReport, and the state of a subscription as a PoolSource. Both live in memory only, in the
namespace named after their MasterQueue.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from kyu.api.core import Taint, Toleration
from kyu.api.definitions.crds import PrinterColumn
from kyu.api.definitions.single import definition_of
from kyu.api.fields import Field, Int32, ObjectName, Positive, ResourceList, Rule, Time, unique_by
from kyu.api.meta import Condition, Json, Kind, LabelSelector, Object, Wire

GROUP = "vk.io"
VERSION = "v1"
# This toleration routes a pod to its pool. Admission writes it, with the flavor of the pool.
POOL_TOLERATION = "pool.vk.io"
# This taint keeps pods off virtual nodes unless they tolerate offloading.
OFFLOAD_TAINT = Taint("virtual-node.interlink/no-schedule", "NoSchedule", "true")
# This label of a ResourceFlavor names the worker cluster that gets the workloads of the flavor.
FLAVOR_CLUSTER_LABEL = "kyu.dev/cluster"

PoolState: TypeAlias = Literal["Live", "Stale", "Lost", "LeftOut"]


class FlavorFungibilityTemplate(Wire, frozen=True):
    when_can_borrow: Literal["Borrow", "TryNextFlavor", "MayStopSearch"] = "Borrow"
    """Borrow (or MayStopSearch) uses a flavor that fits by borrowing; TryNextFlavor tries the next flavors first."""
    when_can_preempt: Literal["Preempt", "TryNextFlavor", "MayStopSearch"] = "TryNextFlavor"
    """Preempt (or MayStopSearch) preempts in this flavor; TryNextFlavor tries the next flavors first."""


class BorrowWithinCohortTemplate(Wire, frozen=True):
    policy: Literal["Never", "LowerPriority"] | None = None
    """LowerPriority allows preemption while borrowing. The default is LowerPriority if reclaiming is allowed."""
    max_priority_threshold: Int32 | None = None
    """Only workloads up to this priority are preempted."""


class PreemptionTemplate(Wire, frozen=True):
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!(has(self.borrowWithinCohort) && has(self.borrowWithinCohort.policy) && "
            "self.borrowWithinCohort.policy == 'LowerPriority' && "
            "(!has(self.reclaimWithinCohort) || self.reclaimWithinCohort == 'Never'))",
            "borrowWithinCohort needs reclaimWithinCohort to be other than Never",
        ),
    )

    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = "Never"
    """Whether a workload within the nominal quota reclaims quota that others of the cohort borrowed."""
    borrow_within_cohort: BorrowWithinCohortTemplate | None = None
    """Whether a workload preempts others even though it must borrow."""
    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "Never"
    """Whether a workload preempts others of its own queue."""


class MasterQueueTemplate(Wire, frozen=True):
    """Settings that all ClusterQueues of this MasterQueue share."""

    cohort: ObjectName = ""
    """Cohort of all its ClusterQueues; without one, the name of the MasterQueue."""
    queueing_strategy: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
    """Whether later workloads may be admitted before one that does not fit."""
    namespace_selector: LabelSelector = LabelSelector()
    """Namespaces that may use the queues; without one, all."""
    flavor_fungibility: FlavorFungibilityTemplate = FlavorFungibilityTemplate()
    """Whether the next flavor is tried before borrowing or preempting in this one."""
    preemption: PreemptionTemplate = PreemptionTemplate()
    """Workloads that a workload of these queues may preempt."""
    stop_policy: Literal["None", "Hold", "HoldAndDrain", "Stop", "StopAndHold"] = "None"
    """Hold (or Stop) stops admission; HoldAndDrain (or StopAndHold) also evicts admitted workloads."""


class SecretReference(Wire, frozen=True):
    namespace: str
    """Namespace of the Secret."""
    name: str
    """Name of the Secret."""


class NatsFlavor(Wire, frozen=True):
    """Pools that announce themselves on a NATS server."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("has(self.pools) != has(self.poolRegExp)", "exactly one of pools and poolRegExp is needed"),
        Rule("has(self.natsConnector) || has(self.credentialsSecret)", "natsConnector or credentialsSecret is needed"),
    )

    nats_subject: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[^.*>\s]+(\.[^.*>\s]+)*$")]
    """Subject prefix of the pools; the name of the pool is the last token."""
    nats_connector: Annotated[str, Field(max_length=2048, pattern="^(nats|tls|ws|wss)://")] = ""
    """URL of the NATS server. User and password in it work; a Secret is safer."""
    credentials_secret: SecretReference | None = None
    """Secret with any of: connector, user, password, token, creds, nkey, ca.crt, tls.crt, tls.key."""
    virtual_node: ObjectName = ""
    """Node that pods for these pools are sent to."""
    pool_timeout: Annotated[Positive, Field(default=60)] = 60
    """Seconds without a message after which a pool is dropped."""
    pool_timeout_policy: Literal["adaptive", "strict"] = "adaptive"
    """Adaptive waits at least 2.5 periods of a pool; strict uses poolTimeout literally."""
    pools: Annotated[tuple[str, ...], Field(list_type="atomic", min_items=1, max_items=512)] = ()
    """Names of the pools."""
    pool_reg_exp: Annotated[str, Field(max_length=1024)] = ""
    """Regular expression that is found in the names of the pools, as Python's re.search does."""
    pool_match: Literal["search", "full"] = "search"
    """With full the expression must match the whole name."""
    lost_pool_policy: Literal["Keep", "Evict"] = "Keep"
    """Evict requeues the workloads of a pool that stays silent for twice its timeout; Keep leaves them."""
    public_keys: dict[str, str] = {}
    """Ed25519 keys in base64, by pool. Messages of a pool with a key need a valid signature."""


class ClusterFlavor(Wire, frozen=True):
    """Worker clusters that report their nodes as ClusterMetrics."""

    admission_check: ObjectName
    """AdmissionCheck that sends workloads to the clusters: one of MultiKueue or of KubeStellar."""
    cluster_selector: LabelSelector = LabelSelector()
    """ClusterMetrics that count; without one, all."""
    node_labels: dict[str, str] = {}
    """Nodes of the clusters that count. A node counts for the first group whose labels it carries."""
    tolerations: Annotated[tuple[Toleration, ...], Field(list_type="atomic", max_items=8)] = ()
    """Nodes with taints count if these tolerate them. Pods of the group get them."""
    report_timeout: Annotated[int, Field(format="int32", minimum=20, default=60)] = 60
    """Seconds without a report after which a cluster gets no more workloads."""


class LocalFlavor(Wire, frozen=True):
    """A link to the ResourceFlavor of the same name."""


class LendingQueue(Wire, frozen=True):
    queue: ObjectName
    """Name of the ClusterQueue that may borrow. Kyu creates it."""
    lending_limit: ResourceList = {}
    """How much it may borrow, in each pool. A resource that is not listed has no limit."""
    total_limit: ResourceList = {}
    """How much it may use of all pools and flavors together. If several groups set it, the smallest counts."""
    namespaces: Annotated[tuple[str, ...], Field(list_type="set", max_items=256)] = ()
    """Namespaces that get a LocalQueue of the same name."""


class MasterQueueFlavor(Wire, frozen=True):
    """A group of flavors."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "[has(self.natsFlavor), has(self.clusterFlavor), has(self.localFlavor)].filter(x, x).size() == 1",
            "exactly one of natsFlavor, clusterFlavor and localFlavor is needed",
        ),
    )

    name: ObjectName
    """Name of the group; for a local flavor, the name of the ResourceFlavor."""
    nats_flavor: NatsFlavor | None = None
    """Pools on NATS."""
    cluster_flavor: ClusterFlavor | None = None
    """Worker clusters."""
    local_flavor: LocalFlavor | None = None
    """A flavor of this cluster."""
    nominal_quota: ResourceList = {}
    """For pools and clusters, the largest quota that is taken from each. For a local flavor, its quota."""
    can_lend_to: Annotated[tuple[LendingQueue, ...], unique_by("queue", max_items=256)] = ()
    """ClusterQueues that may borrow from the flavors of this group."""


class MasterQueueSpec(Wire, frozen=True):
    template: MasterQueueTemplate = MasterQueueTemplate()
    """Settings that the ClusterQueues share."""
    flavors: Annotated[tuple[MasterQueueFlavor, ...], unique_by("name", max_items=64), Field(required=True)] = ()
    """Groups of flavors, in the order in which they are tried."""


class PoolStatus(Wire, frozen=True):
    flavor: str
    """Group that the pool belongs to."""
    name: str
    """Name of the pool."""
    state: PoolState
    """Live; Stale (silent, gets no more workloads); Lost (its flavor is gone); LeftOut (cannot be a flavor)."""
    since: Time = ""
    """Time of the last change of the state."""
    reason: str = ""
    """Reason for the state, if it is not Live."""
    resource_flavor: str = ""
    """Its ResourceFlavor."""
    published: dict[str, str] = {}
    """Quotas that the pool announced."""
    effective: dict[str, str] = {}
    """Quotas that count."""
    labels: tuple[str, ...] = ()
    """Labels as published."""
    taints: tuple[str, ...] = ()
    """Taints as published."""
    is_slow: bool = False
    """The pool announces too seldom for poolTimeout, so 2.5 of its periods count instead."""


class MasterQueueStatus(Wire, frozen=True):
    conditions: Annotated[tuple[Condition, ...], unique_by("type", max_items=16)] = ()
    """Ready, NatsConnected, Degraded; TooManyPools and PoolTimeoutTooShort if they apply."""
    pools: Annotated[tuple[PoolStatus, ...], Field(list_type="atomic", max_items=1024)] = ()
    """The pools, in the order in which they are tried."""
    live_pools: Int32 = 0
    """Number of live pools."""
    refused_messages: dict[str, int] = {}
    """Refused messages, counted by reason."""


class MasterQueue(Object, frozen=True):
    """Remote pools and local flavors as quota that groups borrow from."""

    KIND: ClassVar[Kind] = Kind(GROUP, VERSION, "MasterQueue", "masterqueues", namespaced=False)

    spec: MasterQueueSpec = MasterQueueSpec()
    """Groups of flavors, and their borrowers."""
    status: MasterQueueStatus = MasterQueueStatus()
    """State of the pools."""


class PoolReport(Object, frozen=True):
    """The last report of a pool to one group of a MasterQueue (its namespace here). Times are in seconds."""

    KIND: ClassVar[Kind] = Kind(GROUP, VERSION, "PoolReport", "poolreports")

    flavor: str = ""
    pool: str = ""
    at: float = 0.0
    # The longest of the recent intervals between messages; None before the second message.
    period: float | None = None
    quotas: dict[str, str] = {}
    labels: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    # Whether the pool runs pods of this cluster.
    runs: bool = False


class PoolSource(Object, frozen=True):
    """The state of one group's subscription. ``since`` is the time of the last connect or disconnect, in seconds."""

    KIND: ClassVar[Kind] = Kind(GROUP, VERSION, "PoolSource", "poolsources")

    connected: bool = False
    since: float = 0.0
    error: str = ""
    # The error in the group's regular expression, and the known pools that it does not select.
    expression_error: str = ""
    excluded: tuple[str, ...] = ()
    refused: dict[str, int] = {}


COLUMNS = (
    PrinterColumn("Ready", ".status.conditions[?(@.type=='Ready')].status", "Whether a flavor is live"),
    PrinterColumn("Live Pools", ".status.livePools", "Live pools", "integer"),
    PrinterColumn(
        "NATS", ".status.conditions[?(@.type=='NatsConnected')].status", "Whether all NATS servers are connected"
    ),
    PrinterColumn("Degraded", ".status.conditions[?(@.type=='Degraded')].status", "Whether something is wrong"),
    PrinterColumn("Age", ".metadata.creationTimestamp", "Time since it was created", "date"),
)


def definition() -> Json:
    """Return the CustomResourceDefinition of MasterQueue."""
    return definition_of(MasterQueue, ("mq",), COLUMNS)
