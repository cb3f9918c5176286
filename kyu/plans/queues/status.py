"""
Queues as their users see them: active or why not; how much waits, holds quota and runs.

The numbers are the engine's own counts, kept as things happen; nothing is counted by listing workloads. A status is
written only when it differs from the stored one.

Kueue: pkg/controller/core/{clusterqueue,localqueue,cohort}_controller.go
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from kyu.api import quantity
from kyu.api.actions import Action, View, WakeAt
from kyu.api.config.config import Configuration
from kyu.api.kueue import ClusterQueue, Cohort, LocalQueue
from kyu.api.meta import Json, Key, Kind, is_true
from kyu.api.quantity import NANO
from kyu.plans.queues.activity import why_inactive
from kyu.plans.queues.in_use_finalizers import release
from kyu.plans.status import StatusEdit, timestamp

CANNOT_SUBMIT = "Can't submit new workloads to clusterQueue"


@dataclass(frozen=True, slots=True)
class Numbers:
    """The counts of the engine for one queue. Amounts are by (flavor, resource)."""

    pending: int = 0
    reserving: int = 0
    admitted: int = 0
    reserved: Mapping[tuple[str, str], int] = field(default_factory=dict)
    used: Mapping[tuple[str, str], int] = field(default_factory=dict)
    weighted_share: int | None = None
    consumed: Mapping[str, float] | None = None
    """Past usage of a LocalQueue by resource, in base units; None without AdmissionFairSharing."""


def plan_cluster_queue(numbers_of: Callable[[Key], Numbers], view: View, key: Key, now: datetime) -> list[Action]:
    queue, raw = view.get(ClusterQueue, key), view.find_json(ClusterQueue.KIND, key)
    if queue is None or raw is None:
        return []
    numbers = numbers_of(key)
    if queue.metadata.deletion_timestamp and numbers.reserving == 0:
        return release(ClusterQueue.KIND, raw)
    edit = StatusEdit(raw, now)
    problem = why_inactive(view, queue)
    if problem is None:
        edit.set_condition("Active", "True", "Ready", "Can admit new workloads")
    else:
        edit.set_condition("Active", "False", problem.reason, problem.message)
    set_counts(edit.status, numbers)
    owned = {
        (flavor.name, resource.name): quantity.quota_amount(resource.name, resource.nominal_quota)
        for group in queue.spec.resource_groups
        for flavor in group.flavors
        for resource in flavor.resources
    }
    lends = bool(queue.spec.cohort_name)
    edit.status["flavorsReservation"] = usage(owned, numbers.reserved, borrows=lends)
    edit.status["flavorsUsage"] = usage(owned, numbers.used, borrows=lends)
    set_share(edit.status, numbers)
    return written(edit, ClusterQueue.KIND)


def plan_local_queue(numbers_of: Callable[[Key], Numbers], view: View, key: Key, now: datetime) -> list[Action]:
    queue, raw = view.get(LocalQueue, key), view.find_json(LocalQueue.KIND, key)
    if queue is None or raw is None:
        return []
    edit = StatusEdit(raw, now)
    cluster_queue = view.get(ClusterQueue, Key("", queue.spec.cluster_queue))
    if queue.spec.stop_policy != "None":
        edit.set_condition("Active", "False", "Stopped", "LocalQueue is stopped")
    elif cluster_queue is None:
        edit.set_condition("Active", "False", "ClusterQueueDoesNotExist", CANNOT_SUBMIT)
    elif not is_true(cluster_queue.status.conditions, "Active"):
        edit.set_condition("Active", "False", "ClusterQueueIsInactive", CANNOT_SUBMIT)
    else:
        edit.set_condition("Active", "True", "Ready", "Can submit new workloads to localQueue")
    numbers = numbers_of(key)
    if queue.spec.stop_policy != "None":
        numbers = replace(numbers, pending=0)
    if cluster_queue is None:
        # Its Workloads may still hold quota of the deleted ClusterQueue, which does not count.
        numbers = Numbers(numbers.pending)
    set_counts(edit.status, numbers)
    declared = {
        (flavor.name, resource.name): 0
        for group in (cluster_queue.spec.resource_groups if cluster_queue else ())
        for flavor in group.flavors
        for resource in flavor.resources
    }
    edit.status["flavorsReservation"] = usage(declared, numbers.reserved, borrows=None)
    edit.status["flavorsUsage"] = usage(declared, numbers.used, borrows=None)
    wakes = set_past_usage(edit.status, numbers, view.configuration, now)
    return [*written(edit, LocalQueue.KIND), *wakes]


def plan_cohort(numbers_of: Callable[[Key], Numbers], view: View, key: Key, now: datetime) -> list[Action]:
    raw = view.find_json(Cohort.KIND, key)
    if raw is None:
        return []
    edit = StatusEdit(raw, now)
    set_share(edit.status, numbers_of(key))
    return written(edit, Cohort.KIND)


def set_counts(status: Json, numbers: Numbers) -> None:
    status["pendingWorkloads"] = numbers.pending
    status["reservingWorkloads"] = numbers.reserving
    status["admittedWorkloads"] = numbers.admitted


def set_share(status: Json, numbers: Numbers) -> None:
    if numbers.weighted_share is None:
        status.pop("fairSharing", None)
    else:
        status["fairSharing"] = {"weightedShare": numbers.weighted_share}


def set_past_usage(status: Json, numbers: Numbers, configuration: Configuration, now: datetime) -> list[WakeAt]:
    """Keep the past usage in the status, so that it survives a restart; return when to sample it again."""
    rules = configuration.admission_fair_sharing
    if numbers.consumed is None or rules is None:
        return []
    consumed = {name: str(quantity.Quantity(int(used * NANO))) for name, used in sorted(numbers.consumed.items())}
    known = (status.get("fairSharing") or {}).get("admissionFairSharingStatus") or {}
    if known.get("consumedResources") != consumed:
        past = {"consumedResources": consumed, "lastUpdate": timestamp(now)}
        status["fairSharing"] = {"weightedShare": 0, "admissionFairSharingStatus": past}
    return [WakeAt(now + rules.usage_sampling_interval)]


def usage(
    owned: Mapping[tuple[str, str], int], totals: Mapping[tuple[str, str], int], *, borrows: bool | None
) -> list[Json]:
    """Return the totals of all declared flavors and resources, and the borrowed part if it is known."""
    by_flavor: dict[str, list[Json]] = {}
    for (flavor, resource), nominal in owned.items():
        total = totals.get((flavor, resource), 0)
        entry: Json = {"name": resource, "total": quantity.render(resource, total)}
        if borrows is not None:
            entry["borrowed"] = quantity.render(resource, max(0, total - nominal) if borrows else 0)
        by_flavor.setdefault(flavor, []).append(entry)
    return [{"name": flavor, "resources": resources} for flavor, resources in by_flavor.items()]


def written(edit: StatusEdit, kind: Kind) -> list[Action]:
    patch = edit.patch(kind)
    return [] if patch is None else [patch]
