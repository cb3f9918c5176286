"""
Admission checks on a Workload: which apply, whether all are ready and what follows then, how long a retry waits.

Kueue: pkg/workload/admissionchecks.go
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from kyu.api.config.config import Configuration
from kyu.api.kueue import AdmissionCheckState, ClusterQueue, Workload
from kyu.api.meta import Json
from kyu.kinds.conditions import add_seconds
from kyu.plans.status import StatusEdit, parse_time, timestamp
from kyu.plans.workload.eviction import NOT_READY


def wanted(cluster_queue: ClusterQueue, assigned_flavors: Iterable[str] | None) -> list[str]:
    """Return the names of the checks that apply: those of all flavors, and with a reservation those of its flavors.

    A workload without requests has a reservation without flavors, and must not pass a check by that.
    """
    strategy = cluster_queue.spec.admission_checks_strategy
    if strategy is None:
        return []
    every = {flavor.name for group in cluster_queue.spec.resource_groups for flavor in group.flavors}
    names = set()
    for rule in strategy.admission_checks:
        flavors = set(rule.on_flavors) or every
        if flavors >= every or not flavors.isdisjoint(assigned_flavors or ()):
            names.add(rule.name)
    return sorted(names)


def assigned_flavors(workload: Workload) -> set[str] | None:
    admission = workload.status.admission
    if admission is None:
        return None
    return {flavor for pod_set in admission.pod_set_assignments for flavor in pod_set.flavors.values()}


def sync(edit: StatusEdit, workload: Workload, cluster_queue: ClusterQueue, now: datetime) -> None:
    """List exactly the checks that apply, new ones as Pending; what a check has already said is kept."""
    has_rules = cluster_queue.spec.admission_checks_strategy is not None
    list_checks(edit, wanted(cluster_queue, assigned_flavors(workload)) if has_rules else [], now)


def list_checks(edit: StatusEdit, names: list[str], now: datetime) -> None:
    if names == [check["name"] for check in edit.read("admissionChecks") or ()]:
        return
    known = {check["name"]: check for check in edit.status.pop("admissionChecks", None) or ()}
    fresh = {"state": "Pending", "message": "", "lastTransitionTime": timestamp(now)}
    if names:
        edit.status["admissionChecks"] = [known.get(name) or {"name": name, **fresh} for name in names]


def all_ready(workload: Workload) -> bool:
    return all(check.state == "Ready" for check in workload.status.admission_checks)


def describe(states: Iterable[AdmissionCheckState], state: str) -> str:
    """Return the checks in a state, with what they say."""
    parts = [
        f'"{check.name}" ({check.message})' if check.message else f'"{check.name}"'
        for check in sorted(states, key=lambda check: check.name)
    ]
    noun = "AdmissionChecks" if len(parts) > 1 else "AdmissionCheck"
    return f"{noun} in {state} state: {'; '.join(parts)}"


def set_state(
    edit: StatusEdit,
    state: AdmissionCheckState,
    wanted: str,
    message: str,
    updates: list[Json] | None = None,
    *,
    requeue_after_seconds: int | None = None,
) -> None:
    """Set the state of one check. The time moves only with the state."""
    for check in edit.status.get("admissionChecks") or ():
        if check["name"] != state.name or (check["state"] == wanted and check.get("message", "") == message):
            continue
        if check["state"] != wanted:
            check["lastTransitionTime"] = timestamp(edit.now)
        check.update(state=wanted, message=message)
        if updates:
            check["podSetUpdates"] = updates
        if requeue_after_seconds is not None:
            check["requeueAfterSeconds"] = requeue_after_seconds


def delay_requeue(edit: StatusEdit, retrying: Iterable[AdmissionCheckState], now: datetime) -> None:
    """Delay the requeue to the latest time that a check asks for. It never moves earlier."""
    times = [
        add_seconds(since, check.requeue_after_seconds)
        for check in retrying
        if check.requeue_after_seconds and (since := parse_time(check.last_transition_time))
    ]
    if not times or max(times) <= now:
        return
    state = edit.status.setdefault("requeueState", {})
    current = parse_time(state.get("requeueAt"))
    if current is None or max(times) > current:
        state["requeueAt"] = timestamp(max(times))


def admit(edit: StatusEdit, workload: Workload, configuration: Configuration) -> None:
    """Admit a workload whose checks are ready. The wait for its pods begins with the same write."""
    edit.set_condition("Admitted", "True", "Admitted", "The workload is admitted")
    await_pods(edit, workload, configuration)


def await_pods(edit: StatusEdit, workload: Workload, configuration: Configuration) -> None:
    """Set PodsReady to False if the settings wait for pods, also while the workload waits for quota."""
    if workload.metadata.owner_references and configuration.wait_for_pods_ready is not None:
        edit.set_condition("PodsReady", "False", "WaitForStart", NOT_READY)
