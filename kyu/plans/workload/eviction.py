"""
How a Workload loses its place: the marks of an eviction, and the release of its quota once its pods are gone.

Eviction is one write that says why; the quota stays charged. The job is stopped next (plans/job/lifecycle.py), and only
when none of its pods is active the reservation is released and the workload may queue again.

Kueue: pkg/workload/evict.
"""

from __future__ import annotations

from kyu.api.config.features import FeatureGates
from kyu.api.kueue import Workload
from kyu.api.meta import Json
from kyu.kinds import metadata
from kyu.plans.status import StatusEdit, parse_time, timestamp
from kyu.plans.workload import unadmitted

NOT_READY = "Not all pods are ready or succeeded"
# After these evictions a workload goes straight back to its queue; after others something must happen first.
REQUEUED_AT_ONCE = frozenset({"Preempted", "NodeFailures"})


def evict(edit: StatusEdit, reason: str, message: str, *, cause: str = "", counted_as: str = "") -> None:
    """Mark the workload as evicted. Statistics may count it under a shorter reason, beside its cause."""
    edit.set_condition("Evicted", "True", reason, message)
    for field in ("clusterName", "nominatedClusterNames", "unhealthyNodes"):
        edit.status.pop(field, None)
    reset_checks(edit)
    close_gates(edit)
    if edit.is_true("BlockedOnPreemptionGates"):
        edit.set_condition("BlockedOnPreemptionGates", "False", reason, message)
    count_eviction(edit.status, counted_as or reason, cause)


def reset_checks(edit: StatusEdit) -> None:
    """Reset all checks. Only the number of retries is kept."""
    for check in edit.status.get("admissionChecks") or ():
        state = check.get("state")
        if state == "Pending":
            continue
        if state == "Retry":
            check["retryCount"] = check.get("retryCount", 0) + 1
        else:
            check.pop("retryCount", None)
        check.update(
            state="Pending",
            message=f"Reset to Pending after eviction. Previously: {state}",
            lastTransitionTime=timestamp(edit.now),
        )
        check.pop("podSetUpdates", None)


def close_gates(edit: StatusEdit) -> None:
    """Close the preemption gates, which must be opened again for the next round."""
    if not any(gate.get("position") == "Open" for gate in edit.read("preemptionGates") or ()):
        return
    for gate in edit.status["preemptionGates"]:
        if gate.get("position") == "Open":
            gate.update(position="Closed", lastTransitionTime=timestamp(edit.now))


def count_eviction(status: Json, reason: str, cause: str) -> None:
    evictions = status.setdefault("schedulingStats", {}).setdefault("evictions", [])
    for entry in evictions:
        if entry["reason"] == reason and entry.get("underlyingCause", "") == cause:
            entry["count"] += 1
            return
    evictions.append({"reason": reason, "underlyingCause": cause, "count": 1})


def release(edit: StatusEdit, workload: Workload, gates: FeatureGates) -> None:
    """Give the quota back when the pods are gone, and tell whether the workload may queue again at once."""
    evicted = edit.condition("Evicted") or {"reason": "", "message": ""}
    reason, message = str(evicted.get("reason", "")), str(evicted.get("message", ""))
    # A controller may have answered for the round that is over.
    reset_checks(edit)
    ends_with_pod = is_owned_by_single_pod(workload) and gates.enabled("SkipReassignmentForPodOwnedWorkloads")
    at_once = reason in REQUEUED_AT_ONCE and not ends_with_pod
    edit.set_condition("Requeued", "True" if at_once else "False", reason, message)
    clear_reservation(edit, "PendingEvaluation", message, gates)


def clear_reservation(edit: StatusEdit, reason: str, message: str, gates: FeatureGates) -> None:
    """Clear the reservation. The time spent admitted counts towards the maximum execution time."""
    admitted = edit.condition("Admitted")
    if admitted is not None and admitted.get("status") == "True":
        since = parse_time(admitted.get("lastTransitionTime"))
        if since is not None:
            elapsed = max(0, int((edit.now - since).total_seconds()))
            past = edit.status.get("accumulatedPastExecutionTimeSeconds", 0)
            edit.status["accumulatedPastExecutionTimeSeconds"] = past + elapsed
    edit.status.pop("admission", None)
    unadmitted.set_no_quota(edit, reason, message, gates)
    if edit.condition("PodsReady") is not None:
        edit.set_condition("PodsReady", "False", "WaitForStart", NOT_READY)


def is_owned_by_single_pod(workload: Workload) -> bool:
    """Return whether the workload belongs to a single pod: once that is gone, there is nothing to queue again."""
    owners = workload.metadata.owner_references
    group = workload.metadata.annotations.get(metadata.IS_GROUP_WORKLOAD) == "true"
    return len(owners) == 1 and owners[0].kind == "Pod" and owners[0].api_version == "v1" and not group
