"""
The quota of a manager's ClusterQueue from the ClusterQueues of its workers (``quotaManagement: Automated``).

A LocalQueue of the manager leads, by its namespace and name, to a ClusterQueue of each worker. A single flavor gets the
sum of all flavors there, as in Kueue. With several flavors, each gets the sum of the flavors of its own name; Kueue
refuses that. A worker that is not connected does not count.

Kueue: pkg/controller/admissionchecks/multikueue/clusterqueue.go
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from kyu.api import quantity
from kyu.api.actions import Action, Patch, View
from kyu.api.kueue import MULTIKUEUE_CONTROLLER, AdmissionCheck, ClusterQueue, LocalQueue
from kyu.api.meta import Json, Key, Ref, key_of
from kyu.kinds import fields
from kyu.plans.clusters.dispatch import config_of
from kyu.plans.clusters.quota import flavor_entries
from kyu.plans.clusters.supply import Amounts
from kyu.plans.clusters.workers import Worker, Workers
from kyu.plans.status import StatusEdit, clone

GATE = "MultiKueueManagerQuotaAutomation"
CONDITION = "MultiKueueManagerQuotaAutomation"
UNSUPPORTED = "UnsupportedConfiguration"


def plan(workers: Workers, view: View, key: Key, now: datetime) -> list[Action]:
    """Plan for one ClusterQueue of the manager."""
    raw = view.find_json(ClusterQueue.KIND, key)
    if raw is None or not view.configuration.gates.enabled(GATE):
        return []
    edit = StatusEdit(raw, now)
    actions: list[Action] = []
    check = check_of(view, raw)
    config = config_of(view, check) if check else None
    if not check:
        edit.remove_condition(CONDITION)
    elif config is None:
        edit.set_condition(CONDITION, "False", UNSUPPORTED, "The referenced MultiKueueConfig was not found.")
    elif config.quota_management != "Automated":
        words = "MultiKueue manager quota automation has not been requested."
        edit.set_condition(CONDITION, "False", "NotRequested", words)
    else:
        known = workers()
        used = [known[name] for name in config.clusters if name in known and known[name].is_connected]
        actions = follow(view, edit, raw, used)
    patch = edit.patch(ClusterQueue.KIND)
    return [*actions, *([patch] if patch else [])]


def check_of(view: View, queue: Json) -> str:
    """Return the name of the MultiKueue check of a ClusterQueue, or nothing."""
    for rule in fields.list_at(queue, ("spec", "admissionChecksStrategy", "admissionChecks")):
        check = view.get(AdmissionCheck, Key("", rule["name"]))
        if check is not None and check.spec.controller_name == MULTIKUEUE_CONTROLLER:
            return check.metadata.name
    return ""


def follow(view: View, edit: StatusEdit, raw: Json, workers: list[Worker]) -> list[Action]:
    """Write the sums of the workers into the ClusterQueue, or say in its condition why that is not possible."""
    if unreadable := [worker.name for worker in workers if worker.queues is None]:
        words = f"the queues of these clusters cannot be read: {', '.join(unreadable)}"
        edit.set_condition(CONDITION, "False", UNSUPPORTED, words)
        return []
    entries = list(flavor_entries(raw))
    if not entries:
        words = "Quota automation requires that the manager-side ClusterQueue has a ResourceFlavor"
        edit.set_condition(CONDITION, "False", UNSUPPORTED, words)
        return []
    sums = sum_up(view, raw, workers, entries[0]["name"] if len(entries) == 1 else "")
    known = {(entry["name"], one["name"]) for entry in entries for one in entry["resources"]}
    if missing := sorted(sums.keys() - known):
        edit.set_condition(CONDITION, "False", UNSUPPORTED, missing_words(missing, len(entries) == 1))
        return []
    words = "ClusterQueue quota is automatically managed based on MultiKueue workers."
    edit.set_condition(CONDITION, "True", "QuotaAutomated", words)
    return write(raw, sums)


def missing_words(missing: list[tuple[str, str]], is_single: bool) -> str:
    if is_single:
        names = " ".join(resource for _, resource in missing)
        return f"manager-side coveredResources is missing resources configured on workers: [{names}]"
    pairs = ", ".join(f"{resource} of {flavor}" for flavor, resource in missing)
    return f"the manager-side ClusterQueue has no quota for these flavors of workers: {pairs}"


def sum_up(view: View, raw: Json, workers: list[Worker], single: str) -> Amounts:
    """Return the nominal quotas of all workers, by flavor and resource. ``single``: the flavor that gets them all."""
    name = raw["metadata"]["name"]
    local = {key_of(one) for one in view.list_json(LocalQueue.KIND) if target_of(one) == name}
    sums: Amounts = {}
    for worker in workers:
        for queue in queues_there(worker, local):
            for entry in flavor_entries(queue):
                for one in entry["resources"]:
                    place = single or entry["name"], one["name"]
                    amount = quantity.quota_amount(one["name"], one.get("nominalQuota", 0))
                    sums[place] = quantity.add(sums.get(place, 0), amount)
    return sums


def queues_there(worker: Worker, local: set[Key]) -> Iterator[Json]:
    """Yield the ClusterQueues of a worker that LocalQueues of these names lead to."""
    assert worker.queues is not None
    names = {target_of(one) for one in worker.queues.list_json(LocalQueue.KIND) if key_of(one) in local}
    for one in worker.queues.list_json(ClusterQueue.KIND):
        if one["metadata"]["name"] in names:
            yield one


def target_of(local_queue: Json) -> str:
    return fields.text_at(local_queue, ("spec", "clusterQueue"))


def write(raw: Json, sums: Amounts) -> list[Action]:
    """Return the patch of the nominal quotas, if one differs. Resources that no worker has get none."""
    groups = clone(raw["spec"]["resourceGroups"])
    changed = False
    for entry in flavor_entries({"spec": {"resourceGroups": groups}}):
        for one in entry["resources"]:
            wanted = sums.get((entry["name"], one["name"]), 0)
            if quantity.quota_amount(one["name"], one.get("nominalQuota", 0)) != wanted:
                one["nominalQuota"] = quantity.render(one["name"], wanted)
                changed = True
    version = raw["metadata"].get("resourceVersion", "")
    ref = Ref(ClusterQueue.KIND, key_of(raw))
    return [Patch(ref, {"spec": {"resourceGroups": groups}}, resource_version=version)] if changed else []
