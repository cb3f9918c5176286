"""
From what pools announce to quota: the ResourceFlavors and ClusterQueues of a MasterQueue. START READING HERE.

Flavors come before the queues that list them and go after. Whatever is as wanted already is not written, so a pool
that says the same every second costs nothing. A pool that falls silent first loses its quota (nothing new is admitted
there), and its flavor goes when no workload uses it any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from kyu.api.actions import Action, Delete, View, WakeAt
from kyu.api.core import Namespace
from kyu.api.kueue import AdmissionCheck, LocalQueue, ResourceFlavor, Workload
from kyu.api.meta import Key, Ref, is_true, key_of
from kyu.api.pools import MasterQueue
from kyu.plans.clusters.supply import SupplyTable
from kyu.plans.pools import objects, status
from kyu.plans.pools import shared as pools_shared
from kyu.plans.pools.members import find_members
from kyu.plans.pools.objects import Wanted
from kyu.plans.pools.states import Member, workloads_on
from kyu.plans.pools.status import Problem
from kyu.plans.status import StatusEdit
from kyu.plans.workload.eviction import evict


def plan(table: SupplyTable, view: View, key: Key, now: datetime) -> list[Action]:
    queue, raw = view.get(MasterQueue, key), view.find_json(MasterQueue.KIND, key)
    if queue is None or raw is None or queue.metadata.deletion_timestamp:
        # Owned objects are garbage-collected; finalizers keep the order.
        table.keep(key.name, set())
        return []
    members = find_members(table, view, queue, now)
    wanted = [
        *objects.flavors(queue, members),
        *objects.checks(queue),
        objects.master_queue(queue, members),
        *objects.borrowers(view, queue, members),
        *local_queues(view, queue),
    ]
    foreign = [one for one in wanted if objects.is_foreign(view, queue, one)]
    problems = [Problem("Conflict", f"{one.kind.kind} {one.key} belongs to others") for one in foreign]
    problems += status.check_problems(view, queue)
    if shared := list(pools_shared.overcommitments(view, queue, members)):
        problems.append(Problem("Overcommitted", f"more is promised than pools have: {status.listed(shared)}"))
    actions: list[Action] = []
    for one in wanted:
        if one not in foreign:
            actions += objects.write(view, one)
    actions += objects.activate(view, queue, now)
    actions += leftovers(view, queue, wanted, members)
    actions += evictions(view, members, now)
    patch = status.plan_status(view, queue, raw, members, problems, now)
    if patch is not None:
        actions += [patch, *status.changes(queue, members)]
    wakes = [member.next_at for member in members if member.next_at is not None]
    return [*actions, WakeAt(min(wakes))] if wakes else actions


def local_queues(view: View, queue: MasterQueue) -> list[Wanted]:
    """Return the LocalQueues of namespaces that exist."""
    return [
        one
        for one in objects.local_queues(queue)
        if view.find_json(Namespace.KIND, Key("", one.key.namespace)) is not None
    ]


def leftovers(view: View, queue: MasterQueue, wanted: Sequence[Wanted], members: Sequence[Member]) -> list[Action]:
    """Delete flavors of pools that are gone, and LocalQueues and checks that are not wanted any more."""
    keep = {(one.kind.kind, one.key) for one in wanted}
    keep |= {(ResourceFlavor.KIND.kind, Key("", member.resource_flavor)) for member in members if member.has_flavor}
    return [
        Delete(Ref(kind, key), obj["metadata"]["uid"])
        for kind in (LocalQueue.KIND, ResourceFlavor.KIND, AdmissionCheck.KIND)
        for obj in view.owned_by(kind, queue.metadata.uid)
        if (kind.kind, key := key_of(obj)) not in keep and "deletionTimestamp" not in obj["metadata"]
    ]


def evictions(view: View, members: Sequence[Member], now: datetime) -> list[Action]:
    """Evict workloads from pools that have been stale for another timeout, if the policy says so."""
    actions: list[Action] = []
    for member in members:
        nats = member.group.nats_flavor
        if nats is None or nats.lost_pool_policy != "Evict" or member.reason != "PoolSilent":
            continue
        if now < member.since + timedelta(seconds=nats.pool_timeout):
            continue
        for workload in workloads_on(view, member.resource_flavor):
            raw = view.find_json(Workload.KIND, workload.key)
            if raw is None or is_true(workload.status.conditions, "Evicted"):
                continue
            edit = StatusEdit(raw, now)
            evict(edit, "NodeFailures", f"The pool {member.pool} does not answer")
            if (patch := edit.patch(Workload.KIND)) is not None:
                actions.append(patch)
    return actions
