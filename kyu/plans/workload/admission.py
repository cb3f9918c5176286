"""
From the engine's decisions to writes: quota reserved, preempted, evicted, or the reason why it still waits.

Each decision becomes one write of the Workload's status and its events. A workload that waits is written only when
its reason is another one than before.

Kueue: pkg/scheduler (admit, requeue), pkg/scheduler/preemption (issue)
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from kyu.api import placement, quantity
from kyu.api.actions import Action, Event, View
from kyu.api.kueue import ClusterQueue, Workload
from kyu.api.meta import Json, Key, Ref, find_condition, is_true
from kyu.engine import reasons
from kyu.engine.decisions import Admit, Evict, Preempt, Wait
from kyu.engine.request_shape import RequestShape
from kyu.engine.workloads import AssignedPodSet, priority_boost
from kyu.kinds import metadata
from kyu.plans.pods_of_jobs import has_pods
from kyu.plans.status import StatusEdit, parse_time
from kyu.plans.workload import checks, unadmitted
from kyu.plans.workload.eviction import evict, release

# Conditions that a reservation sets to False, with the former state as the message.
UNDONE_BY_RESERVATION = ("Evicted", "Preempted", "BlockedOnPreemptionGates")
WHY_PREEMPTED = {
    "InClusterQueue": "prioritization in the ClusterQueue",
    "InCohortReclamation": "reclamation within the cohort",
    "InCohortFairSharing": "Fair Sharing within the cohort",
    "InCohortReclaimWhileBorrowing": "reclamation within the cohort while borrowing",
}


def plan_admit(view: View, decision: Admit, now: datetime) -> list[Action] | None:
    """Return the writes of an admission, or None if the workload is gone."""
    workload, raw = view.get(Workload, decision.key), view.find_json(Workload.KIND, decision.key)
    if workload is None or raw is None or is_true(workload.status.conditions, "Finished"):
        return None
    edit = StatusEdit(raw, now)
    before = workload.status.admission
    delayed = {one.name for one in before.pod_set_assignments if one.delayed_topology_request} if before else set()
    edit.status["admission"] = {
        "clusterQueue": decision.cluster_queue,
        "podSetAssignments": [
            pod_set_assignment(pod_set, was_delayed=pod_set.name in delayed) for pod_set in decision.pod_sets
        ],
    }
    edit.status.pop("resourceRequests", None)
    edit.status.pop("unhealthyNodes", None)
    for type_ in UNDONE_BY_RESERVATION:
        known = edit.condition(type_)
        if known is not None and known.get("status") == "True":
            edit.set_condition(type_, "False", "QuotaReserved", f"Previously: {known.get('message', '')}")
    edit.set_condition(
        "QuotaReserved", "True", "QuotaReserved", f"Quota reserved in ClusterQueue {decision.cluster_queue}"
    )
    waited = int(seconds_queued(workload, now))
    told = f"Quota reserved in ClusterQueue {decision.cluster_queue}, wait time since queued was {waited}s"
    events = [] if decision.second_pass else [event(workload, "QuotaReserved", told)]
    cluster_queue = view.get(ClusterQueue, Key("", decision.cluster_queue))
    flavors = {flavor for pod_set in decision.pod_sets for flavor in pod_set.flavors.values()}
    wanted = checks.wanted(cluster_queue, flavors) if cluster_queue else []
    checks.list_checks(edit, wanted, now)
    ready = all(check["state"] == "Ready" for check in edit.status.get("admissionChecks") or ())
    if ready and not any(pod_set.delayed for pod_set in decision.pod_sets) and not edit.is_true("Admitted"):
        checks.admit(edit, workload, view.configuration)
        told = f"Admitted by ClusterQueue {decision.cluster_queue}, wait time since reservation was 0s"
        events.append(event(workload, "Admitted", told))
    patch = edit.patch(Workload.KIND)
    return [patch, *events] if patch else []


def pod_set_assignment(pod_set: AssignedPodSet, *, was_delayed: bool) -> Json:
    body: Json = {
        "name": pod_set.name,
        "flavors": dict(pod_set.flavors),
        "resourceUsage": {name: quantity.render(name, amount) for name, amount in pod_set.usage.items()},
        "count": pod_set.count,
    }
    if pod_set.placement is not None:
        compressed = placement.compress(pod_set.placement.levels, pod_set.placement.domains)
        body["topologyAssignment"] = msgspec.to_builtins(compressed)
        if was_delayed:
            body["delayedTopologyRequest"] = "Ready"
    elif pod_set.delayed:
        body["delayedTopologyRequest"] = "Pending"
    return body


def plan_preempt(view: View, decision: Preempt, now: datetime) -> list[Action]:
    """Mark the victim; nothing if it holds no quota, has finished, or is on its way out already."""
    workload, raw = view.get(Workload, decision.victim), view.find_json(Workload.KIND, decision.victim)
    if workload is None or raw is None:
        return []
    conditions = workload.status.conditions
    if not is_true(conditions, "QuotaReserved") or is_true(conditions, "Finished") or is_true(conditions, "Evicted"):
        return []
    preemptor = view.get(Workload, decision.preemptor)
    job_uid = preemptor.metadata.labels.get(metadata.JOB_UID, "UNKNOWN") if preemptor else "UNKNOWN"
    message = (
        f"Preempted to accommodate a workload (UID: {decision.preemptor_uid}, JobUID: {job_uid}) due to "
        f"{WHY_PREEMPTED[decision.reason]}; preemptor path: {decision.path}; preemptee path: {decision.victim_path}"
    )
    edit = StatusEdit(raw, now)
    evict(edit, "Preempted", message)
    edit.set_condition("Preempted", "True", decision.reason, message)
    if not workload.metadata.owner_references and not has_pods(view, workload, now):
        # The workload has no pods to stop first, so its quota is released with the same write.
        release(edit, workload, view.configuration.gates)
    patch = edit.patch(Workload.KIND)
    if patch is None:
        return []
    compared = f"preemptor {priorities(view, preemptor)}; preemptee {priorities(view, workload)}"
    events = [
        event(workload, "EvictedDueToPreempted", message),
        event(workload, "Preempted", f"{message}; {compared}"),
    ]
    if preemptor is not None:
        admission = workload.status.admission
        where = f"(UID: {workload.metadata.uid}) in ClusterQueue {admission.cluster_queue if admission else ''}"
        events.append(
            event(preemptor, "PreemptedWorkload", f"Preempted workload {decision.victim} {where}; {compared}")
        )
    return [patch, *events]


def priorities(view: View, workload: Workload | None) -> str:
    """Return the priority that counts, and what it is made of."""
    if workload is None:
        return "effective priority: 0 (base: 0, boost: 0)"
    base = workload.spec.priority or 0
    boost = priority_boost(workload) if view.configuration.gates.enabled("PriorityBoost") else 0
    return f"effective priority: {base + boost} (base: {base}, boost: {boost})"


def plan_evict(view: View, decision: Evict, now: datetime) -> list[Action]:
    workload, raw = view.get(Workload, decision.key), view.find_json(Workload.KIND, decision.key)
    if workload is None or raw is None:
        return []
    nodes = ",".join(decision.nodes)
    message = (
        f"Workload was evicted as there was no replacement for unhealthy node(s): {nodes}"
        if decision.reason == "NodeFailures"
        else "Moves to a flavor that is liked better"
    )
    edit = StatusEdit(raw, now)
    evict(edit, decision.reason, message)
    patch = edit.patch(Workload.KIND)
    return [patch, event(workload, f"EvictedDueTo{decision.reason}", message)] if patch else []


def plan_wait(view: View, decision: Wait, shape: RequestShape | None, now: datetime) -> list[Action]:
    """Report why the workload waits, unless it has the message already or got quota in the meantime."""
    workload, raw = view.get(Workload, decision.key), view.find_json(Workload.KIND, decision.key)
    if workload is None or raw is None or is_true(workload.status.conditions, "QuotaReserved"):
        return []
    fine_word, message = reasons.render(decision.reason)
    word = unadmitted.reason_word(fine_word, message, view.configuration.gates)
    before = find_condition(workload.status.conditions, "QuotaReserved")
    if before is not None and (before.reason, before.message) == (word, message):
        return []
    edit = StatusEdit(raw, now)
    unadmitted.set_no_quota(edit, fine_word, message, view.configuration.gates)
    checks.await_pods(edit, workload, view.configuration)
    if shape is not None:
        edit.status["resourceRequests"] = resource_requests(shape)
    patch = edit.patch(Workload.KIND)
    if patch is None:
        return []
    # The number in a message may change every second; users are told when the kind of reason changes.
    changed = before is None or before.reason != word
    return [patch, event(workload, word, message, warning=True)] if changed else [patch]


def resource_requests(shape: RequestShape) -> list[Json]:
    """Return the requests of a pending workload, with all defaults and transformations."""
    return [
        {
            "name": pod_set.name,
            "resources": {name: quantity.render(name, amount) for name, amount in sorted(pod_set.total.items())},
        }
        for pod_set in shape.pod_sets
    ]


def seconds_queued(workload: Workload, now: datetime) -> float:
    """Return the seconds since its creation or its last requeue."""
    requeued = find_condition(workload.status.conditions, "Requeued")
    since = parse_time(requeued.last_transition_time if requeued else workload.metadata.creation_timestamp)
    return max(0.0, (now - since).total_seconds()) if since else 0.0


def event(workload: Workload, reason: str, message: str, *, warning: bool = False) -> Event:
    ref = Ref(Workload.KIND, workload.key)
    return Event(ref, "Warning" if warning else "Normal", reason, message, workload.metadata.uid)
