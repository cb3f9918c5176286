"""
The members of a MasterQueue (pools, clusters, local flavors), and the amounts that count.

A pool is known by its last message, or after a restart by the status of the MasterQueue. It is live until it was
silent for its timeout, counted only while we were connected ourselves: a broken connection says nothing about pools.
``plans/pools/states.py`` says how a silent pool leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from kyu.api import quantity
from kyu.api.actions import View
from kyu.api.kueue import ResourceFlavor
from kyu.api.meta import Key
from kyu.api.names import why_not_dns_subdomain
from kyu.api.pools import (
    MasterQueue,
    MasterQueueFlavor,
    NatsFlavor,
    PoolReport,
    PoolSource,
    PoolState,
    PoolStatus,
)
from kyu.plans.clusters.supply import SupplyTable
from kyu.plans.pools.cluster_members import cluster_members, reported_clusters
from kyu.plans.pools.states import Member, leaving, silent, since

STANDARD_RESOURCES = ("cpu", "memory", "pods", "nvidia.com/gpu")
# The amount of a standard resource that the quota of a local flavor does not mention: practically no limit.
LOCAL_DEFAULTS = {"cpu": "1M", "memory": "1Ei", "pods": "100k", "nvidia.com/gpu": "10k"}
# Kueue takes no more flavors in a group, nor more pairs of flavor and resource.
MOST_FLAVORS = 64
MOST_PAIRS = 512
PERIODS_PER_TIMEOUT = 2.5
# 2.5 periods of a pool that was slow must be shorter than this part of the timeout for it to be quick again.
CLEARLY_QUICK = 0.9


def find_members(table: SupplyTable, view: View, queue: MasterQueue, now: datetime) -> list[Member]:
    """Return all pools, clusters and local flavors in the order of attempts: that of the spec, then by name."""
    found: list[Member] = []
    reports = reported_clusters(table, view, queue)
    for group in queue.spec.flavors:
        if group.nats_flavor is not None:
            found += nats_members(view, queue, group, group.nats_flavor, now)
        elif group.cluster_flavor is not None:
            found += cluster_members(view, queue, group, reports, now)
        else:
            found += local_member(view, group, now)
    found += members_of_former_groups(view, queue, now)
    covered = covered_resources(queue, found)
    sized = [replace(member, effective=effective_quota(member, covered)) for member in found]
    return leave_out(view, queue, sized, len(covered), now)


def local_member(view: View, group: MasterQueueFlavor, now: datetime) -> Iterable[Member]:
    """Return the local flavors that exist. A missing flavor would make the whole queue inactive."""
    exists = view.find_json(ResourceFlavor.KIND, Key("", group.name)) is not None
    state: PoolState = "Live" if exists else "LeftOut"
    yield Member(group, "", group.name, state, now, "" if exists else "LocalFlavorMissing")


@dataclass(frozen=True, slots=True)
class Listening:
    """One group of NATS pools, and how it is heard."""

    view: View
    queue: MasterQueue
    group: MasterQueueFlavor
    nats: NatsFlavor
    source: PoolSource | None
    now: datetime


def nats_members(
    view: View, queue: MasterQueue, group: MasterQueueFlavor, nats: NatsFlavor, now: datetime
) -> list[Member]:
    name = queue.metadata.name
    source = view.get(PoolSource, Key(name, group.name))
    listening = Listening(view, queue, group, nats, source, now)
    reports = {report.pool: report for report in view.list(PoolReport, name) if report.flavor == group.name}
    known = {pool.name: pool for pool in queue.status.pools if pool.flavor == group.name}
    excluded = source.excluded if source else ()
    pools = [
        pool
        for pool in sorted(reports.keys() | known.keys())
        if pool not in excluded and (not nats.pools or pool in nats.pools)
    ]
    found = [find_member(listening, pool, reports.get(pool), known.get(pool)) for pool in pools]
    members = [member for member in found if member is not None]
    if nats.pools:
        members.sort(key=lambda member: nats.pools.index(member.pool))
    going = (leaving(view, queue, group, pool, now) for name, pool in known.items() if name not in pools)
    return [*members, *(member for member in going if member is not None)]


def members_of_former_groups(view: View, queue: MasterQueue, now: datetime) -> Iterable[Member]:
    groups = {group.name for group in queue.spec.flavors}
    for pool in queue.status.pools:
        if pool.flavor not in groups:
            group = MasterQueueFlavor(pool.flavor, nats_flavor=NatsFlavor(nats_subject=""))
            member = leaving(view, queue, group, pool, now)
            if member is not None:
                yield member


def find_member(listening: Listening, pool: str, report: PoolReport | None, before: PoolStatus | None) -> Member | None:
    """Return the member for a pool, or None if it was lost long ago."""
    now, nats, said = listening.now, listening.nats, report or before
    assert said is not None
    expires = expiry(nats, listening.source, report)
    was_live = before is None or before.state in ("Live", "LeftOut")
    is_heard = report is not None and now < moment(report.at) + timeout(nats, report)
    is_live = is_heard or (was_live and (expires is None or now < expires))
    state: PoolState = "Live" if is_live else "Stale"
    member = Member(
        listening.group,
        pool,
        f"{listening.queue.metadata.name}-{listening.group.name}-{pool}",
        state,
        since(state, before, now),
        "" if is_live else "PoolSilent",
        published=report.quotas if report else before.published if before else {},
        labels=said.labels,
        taints=said.taints,
        next_at=expires if is_live else None,
        is_slow=is_slow(nats, report, before),
    )
    if is_live:
        return member
    # One that was forgotten stays so: its report is what it said long ago.
    return silent(listening.view, listening.queue, member, before, now) if before is not None else None


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def expiry(nats: NatsFlavor, source: PoolSource | None, report: PoolReport | None) -> datetime | None:
    """Return when the pool has been silent for too long; None without a connection."""
    if source is None or not source.connected:
        return None
    heard = max(report.at if report else 0.0, source.since)
    return moment(heard) + timeout(nats, report)


def timeout(nats: NatsFlavor, report: PoolReport | None) -> timedelta:
    """Return the timeout of a pool. After a single message its period is unknown, and the wanted timeout counts."""
    if nats.pool_timeout_policy == "strict":
        return timedelta(seconds=nats.pool_timeout)
    period = report.period if report is not None and report.period is not None else nats.pool_timeout
    return timedelta(seconds=max(nats.pool_timeout, PERIODS_PER_TIMEOUT * period))


def is_slow(nats: NatsFlavor, report: PoolReport | None, before: PoolStatus | None) -> bool:
    """Return whether the wanted timeout is too short for the period of the pool. The last known answer stays.

    Periods are measured, so they vary: a slow pool stays slow until it is clearly quicker.
    """
    if nats.pool_timeout_policy == "strict":
        return False
    was_slow = before is not None and before.is_slow
    if report is None or report.period is None:
        return was_slow
    return PERIODS_PER_TIMEOUT * report.period > nats.pool_timeout * (CLEARLY_QUICK if was_slow else 1.0)


# Quota.


def covered_resources(queue: MasterQueue, members: Sequence[Member]) -> tuple[str, ...]:
    """Return the standard resources, then all others that a pool or group mentions, by name."""
    extra: set[str] = set()
    for group in queue.spec.flavors:
        extra |= group.nominal_quota.keys()
    for member in members:
        if member.has_flavor:
            extra |= member.published.keys()
    return (*STANDARD_RESOURCES, *sorted(extra - set(STANDARD_RESOURCES)))


def effective_quota(member: Member, covered: Iterable[str]) -> dict[str, str]:
    """Return the published amount, at most the nominal quota of the group. A silent pool counts as nothing."""
    if member.is_local:
        nominal = {**LOCAL_DEFAULTS, **member.group.nominal_quota}
        return {name: canonical(nominal.get(name, 0)) for name in covered}
    if member.state != "Live":
        return dict.fromkeys(covered, "0")
    return {name: smaller(member.published.get(name, "0"), member.group.nominal_quota.get(name)) for name in covered}


@lru_cache(maxsize=4096)
def smaller(published: str, cap: quantity.QuantityValue | None) -> str:
    if cap is None:
        return canonical(published)
    return str(min(quantity.parse(published), quantity.parse(cap)))


@lru_cache(maxsize=4096)
def canonical(value: quantity.QuantityValue) -> str:
    return str(quantity.parse(value))


# Pools that cannot be a flavor.


def leave_out(view: View, queue: MasterQueue, members: list[Member], resources: int, now: datetime) -> list[Member]:
    """Mark the pools that cannot be flavors. A pool counts once, under a free name; existing flavors stay."""
    room = min(MOST_FLAVORS, MOST_PAIRS // resources)
    standing = {(pool.flavor, pool.name) for pool in queue.status.pools if pool.state in ("Live", "Stale")}
    heard: set[tuple[str, str, str]] = set()
    taken: set[str] = set()
    kept = list(members)

    def is_new(index: int) -> bool:
        return not members[index].is_local and (members[index].group.name, members[index].pool) not in standing

    newcomers_last = sorted((index for index, member in enumerate(members) if member.has_flavor), key=is_new)
    for index in newcomers_last:
        member = members[index]
        reason = why_left_out(view, queue, member, heard, taken)
        if not reason and len(taken) >= room:
            reason = "TooManyPools"
        if reason:
            kept[index] = left_out(queue, member, reason, now)
        else:
            taken.add(member.resource_flavor)
            heard.add(place(member))
    return kept


def why_left_out(
    view: View, queue: MasterQueue, member: Member, heard: set[tuple[str, str, str]], taken: set[str]
) -> str:
    if not member.is_local and place(member) in heard:
        return "InAnotherGroup"
    if member.resource_flavor in taken:
        return "NameTaken"
    if member.is_local:
        return ""
    if why_not_dns_subdomain(member.resource_flavor):
        return "NameInvalid"
    return "" if is_ours(view, queue, member.resource_flavor) else "NameTaken"


def place(member: Member) -> tuple[str, str, str]:
    """Return the address of a pool: the same pool in two groups is one pool."""
    nats = member.group.nats_flavor
    return (nats.nats_connector, nats.nats_subject, member.pool) if nats else ("", "", member.resource_flavor)


def is_ours(view: View, queue: MasterQueue, flavor: str) -> bool:
    found = view.get(ResourceFlavor, Key("", flavor))
    owner = found.metadata.controller if found is not None else None
    return found is None or (owner is not None and owner.uid == queue.metadata.uid)


def left_out(queue: MasterQueue, member: Member, reason: str, now: datetime) -> Member:
    known = next((p for p in queue.status.pools if (p.flavor, p.name) == (member.group.name, member.pool)), None)
    return replace(member, state="LeftOut", reason=reason, since=since("LeftOut", known, now))
