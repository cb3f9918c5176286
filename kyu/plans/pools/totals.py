"""
``totalLimit``: how much a group may use of all its flavors together. Kueue counts by flavor, so it takes two parts.

*Limits follow usage*: in each flavor the group may borrow what it holds there already plus what is left of its total.
When nothing is left nothing fits, and when work ends the limits rise, which makes Kueue look at its queue again.
*A check guarantees it*: before the limits have followed, several workloads may have been given quota in several pools.
Those that pass the total are sent back to the queue by an admission check, before any of their pods has started.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from kyu.api import quantity
from kyu.api.actions import Action, View
from kyu.api.kueue import ClusterQueue, Workload
from kyu.api.meta import Json, Key, is_true
from kyu.api.pools import MasterQueue
from kyu.kinds import fields
from kyu.plans.status import StatusEdit
from kyu.plans.workload.checks import set_state
from kyu.plans.workload.usage import usage_by_flavor, workloads_of

CONTROLLER = "kyu.dev/total-limit"
CHECK_SUFFIX = "-total-limit"
# By then the limits have followed, so a workload that is tried again waits for them.
RETRY_SECONDS = 5

# Amounts by resource, in the units of quantity.amount.
Amounts = dict[str, int]


def check_name(queue: MasterQueue) -> str:
    return f"{queue.metadata.name}{CHECK_SUFFIX}"


def totals(queue: MasterQueue) -> dict[str, Amounts]:
    """Return the totals by group. The smallest of several entries counts."""
    found: dict[str, Amounts] = {}
    for flavor in queue.spec.flavors:
        for lending in flavor.can_lend_to:
            for resource, value in lending.total_limit.items():
                limits = found.setdefault(lending.queue, {})
                stated = quantity.quota_amount(resource, value)
                limits[resource] = min(stated, limits.get(resource, stated))
    return found


def is_capped(cluster_queue: Json) -> bool:
    rules = fields.list_at(cluster_queue, ("spec", "admissionChecksStrategy", "admissionChecks"))
    return any(rule["name"].endswith(CHECK_SUFFIX) for rule in rules)


# The limits.


@dataclass(frozen=True, slots=True)
class BorrowerRoom:
    """The amounts that a group holds in each flavor, and the rest of its total."""

    held: Mapping[tuple[str, str], int]
    left: Mapping[str, int]

    def limit(self, flavor: str, resource: str) -> int | None:
        """Return the amount that the group may hold in the flavor; None without a total."""
        left = self.left.get(resource)
        return None if left is None else quantity.add(self.held.get((flavor, resource), 0), left)


def find_room(total: Amounts, cluster_queue: Json | None) -> BorrowerRoom:
    """Return the room of a group by the status of its queue."""
    held: dict[tuple[str, str], int] = {}
    for flavor in fields.list_at(cluster_queue or {}, ("status", "flavorsReservation")):
        for one in fields.list_at(flavor, ("resources",)):
            held[flavor["name"], one["name"]] = quantity.amount(one["name"], one.get("total", 0))
    sums = Counter[str]()
    for (_, resource), amount in held.items():
        sums[resource] += amount
    return BorrowerRoom(held, {resource: max(0, limit - sums[resource]) for resource, limit in total.items()})


# The check.


def plan(view: View, key: Key, now: datetime) -> list[Action]:
    """Set the checks of the workloads in a group's ClusterQueue. One plan decides for all, since they add up."""
    found = owner_of(view, key)
    limits = totals(found).get(key.name) if found is not None else None
    if found is None or not limits:
        return []
    check = check_name(found)
    used = Counter[str]()
    waiting: list[Workload] = []
    actions: list[Action] = []
    for workload in workloads_of(view, key.name):
        if is_true(workload.status.conditions, "Admitted") or state_of(workload, check) == "Ready":
            used.update(usage(workload))
            if not is_true(workload.status.conditions, "Evicted"):
                actions += answer(view, workload, check, "Ready", "It was admitted before there was a total", now)
        elif state_of(workload, check) == "Pending" and not is_true(workload.status.conditions, "Evicted"):
            waiting.append(workload)
    for workload in sorted(waiting, key=admission_order):
        wanted = used + Counter(usage(workload))
        over = next((name for name, limit in limits.items() if wanted[name] > limit), None)
        if over is None:
            used = wanted
            actions += answer(view, workload, check, "Ready", "Within the total of its queue", now)
        else:
            amounts = [quantity.render(over, amount) for amount in (wanted[over], limits[over])]
            message = f"With it the queue would use {amounts[0]} of {over}, and totalLimit is {amounts[1]}"
            actions += answer(view, workload, check, "Retry", message, now)
    return actions


def owner_of(view: View, key: Key) -> MasterQueue | None:
    queue = view.get(ClusterQueue, key)
    owner = queue.metadata.controller if queue is not None else None
    if owner is None or owner.kind != MasterQueue.KIND.kind:
        return None
    return view.get(MasterQueue, Key("", owner.name))


def state_of(workload: Workload, check: str) -> str:
    return next((state.state for state in workload.status.admission_checks if state.name == check), "")


def admission_order(workload: Workload) -> tuple[int, str, Key]:
    """Return the sort key: higher priority first, then the older."""
    return -(workload.spec.priority or 0), workload.metadata.creation_timestamp or "", workload.key


def usage(workload: Workload) -> Amounts:
    """Return the amounts that a workload holds in all flavors together."""
    sums = Counter[str]()
    for (_, resource), amount in usage_by_flavor(workload).items():
        sums[resource] += amount
    return sums


def answer(view: View, workload: Workload, check: str, state: str, message: str, now: datetime) -> list[Action]:
    """Return the write of the answer, or nothing if it was given already."""
    raw = view.find_json(Workload.KIND, workload.key)
    stated = next((one for one in workload.status.admission_checks if one.name == check), None)
    if raw is None or stated is None or stated.state != "Pending":
        return []
    edit = StatusEdit(raw, now)
    set_state(edit, stated, state, message, requeue_after_seconds=RETRY_SECONDS if state == "Retry" else None)
    patch = edit.patch(Workload.KIND)
    return [patch] if patch is not None else []
