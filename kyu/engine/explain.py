"""
The explanation of a pending workload: its place in the queue, shortages by flavor, holders of the quota, hints.

The explanation comes from the functions that a cycle uses, so it cannot disagree with the cycle.

Called by: cli/batch/why.py; for the reason alone controllers/decision_writer.py, cli/admin/decide.py. Calls:
engine/nominate.py, engine/quota/amounts.py.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from math import inf

from kyu.api.meta import Key
from kyu.engine import backfill, nominate
from kyu.engine.flavors.assignment import Mode
from kyu.engine.flavors.compiled import find_compiled
from kyu.engine.queueing.pending_workload import PendingWorkload
from kyu.engine.quota import amounts
from kyu.engine.quota.amounts import FlavorResource, QuotaNode
from kyu.engine.reasons import (
    NO_FIT_SEVERITY,
    BackingOff,
    Bypassed,
    ExceedsQuota,
    FlavorReason,
    InsufficientQuota,
    NoFit,
    PodSetReasons,
    QueueMissing,
    QueueStopped,
    Reason,
    Skipped,
    Suspended,
    Untried,
    WaitsForPreempted,
)
from kyu.engine.state import State
from kyu.engine.tree import Queue, queues_of

# The most workloads that are named, ahead in the queue or as holders of quota.
NAMED = 5


@dataclass(frozen=True, slots=True)
class Holder:
    """A workload that holds quota which the pending workload lacks."""

    key: Key
    cluster_queue: str
    priority: int
    amount: int
    enough: bool
    """The end of this workload alone would end the shortage."""


@dataclass(frozen=True, slots=True)
class MissingQuota:
    """A flavor and resource of which the workload requests more than is available."""

    pod_set: str
    flavor: str
    resource: str
    requested: int
    free: int
    """Quota that the queue could use now, its own and borrowed."""
    own: int
    """The queue's own quota."""
    used: int
    """Usage of the queue."""
    most: int
    """The most that the queue could use, if no other queue used any quota."""
    holders: tuple[Holder, ...] = ()
    """The largest first."""
    other_holders: int = 0
    """The number of holders that are not listed."""

    @property
    def is_final(self) -> bool:
        """The request exceeds what the queue could ever use, so waiting does not help."""
        return self.requested > self.most


@dataclass(frozen=True, slots=True)
class Reservation:
    """The workload for which a ClusterQueue with backfill holds quota, and when it starts at the latest."""

    key: Key
    start: float | None
    """Seconds since 1970; None if the ends of workloads before it are not known."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer to 'why is it pending?'."""

    position: int | None
    """The number of workloads before it in the queue; None if it is in no queue."""
    reason: Reason
    pod_sets: tuple[PodSetReasons, ...] = ()
    """The reasons against each flavor, by pod set."""
    hint: str = ""
    path: tuple[str, ...] = ()
    """The ClusterQueue, and the cohorts above it."""
    length: int = 0
    """The number of pending workloads in the queue."""
    ahead: tuple[Key, ...] = ()
    """The first workloads of the queue that are before it."""
    is_strict: bool = False
    """The queue is StrictFIFO: while its head waits, all its workloads wait."""
    shortages: tuple[MissingQuota, ...] = ()
    reservation: Reservation | None = None
    """The reservation of the queue, if it backfills."""


def why(state: State, key: Key, now: datetime) -> Explanation | None:
    """Return why the workload waits now; None if it is not pending."""
    state.begin(now.timestamp())
    workload = state.pending.workloads.get(key)
    if workload is None:
        return None
    queue = state.pending.find_queue(workload)
    if queue is None or not queue.active:
        path = () if queue is None else path_of(queue)
        return Explanation(None, why_waiting(state, workload), hint=HINTS["queue"], path=path)
    order = [other.key for other in queue.pending.waiting()]
    position = order.index(key)
    reason, pod_sets, hint = look(state, queue, workload, now)
    return Explanation(
        position,
        reason,
        pod_sets,
        HINTS[hint],
        path_of(queue),
        len(order),
        tuple(order[: min(position, NAMED)]),
        queue.strict,
        tuple(find_shortages(state, queue, pod_sets)),
        find_reservation(state, queue, now),
    )


def find_reservation(state: State, queue: Queue, now: datetime) -> Reservation | None:
    """Return the reservation of a ClusterQueue with backfill."""
    found = backfill.find_reservation(state, queue, now.timestamp()) if queue.backfills else None
    return None if found is None else Reservation(found.workload.key, found.start if found.start < inf else None)


def look(
    state: State, queue: Queue, workload: PendingWorkload, now: datetime
) -> tuple[Reason, tuple[PodSetReasons, ...], str]:
    """Nominate the workload alone. Return its reason, the reasons against each flavor, and the key of a hint."""
    if not workload.rare.may_queue(now.timestamp()):
        return BackingOff(workload.rare.requeue_at), (), "backoff"
    problem = nominate.why_not_nominated(state, queue, workload)
    if problem is not None:
        return problem, (), "workload"
    with state.forest.scope():
        found = nominate.nominate(state, queue, workload)
    reasons = found.assignment.reasons
    if found.assignment.mode == Mode.NO_FIT:
        word = found.assignment.word
        return NoFit(word, reasons), reasons, word
    if found.assignment.mode == Mode.PREEMPT and not found.targets:
        return NoFit("WaitingForQuota", reasons), reasons, "WaitingForQuota"
    if found.assignment.mode == Mode.PREEMPT:
        return WaitsForPreempted(len(found.targets), reasons), reasons, "preemption"
    return Untried(), reasons, "turn"


def path_of(queue: Queue) -> tuple[str, ...]:
    """Return the names of the queue and the cohorts above it. Each is named once, since cohorts may form a cycle."""
    cohorts: list[str] = []
    for cohort in queue.ancestors():
        if cohort.name in cohorts:
            break
        cohorts.append(cohort.name)
    return (queue.name, *cohorts)


def find_shortages(state: State, queue: Queue, pod_sets: tuple[PodSetReasons, ...]) -> Iterator[MissingQuota]:
    for pod_set in pod_sets:
        for reason in pod_set.reasons:
            match reason:
                case InsufficientQuota(flavor, resource, requested, _):
                    wanted = requested
                case ExceedsQuota(flavor, resource, considered, requested, _):
                    wanted = considered + requested
                case _:
                    continue
            yield measure(state, queue, pod_set.pod_set, queue.quota(FlavorResource(flavor, resource)), wanted)


def measure(state: State, queue: Queue, pod_set: str, quota: QuotaNode, wanted: int) -> MissingQuota:
    found = list(find_holders(state, queue, quota, wanted))
    largest = heapq.nlargest(NAMED, found, key=lambda holder: (holder.amount, holder.key))
    return MissingQuota(
        pod_set,
        quota.key.flavor,
        quota.key.resource,
        requested=wanted,
        free=max(0, quota.available()),
        own=quota.nominal,
        used=quota.usage,
        most=quota.potential,
        holders=tuple(largest),
        other_holders=len(found) - len(largest),
    )


def find_holders(state: State, queue: Queue, quota: QuotaNode, wanted: int) -> Iterator[Holder]:
    """Yield the workloads of the tree that hold some of the quota, and whether the end of each one would suffice."""
    for other in queues_of(state.hierarchy.find_root(queue)):
        for _, reserved in other.reserved_workloads:
            amount = sum(charge for charged, charge in reserved.charges if charged.key == quota.key)
            if amount <= 0:
                continue
            with amounts.without(reserved.charges):
                enough = quota.fits(wanted)
            yield Holder(reserved.key, other.name, reserved.priority, amount, enough)


HINTS = {
    "queue": "check the LocalQueue, the ClusterQueue that it leads to, and that queue's conditions",
    "backoff": "it is queued again by itself",
    "workload": "change the workload or the namespace; it is tried again then",
    "preemption": "it starts when those that it preempts have stopped",
    "turn": "it fits now, and starts when its turn comes",
    "TopologyPlacementFailed": "ask for a wider topology level, or wait until nodes are free",
    "WaitingForQuota": "it is tried again when quota becomes free",
    "ExceedsMaxQuota": "it can never fit: ask for less, or raise the quota or the borrowing limit",
    "NoMatchingFlavor": "no flavor of the queue suits it: compare its selectors, tolerations and resources",
}
assert all(word in HINTS for word in NO_FIT_SEVERITY)


def why_waiting(state: State, workload: PendingWorkload) -> Reason:
    """Return the reason why a workload waits, as far as it is known without a nomination."""
    queue = state.pending.find_queue(workload)
    if queue is not None:
        if not queue.active:
            return Suspended(queue.name)
        reason = _known_reason(state, queue, workload)
        if isinstance(reason, Bypassed) and not state.cluster.is_selected(queue, workload):
            # A class has workloads of several namespaces. The reason of the class does not hold for this namespace.
            return nominate.why_not_nominated(state, queue, workload) or reason
        # Quota was released since the last cycle, so the next cycle tries the workload.
        return Untried() if isinstance(reason, Skipped) and state.wakes.are_left else reason
    record = state.pending.local_queues.get(workload.local_queue)
    if record is None or not record.cluster_queue:
        return QueueMissing("LocalQueue", workload.local_queue.name)
    if record.stopped:
        return QueueStopped("LocalQueue", workload.local_queue.name)
    return QueueMissing("ClusterQueue", record.cluster_queue)


def _known_reason(state: State, queue: Queue, workload: PendingWorkload) -> Reason:
    reason, equivalents = queue.pending.find_reason(workload), workload.equivalents
    if equivalents is None:
        return Untried() if reason is None else reason
    if reason is None:
        if not equivalents.inadmissible_at:
            return Untried()
        reason = _quota_reason(state, queue, workload)
    if equivalents.first is workload:
        return reason
    return Bypassed(reason) if isinstance(reason, NoFit) else Untried()


def _quota_reason(state: State, queue: Queue, workload: PendingWorkload) -> NoFit | Skipped:
    """Return the quota that an inadmissible workload lacks, as of now."""
    compiled = find_compiled(state, queue, workload.shape, None, workload.rare.allowed_flavor)
    found: list[PodSetReasons] = []
    for sets in compiled.together:
        reasons: list[FlavorReason] = []
        for group in sets.groups:
            short = [
                InsufficientQuota(*quota.key, amount, max(0, quota.available()))
                for option in group.options
                for quota, amount in option.charges
                if not quota.fits(amount)
            ]
            if short:
                reasons += [reason for _, reason in group.rejected]
                reasons += short
        if reasons:
            found += [PodSetReasons(pod_set.shape.name, tuple(reasons)) for pod_set in sets.pod_sets]
    # Without a shortage, quota was released since, and is kept for a workload that comes first.
    return NoFit("WaitingForQuota", tuple(found)) if found else Skipped("taken")
