"""
MasterQueue: pools that announce themselves on NATS, and flavors of this cluster, gathered to quota that groups borrow.

A MasterQueue lists groups of flavors. A group of NATS pools becomes one ResourceFlavor per live pool, a local group is
a link to a ResourceFlavor that exists. What was heard of a pool stands next to it in the view as a PoolReport, and how
the listening goes as a PoolSource; both live in memory only, under the namespace of their MasterQueue's name.

Used by: plans/pools.py (reads them), controllers/pools.py (makes reports and sources), server (serves the definition).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

import msgspec

from kyu.api import schema
from kyu.api.core import Taint
from kyu.api.crds import Column
from kyu.api.fields import Field, Int32, ObjectName, Positive, ResourceList, Rule, Time, unique_by
from kyu.api.meta import Condition, Json, Kind, LabelSelector, Object, Wire

GROUP = "vk.io"
VERSION = "v1"
# A pod is routed to its pool by this toleration; admission writes it, with the flavor of the pool.
POOL_TOLERATION = "pool.vk.io"
# Keeps pods off virtual nodes unless they say that they may be offloaded.
OFFLOAD_TAINT = Taint("virtual-node.interlink/no-schedule", "NoSchedule", "true")

PoolState: TypeAlias = Literal["Live", "Stale", "Lost", "LeftOut"]


class FlavorFungibilityTemplate(Wire, frozen=True):
    when_can_borrow: Literal["Borrow", "TryNextFlavor", "MayStopSearch"] = "Borrow"
    """Borrow (or MayStopSearch) takes a flavor that fits by borrowing; TryNextFlavor looks further first."""
    when_can_preempt: Literal["Preempt", "TryNextFlavor", "MayStopSearch"] = "TryNextFlavor"
    """Preempt (or MayStopSearch) preempts in this flavor; TryNextFlavor looks further first."""


class BorrowWithinCohortTemplate(Wire, frozen=True):
    policy: Literal["Never", "LowerPriority"] | None = None
    """LowerPriority preempts others while borrowing. The default is LowerPriority where reclaiming is allowed."""
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
    """Whether a workload that fits the nominal quota takes back what others of the cohort borrowed."""
    borrow_within_cohort: BorrowWithinCohortTemplate | None = None
    """Whether a workload preempts others even though it has to borrow."""
    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "Never"
    """Whether a workload preempts others of its own queue."""


class MasterQueueTemplate(Wire, frozen=True):
    """What all ClusterQueues of this MasterQueue have in common."""

    cohort: ObjectName = ""
    """Cohort of all its ClusterQueues; without one, the name of the MasterQueue."""
    queueing_strategy: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
    """Whether those behind a workload that does not fit may pass."""
    namespace_selector: LabelSelector = LabelSelector()
    """Namespaces that may use the queues; without one, all."""
    flavor_fungibility: FlavorFungibilityTemplate = FlavorFungibilityTemplate()
    """When to try the next flavor before borrowing or preempting in this one."""
    preemption: PreemptionTemplate = PreemptionTemplate()
    """Whom a workload of these queues may preempt."""
    stop_policy: Literal["None", "Hold", "HoldAndDrain", "Stop", "StopAndHold"] = "None"
    """Hold (or Stop) admits nothing more; HoldAndDrain (or StopAndHold) also evicts what runs."""


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
    """Subject that the pools publish under; the last token, which follows it, is the pool's name."""
    nats_connector: Annotated[str, Field(max_length=2048, pattern="^(nats|tls|ws|wss)://")] = ""
    """URL of the NATS server. User and password in it work; a Secret is safer."""
    credentials_secret: SecretReference | None = None
    """Secret with any of: connector, user, password, token, creds, nkey, ca.crt, tls.crt, tls.key."""
    virtual_node: ObjectName = ""
    """Node that pods for these pools are sent to."""
    pool_timeout: Annotated[Positive, Field(default=60)] = 60
    """Seconds of silence after which a pool is dropped."""
    pool_timeout_policy: Literal["adaptive", "strict"] = "adaptive"
    """Adaptive waits at least 2.5 periods of a pool; strict takes poolTimeout literally."""
    pools: Annotated[tuple[str, ...], Field(list_type="atomic", min_items=1, max_items=512)] = ()
    """Names of the pools."""
    pool_reg_exp: Annotated[str, Field(max_length=1024)] = ""
    """Regular expression that is found in the names of the pools, as Python's re.search does."""
    pool_match: Literal["search", "full"] = "search"
    """With full the expression must match the whole name."""
    lost_pool_policy: Literal["Keep", "Evict"] = "Keep"
    """Evict puts work on a pool that stays silent for twice its time back in the queue; Keep leaves it."""
    public_keys: dict[str, str] = {}
    """Ed25519 keys in base64, by pool. A pool that has one is only believed with a good signature."""


class LocalFlavor(Wire, frozen=True):
    """A link to the ResourceFlavor of the same name."""


class LendingQueue(Wire, frozen=True):
    queue: ObjectName
    """Name of the ClusterQueue that may borrow; it is created."""
    lending_limit: ResourceList = {}
    """How much it may borrow, in each pool. A resource that is not listed has no limit."""
    total_limit: ResourceList = {}
    """How much it may use of all pools and flavors together. Where several groups say it, the smallest counts."""
    namespaces: Annotated[tuple[str, ...], Field(list_type="set", max_items=256)] = ()
    """Namespaces that get a LocalQueue of the same name."""


class MasterQueueFlavor(Wire, frozen=True):
    """A group of flavors."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("has(self.natsFlavor) != has(self.localFlavor)", "exactly one of natsFlavor and localFlavor is needed"),
    )

    name: ObjectName
    """Name of the group; of a local one, the name of the ResourceFlavor."""
    nats_flavor: NatsFlavor | None = None
    """Pools on NATS."""
    local_flavor: LocalFlavor | None = None
    """A flavor of this cluster."""
    nominal_quota: ResourceList = {}
    """Of pools: the most that is taken of each. Of a local flavor: its quota."""
    can_lend_to: Annotated[tuple[LendingQueue, ...], unique_by("queue", max_items=256)] = ()
    """Who may borrow from the flavors of this group."""


class MasterQueueSpec(Wire, frozen=True):
    template: MasterQueueTemplate = MasterQueueTemplate()
    """What the ClusterQueues have in common."""
    flavors: Annotated[tuple[MasterQueueFlavor, ...], unique_by("name", max_items=64), Field(required=True)] = ()
    """Groups of flavors, in the order in which they are tried."""


class PoolStatus(Wire, frozen=True):
    flavor: str
    """Group that the pool belongs to."""
    name: str
    """Name of the pool."""
    state: PoolState
    """Live; Stale (silent, takes no more work); Lost (its flavor is gone); LeftOut (cannot be a flavor)."""
    since: Time = ""
    """Since when."""
    reason: str = ""
    """Why it is not as wished."""
    resource_flavor: str = ""
    """Its ResourceFlavor."""
    published: dict[str, str] = {}
    """What the pool said it has."""
    effective: dict[str, str] = {}
    """What counts as quota."""
    labels: tuple[str, ...] = ()
    """Labels as published."""
    taints: tuple[str, ...] = ()
    """Taints as published."""
    is_slow: bool = False
    """It speaks too seldom for poolTimeout, so 2.5 of its periods count instead."""


class MasterQueueStatus(Wire, frozen=True):
    conditions: Annotated[tuple[Condition, ...], unique_by("type", max_items=16)] = ()
    """Ready, NatsConnected, Degraded; TooManyPools and PoolTimeoutTooShort where they hold."""
    pools: Annotated[tuple[PoolStatus, ...], Field(list_type="atomic", max_items=1024)] = ()
    """The pools, in the order in which they are tried."""
    live_pools: Int32 = 0
    """How many pools are live."""
    refused_messages: dict[str, int] = {}
    """Messages that changed nothing, counted by reason."""


class MasterQueue(Object, frozen=True):
    """Remote pools and local flavors as quota, for groups to borrow from."""

    KIND: ClassVar[Kind] = Kind(GROUP, VERSION, "MasterQueue", "masterqueues", namespaced=False)

    spec: MasterQueueSpec = MasterQueueSpec()
    """What is gathered, and who may borrow."""
    status: MasterQueueStatus = MasterQueueStatus()
    """What was found."""


class PoolReport(Object, frozen=True):
    """The last that was heard of a pool by one group of a MasterQueue (its namespace here). Times in seconds."""

    KIND: ClassVar[Kind] = Kind(GROUP, VERSION, "PoolReport", "poolreports")

    flavor: str = ""
    pool: str = ""
    at: float = 0.0
    # The longest of the last pauses between messages; None until two were heard.
    period: float | None = None
    quotas: dict[str, str] = {}
    labels: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    # Whether the pool takes pods from us.
    runs: bool = False


class PoolSource(Object, frozen=True):
    """How the listening of one group goes. ``since``: connected or not, since when, in seconds."""

    KIND: ClassVar[Kind] = Kind(GROUP, VERSION, "PoolSource", "poolsources")

    connected: bool = False
    since: float = 0.0
    error: str = ""
    # What is wrong with the group's regular expression, and which known pools it does not select.
    expression_error: str = ""
    excluded: tuple[str, ...] = ()
    refused: dict[str, int] = {}


COLUMNS = (
    Column("Ready", ".status.conditions[?(@.type=='Ready')].status", "Whether there is a live flavor"),
    Column("Live Pools", ".status.livePools", "Pools that speak", "integer"),
    Column("NATS", ".status.conditions[?(@.type=='NatsConnected')].status", "Whether all NATS servers are reached"),
    Column("Degraded", ".status.conditions[?(@.type=='Degraded')].status", "Whether something is wrong"),
    Column("Age", ".metadata.creationTimestamp", "Time since it was created", "date"),
)


def definition() -> Json:
    """The CustomResourceDefinition of MasterQueue."""
    kind = MasterQueue.KIND
    whole: Json = msgspec.json.decode(msgspec.json.encode(schema.schema_of(MasterQueue)))
    whole["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        **whole["properties"],
        "metadata": {"type": "object"},
    }
    version: Json = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": whole},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": column.name, "jsonPath": column.path, "type": column.type, "description": column.description}
            for column in COLUMNS
        ],
    }
    names = {"kind": kind.kind, "listKind": f"{kind.kind}List", "plural": kind.plural, "shortNames": ["mq"],
             "singular": "masterqueue"}  # fmt: skip
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {"group": GROUP, "names": names, "scope": "Cluster", "versions": [version]},
    }
