"""
From the reports of clusters to quota: the nominal quota of a ClusterQueue. START READING HERE.

The quota rises at once, and falls when the smaller capacity has lasted for ``settleSeconds``. Under ``Hold`` it never
falls below what admitted workloads hold. A report that is too old is frozen: it counts until its cluster is lost, and
counts again with the next report. Amounts that are as wanted are not written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from kyu.api import quantity
from kyu.api.actions import Action, Event, Patch, View, WakeAt
from kyu.api.clusters.capacity import (
    CapacityQuota,
    ClusterMetrics,
    ClusterReport,
    FollowedFlavor,
    FollowedResource,
    ReportState,
)
from kyu.api.kueue import ClusterQueue, Workload
from kyu.api.meta import Json, Key, Ref, is_true, key_of, selects
from kyu.kinds import metadata
from kyu.plans.clusters.reports import sent_usage, silent_since, unused
from kyu.plans.clusters.supply import Amounts, ClusterSupply, SupplyTable, group_rules
from kyu.plans.status import StatusEdit, clone, parse_time, timestamp
from kyu.plans.workload.eviction import evict
from kyu.plans.workload.usage import usage_by_flavor, workloads_of

PREEMPTED = "CapacityShrunk"


@dataclass(frozen=True, slots=True)
class CountedReport:
    """The report of a cluster, its state, and what it offers. ``next_at``: when the state changes if nothing comes."""

    name: str
    state: ReportState
    since: str
    supply: ClusterSupply
    next_at: datetime | None


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """One nominal quota: stored, offered by the clusters, and wanted now."""

    flavor: str
    resource: str
    stored: int
    capacity: int
    wanted: int
    shrinking_since: str | None = None
    settles_at: datetime | None = None


def plan(table: SupplyTable, view: View, key: Key, now: datetime) -> list[Action]:
    """Plan for one CapacityQuota."""
    quota, raw = view.get(CapacityQuota, key), view.find_json(CapacityQuota.KIND, key)
    if quota is None or raw is None or quota.metadata.deletion_timestamp:
        table.keep(key.name, set())
        return []
    edit = StatusEdit(raw, now)
    queue = view.get(ClusterQueue, Key("", quota.spec.cluster_queue))
    stored = view.find_json(ClusterQueue.KIND, Key("", quota.spec.cluster_queue))
    why = why_not(view, quota, queue)
    if why is not None or queue is None or stored is None:
        reason, message = why or ("ClusterQueueMissing", "")
        edit.set_condition("Ready", "False", reason, message)
        patch = edit.patch(CapacityQuota.KIND)
        return [patch] if patch else []
    reports = find_reports(table, view, quota, queue, now)
    held = HeldQuota(view, queue)
    changes = list(find_changes(quota, stored, offers(view, quota, queue, reports), held, now))
    actions = write_quota(quota, stored, changes)
    actions += preemptions(view, quota, changes, held, now)
    tell(edit, view, quota, reports, changes)
    patch = edit.patch(CapacityQuota.KIND)
    moments = [*(one.next_at for one in reports), *(one.settles_at for one in changes)]
    wakes = [at for at in moments if at is not None]
    return [*actions, *([patch] if patch else []), *([WakeAt(min(wakes))] if wakes else [])]


def why_not(view: View, quota: CapacityQuota, queue: ClusterQueue | None) -> tuple[str, str] | None:
    """Return the reason and the message if the quota cannot follow."""
    name = quota.spec.cluster_queue
    if queue is None:
        return "ClusterQueueMissing", f"ClusterQueue {name} does not exist"
    owner = queue.metadata.controller
    if owner is not None:
        return "Conflict", f"ClusterQueue {name} belongs to {owner.kind} {owner.name}"
    rivals = [one for one in view.list(CapacityQuota) if one.spec.cluster_queue == name]
    first = min(rivals, key=lambda one: (one.metadata.creation_timestamp or "", one.metadata.name), default=quota)
    if first.metadata.name != quota.metadata.name:
        return "Conflict", f"the quota of ClusterQueue {name} follows CapacityQuota {first.metadata.name}"
    if quota.spec.shrink_policy == "Preempt" and queue.spec.cohort_name:
        return "PolicyUnusable", f"Preempt is not possible in a cohort, where workloads may borrow: {name} has one"
    return None


# The reports of clusters.


def find_reports(
    table: SupplyTable, view: View, quota: CapacityQuota, queue: ClusterQueue, now: datetime
) -> list[CountedReport]:
    """Return the reports that the selector matches, by name."""
    rules = group_rules(view, queue, quota.spec)
    known = {one.name: one for one in quota.status.clusters}
    found = []
    for raw in view.list_json(ClusterMetrics.KIND):
        if metadata.is_deleted(raw) or not selects(quota.spec.cluster_selector, metadata.labels_of(raw)):
            continue
        name = raw["metadata"]["name"]
        supply = table.supply(quota.metadata.name, raw, rules)
        state, next_at = state_of(view, quota, raw, now)
        before = known.get(name)
        since = before.since if before is not None and before.state == state else timestamp(now)
        found.append(CountedReport(name, state, since, supply, next_at))
    table.keep(quota.metadata.name, {one.name for one in found})
    return sorted(found, key=lambda one: one.name)


def state_of(view: View, quota: CapacityQuota, raw: Json, now: datetime) -> tuple[ReportState, datetime | None]:
    """Return the state of a report, and when it changes."""
    silent = silent_since(view, raw)
    if silent is None:
        return "Live", None
    stale_at = silent + timedelta(seconds=quota.spec.stale_seconds)
    lost_at = silent + timedelta(seconds=max(quota.spec.lost_seconds, quota.spec.stale_seconds))
    if now < stale_at:
        return "Live", stale_at
    return ("Stale", lost_at) if now < lost_at else ("Lost", None)


def offers(view: View, quota: CapacityQuota, queue: ClusterQueue, reports: Sequence[CountedReport]) -> Amounts:
    """Return the part of the capacity of all clusters that belongs to the ClusterQueue."""
    sums: Amounts = {}
    counted = [one for one in reports if one.state != "Lost"]
    sent = sent_usage(view) if any(one.supply.requested for one in counted) else {}
    for report in counted:
        for place, amount in unused(report.name, report.supply, sent).items():
            sums[place] = quantity.add(sums.get(place, 0), amount)
    return {place: amount * quota.spec.percent // 100 for place, amount in sums.items()}


# The quota.


class HeldQuota:
    """The quota that workloads of a ClusterQueue hold. They are read at the first question, as most plans ask none."""

    def __init__(self, view: View, queue: ClusterQueue) -> None:
        self._view = view
        self._queue = queue.metadata.name
        self._workloads: list[Workload] | None = None
        self._sums = Counter[tuple[str, str]]()

    @property
    def workloads(self) -> list[Workload]:
        if self._workloads is None:
            self._workloads = list(workloads_of(self._view, self._queue))
            for workload in self._workloads:
                self._sums.update(usage_by_flavor(workload))
        return self._workloads

    def amount(self, flavor: str, resource: str) -> int:
        return self._sums[flavor, resource] if self.workloads else 0


def find_changes(
    quota: CapacityQuota, stored: Json, offered: Amounts, held: HeldQuota, now: datetime
) -> Iterator[QuotaChange]:
    """Yield the amounts of all flavors and resources that follow, in the order of the ClusterQueue."""
    shrinking = {
        (flavor.name, one.name): one.shrinking_since for flavor in quota.status.flavors for one in flavor.resources
    }
    for entry in flavor_entries(stored):
        for resource in entry["resources"]:
            name = resource["name"]
            if quota.spec.resources and name not in quota.spec.resources:
                continue
            place = entry["name"], name
            has = quantity.quota_amount(name, resource.get("nominalQuota", 0))
            yield find_change(quota, place, has, offered.get(place, 0), shrinking.get(place), held, now)


def find_change(
    quota: CapacityQuota,
    place: tuple[str, str],
    stored: int,
    capacity: int,
    shrinking_since: str | None,
    held: HeldQuota,
    now: datetime,
) -> QuotaChange:
    if capacity >= stored:
        return QuotaChange(*place, stored, capacity, capacity)
    since = shrinking_since or timestamp(now)
    settles_at = (parse_time(since) or now) + timedelta(seconds=quota.spec.settle_seconds)
    if now < settles_at:
        return QuotaChange(*place, stored, capacity, stored, since, settles_at)
    floor = min(stored, held.amount(*place)) if quota.spec.shrink_policy == "Hold" else 0
    wanted = max(capacity, floor)
    return QuotaChange(*place, stored, capacity, wanted, since if wanted > capacity else None)


def flavor_entries(queue: Json) -> Iterator[Json]:
    for group in (queue.get("spec") or {}).get("resourceGroups") or ():
        yield from group.get("flavors") or ()


def write_quota(quota: CapacityQuota, stored: Json, changes: Sequence[QuotaChange]) -> list[Action]:
    """Return the patch of the ClusterQueue, if an amount differs. Other fields of its groups stay as they are."""
    wanted = {(one.flavor, one.resource): one.wanted for one in changes if one.wanted != one.stored}
    if not wanted:
        return []
    groups = clone(stored["spec"]["resourceGroups"])
    for entry in flavor_entries({"spec": {"resourceGroups": groups}}):
        for resource in entry["resources"]:
            if (amount := wanted.get((entry["name"], resource["name"]))) is not None:
                resource["nominalQuota"] = quantity.render(resource["name"], amount)
    ref = Ref(ClusterQueue.KIND, key_of(stored))
    told = Event(
        Ref(CapacityQuota.KIND, quota.key), "Normal", "QuotaChanged", changed_words(changes), quota.metadata.uid
    )
    version = stored["metadata"].get("resourceVersion", "")
    return [Patch(ref, {"spec": {"resourceGroups": groups}}, resource_version=version), told]


def changed_words(changes: Sequence[QuotaChange]) -> str:
    words = [
        f"{one.resource} of {one.flavor}: {quantity.render(one.resource, one.stored)} to "
        f"{quantity.render(one.resource, one.wanted)}"
        for one in changes
        if one.wanted != one.stored
    ]
    return f"{', '.join(words[:5])}{f' and {len(words) - 5} more' if len(words) > 5 else ''}"


def preemptions(
    view: View, quota: CapacityQuota, changes: Sequence[QuotaChange], held: HeldQuota, now: datetime
) -> list[Action]:
    """Evict workloads that hold more than there is, if the policy says so: lowest priority first, then the newest."""
    if quota.spec.shrink_policy != "Preempt":
        return []
    excess = Counter[tuple[str, str]]()
    for one in changes:
        if one.wanted == one.capacity and (over := held.amount(one.flavor, one.resource) - one.capacity) > 0:
            excess[one.flavor, one.resource] = over
    going = [one for one in held.workloads if is_true(one.status.conditions, "Evicted")] if excess else []
    for workload in going:
        excess.subtract(usage_by_flavor(workload))
    actions: list[Action] = []
    for workload in sorted(held.workloads if excess else (), key=eviction_order):
        usage = usage_by_flavor(workload)
        place = next((place for place in usage if usage[place] and excess[place] > 0), None)
        raw = view.find_json(Workload.KIND, workload.key)
        if place is None or raw is None or workload in going:
            continue
        excess.subtract(usage)
        edit = StatusEdit(raw, now)
        message = f"The capacity of {place[1]} in flavor {place[0]} fell below the quota in use"
        evict(edit, "Preempted", message, cause=PREEMPTED)
        edit.set_condition("Preempted", "True", PREEMPTED, message)
        patch = edit.patch(Workload.KIND)
        told = Event(
            Ref(Workload.KIND, workload.key), "Normal", "EvictedDueToPreempted", message, workload.metadata.uid
        )
        actions += [patch, told] if patch else []
    return actions


def eviction_order(workload: Workload) -> tuple[int, float, Key]:
    reserved = workload.condition("QuotaReserved")
    since = parse_time(reserved.last_transition_time) if reserved is not None else None
    return workload.spec.priority or 0, -since.timestamp() if since else 0.0, workload.key


# The status.


def tell(
    edit: StatusEdit, view: View, quota: CapacityQuota, reports: Sequence[CountedReport], changes: Sequence[QuotaChange]
) -> None:
    listed = [ClusterReport(one.name, one.state, one.since, one.supply.nodes, one.supply.excluded) for one in reports]
    flavors: dict[str, list[FollowedResource]] = {}
    for one in changes:
        capacity, set_to = (quantity.render(one.resource, amount) for amount in (one.capacity, one.wanted))
        row = FollowedResource(one.resource, capacity, set_to, one.shrinking_since)
        flavors.setdefault(one.flavor, []).append(row)
    named = [FollowedFlavor(name, tuple(resources)) for name, resources in flavors.items()]
    live = sum(one.state == "Live" for one in reports)
    # Through JSON, as the stored status: its lists compare with lists only.
    wanted: Json = msgspec.json.decode(msgspec.json.encode({"clusters": listed, "flavors": named}))
    wanted["liveClusters"] = live
    for name, value in wanted.items():
        if edit.read(name) != value:
            edit.status[name] = value
    if reports:
        edit.set_condition("Ready", "True", "Following", f"{live} of {len(reports)} clusters")
    else:
        edit.set_condition("Ready", "False", "NoClusters", "No ClusterMetrics is selected")
    tell_degraded(edit, view, quota, reports, changes)


def tell_degraded(
    edit: StatusEdit, view: View, quota: CapacityQuota, reports: Sequence[CountedReport], changes: Sequence[QuotaChange]
) -> None:
    for state, reason in (("Lost", "ClusterLost"), ("Stale", "ClusterStale")):
        if names := [one.name for one in reports if one.state == state]:
            edit.set_condition("Degraded", "True", reason, f"no report of: {', '.join(names)}")
            return
    if names := overcommitted(view, quota, reports):
        message = f"together more than 100 % is promised of: {', '.join(names)}"
        edit.set_condition("Degraded", "True", "Overcommitted", message)
    elif places := [f"{one.resource} of {one.flavor}" for one in changes if one.wanted > one.capacity]:
        message = f"workloads hold, or held until just now, more than there is: {', '.join(places)}"
        edit.set_condition("Degraded", "True", "AboveCapacity", message)
    else:
        edit.set_condition("Degraded", "False", "AsWanted", "The quota is what the clusters offer")


def overcommitted(view: View, quota: CapacityQuota, reports: Sequence[CountedReport]) -> list[str]:
    """Return the clusters of which all CapacityQuotas together promise more than there is."""
    others = [one for one in view.list(CapacityQuota) if one.metadata.name != quota.metadata.name]
    if not others:
        return []
    found = []
    for report in reports:
        raw = view.find_json(ClusterMetrics.KIND, Key("", report.name))
        labels = metadata.labels_of(raw) if raw is not None else {}
        parts = [one.spec.percent for one in others if selects(one.spec.cluster_selector, labels)]
        if parts and quota.spec.percent + sum(parts) > 100:
            found.append(report.name)
    return found
