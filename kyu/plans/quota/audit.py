"""
The audit of quota: the requests of the pods that run, against what was admitted.

A pod that is bound and not over should be charged to a Workload with quota, and the pods of a Workload should request
no more than it was admitted with. Everything else is a finding: a pod without quota, or requests in excess of it.

Called by: controllers/audit.py, for metrics and events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from kyu.api.actions import Event, View
from kyu.api.core import Pod
from kyu.api.kueue import LocalQueue, Workload
from kyu.api.meta import Key, Ref, is_true, key_of
from kyu.kinds.pod import POD
from kyu.plans.job import managed
from kyu.plans.quota.coverage import (
    PodSetRoom,
    admitted_rooms,
    charge,
    is_bound,
    pod_amounts,
    workloads_of_pod,
)

RUNS_WITHOUT_QUOTA = "RunsWithoutQuota"
EXCEEDS_QUOTA = "ExceedsAdmittedQuota"

# "NotQueued": neither the pod nor an owner of it is queued. "NoReservation": its Workload is missing or has no quota.
Reason: TypeAlias = Literal["NotQueued", "NoReservation"]


class QuotaKey(NamedTuple):
    """The quota of one resource in a flavor of a ClusterQueue."""

    cluster_queue: str
    flavor: str
    resource: str


class Uncovered(NamedTuple):
    """A pod that runs without quota."""

    key: Key
    uid: str
    reason: Reason


class Excess(NamedTuple):
    """A Workload whose pods request more of a resource than it was admitted with."""

    workload: Key
    uid: str
    quota: QuotaKey
    amount: int


@dataclass(slots=True)
class Report:
    """The findings of an audit, and the requests of the pods that run with quota."""

    running: Counter[QuotaKey] = field(default_factory=Counter)
    uncovered: list[Uncovered] = field(default_factory=list)
    excess: list[Excess] = field(default_factory=list)


class Audit:
    """The audit of one namespace. Pods are noted one by one, so that a large namespace can be audited in parts."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._report = Report()
        self._charged: dict[Key, tuple[Workload, list[PodSetRoom]]] = {}

    def note(self, key: Key) -> None:
        """Charge a pod to its Workload, if it runs."""
        raw, pod = self._view.find_json(POD, key), self._view.get(Pod, key)
        if raw is None or pod is None or not is_bound(raw):
            return
        workload = next((one for one in workloads_of_pod(self._view, raw) if holds_reservation(one)), None)
        if workload is None:
            reason: Reason = "NoReservation" if managed.is_queued(self._view, raw) else "NotQueued"
            self._report.uncovered.append(Uncovered(key, pod.metadata.uid, reason))
            return
        if workload.key not in self._charged:
            self._charged[workload.key] = workload, admitted_rooms(self._view, workload)
        amounts = pod_amounts(pod.spec)
        room = charge(self._charged[workload.key][1], raw, amounts, bound=True).room
        for resource, amount in amounts.items() if room is not None else ():
            if room is not None and (quota := quota_key(workload, room.name, resource)) is not None:
                self._report.running[quota] += amount

    def finish(self) -> Report:
        self._report.excess = [
            finding for workload, rooms in self._charged.values() for finding in excess_of(workload, rooms)
        ]
        return self._report


def pods_to_audit(view: View, namespace: str) -> list[Key]:
    """Return the pods of a namespace that has a LocalQueue, if Kyu manages its jobs."""
    if not view.list_json(LocalQueue.KIND, namespace) or not managed.is_managed_namespace(view, namespace):
        return []
    return [key_of(pod) for pod in view.list_json(POD, namespace)]


def excess_of(workload: Workload, rooms: list[PodSetRoom]) -> Iterator[Excess]:
    over: Counter[QuotaKey] = Counter()
    for room in rooms:
        for resource, left in room.left.items():
            quota = quota_key(workload, room.name, resource)
            if left < 0 and quota is not None:
                over[quota] -= left
    for quota, amount in over.items():
        yield Excess(workload.key, workload.metadata.uid, quota, amount)


def quota_key(workload: Workload, pod_set: str, resource: str) -> QuotaKey | None:
    """Return the quota that a pod set uses for a resource, or None if its ClusterQueue has none for it."""
    admission = workload.status.admission
    if admission is None:
        return None
    assignment = next((one for one in admission.pod_set_assignments if one.name == pod_set), None)
    flavor = assignment.flavors.get(resource) if assignment is not None else None
    return None if flavor is None else QuotaKey(admission.cluster_queue, flavor, resource)


def holds_reservation(workload: Workload) -> bool:
    """Return whether quota is charged for the Workload. An evicted one keeps it until its pods have ended."""
    conditions = workload.status.conditions
    has_quota = workload.status.admission is not None and is_true(conditions, "QuotaReserved")
    return has_quota and not is_true(conditions, "Finished")


def events(report: Report, before: Report | None) -> list[Event]:
    """Return an event for each finding that the audit before had, too: a job that just ends is no finding.

    Work outside the queues is a matter of rights and settings, so it is counted only.
    """
    found: list[Event] = []
    known_pods = {one.uid for one in before.uncovered} if before is not None else set()
    for pod, uid, reason in report.uncovered:
        if reason == "NoReservation" and uid in known_pods:
            message = "The pod runs, but no admitted Workload has quota for it"
            found.append(Event(Ref(POD, pod), "Warning", RUNS_WITHOUT_QUOTA, message, uid))
    known = {(one.uid, one.quota) for one in before.excess} if before is not None else set()
    for workload, uid, quota, _ in report.excess:
        if (uid, quota) in known:
            message = f"The pods request more {quota.resource} of flavor {quota.flavor} than was admitted"
            found.append(Event(Ref(Workload.KIND, workload), "Warning", EXCEEDS_QUOTA, message, uid))
    return found
