"""
The status of a MasterQueue: its pools and what is the matter with them. It also is the memory that survives a restart.

Times move only with states, and nothing in it counts seconds, so an unchanged world is an unchanged status.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from kyu.api.actions import Event, Patch, View
from kyu.api.kueue import MULTIKUEUE_CONTROLLER, AdmissionCheck
from kyu.api.meta import Json, Key, Ref
from kyu.api.pool_messages import parse_label, parse_taint
from kyu.api.pools import MasterQueue, PoolSource
from kyu.plans.pools.states import Member
from kyu.plans.status import StatusEdit, timestamp

LONGEST_LIST = 10


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that an administrator should know. ``reason`` is the word for programs."""

    reason: str
    message: str


def plan_status(
    view: View, queue: MasterQueue, raw: Json, members: Sequence[Member], others: Iterable[Problem], now: datetime
) -> Patch | None:
    sources = find_sources(view, queue)
    edit = StatusEdit(raw, now)
    pools = [member for member in members if not member.is_local]
    set_list(edit.status, "pools", [pool_status(member) for member in pools])
    edit.status["livePools"] = sum(member.state == "Live" for member in pools)
    set_refused(edit.status, sources)
    set_ready(edit, members)
    set_connected(edit, queue, sources)
    set_problems(edit, [*problems(members, sources), *others])
    set_too_many(edit, members)
    set_slow(edit, members)
    return edit.patch(MasterQueue.KIND)


def find_sources(view: View, queue: MasterQueue) -> dict[str, PoolSource]:
    found = {}
    for group in queue.spec.flavors:
        source = view.get(PoolSource, Key(queue.metadata.name, group.name))
        if group.nats_flavor is not None and source is not None:
            found[group.name] = source
    return found


def pool_status(member: Member) -> Json:
    status: Json = {
        "flavor": member.group.name,
        "name": member.pool,
        "state": member.state,
        "since": timestamp(member.since),
        "resourceFlavor": member.resource_flavor,
        "published": dict(member.published),
        "effective": dict(member.effective),
    }
    if member.reason:
        status["reason"] = member.reason
    if member.labels:
        status["labels"] = list(member.labels)
    if member.taints:
        status["taints"] = list(member.taints)
    if member.is_slow:
        status["isSlow"] = True
    return status


def set_list(status: Json, name: str, items: list[Json]) -> None:
    if items or name in status:
        status[name] = items


def set_refused(status: Json, sources: dict[str, PoolSource]) -> None:
    """Set the refused messages since the start. The stored count stays until the first one."""
    counts: dict[str, int] = {}
    for source in sources.values():
        for reason, count in source.refused.items():
            counts[reason] = counts.get(reason, 0) + count
    if counts:
        status["refusedMessages"] = counts


def set_ready(edit: StatusEdit, members: Sequence[Member]) -> None:
    pools = [member for member in members if not member.is_local]
    live = sum(member.state == "Live" for member in pools)
    local = sum(member.is_local and member.state == "Live" for member in members)
    if live or local:
        edit.set_condition("Ready", "True", "HasFlavors", f"{live} of {len(pools)} pools and {local} local flavors")
    else:
        edit.set_condition(
            "Ready", "False", "NoLivePool", "no pool is live and no local flavor is there: all is on hold"
        )


def set_connected(edit: StatusEdit, queue: MasterQueue, sources: dict[str, PoolSource]) -> None:
    """Set the condition of the connection. After a restart it stays as it was until the first attempt is over."""
    groups = [group.name for group in queue.spec.flavors if group.nats_flavor is not None]
    if not groups:
        edit.remove_condition("NatsConnected")
        return
    broken = [f"{name}: {source.error}" for name, source in sources.items() if source.error]
    if broken:
        edit.set_condition("NatsConnected", "False", "NotConnected", "; ".join(broken))
    elif len(sources) == len(groups) and all(source.connected for source in sources.values()):
        edit.set_condition("NatsConnected", "True", "Connected", "all NATS servers are reached")


def problems(members: Sequence[Member], sources: dict[str, PoolSource]) -> Iterable[Problem]:
    for name, source in sources.items():
        if source.expression_error:
            yield Problem("PoolRegExp", f"poolRegExp of {name}: {source.expression_error}")
    missing = [member.resource_flavor for member in members if member.reason == "LocalFlavorMissing"]
    if missing:
        yield Problem("LocalFlavorMissing", f"no ResourceFlavor {listed(missing)}")
    for reason in ("NameTaken", "NameInvalid", "InAnotherGroup", "TooManyPools", "PoolSilent", "NotSelected"):
        names = [
            member.pool
            for member in members
            if member.reason == reason and member.pool and member.state in ("LeftOut", "Stale")
        ]
        if names:
            yield Problem(reason, f"{WORDS[reason]}: {listed(names)}")
    for member in members:
        words = [text for text in member.labels if parse_label(text) is None]
        words += [text for text in member.taints if parse_taint(text) is None]
        if words and member.has_flavor:
            yield Problem("BadLabel", f"{member.pool} publishes labels or taints that cannot be used: {listed(words)}")


def check_problems(view: View, queue: MasterQueue) -> Iterator[Problem]:
    """Yield the checks of cluster groups that do not exist or cannot be used."""
    others = [group.name for group in queue.spec.flavors if group.cluster_flavor is None]
    names = {group.cluster_flavor.admission_check for group in queue.spec.flavors if group.cluster_flavor is not None}
    for name in sorted(names):
        check = view.get(AdmissionCheck, Key("", name))
        if check is None:
            yield Problem("CheckMissing", f"no AdmissionCheck {name}")
        elif check.spec.controller_name == MULTIKUEUE_CONTROLLER and (others or len(names) > 1):
            # Kueue allows a check of MultiKueue only for all flavors of a ClusterQueue.
            yield Problem(
                "CheckUnusable",
                f"AdmissionCheck {name} is of MultiKueue, which must send the workloads of all groups: give other "
                "groups a MasterQueue of their own, or use a check of KubeStellar",
            )


WORDS = {
    "NameTaken": "the name of the ResourceFlavor belongs to something else",
    "NameInvalid": "the name of the ResourceFlavor would not be valid",
    "InAnotherGroup": "pools that an earlier group has already",
    "TooManyPools": "more pools than a queue can hold",
    "PoolSilent": "silent pools whose work has not ended",
    "NotSelected": "pools that are not selected any more and whose work has not ended",
}


def set_problems(edit: StatusEdit, found: Sequence[Problem]) -> None:
    if found:
        edit.set_condition("Degraded", "True", found[0].reason, "; ".join(problem.message for problem in found))
    else:
        edit.set_condition("Degraded", "False", "AsWanted", "")


def set_too_many(edit: StatusEdit, members: Sequence[Member]) -> None:
    names = [member.pool for member in members if member.reason == "TooManyPools"]
    if names:
        edit.set_condition("TooManyPools", "True", "LeftOut", f"left out: {', '.join(names)}")
    else:
        edit.remove_condition("TooManyPools")


def set_slow(edit: StatusEdit, members: Sequence[Member]) -> None:
    names = [member.pool for member in members if member.is_slow and member.state == "Live"]
    if names:
        message = f"poolTimeout is shorter than 2.5 periods of these pools, which count instead: {listed(names)}"
        edit.set_condition("PoolTimeoutTooShort", "True", "PeriodsCount", message)
    else:
        edit.remove_condition("PoolTimeoutTooShort")


def changes(queue: MasterQueue, members: Iterable[Member]) -> list[Event]:
    """Return events for pools that changed since the status was written."""
    before = {(pool.flavor, pool.name): pool.state for pool in queue.status.pools}
    ref = Ref(MasterQueue.KIND, queue.key)
    events = []
    for member in members:
        was = before.get((member.group.name, member.pool))
        if member.is_local or was == member.state:
            continue
        message = f"pool {member.pool} of {member.group.name}" + (f": {member.reason}" if member.reason else "")
        type_: Literal["Normal", "Warning"] = "Normal" if member.state == "Live" else "Warning"
        events.append(Event(ref, type_, f"Pool{member.state}", message, queue.metadata.uid))
    return events


def listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - LONGEST_LIST} more" if len(names) > LONGEST_LIST else ""
    return ", ".join(names[:LONGEST_LIST]) + more
