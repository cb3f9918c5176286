"""
The objects that a MasterQueue owns: one ResourceFlavor per pool, one ClusterQueue with the quota, one per borrower, and
an AdmissionCheck where a borrower has a total.

Each is stated in full, in the canonical form of every quantity, so that a stored object that says the same is left
alone. Objects of other owners are not touched; the plan reports them.

Kueue: apis/kueue/v1beta2
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from kyu.api import quantity
from kyu.api.actions import Action, Apply, View
from kyu.api.kueue import (
    HOSTNAME_LABEL,
    RESOURCE_IN_USE_FINALIZER,
    AdmissionCheck,
    ClusterQueue,
    LocalQueue,
    ResourceFlavor,
)
from kyu.api.meta import Json, Key, Kind, key_of
from kyu.api.pool_messages import parse_label, parse_taint
from kyu.api.pools import (
    FLAVOR_CLUSTER_LABEL,
    OFFLOAD_TAINT,
    POOL_TOLERATION,
    LendingQueue,
    MasterQueue,
    MasterQueueFlavor,
    PreemptionTemplate,
)
from kyu.kinds import fields
from kyu.plans.pools import totals
from kyu.plans.pools.members import canonical
from kyu.plans.pools.states import Member, flavor_entries, workloads_on
from kyu.plans.pools.totals import BorrowerRoom
from kyu.plans.status import StatusEdit

MANAGER = "kyu-pools"
MOST_TAINTS = 8
# Others may add checks of their own to a queue.
CHECKS = "admissionChecksStrategy"
STOP_POLICIES = {"Stop": "Hold", "StopAndHold": "HoldAndDrain"}
# The words of older Kueues for the same.
FUNGIBILITY = {"Borrow": "MayStopSearch", "Preempt": "MayStopSearch"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """An object as it should be."""

    kind: Kind
    body: Json

    @property
    def key(self) -> Key:
        return key_of(self.body)


def flavors(queue: MasterQueue, members: Iterable[Member]) -> list[Wanted]:
    """Return the ResourceFlavors of the selected pools. Those of others stay as they are."""
    return [
        flavor(queue, member)
        for member in members
        if member.has_flavor and not member.is_local and member.reason != "NotSelected"
    ]


def flavor(queue: MasterQueue, member: Member) -> Wanted:
    nats, clusters = member.group.nats_flavor, member.group.cluster_flavor
    if clusters is not None:
        of_cluster: Json = {
            "nodeLabels": dict(clusters.node_labels),
            "tolerations": msgspec.to_builtins(list(clusters.tolerations)),
        }
        of_pool = {FLAVOR_CLUSTER_LABEL: member.pool}
        body = owned(queue, ResourceFlavor.KIND, member.resource_flavor, of_cluster, labels=of_pool)
        return Wanted(ResourceFlavor.KIND, body)
    assert nats is not None
    labels = dict(pair for text in member.labels if (pair := parse_label(text)) is not None)
    taints = [OFFLOAD_TAINT, *(taint for text in member.taints if (taint := parse_taint(text)) is not None)]
    unique = list({(taint.key, taint.effect): taint for taint in taints}.values())[:MOST_TAINTS]
    spec: Json = {
        "nodeLabels": {HOSTNAME_LABEL: nats.virtual_node} if nats.virtual_node else {},
        "nodeTaints": msgspec.to_builtins(unique),
        "tolerations": [{"key": POOL_TOLERATION, "value": member.pool, "effect": "NoSchedule"}],
    }
    return Wanted(ResourceFlavor.KIND, owned(queue, ResourceFlavor.KIND, member.resource_flavor, spec, labels=labels))


def master_queue(queue: MasterQueue, members: Sequence[Member]) -> Wanted:
    entries = [entry(member, None) for member in members if member.has_flavor]
    is_open = any(member.state == "Live" for member in members)
    wanted = cluster_queue(queue, queue.metadata.name, entries, is_open=is_open)
    set_checks(wanted, dispatch_checks(members))
    return wanted


def checks(queue: MasterQueue) -> list[Wanted]:
    """Return the AdmissionCheck of all borrowers that have a total."""
    if not totals.totals(queue):
        return []
    spec = {"controllerName": totals.CONTROLLER}
    return [Wanted(AdmissionCheck.KIND, owned(queue, AdmissionCheck.KIND, totals.check_name(queue), spec))]


def borrowers(view: View, queue: MasterQueue, members: Sequence[Member]) -> list[Wanted]:
    """Return the queues of ``canLendTo``, and former ones on hold while they have workloads."""
    lending: dict[str, dict[str, LendingQueue]] = {}
    for group in queue.spec.flavors:
        for one in group.can_lend_to:
            lending.setdefault(one.queue, {})[group.name] = one
    names = dict.fromkeys(lending)
    for stored in view.owned_by(ClusterQueue.KIND, queue.metadata.uid):
        names[stored["metadata"]["name"]] = None
    names.pop(queue.metadata.name, None)
    return [borrower(view, queue, name, members, lending.get(name, {})) for name in names]


def borrower(
    view: View, queue: MasterQueue, name: str, members: Sequence[Member], by_group: dict[str, LendingQueue]
) -> Wanted:
    stored = view.find_json(ClusterQueue.KIND, Key("", name))
    listed = {one["name"] for one in flavor_entries(stored)} if stored else set()
    total = totals.totals(queue).get(name)
    room = totals.find_room(total, stored) if total else None
    entries, is_open = [], False
    for member in members:
        lending = by_group.get(member.group.name)
        if not member.has_flavor:
            continue
        if lending is not None:
            is_open = is_open or member.state == "Live"
            entries.append(entry(member, lending, room))
        elif member.resource_flavor in listed and is_used(view, name, member.resource_flavor):
            # It is not lent any more, and work on it has to end first.
            entries.append(entry(replace(member, state="Stale"), LendingQueue(name)))
    wanted = cluster_queue(queue, name, entries, is_open=is_open)
    listed = {one["name"] for one in entries}
    rules = dispatch_checks([member for member in members if member.resource_flavor in listed])
    set_checks(wanted, [*rules, *([{"name": totals.check_name(queue)}] if total else [])])
    return wanted


def dispatch_checks(members: Sequence[Member]) -> list[Json]:
    """Return the checks that send workloads to clusters, for the flavors of these only if there are others."""
    flavors: dict[str, list[str]] = {}
    standing = [member for member in members if member.has_flavor]
    for member in standing:
        if name := check_of(member.group):
            flavors.setdefault(name, []).append(member.resource_flavor)
    if len(flavors) == 1 and all(check_of(member.group) for member in standing):
        return [{"name": name} for name in flavors]
    return [{"name": name, "onFlavors": names} for name, names in flavors.items()]


def check_of(group: MasterQueueFlavor) -> str:
    return group.cluster_flavor.admission_check if group.cluster_flavor is not None else ""


def set_checks(wanted: Wanted, rules: list[Json]) -> None:
    if rules:
        wanted.body["spec"][CHECKS] = {"admissionChecks": rules}


def is_used(view: View, cluster_queue: str, flavor: str) -> bool:
    return any(
        workload.status.admission is not None and workload.status.admission.cluster_queue == cluster_queue
        for workload in workloads_on(view, flavor)
    )


def entry(member: Member, lending: LendingQueue | None, room: BorrowerRoom | None = None) -> Json:
    """Return the quota of one flavor: all of it for the master, and a borrowing limit for a borrower."""
    resources: list[Json] = []
    for name, amount in member.effective.items():
        resource: Json = {"name": name, "nominalQuota": amount if lending is None else "0"}
        if (limit := borrowing_limit(member, name, lending, room)) is not None:
            resource["borrowingLimit"] = limit
        resources.append(resource)
    return {"name": member.resource_flavor, "resources": resources}


def borrowing_limit(
    member: Member, resource: str, lending: LendingQueue | None, room: BorrowerRoom | None
) -> str | None:
    """Return the limit of a pool: nothing if it is silent, else the smaller of its limit and the rest of the total."""
    if member.state != "Live":
        return "0"
    stated = lending.lending_limit.get(resource) if lending is not None else None
    left = room.limit(member.resource_flavor, resource) if room is not None else None
    if left is None:
        return None if stated is None else canonical(stated)
    if stated is not None:
        left = min(left, quantity.amount(resource, stated))
    return quantity.render(resource, left)


def cluster_queue(queue: MasterQueue, name: str, entries: list[Json], *, is_open: bool) -> Wanted:
    """Return a ClusterQueue. Without quota it is on hold, which its workloads report."""
    template = queue.spec.template
    stop_policy = STOP_POLICIES.get(template.stop_policy, template.stop_policy)
    fungibility = template.flavor_fungibility
    covered = [resource["name"] for resource in entries[0]["resources"]] if entries else []
    spec: Json = {
        "cohortName": template.cohort or queue.metadata.name,
        "queueingStrategy": template.queueing_strategy,
        "namespaceSelector": msgspec.to_builtins(template.namespace_selector),
        "flavorFungibility": {
            "whenCanBorrow": FUNGIBILITY.get(fungibility.when_can_borrow, fungibility.when_can_borrow),
            "whenCanPreempt": FUNGIBILITY.get(fungibility.when_can_preempt, fungibility.when_can_preempt),
        },
        "preemption": preemption(template.preemption),
        "stopPolicy": "Hold" if stop_policy == "None" and not is_open else stop_policy,
        "resourceGroups": [{"coveredResources": covered, "flavors": entries}] if entries else [],
    }
    return Wanted(ClusterQueue.KIND, owned(queue, ClusterQueue.KIND, name, spec))


def preemption(template: PreemptionTemplate) -> Json:
    """Return the preemption policies. Without reclaiming, Kueue refuses preemption while borrowing."""
    borrow = template.borrow_within_cohort
    allowed = template.reclaim_within_cohort != "Never"
    policy = (borrow.policy or "LowerPriority") if borrow is not None and allowed else "Never"
    within: Json = {"policy": policy}
    if borrow is not None and borrow.max_priority_threshold is not None:
        within["maxPriorityThreshold"] = borrow.max_priority_threshold
    return {
        "reclaimWithinCohort": template.reclaim_within_cohort,
        "withinClusterQueue": template.within_cluster_queue,
        "borrowWithinCohort": within,
    }


def local_queues(queue: MasterQueue) -> list[Wanted]:
    pairs = {(one.queue, ns) for group in queue.spec.flavors for one in group.can_lend_to for ns in one.namespaces}
    return [
        Wanted(LocalQueue.KIND, owned(queue, LocalQueue.KIND, name, {"clusterQueue": name}, namespace=namespace))
        for name, namespace in sorted(pairs)
    ]


def owned(
    queue: MasterQueue, kind: Kind, name: str, spec: Json, *, namespace: str = "", labels: dict[str, str] | None = None
) -> Json:
    mine = MasterQueue.KIND
    metadata: Json = {
        "name": name,
        "ownerReferences": [
            {
                "apiVersion": mine.api_version,
                "kind": mine.kind,
                "name": queue.metadata.name,
                "uid": queue.metadata.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    if namespace:
        metadata["namespace"] = namespace
    if kind in (ClusterQueue.KIND, ResourceFlavor.KIND):
        # It goes when nothing uses it any more.
        metadata["finalizers"] = [RESOURCE_IN_USE_FINALIZER]
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def write(view: View, wanted: Wanted) -> list[Action]:
    """Return the write of an object, or nothing if it is stored already."""
    stored = view.find_json(wanted.kind, wanted.key)
    if stored is not None and says(stored, wanted.body):
        return []
    return [Apply(wanted.kind, wanted.body, MANAGER)]


def is_foreign(view: View, queue: MasterQueue, wanted: Wanted) -> bool:
    """Return whether another owner made an object of this name."""
    stored = view.find_json(wanted.kind, wanted.key)
    if stored is None:
        return False
    owners = stored["metadata"].get("ownerReferences") or ()
    return not any(owner.get("controller") and owner.get("uid") == queue.metadata.uid for owner in owners)


def says(stored: Json, wanted: Json) -> bool:
    """Return whether the stored object has all wanted fields. Additions of the server or others do not count."""
    spec, metadata = stored.get("spec") or {}, stored["metadata"]
    wishes = wanted["metadata"]
    labels = metadata.get("labels") or {}
    return (
        all(spec.get(name) == value for name, value in wanted["spec"].items() if name != CHECKS)
        and totals.is_capped(stored) == totals.is_capped(wanted)
        and all(rule in check_rules(stored) for rule in check_rules(wanted))
        and all(labels.get(name) == value for name, value in wishes.get("labels", {}).items())
        and metadata.get("ownerReferences") == wishes["ownerReferences"]
        and set(wishes.get("finalizers", ())) <= set(metadata.get("finalizers") or ())
    )


def check_rules(cluster_queue: Json) -> list[Json]:
    return fields.list_at(cluster_queue, ("spec", CHECKS, "admissionChecks"))


def activate(view: View, queue: MasterQueue, now: datetime) -> list[Action]:
    """Set our check active as soon as it exists: otherwise its queues admit nothing."""
    raw = view.find_json(AdmissionCheck.KIND, Key("", totals.check_name(queue)))
    if raw is None or fields.text_at(raw, ("spec", "controllerName")) != totals.CONTROLLER:
        return []
    edit = StatusEdit(raw, now)
    edit.set_condition("Active", "True", "Active", "The totals of the queues are watched")
    patch = edit.patch(AdmissionCheck.KIND)
    return [patch] if patch is not None else []
