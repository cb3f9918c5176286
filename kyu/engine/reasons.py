"""
Reasons why a workload waits or is preempted, as values with their numbers, and their texts.

Rules return these values. Only ``render`` makes text for users. The first word of a rendered reason is the reason of
the condition, and is Kueue's where Kueue has one.

Called by: every rule of the engine; for text plans/workload, controllers, cli/admin/decide.py, cli/batch/why.py.
Kueue: apis/kueue/v1beta2/workload_types.go
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, assert_never

from kyu.api import quantity
from kyu.api.core import Taint
from kyu.engine.requests import Violation
from kyu.engine.topology.failures import ElasticNotUnconstrained, Failure, render_failure

NoFitWord = Literal["TopologyPlacementFailed", "WaitingForQuota", "ExceedsMaxQuota", "NoMatchingFlavor"]
# From failures that end without action to failures that a user must resolve.
NO_FIT_SEVERITY: tuple[NoFitWord, ...] = (
    "TopologyPlacementFailed",
    "WaitingForQuota",
    "ExceedsMaxQuota",
    "NoMatchingFlavor",
)
PREEMPTION_GATED = "Workload requires preemption, but it's gated"
PreemptionReason = Literal[
    "InClusterQueue", "InCohortReclamation", "InCohortFairSharing", "InCohortReclaimWhileBorrowing"
]


# Reasons why a pod set did not get a flavor.


@dataclass(frozen=True, slots=True)
class ExceedsQuota:
    """The request exceeds the most that the queue could ever use."""

    flavor: str
    resource: str
    considered: int
    """Quota that earlier pod sets of the same workload request."""
    requested: int
    maximum: int


class InsufficientQuota(NamedTuple):
    """The request exceeds the quota that is available now."""

    flavor: str
    resource: str
    requested: int
    available: int


@dataclass(frozen=True, slots=True)
class UntoleratedTaint:
    flavor: str
    taint: Taint


@dataclass(frozen=True, slots=True)
class NodeAffinityMismatch:
    flavor: str


@dataclass(frozen=True, slots=True)
class FlavorNotFound:
    flavor: str


@dataclass(frozen=True, slots=True)
class TopologyMismatch:
    flavor: str
    problem: Literal["no topology", "only topology", "no level", "unknown topology"]


@dataclass(frozen=True, slots=True)
class FlavorSkipped:
    """The flavor was not tried, because the workload is bound to other flavors."""

    flavor: str
    pinned: str = ""
    """The resource for which the cycle chose another flavor before; empty if an annotation excludes the flavor."""


@dataclass(frozen=True, slots=True)
class SliceFlavorMismatch:
    """The slice of an elastic job must stay on the flavors of the slice that it replaces."""

    flavor: str
    wanted: str


@dataclass(frozen=True, slots=True)
class ResourceNotCovered:
    resource: str


@dataclass(frozen=True, slots=True)
class PlacementFailed:
    failure: Failure


@dataclass(frozen=True, slots=True)
class NoTopologyFlavor:
    """The pod set must be placed, but no single flavor with a topology was assigned to it."""

    several: tuple[str, ...] = ()


FlavorReason: TypeAlias = (
    ExceedsQuota
    | InsufficientQuota
    | UntoleratedTaint
    | NodeAffinityMismatch
    | FlavorNotFound
    | TopologyMismatch
    | FlavorSkipped
    | SliceFlavorMismatch
    | ResourceNotCovered
    | PlacementFailed
    | NoTopologyFlavor
)


class PodSetReasons(NamedTuple):
    pod_set: str
    reasons: tuple[FlavorReason, ...]


# Reasons why a workload waits.


@dataclass(frozen=True, slots=True)
class NoFit:
    """Some pod set gets no flavor, or there is no workload to preempt."""

    word: NoFitWord
    pod_sets: tuple[PodSetReasons, ...]


@dataclass(frozen=True, slots=True)
class WaitsForPreempted:
    """The workloads that it preempted have not stopped yet."""

    count: int
    pod_sets: tuple[PodSetReasons, ...] = ()


@dataclass(frozen=True, slots=True)
class Skipped:
    """Another workload of the same cycle came first. The next cycle tries it again."""

    why: Literal["overlap", "taken"]


@dataclass(frozen=True, slots=True)
class Deferred:
    """The workload fits as soon as the workloads that another one preempted have stopped."""


@dataclass(frozen=True, slots=True)
class Gated:
    """The workload would have to preempt, and its preemption gate is closed."""


@dataclass(frozen=True, slots=True)
class Suspended:
    cluster_queue: str


@dataclass(frozen=True, slots=True)
class NamespaceMissing:
    namespace: str


@dataclass(frozen=True, slots=True)
class NamespaceMismatch:
    """The ClusterQueue does not select the namespace."""


@dataclass(frozen=True, slots=True)
class BadRequest:
    violations: tuple[Violation, ...]


@dataclass(frozen=True, slots=True)
class ClaimsNotCounted:
    """The workload has resource claims. No quota counts their devices, so it is not admitted."""


@dataclass(frozen=True, slots=True)
class QueueMissing:
    kind: Literal["LocalQueue", "ClusterQueue"]
    name: str


@dataclass(frozen=True, slots=True)
class QueueStopped:
    kind: Literal["LocalQueue", "ClusterQueue"]
    name: str


@dataclass(frozen=True, slots=True)
class ChecksFailed:
    """A check said Retry or Rejected, and has not been reset yet."""


@dataclass(frozen=True, slots=True)
class BackingOff:
    """The backoff of the workload has not ended."""

    until: float | None


@dataclass(frozen=True, slots=True)
class WaitsForPodsReady:
    """Admission is blocked until the pods of all admitted workloads are ready."""


@dataclass(frozen=True, slots=True)
class BetterVariant:
    """Another variant of the same workload is admitted in a preferred flavor."""


@dataclass(frozen=True, slots=True)
class Migrates:
    """The variant in a less preferred flavor is evicted and has not stopped yet."""


@dataclass(frozen=True, slots=True)
class MigrationForbidden:
    """The policy of the ClusterQueue forbids a migration to this flavor."""


@dataclass(frozen=True, slots=True)
class Bypassed:
    """An equivalent workload was just found inadmissible, so this one was not tried."""

    like: NoFit


@dataclass(frozen=True, slots=True)
class Untried:
    """No cycle has tried the workload yet."""


Reason: TypeAlias = (
    NoFit
    | WaitsForPreempted
    | Skipped
    | Deferred
    | Gated
    | Suspended
    | NamespaceMissing
    | NamespaceMismatch
    | BadRequest
    | ClaimsNotCounted
    | QueueMissing
    | QueueStopped
    | ChecksFailed
    | BackingOff
    | WaitsForPodsReady
    | BetterVariant
    | Migrates
    | MigrationForbidden
    | Bypassed
    | Untried
)


def render(reason: Reason) -> tuple[str, str]:
    """Return the reason and the message of the condition."""
    match reason:
        case NoFit(word, pod_sets):
            return word, _pod_sets(pod_sets)
        case Bypassed(like):
            text = "Bypassed scheduling evaluation because an equivalent workload recently failed"
            return like.word, f"{text}: {_pod_sets(like.pod_sets)}"
        case WaitsForPreempted() | Deferred() | Migrates():
            return "WaitingForPreemptedWorkloads", _leaving(reason)
        case Skipped("overlap"):
            return "WaitingForQuota", "Workload has overlapping preemption targets with another workload"
        case Skipped():
            return "WaitingForQuota", "Workload no longer fits after processing another workload"
        case Gated():
            return "AdmissionGated", PREEMPTION_GATED
        case WaitsForPodsReady():
            return "WaitingForPodsReady", "waiting for all admitted workloads to be in PodsReady condition"
        case ChecksFailed() | BetterVariant() | MigrationForbidden() | BackingOff() | Untried():
            return "PendingEvaluation", _pending(reason)
        case Suspended(name):
            return "Suspended", f"ClusterQueue {name} is inactive"
        case QueueStopped(kind, name):
            return "Suspended", f"{kind} {name} is inactive"
        case NamespaceMissing() | NamespaceMismatch() | BadRequest() | ClaimsNotCounted() | QueueMissing():
            return "Misconfigured", _misconfigured(reason)
        case _:
            assert_never(reason)


def _leaving(reason: WaitsForPreempted | Deferred | Migrates) -> str:
    match reason:
        case WaitsForPreempted(count, pod_sets):
            text = f"Pending the preemption of {count} workload(s)"
            return f"{_pod_sets(pod_sets)}. {text}" if pod_sets else text
        case Deferred():
            return (
                "Workload has overlapping preemption targets with another workload, "
                "but will fit after these preemptions complete"
            )
        case Migrates():
            return "Pending the migration of 1 workload(s)"
        case _:
            assert_never(reason)


def _pending(reason: ChecksFailed | BetterVariant | MigrationForbidden | BackingOff | Untried) -> str:
    match reason:
        case ChecksFailed():
            return "The workload has failed admission checks"
        case BetterVariant():
            return "A more favorable variant is already admitted"
        case MigrationForbidden():
            return "Target flavor is below LastAcceptableFlavorName"
        case BackingOff(until):
            return "waits to be queued again" if until is None else "waits for its backoff to end"
        case Untried():
            return "Workload is pending evaluation in the scheduling queue"
        case _:
            assert_never(reason)


def _misconfigured(
    reason: NamespaceMissing | NamespaceMismatch | BadRequest | ClaimsNotCounted | QueueMissing,
) -> str:
    match reason:
        case NamespaceMissing(namespace):
            return f'workload namespace "{namespace}" does not exist: namespaces "{namespace}" not found'
        case NamespaceMismatch():
            return "workload namespace doesn't match ClusterQueue selector"
        case BadRequest(violations):
            return _violations(violations)
        case ClaimsNotCounted():
            return "asks for devices through resource claims, which no quota counts"
        case QueueMissing(kind, name):
            return f"{kind} {name} doesn't exist" if name else "no queue name is set"
        case _:
            assert_never(reason)


def _violations(violations: tuple[Violation, ...]) -> str:
    """Render violations as the API server lists invalid fields of an object."""
    about_limits = "resources validation failed"
    about_namespace = "resources didn't satisfy LimitRange constraints"
    words = {
        "limit": "requests must not exceed its limits",
        "max": "requests must not be above the limitRange max",
        "min": "requests must not be below the limitRange min",
    }
    quoted = ['"' + '","'.join(violation.resources) + '"' for violation in violations]
    faults = [f"{v.field}: Invalid value: [{q}]: {words[v.rule]}" for v, q in zip(violations, quoted, strict=True)]
    listed = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
    return f"{about_limits if violations[0].rule == 'limit' else about_namespace}: {listed}"


def _pod_sets(pod_sets: tuple[PodSetReasons, ...]) -> str:
    for pod_set in pod_sets:
        for reason in pod_set.reasons:
            if isinstance(reason, NoTopologyFlavor) or (
                isinstance(reason, PlacementFailed) and isinstance(reason.failure, ElasticNotUnconstrained)
            ):
                return f"failed to assign flavors to pod set {pod_set.pod_set}: {render_flavor_reason(reason)}"
    return "; ".join(
        f"couldn't assign flavors to pod set {p.pod_set}: {', '.join(sorted(map(render_flavor_reason, p.reasons)))}"
        for p in pod_sets
        if p.reasons
    )


def render_flavor_reason(reason: FlavorReason) -> str:
    """Return one line about one flavor."""
    match reason:
        case ExceedsQuota():
            return _exceeds(reason)
        case InsufficientQuota(flavor, resource, requested, available):
            missing = quantity.render(resource, requested - available)
            return f"insufficient unused quota for {resource} in flavor {flavor}, {missing} more needed"
        case UntoleratedTaint(flavor, taint):
            added = "<nil>" if taint.time_added is None else taint.time_added
            words = f"{taint.key} {taint.value} {taint.effect} {added}"
            return f"untolerated taint {{{words}}} in flavor {flavor}"
        case NodeAffinityMismatch(flavor):
            return f"flavor {flavor} doesn't match node affinity"
        case FlavorNotFound(flavor):
            return f"flavor {flavor} not found"
        case FlavorSkipped(flavor, ""):
            return f"skipping flavor {flavor} due to WorkloadAllowedResourceFlavorAnnotation annotation"
        case FlavorSkipped(flavor, resource):
            return f"skipping flavor {flavor} as it is not found in the nomination mapping for resource {resource}"
        case SliceFlavorMismatch(flavor, wanted):
            return f"could not assign {flavor} flavor since the original workload is assigned: {wanted}"
        case ResourceNotCovered(resource):
            return f"resource {resource} unavailable in ClusterQueue"
        case TopologyMismatch():
            return _topology_mismatch(reason)
        case PlacementFailed(failure):
            return render_failure(failure)
        case NoTopologyFlavor(several):
            return f"more than one TAS flavor assigned: {', '.join(several)}" if several else "no TAS flavor assigned"
        case _:
            assert_never(reason)


def _exceeds(reason: ExceedsQuota) -> str:
    before, wanted, most = (
        quantity.render(reason.resource, min(amount, quantity.UNLIMITED))
        for amount in (reason.considered, reason.requested, reason.maximum)
    )
    return (
        f"insufficient quota for {reason.resource} in flavor {reason.flavor}, previously considered podsets requests "
        f"({before}) + current podset request ({wanted}) > maximum capacity ({most})"
    )


def _topology_mismatch(reason: TopologyMismatch) -> str:
    problem = {
        "no topology": "does not support TopologyAwareScheduling",
        "only topology": "supports only TopologyAwareScheduling",
        "no level": "does not contain the requested level",
        "unknown topology": "information missing in TAS cache",
    }[reason.problem]
    return f'Flavor "{reason.flavor}" {problem}'
