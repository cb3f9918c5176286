"""
A workload as the engine sees it: an ``Ask`` while it waits (``asks.py``), a ``Holding`` while it has quota.

A Workload object is read once, when it changes, and only what a decision needs is kept. A holding knows what it uses,
cell by cell, so that taking it out of the tree and putting it back costs nothing but the additions.

Called by: state.py (reads objects), preemption.py (orders holdings). Calls: shapes.py.
Kueue: pkg/workload/workload.go, pkg/cache/queue (ordering), pkg/scheduler/preemption/common (candidate order).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from math import inf
from typing import Literal, TypeAlias

from kyu.api.meta import Key, find_condition, is_true
from kyu.api.workloads import (
    ADMITTED,
    EVICTED,
    FINISHED,
    PODS_READY,
    PREEMPTED,
    QUOTA_RESERVED,
    REQUEUED,
    Workload,
)
from kyu.engine.asks import ORDINARY, Ask, Special
from kyu.engine.options import Options
from kyu.engine.quota import Cell
from kyu.engine.shapes import Shape
from kyu.engine.topology_types import DomainUsage, Placement

PRIORITY_BOOST = "kueue.x-k8s.io/priority-boost"
ADMISSION_GATED_BY = "kueue.x-k8s.io/admission-gated-by"
ALLOWED_FLAVORS = "kueue.x-k8s.io/workload-allowed-resource-flavors"
REPLACEMENT_FOR = "kueue.x-k8s.io/workload-slice-replacement-for"
ELASTIC_JOB = "kueue.x-k8s.io/elastic-job"
CONCURRENT_PARENT = "kueue.x-k8s.io/concurrent-admission-parent"
GROUP_WORKLOAD = "kueue.x-k8s.io/is-group-workload"
WAITING_FOR_REPLACEMENT_PODS = "WaitingForReplacementPods"
ON_HOLD = "OnHold"

# Seconds by which who was preempted by a borrower queues behind who came at that moment.
AFTER_PREEMPTION = 0.001
_NUMBER = re.compile(r"[+-]?[0-9]+")

# Whether it stays, its priority, how long ago it got its quota, its UID.
CandidateOrder: TypeAlias = tuple[bool, int, float, str]
Phase = Literal["idle", "waiting", "holding"]


@dataclass(frozen=True, slots=True)
class AssignedPodSet:
    """What one pod set got."""

    name: str
    count: int
    flavors: Mapping[str, str] = field(default_factory=dict)
    """Flavor by resource."""
    usage: Mapping[str, int] = field(default_factory=dict)
    """Amount by resource, for all pods of the set together."""
    placement: Placement | None = None
    delayed: bool = False
    """Its place is chosen later, when the checks are ready."""


class Holding:
    """A workload that has quota."""

    __slots__ = (
        "admitted",
        "assigned",
        "charges",
        "cluster_queue",
        "evicted",
        "key",
        "local_queue",
        "order",
        "preempting",
        "present",
        "priority",
        "ready",
        "reserved_at",
        "second_pass",
        "shape",
        "special",
        "time",
        "topology",
        "uid",
    )

    def __init__(self, ask: Ask, cluster_queue: str, assigned: tuple[AssignedPodSet, ...], reserved_at: float) -> None:
        self.key = ask.key
        self.uid = ask.uid
        self.priority = ask.priority
        self.time = ask.time
        self.shape = ask.shape
        self.local_queue = ask.local_queue
        self.special = ask.special
        self.cluster_queue = cluster_queue
        self.assigned = assigned
        self.reserved_at = reserved_at
        self.admitted = False
        self.evicted = False
        self.preempting = False
        """Its eviction was decided here; objects from before that do not undo it."""
        self.ready = False
        self.charges: tuple[tuple[Cell, int], ...] = ()
        self.topology: tuple[DomainUsage, ...] = ()
        self.second_pass: SecondPass | None = None
        self.present = True
        """False while a what-if has taken it out."""
        self.order = self.candidate_order()

    def __repr__(self) -> str:
        return f"Holding({self.key} in {self.cluster_queue})"

    def candidate_order(self) -> CandidateOrder:
        """Whom to preempt first: the evicted, the unimportant, the newest. Kueue: candidatesOrdering."""
        return (not self.evicted, self.priority, -self.reserved_at, self.uid)


@dataclass(frozen=True, slots=True)
class SecondPass:
    """Why a workload that holds quota needs the scheduler once more: to be placed, or to leave a failed node."""

    unhealthy_node: str = ""
    """The node to leave; empty for a topology request that was delayed until the checks were ready."""
    keep: bool = False
    """It is a single pod, which cannot be moved: its assignment stays."""


@lru_cache(maxsize=65536)
def seconds(timestamp: str) -> float:
    """RFC 3339 to seconds since 1970."""
    return datetime.fromisoformat(timestamp).timestamp()


def phase(workload: Workload, options: Options) -> Phase:
    """Whether the workload waits in a queue, holds quota, or neither."""
    status, annotations = workload.status, workload.metadata.annotations
    if not workload.spec.active or is_true(status.conditions, FINISHED):
        return "idle"
    reserved = find_condition(status.conditions, QUOTA_RESERVED)
    if reserved is not None and reserved.status == "True" and status.admission is not None:
        return "holding"
    if options.admission_gated_by and annotations.get(ADMISSION_GATED_BY):
        return "idle"
    if options.concurrent_admission and CONCURRENT_PARENT in workload.metadata.labels:
        return "idle"
    if reserved is not None and reserved.status == "False" and reserved.reason == ON_HOLD:
        return "idle"
    return "idle" if is_true(status.conditions, WAITING_FOR_REPLACEMENT_PODS) else "waiting"


def make_ask(workload: Workload, shape: Shape, options: Options) -> Ask:
    return Ask(
        workload.key,
        workload.metadata.uid or str(workload.key),
        effective_priority(workload, options),
        queue_time(workload, options),
        shape,
        Key(workload.metadata.namespace, workload.spec.queue_name),
        special(workload, options),
        workload.metadata.generation,
    )


def effective_priority(workload: Workload, options: Options) -> int:
    priority = workload.spec.priority or 0
    if options.priority_boost:
        priority += _boost(workload.metadata.annotations.get(PRIORITY_BOOST, ""))
    return priority


def _boost(text: str) -> int:
    """What the annotation adds; nothing if it is not a number that Kubernetes could hold as a priority."""
    boost = int(text) if _NUMBER.fullmatch(text) else 0
    return boost if -(2**31) <= boost < 2**31 else 0


def queue_time(workload: Workload, options: Options) -> float:
    """Since when the workload queues: normally since its creation, even after it was preempted."""
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


def special(workload: Workload, options: Options) -> Special:
    status, annotations = workload.status, workload.metadata.annotations
    requeued = find_condition(status.conditions, REQUEUED)
    may_queue = requeued is None or requeued.status != "False"
    if may_queue and not (
        annotations or status.admission_checks or status.requeue_state or workload.spec.preemption_gates
    ):
        return ORDINARY
    requeue_at = status.requeue_state.requeue_at if status.requeue_state else None
    gated = options.multi_kueue_orchestrated_preemption or options.concurrent_admission
    open_gates = {gate.name for gate in status.preemption_gates if gate.position == "Open"}
    owner = workload.metadata.controller
    replaces = annotations.get(REPLACEMENT_FOR, "") if options.elastic_jobs_via_workload_slices else ""
    found = Special(
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
    return ORDINARY if found == ORDINARY else found


def reservation_time(workload: Workload) -> float:
    """When quota was reserved; a workload without that condition counts as the newest of all."""
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
    """Whether a workload that holds quota needs the scheduler once more."""
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


def _is_single_pod(workload: Workload, options: Options) -> bool:
    owners = workload.metadata.owner_references
    return (
        options.skip_reassignment_for_pod_owned_workloads
        and len(owners) == 1
        and (owners[0].api_version, owners[0].kind) == ("v1", "Pod")
        and workload.metadata.annotations.get(GROUP_WORKLOAD) != "true"
    )


def is_same(old: Ask, new: Ask) -> bool:
    """Nothing that a decision depends on has changed."""
    return (
        old.shape is new.shape
        and old.priority == new.priority
        and old.time == new.time
        and old.uid == new.uid
        and old.local_queue == new.local_queue
        and old.generation == new.generation
        and old.special == new.special
    )
