"""
The states of the pools and clusters of a MasterQueue.

A silent pool is stale: it keeps its flavor with no quota until nothing uses it. It is lost after that, and forgotten
an hour later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from kyu.api import quantity
from kyu.api.actions import View
from kyu.api.kueue import ClusterQueue, Workload
from kyu.api.meta import Json, is_true, key_of
from kyu.api.pools import MasterQueue, MasterQueueFlavor, PoolState, PoolStatus
from kyu.kinds import fields
from kyu.plans.status import parse_time

REMEMBERED_AFTER_LOSS = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Member:
    """A pool, a worker cluster or a local flavor, as part of the quota. ``pool`` is the name of a pool or cluster."""

    group: MasterQueueFlavor
    pool: str
    resource_flavor: str
    state: PoolState
    since: datetime
    reason: str = ""
    published: Mapping[str, str] = field(default_factory=dict)
    effective: Mapping[str, str] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    # When the state changes if nothing is heard.
    next_at: datetime | None = None
    # It speaks too seldom for the timeout of its group.
    is_slow: bool = False

    @property
    def is_local(self) -> bool:
        return self.group.local_flavor is not None

    @property
    def has_flavor(self) -> bool:
        """Whether it stands in the queues."""
        return self.state in ("Live", "Stale")


def since(state: PoolState, before: PoolStatus | None, now: datetime) -> datetime:
    """Return the time since when the pool is in the state."""
    known = parse_time(before.since) if before is not None and before.state == state else None
    return known or now


def silent(view: View, queue: MasterQueue, member: Member, before: PoolStatus, now: datetime) -> Member | None:
    """Return a silent pool as Stale while its flavor may be in use, then as Lost, and None after an hour."""
    if before.state in ("Live", "Stale") and not is_drained(view, queue, member.resource_flavor):
        evicted_at = member.since + timedelta(seconds=timeout_seconds(member.group))
        return replace(member, next_at=evicted_at if evicted_at > now else None)
    lost = since("Lost", before, now)
    forgotten_at = lost + REMEMBERED_AFTER_LOSS
    return None if now >= forgotten_at else replace(member, state="Lost", since=lost, next_at=forgotten_at)


def leaving(
    view: View,
    queue: MasterQueue,
    group: MasterQueueFlavor,
    before: PoolStatus,
    now: datetime,
    reason: str = "NotSelected",
) -> Member | None:
    """Keep a pool that is gone or not selected any more until nothing uses its flavor."""
    member = Member(
        group,
        before.name,
        before.resource_flavor,
        "Stale",
        since("Stale", before, now),
        reason,
        before.published,
        labels=before.labels,
        taints=before.taints,
    )
    found = silent(view, queue, member, before, now)
    return found if found is not None and found.state == "Stale" else None


def timeout_seconds(group: MasterQueueFlavor) -> int:
    if group.cluster_flavor is not None:
        return group.cluster_flavor.report_timeout
    return group.nats_flavor.pool_timeout if group.nats_flavor is not None else 0


def is_drained(view: View, queue: MasterQueue, flavor: str) -> bool:
    """Return whether the stored queues have no quota of the flavor, and no workload uses it."""
    for owned in view.owned_by(ClusterQueue.KIND, queue.metadata.uid):
        for entry in flavor_entries(owned):
            if entry["name"] == flavor and any(offers(resource) for resource in entry["resources"]):
                return False
    return not any(True for _ in workloads_on(view, flavor))


def offers(resource: Mapping[str, object]) -> bool:
    if not is_zero(resource.get("nominalQuota", 0)):
        return True
    return "borrowingLimit" in resource and not is_zero(resource["borrowingLimit"])


def is_zero(value: object) -> bool:
    return isinstance(value, str | int) and not quantity.parse(value)


def flavor_entries(cluster_queue: Json) -> Iterable[Json]:
    for group in fields.list_at(cluster_queue, ("spec", "resourceGroups")):
        yield from fields.list_at(group, ("flavors",))


def workloads_on(view: View, flavor: str) -> Iterable[Workload]:
    """Return the workloads with quota of the flavor. All workloads are read, so it is called for silent pools only."""
    for raw in view.list_json(Workload.KIND):
        assignments = fields.list_at(raw, ("status", "admission", "podSetAssignments"))
        if any(flavor in (one.get("flavors") or {}).values() for one in assignments):
            workload = view.get(Workload, key_of(raw))
            if workload is not None and not is_true(workload.status.conditions, "Finished"):
                yield workload
