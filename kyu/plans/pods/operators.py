"""
Jobs of every kind → the pods and objects that they run through, where no operator makes them.

A kind says which pods or objects it wants, which of those that are there must go, and what its status is
(kyu/kinds); this plan only compares and writes. batch Jobs, CronJobs, Deployments and ReplicaSets have plans of their
own, since they have controllers in every cluster. ``PLANS`` is the table of all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TypeAlias

from kyu.api.actions import Action, Create, Delete, Event, Patch, View, WakeAt
from kyu.api.core import Pod
from kyu.api.meta import Json, Key, Kind, Ref
from kyu.kinds import metadata, pods, table
from kyu.kinds.job import JOB
from kyu.kinds.kind import JobKind, MissingReference, child_ref
from kyu.plans.pods import cron_jobs, jobs, replica_sets

Plan: TypeAlias = Callable[[View, Key, datetime], list[Action]]


def plan(kind: Kind, view: View, key: Key, now: datetime) -> list[Action]:
    """Plan for an object of a kind whose operator Kyu replaces."""
    job_kind = table.find_kind(kind)
    assert job_kind is not None, f"{kind.kind} is in the table of plans and not in that of kinds"
    stored = view.find_json(kind, key)
    if stored is None or metadata.is_deleted(stored):
        return []
    obj = job_kind.resolve(stored, lambda ref: view.find_json(ref.kind, ref.key))
    # The objects that it refers to may still come; plans/job/lifecycle.py reports them.
    if isinstance(obj, MissingReference) or job_kind.is_managed_elsewhere(obj):
        return []
    uid = metadata.uid_of(obj)
    expires = job_kind.expires_at(obj)
    if expires is not None and now >= expires:
        return [Delete(Ref(kind, key), uid)]
    if runs_through_children(job_kind):
        kinds = dict.fromkeys((*CHILD_KINDS, *(child_ref(child).kind for child in job_kind.children_of(obj))))
        children = [child for child_kind in kinds for child in view.owned_by(child_kind, uid)]
        patch = job_kind.status_from_children(obj, children, now)
        writes = child_actions(job_kind, obj, children)
    else:
        its_pods = view.owned_by(Pod.KIND, uid)
        patch = job_kind.status_from_pods(obj, its_pods, now)
        writes = pod_actions(Ref(kind, key), job_kind, obj, its_pods)
    # The status first: what it decides (the end, a restart) must stand before pods go.
    told: list[Action] = [Patch(Ref(kind, key), {"status": patch}, "status")] if patch else []
    wakes = [at for at in (expires, job_kind.wakes_at(obj)) if at is not None and at > now]
    return [*told, *writes, *map(WakeAt, wakes)]


def runs_through_children(job_kind: JobKind) -> bool:
    return type(job_kind).children_of is not JobKind.children_of


def pod_actions(ref: Ref, job_kind: JobKind, obj: Json, its_pods: Sequence[Json]) -> list[Action]:
    pod_by_name = {metadata.name_of(pod): pod for pod in its_pods}
    uid = metadata.uid_of(obj)
    result: list[Action] = []
    for name in job_kind.surplus_pods(obj, its_pods):
        pod = pod_by_name[name]
        if not metadata.is_deleted(pod):
            pod_ref = Ref(Pod.KIND, Key(ref.key.namespace, name))
            result.append(Delete(pod_ref, metadata.uid_of(pod)))
            result.append(Event(ref, "Normal", "SuccessfulDelete", f"Deleted pod: {name}", uid))
    held = job_kind.held(obj, its_pods)
    for blueprint in wanted_pods(job_kind, obj):
        # A pod of this name that is on its way out is waited for.
        if blueprint.name not in pod_by_name and blueprint.name not in held:
            result.append(Create(Pod.KIND, blueprint.to_pod(obj)))
            result.append(Event(ref, "Normal", "SuccessfulCreate", f"Created pod: {blueprint.name}", uid))
    return result


def wanted_pods(job_kind: JobKind, obj: Json) -> Sequence[pods.Blueprint]:
    """Return the wanted pods. Kinds that are queued through their pods always have them, each with a gate."""
    if job_kind.finished(obj) is not None:
        return ()
    if job_kind.is_suspended(obj) and job_kind.queued_as != "its pods":
        return ()
    return job_kind.pods_of(obj, pods.loopback_address)


def child_actions(job_kind: JobKind, obj: Json, children: Sequence[Json]) -> list[Action]:
    present = {child_ref(child): child for child in children}
    doomed = [
        (ref, present[ref]["metadata"].get("uid", ""))
        for ref in job_kind.surplus_children(obj, children)
        if not present[ref]["metadata"].get("deletionTimestamp")
    ]
    held = job_kind.held(obj, children)
    wanted = [(child_ref(child), child) for child in job_kind.children_of(obj)]
    missing = [(ref, child) for ref, child in wanted if ref not in present and ref.key.name not in held]
    # In the foreground: a child is gone only when its pods are, and so is their quota.
    gone = [Delete(ref, uid, "Foreground") for ref, uid in doomed]
    return [*gone, *(Create(ref.kind, child) for ref, child in missing)]


# Kinds of children: other kinds of jobs, and ReplicaSets.
CHILD_KINDS: tuple[Kind, ...] = (
    *(job_kind.kind for job_kind in table.KINDS),
    replica_sets.REPLICA_SET,
)

# These have plans of their own; plain pods need none.
OWN_PLANS: dict[Kind, Plan] = {
    JOB: jobs.plan,
    cron_jobs.CRON_JOB: cron_jobs.plan,
    replica_sets.DEPLOYMENT: replica_sets.plan_deployment,
    replica_sets.REPLICA_SET: replica_sets.plan_replica_set,
}

# The plan of each kind that has pods in embedded mode.
PLANS: dict[Kind, Plan] = {
    **OWN_PLANS,
    **{
        job_kind.kind: partial(plan, job_kind.kind)
        for job_kind in table.KINDS
        if job_kind.kind not in OWN_PLANS and job_kind.kind != Pod.KIND
    },
}
