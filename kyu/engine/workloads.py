"""
A workload as the engine sees it.

It is a ``PendingWorkload`` while it waits (``engine/queueing/pending_workload.py``), and a ``ReservedWorkload`` while
it holds quota. The engine reads a Workload object once per change, and keeps only the fields that decisions need.
A reserved workload lists its charges by quota node, so a what-if only adds and subtracts numbers.

Called by: engine/state.py (reads objects), engine/preemption/classical.py (orders candidates). Calls:
engine/request_shape.py. Kueue: pkg/workload/workload.go, pkg/cache/queue (ordering), pkg/scheduler/preemption/common
(candidate order).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from math import inf
from typing import Literal, TypeAlias

from kyu.api import placement as stored
from kyu.api.meta import Key, find_condition, is_true
from kyu.api.quantity import amount
from kyu.api.workloads import (
    ADMITTED,
    EVICTED,
    FINISHED,
    PODS_READY,
    PREEMPTED,
    QUOTA_RESERVED,
    REQUEUED,
    PodSetAssignment,
    Workload,
)
from kyu.engine.options import Options
from kyu.engine.queueing.pending_workload import NO_RARE_FIELDS, PendingWorkload, RareFields
from kyu.engine.quota.amounts import QuotaNode
from kyu.engine.request_shape import RequestShape
from kyu.engine.topology.types import DomainUsage, Placement

PRIORITY_BOOST = "kueue.x-k8s.io/priority-boost"
ADMISSION_GATED_BY = "kueue.x-k8s.io/admission-gated-by"
ALLOWED_FLAVORS = "kueue.x-k8s.io/workload-allowed-resource-flavors"
REPLACEMENT_FOR = "kueue.x-k8s.io/workload-slice-replacement-for"
ELASTIC_JOB = "kueue.x-k8s.io/elastic-job"
CONCURRENT_PARENT = "kueue.x-k8s.io/concurrent-admission-parent"
GROUP_WORKLOAD = "kueue.x-k8s.io/is-group-workload"
WAITING_FOR_REPLACEMENT_PODS = "WaitingForReplacementPods"
ON_HOLD = "OnHold"

# Seconds by which a workload that a borrower preempted queues behind one that came at that moment.
AFTER_PREEMPTION = 0.001
_NUMBER = re.compile(r"[+-]?[0-9]+")

# Not evicted, priority, negative time of the quota reservation, UID.
CandidateOrder: TypeAlias = tuple[bool, int, float, str]
Phase = Literal["idle", "waiting", "reserved"]


@dataclass(frozen=True, slots=True)
class AssignedPodSet:
    """The flavors, usage and placement of one pod set."""

    name: str
    count: int
    flavors: Mapping[str, str] = field(default_factory=dict)
    """Flavor by resource."""
    usage: Mapping[str, int] = field(default_factory=dict)
    """Amount by resource, for all pods of the set together."""
    placement: Placement | None = None
    delayed: bool = False
    """Its placement is chosen when the admission checks are ready."""


class ReservedWorkload:
    """A workload that holds quota."""

    __slots__ = (
        "admitted",
        "assigned",
        "charges",
        "cluster_queue",
        "ends_at",
        "evicted",
        "key",
        "limit",
        "local_queue",
        "order",
        "preempting",
        "present",
        "priority",
        "rare",
        "ready",
        "reserved_at",
        "second_pass",
        "shape",
        "time",
        "topology",
        "uid",
    )

    def __init__(
        self, workload: PendingWorkload, cluster_queue: str, assigned: tuple[AssignedPodSet, ...], reserved_at: float
    ) -> None:
        self.key = workload.key
        self.uid = workload.uid
        self.priority = workload.priority
        self.time = workload.time
        self.shape = workload.shape
        self.local_queue = workload.local_queue
        self.rare = workload.rare
        self.cluster_queue = cluster_queue
        self.assigned = assigned
        self.reserved_at = reserved_at
        self.limit = workload.limit
        self.ends_at = inf if workload.limit is None else reserved_at + workload.limit
        """The time at which it has ended, by its declared maximum execution time; infinite if that is not known."""
        self.admitted = False
        self.evicted = False
        self.preempting = False
        """The engine decided its eviction; an older object does not undo that."""
        self.ready = False
        self.charges: tuple[tuple[QuotaNode, int], ...] = ()
        self.topology: tuple[DomainUsage, ...] = ()
        self.second_pass: SecondPass | None = None
        self.present = True
        """False while ``State.take_out`` has removed its usage."""
        self.order = self.candidate_order()

    def __repr__(self) -> str:
        return f"Holding({self.key} in {self.cluster_queue})"

    def candidate_order(self) -> CandidateOrder:
        """Return the order of preemption: evicted, low priority, newest first. Kueue: candidatesOrdering."""
        return (not self.evicted, self.priority, -self.reserved_at, self.uid)


@dataclass(frozen=True, slots=True)
class SecondPass:
    """A second pass of a workload that holds quota: to be placed, or to leave a failed node."""

    unhealthy_node: str = ""
    """The node to leave; empty for a topology request that was delayed until the checks were ready."""
    keep: bool = False
    """The workload is a single pod, which cannot be moved: its assignment stays."""


@lru_cache(maxsize=65536)
def seconds(timestamp: str) -> float:
    """Parse an RFC 3339 timestamp to seconds since 1970."""
    return datetime.fromisoformat(timestamp).timestamp()


def phase(workload: Workload, options: Options) -> Phase:
    """Return whether the workload is pending, holds quota, or neither."""
    status, annotations = workload.status, workload.metadata.annotations
    if is_true(status.conditions, FINISHED):
        return "idle"
    reserved = find_condition(status.conditions, QUOTA_RESERVED)
    if reserved is not None and reserved.status == "True" and status.admission is not None:
        # A deactivated workload keeps its quota until its pods have ended.
        return "reserved"
    if not workload.spec.active:
        return "idle"
    if options.admission_gated_by and annotations.get(ADMISSION_GATED_BY):
        return "idle"
    if options.concurrent_admission and CONCURRENT_PARENT in workload.metadata.labels:
        return "idle"
    if reserved is not None and reserved.status == "False" and reserved.reason == ON_HOLD:
        return "idle"
    return "idle" if is_true(status.conditions, WAITING_FOR_REPLACEMENT_PODS) else "waiting"


def make_pending(workload: Workload, shape: RequestShape, options: Options) -> PendingWorkload:
    return PendingWorkload(
        workload.key,
        workload.metadata.uid or str(workload.key),
        effective_priority(workload, options),
        queue_time(workload, options),
        shape,
        Key(workload.metadata.namespace, workload.spec.queue_name),
        rare(workload, options),
        workload.metadata.generation,
        remaining_limit(workload),
    )


def remaining_limit(workload: Workload) -> int | None:
    """Return the declared maximum execution time without the time that the workload has already run."""
    limit = workload.spec.maximum_execution_time_seconds
    return None if limit is None else max(0, limit - (workload.status.accumulated_past_execution_time_seconds or 0))


def expected_end(workload: Workload) -> float:
    """Return when an admitted workload has ended at the latest. Its time runs from the admission."""
    limit = remaining_limit(workload)
    admitted = find_condition(workload.status.conditions, ADMITTED)
    if limit is None or admitted is None or admitted.status != "True" or not admitted.last_transition_time:
        return inf
    return seconds(admitted.last_transition_time) + limit


def effective_priority(workload: Workload, options: Options) -> int:
    priority = workload.spec.priority or 0
    if options.priority_boost:
        priority += priority_boost(workload)
    return priority


def priority_boost(workload: Workload) -> int:
    """Return the priority that the annotation adds; 0 if it is not a 32-bit integer."""
    text = workload.metadata.annotations.get(PRIORITY_BOOST, "")
    boost = int(text) if _NUMBER.fullmatch(text) else 0
    return boost if -(2**31) <= boost < 2**31 else 0


def queue_time(workload: Workload, options: Options) -> float:
    """Return the time by which the workload is queued: normally its creation, even after a preemption."""
    conditions = workload.status.conditions
    if conditions:
        evicted = find_condition(conditions, EVICTED)
        if evicted is not None and evicted.status == "True":
            by_eviction = evicted.reason == "PodsReadyTimeout" and options.requeue_by_eviction
            if by_eviction or evicted.reason == "AdmissionCheck":
                return seconds(evicted.last_transition_time)
        if not options.priority_sorting_within_cohort:
            preempted = find_condition(conditions, PREEMPTED)
            if preempted and preempted.status == "True" and preempted.reason == "InCohortReclaimWhileBorrowing":
                return seconds(preempted.last_transition_time) + AFTER_PREEMPTION
    created = workload.metadata.creation_timestamp
    return seconds(created) if created else 0.0


def rare(workload: Workload, options: Options) -> RareFields:
    status, annotations = workload.status, workload.metadata.annotations
    requeued = find_condition(status.conditions, REQUEUED)
    may_queue = requeued is None or requeued.status != "False"
    if may_queue and not (
        annotations or status.admission_checks or status.requeue_state or workload.spec.preemption_gates
    ):
        return NO_RARE_FIELDS
    requeue_at = status.requeue_state.requeue_at if status.requeue_state else None
    gated = options.multi_kueue_orchestrated_preemption or options.concurrent_admission
    open_gates = {gate.name for gate in status.preemption_gates if gate.position == "Open"}
    owner = workload.metadata.controller
    replaces = annotations.get(REPLACEMENT_FOR, "") if options.elastic_jobs_via_workload_slices else ""
    found = RareFields(
        requeue_at=seconds(requeue_at) if requeue_at else None,
        requeued=may_queue,
        failed_check=any(check.state in ("Retry", "Rejected") for check in status.admission_checks),
        allowed_flavor=annotations.get(ALLOWED_FLAVORS, "") if options.concurrent_admission else "",
        variant_of=owner.uid if owner and options.concurrent_admission and ALLOWED_FLAVORS in annotations else "",
        elastic=options.elastic_jobs_via_workload_slices and annotations.get(ELASTIC_JOB) == "true",
        replaces=Key(*replaces.split("/", 1)) if "/" in replaces else None,
        gate_closed=gated and any(gate.name not in open_gates for gate in workload.spec.preemption_gates),
        checks=tuple(check.name for check in status.admission_checks),
        updates=tuple(u for check in status.admission_checks if check.state == "Ready" for u in check.pod_set_updates),
    )
    return NO_RARE_FIELDS if found == NO_RARE_FIELDS else found


def reservation_time(workload: Workload) -> float:
    """Return when quota was reserved. A workload without that condition counts as the newest."""
    reserved = find_condition(workload.status.conditions, QUOTA_RESERVED)
    if reserved is None or reserved.status != "True" or not reserved.last_transition_time:
        return inf
    return seconds(reserved.last_transition_time)


def is_admitted(workload: Workload) -> bool:
    return is_true(workload.status.conditions, ADMITTED)


def is_evicted(workload: Workload) -> bool:
    return is_true(workload.status.conditions, EVICTED)


def is_ready(workload: Workload) -> bool:
    return is_true(workload.status.conditions, PODS_READY)


def second_pass(workload: Workload, options: Options) -> SecondPass | None:
    """Return the second pass that a workload with quota needs, if any."""
    status = workload.status
    if status.admission is None or is_evicted(workload):
        return None
    if is_admitted(workload):
        if not status.unhealthy_nodes:
            return None
        return SecondPass(status.unhealthy_nodes[0].name, keep=_is_single_pod(workload, options))
    delayed = any(a.delayed_topology_request == "Pending" for a in status.admission.pod_set_assignments)
    checks = status.admission_checks
    if delayed and checks and all(check.state == "Ready" for check in checks):
        return SecondPass()
    return None


def read_assigned(found: PodSetAssignment, shape: RequestShape) -> AssignedPodSet:
    """Return the usage of a pod set as its status says, without the pods that are finished."""
    pod_set = next((p for p in shape.pod_sets if p.name == found.name), None)
    held = found.count if found.count is not None else pod_set.spec_count if pod_set else 0
    count = held if pod_set is None else min(held, pod_set.count)
    usage = {r: amount(r, value) for r, value in found.resource_usage.items()}
    if 0 <= count < held:
        usage = {r: value // held * count for r, value in usage.items()}
    placed = None
    if found.topology_assignment is not None:
        where = found.topology_assignment
        placed = Placement(where.levels, stored.domains(where))
    return AssignedPodSet(
        found.name, count, dict(found.flavors), usage, placed, found.delayed_topology_request == "Pending"
    )


def _is_single_pod(workload: Workload, options: Options) -> bool:
    owners = workload.metadata.owner_references
    return (
        options.skip_reassignment_for_pod_owned_workloads
        and len(owners) == 1
        and (owners[0].api_version, owners[0].kind) == ("v1", "Pod")
        and workload.metadata.annotations.get(GROUP_WORKLOAD) != "true"
    )


def is_same(old: PendingWorkload, new: PendingWorkload) -> bool:
    """Return whether all fields that decisions depend on are equal."""
    return (
        old.shape is new.shape
        and old.priority == new.priority
        and old.time == new.time
        and old.uid == new.uid
        and old.local_queue == new.local_queue
        and old.generation == new.generation
        and old.limit == new.limit
        and old.rare == new.rare
    )
