"""
Why a workload waits, why another is preempted: every reason as a value with its numbers, and the words for it.

Rules return these values; nobody builds a sentence before ``render``, the only place with text for users. The first
word of a rendered reason is the one that conditions carry, and is Kueue's where Kueue has one.

Called by: plans (conditions and events), cli/decide.py, explain.py. Kueue: apis/kueue/v1beta2/workload_types.go
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

from kyu.api import quantity
from kyu.engine.requests import Violation
from kyu.engine.topology_failures import Failure, render_failure

NoFitWord = Literal["TopologyPlacementFailed", "WaitingForQuota", "ExceedsMaxQuota", "NoMatchingFlavor"]
# From what resolves itself to what needs somebody to act.
NO_FIT_SEVERITY: tuple[NoFitWord, ...] = (
    "TopologyPlacementFailed",
    "WaitingForQuota",
    "ExceedsMaxQuota",
    "NoMatchingFlavor",
)
PreemptionReason = Literal[
    "InClusterQueue", "InCohortReclamation", "InCohortFairSharing", "InCohortReclaimWhileBorrowing"
]


# Why a flavor was not taken for a pod set.


@dataclass(frozen=True, slots=True)
class ExceedsQuota:
    """More than the queue could ever use, even if everybody else were gone."""

    flavor: str
    resource: str
    considered: int
    """What earlier pod sets of the same workload want of it."""
    requested: int
    maximum: int


@dataclass(frozen=True, slots=True)
class InsufficientQuota:
    """More than is free now."""

    flavor: str
    resource: str
    requested: int
    available: int


@dataclass(frozen=True, slots=True)
class UntoleratedTaint:
    flavor: str
    taint: str


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
    """Not looked at, because this try is bound to other flavors."""

    flavor: str


@dataclass(frozen=True, slots=True)
class SliceFlavorMismatch:
    """A growing job must stay on the flavors that it has."""

    flavor: str
    resource: str
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

    several: bool


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


@dataclass(frozen=True, slots=True)
class PodSetReasons:
    pod_set: str
    reasons: tuple[FlavorReason, ...]


# Why a workload waits.


@dataclass(frozen=True, slots=True)
class NoFit:
    """No flavors for all pod sets, or nobody who may be preempted for it."""

    word: NoFitWord
    pod_sets: tuple[PodSetReasons, ...]


@dataclass(frozen=True, slots=True)
class WaitsForPreempted:
    """Its victims are on their way out."""

    count: int
    pod_sets: tuple[PodSetReasons, ...] = ()


@dataclass(frozen=True, slots=True)
class Skipped:
    """Another workload of the same cycle was first; it is tried again at once."""

    why: Literal["overlap", "taken"]


@dataclass(frozen=True, slots=True)
class Deferred:
    """It fits as soon as the victims of another workload have gone."""

    count: int


@dataclass(frozen=True, slots=True)
class Gated:
    """It would have to preempt, and its preemption gate is closed."""


@dataclass(frozen=True, slots=True)
class Suspended:
    cluster_queue: str


@dataclass(frozen=True, slots=True)
class NamespaceMissing:
    namespace: str


@dataclass(frozen=True, slots=True)
class NamespaceMismatch:
    namespace: str
    cluster_queue: str


@dataclass(frozen=True, slots=True)
class BadRequest:
    violation: Violation


@dataclass(frozen=True, slots=True)
class ClaimsNotCounted:
    """Devices through resource claims are not counted by any quota, so they are refused rather than given away."""


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
    """It may be tried again later."""

    until: float | None


@dataclass(frozen=True, slots=True)
class WaitsForPodsReady:
    """Admission is blocked until the pods of all admitted workloads are ready."""


@dataclass(frozen=True, slots=True)
class BetterVariant:
    """Another variant of the same workload, in a flavor that is liked better, was admitted already."""


@dataclass(frozen=True, slots=True)
class Migrates:
    """The variant in a less liked flavor is on its way out."""


@dataclass(frozen=True, slots=True)
class MigrationForbidden:
    """The workload is good where it is: its flavor is acceptable."""


@dataclass(frozen=True, slots=True)
class Bypassed:
    """A workload of the same shape was just found not to fit, so this one was not looked at."""

    like: NoFit


@dataclass(frozen=True, slots=True)
class Untried:
    """Its turn has not come yet."""


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
    """The word for the condition, and the sentence for people."""
    match reason:
        case NoFit(word, pod_sets):
            return word, _pod_sets(pod_sets)
        case Bypassed(like):
            return like.word, f"not tried: a workload of the same shape does not fit now; {_pod_sets(like.pod_sets)}"
        case WaitsForPreempted(count, pod_sets):
            text = f"Pending the preemption of {count} workload(s)"
            return "WaitingForPreemptedWorkloads", f"{_pod_sets(pod_sets)}. {text}" if pod_sets else text
        case Deferred(count):
            text = f"fits once {count} workload(s) that others preempt have gone"
            return "WaitingForPreemptedWorkloads", text
        case Migrates():
            return "WaitingForPreemptedWorkloads", "moves to this flavor once its other variant has gone"
        case Skipped("overlap"):
            return "WaitingForQuota", "its victims are already those of another workload of this cycle"
        case Skipped():
            return "WaitingForQuota", "no longer fits after another workload of this cycle got its quota"
        case Gated():
            return "AdmissionGated", "would have to preempt, but its preemption gate is closed"
        case WaitsForPodsReady():
            return "WaitingForPodsReady", "waits until the pods of all admitted workloads are ready"
        case ChecksFailed() | BetterVariant() | MigrationForbidden() | BackingOff() | Untried():
            return "PendingEvaluation", _pending(reason)
        case Suspended() | QueueStopped():
            return "Suspended", _stopped(reason)
        case NamespaceMissing() | NamespaceMismatch() | BadRequest() | ClaimsNotCounted() | QueueMissing():
            return "Misconfigured", _misconfigured(reason)
        case _:
            assert_never(reason)


def _pending(reason: ChecksFailed | BetterVariant | MigrationForbidden | BackingOff | Untried) -> str:
    match reason:
        case ChecksFailed():
            return "an admission check asked to try later or rejected it"
        case BetterVariant():
            return "a variant in a better flavor is admitted"
        case MigrationForbidden():
            return "the variant that runs is in an acceptable flavor"
        case BackingOff(until):
            return "waits to be queued again" if until is None else "waits for its backoff to end"
        case Untried():
            return "waits for its turn"
        case _:
            assert_never(reason)


def _stopped(reason: Suspended | QueueStopped) -> str:
    match reason:
        case Suspended(name):
            return f"ClusterQueue {name} is inactive"
        case QueueStopped(kind, name):
            return f"{kind} {name} is stopped"
        case _:
            assert_never(reason)


def _misconfigured(
    reason: NamespaceMissing | NamespaceMismatch | BadRequest | ClaimsNotCounted | QueueMissing,
) -> str:
    match reason:
        case NamespaceMissing(namespace):
            return f"namespace {namespace} does not exist"
        case NamespaceMismatch(namespace, queue):
            return f"namespace {namespace} is not selected by ClusterQueue {queue}"
        case BadRequest(violation):
            return _violation(violation)
        case ClaimsNotCounted():
            return "asks for devices through resource claims, which no quota counts"
        case QueueMissing(kind, name):
            return f"{kind} {name} doesn't exist" if name else "no queue name is set"
        case _:
            assert_never(reason)


def _violation(violation: Violation) -> str:
    bound = {
        "limit": "more than its own limit",
        "max": "more than the namespace allows",
        "min": "less than the namespace asks for",
    }[violation.rule]
    value, limit = (str(quantity.Quantity(nanos)) for nanos in (violation.value, violation.bound))
    return f"{violation.part} requests {value} of {violation.resource}, {bound} ({limit})"


def _pod_sets(pod_sets: tuple[PodSetReasons, ...]) -> str:
    return "; ".join(
        f"couldn't assign flavors to pod set {p.pod_set}: {', '.join(sorted(map(render_flavor_reason, p.reasons)))}"
        for p in pod_sets
        if p.reasons
    )


def render_flavor_reason(reason: FlavorReason) -> str:
    """One line about one flavor."""
    match reason:
        case ExceedsQuota(flavor, resource, considered, requested, maximum):
            before = f"{quantity.render(resource, considered)} before + " if considered else ""
            most = quantity.render(resource, min(maximum, quantity.UNLIMITED))
            wanted = f"{before}{quantity.render(resource, requested)}"
            return f"insufficient quota for {resource} in flavor {flavor}: {wanted} wanted, at most {most} possible"
        case InsufficientQuota(flavor, resource, requested, available):
            missing = quantity.render(resource, requested - available)
            return f"insufficient unused quota for {resource} in flavor {flavor}, {missing} more needed"
        case UntoleratedTaint(flavor, taint):
            return f"untolerated taint {taint} in flavor {flavor}"
        case NodeAffinityMismatch(flavor):
            return f"flavor {flavor} doesn't match node affinity"
        case FlavorNotFound(flavor):
            return f"flavor {flavor} not found"
        case FlavorSkipped(flavor):
            return f"skipping flavor {flavor}"
        case SliceFlavorMismatch(flavor, resource, wanted):
            return f"flavor {flavor} is not {wanted}, where the job has its {resource}"
        case ResourceNotCovered(resource):
            return f"resource {resource} unavailable in ClusterQueue"
        case TopologyMismatch():
            return _topology_mismatch(reason)
        case PlacementFailed(failure):
            return render_failure(failure)
        case NoTopologyFlavor(several):
            return "more than one topology flavor was assigned" if several else "no topology flavor was assigned"
        case _:
            assert_never(reason)


def _topology_mismatch(reason: TopologyMismatch) -> str:
    problem = {
        "no topology": "does not support TopologyAwareScheduling",
        "only topology": "supports only TopologyAwareScheduling",
        "no level": "does not contain the requested level",
        "unknown topology": "names a topology that is not known",
    }[reason.problem]
    return f'Flavor "{reason.flavor}" {problem}'
