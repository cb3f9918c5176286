"""
The quota that each pod runs with: the admitted pod sets of its Workload, less the pods that are bound already.

A queued pod is bound only if a pod set of its Workload has room for it. So neither forged labels, annotations and
owner references, nor edits of the objects between a job and its pods make more run than was admitted.

Called by: plans/pods/binding.py, plans/quota/audit.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kyu.api.actions import View
from kyu.api.core import LimitRange, Pod, PodSpec, RuntimeClass
from kyu.api.kueue import PodSet, ResourceFlavor, Workload
from kyu.api.meta import Json, Key, is_true, key_of
from kyu.engine import requests
from kyu.kinds import fields, metadata, pod_group
from kyu.kinds.pod import POD
from kyu.plans import pods_of_jobs
from kyu.plans.job import managed

PODS = "pods"


@dataclass(slots=True)
class PodSetRoom:
    """An admitted pod set: the node labels of its flavors, and the amounts that no bound pod uses."""

    name: str
    node_labels: Mapping[str, str]
    left: dict[str, int]

    def find_shortage(self, pod: Json, wanted: Mapping[str, int]) -> str | None:
        """Return why the pod cannot run in this pod set, or None if it can."""
        selector = fields.json_at(pod, ("spec", "nodeSelector"))
        for label, value in self.node_labels.items():
            if selector.get(label) != value:
                return f"it does not select nodes with {label}={value}"
        short = next((name for name, amount in wanted.items() if amount and amount > self.left.get(name, 0)), None)
        return None if short is None else f"no {short} is left of what was admitted"

    def take(self, wanted: Mapping[str, int]) -> None:
        for name, amount in wanted.items():
            self.left[name] = self.left.get(name, 0) - amount


class Coverage:
    """The room of all Workloads, as one pass over the pods sees it. Rooms are made when a pod needs them."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._rooms: dict[Key, list[PodSetRoom]] = {}
        self._groups: dict[str, dict[str, list[Json]]] = {}

    def take(self, pod: Json, wanted: Mapping[str, int]) -> str | None:
        """Charge an unbound pod to its Workload. Return why that is not possible, or None.

        A pod that is not queued runs outside of all quota; admission decides whether there can be such a pod.
        """
        workloads = workloads_of_pod(self._view, pod)
        if not workloads and managed.is_queued(self._view, pod):
            return "it waits for its Workload"
        if not workloads:
            # A job in between makes more pods after the queued job was deleted without it.
            name = metadata.annotations_of(pod).get(metadata.WORKLOAD)
            return f"it was admitted with Workload {name}, which is gone" if name else None
        holding = [workload for workload in workloads if holds_quota(workload)]
        if not holding:
            return f"Workload {workloads[-1].metadata.name} has no quota"
        # The latest slice of an elastic job holds the quota of all.
        workload = max(holding, key=lambda one: (one.metadata.creation_timestamp or "", one.metadata.name))
        rooms = self._rooms_of(workload)
        why = charge(rooms, pod, wanted).shortage
        return None if why is None else f"Workload {workload.metadata.name}: {why}"

    def _rooms_of(self, workload: Workload) -> list[PodSetRoom]:
        rooms = self._rooms.get(workload.key)
        if rooms is None:
            rooms = self._rooms[workload.key] = admitted_rooms(self._view, workload)
            for pod in self._bound_pods(workload):
                typed = self._view.get(Pod, key_of(pod))
                if typed is not None:
                    charge(rooms, pod, pod_amounts(typed.spec), bound=True)
        return rooms

    def _bound_pods(self, workload: Workload) -> list[Json]:
        found = {metadata.uid_of(pod): pod for pod in pods_of_jobs.pods_of_owners(self._view, workload)}
        if workload.metadata.annotations.get(metadata.IS_GROUP_WORKLOAD) == "true":
            members = self._group_members(workload.metadata.namespace).get(workload.metadata.name, ())
            found |= {metadata.uid_of(pod): pod for pod in members}
        if not workload.metadata.owner_references:
            found |= {metadata.uid_of(pod): pod for pod in pods_of_jobs.pods_by_annotation(self._view, workload)}
        return [pod for pod in found.values() if is_bound(pod)]

    def _group_members(self, namespace: str) -> dict[str, list[Json]]:
        groups = self._groups.get(namespace)
        if groups is None:
            groups = self._groups[namespace] = {}
            for pod in self._view.list_json(POD, namespace):
                if name := pod_group.name(pod):
                    groups.setdefault(name, []).append(pod)
        return groups


@dataclass(frozen=True, slots=True)
class Charge:
    """The pod set that a pod was charged to, and why that has no room for it."""

    room: PodSetRoom | None = None
    shortage: str | None = None


def charge(rooms: list[PodSetRoom], pod: Json, wanted: Mapping[str, int], *, bound: bool = False) -> Charge:
    """Take the room of the pod: in the pod set that its label names, or in any other that has room.

    A bound pod takes its room even if there is none.
    """
    named = metadata.labels_of(pod).get(metadata.POD_SET)
    ordered = sorted(rooms, key=lambda room: room.name != named)
    for room in ordered:
        if room.find_shortage(pod, wanted) is None:
            room.take(wanted)
            return Charge(room)
    if not ordered:
        return Charge(shortage="it was admitted without pod sets")
    shortage = ordered[0].find_shortage(pod, wanted)
    if not bound:
        return Charge(shortage=shortage)
    ordered[0].take(wanted)
    return Charge(ordered[0], shortage)


def workloads_of_pod(view: View, pod: Json) -> list[Workload]:
    """Return the Workloads that the pod may run with: those of the nearest queued owner, of its group, or its own.

    A pod whose queued owner was deleted without it has the one that admission named in its annotation.
    """
    for owner in pods_of_jobs.owners(view, pod):
        if found := workloads_owned_by(view, metadata.uid_of(owner)):
            return found
    if name := pod_group.name(pod):
        workload = view.get(Workload, Key(fields.text_at(pod, ("metadata", "namespace")), name))
        is_group = workload is not None and workload.metadata.annotations.get(metadata.IS_GROUP_WORKLOAD) == "true"
        return [workload] if workload is not None and is_group else []
    if found := workloads_owned_by(view, metadata.uid_of(pod)):
        return found
    name = metadata.annotations_of(pod).get(metadata.WORKLOAD, "")
    orphaned = view.get(Workload, Key(fields.text_at(pod, ("metadata", "namespace")), name)) if name else None
    return [orphaned] if orphaned is not None and not orphaned.metadata.owner_references else []


def workloads_owned_by(view: View, uid: str) -> list[Workload]:
    owned = (view.get(Workload, key_of(one)) for one in view.owned_by(Workload.KIND, uid))
    return [workload for workload in owned if workload is not None]


def holds_quota(workload: Workload) -> bool:
    """Return whether pods may start with the quota of the Workload."""
    conditions = workload.status.conditions
    over = is_true(conditions, "Finished") or is_true(conditions, "Evicted")
    return workload.status.admission is not None and is_true(conditions, "QuotaReserved") and not over


def admitted_rooms(view: View, workload: Workload) -> list[PodSetRoom]:
    """Return the pod sets of an admitted Workload as they were charged, less the pods that will not run again."""
    admission = workload.status.admission
    if admission is None:
        return []
    pod_sets = {pod_set.name: pod_set for pod_set in workload.spec.pod_sets}
    reclaimed = {one.name: one.count for one in workload.status.reclaimable_pods}
    rooms = []
    for assignment in admission.pod_set_assignments:
        pod_set = pod_sets.get(assignment.name)
        if pod_set is None:
            continue
        count = pod_set.count if assignment.count is None else min(assignment.count, pod_set.count)
        count -= reclaimed.get(assignment.name, 0)
        amounts = {name: count * amount for name, amount in template_amounts(view, workload, pod_set).items()}
        labels: dict[str, str] = {}
        for name in dict.fromkeys(assignment.flavors.values()):
            if (flavor := view.get(ResourceFlavor, Key("", name))) is not None:
                labels |= flavor.spec.node_labels
        rooms.append(PodSetRoom(assignment.name, labels, {**amounts, PODS: count}))
    return rooms


def template_amounts(view: View, workload: Workload, pod_set: PodSet) -> dict[str, int]:
    spec = pod_set.template.spec
    limits = requests.fold_limit_ranges(view.list(LimitRange, workload.metadata.namespace))
    runtime_class = view.get(RuntimeClass, Key("", spec.runtime_class_name)) if spec.runtime_class_name else None
    overhead = runtime_class.overhead.pod_fixed if runtime_class is not None else {}
    return requests.amounts(requests.raw_requests(requests.complete(spec, limits, overhead)))


def pod_amounts(spec: PodSpec) -> dict[str, int]:
    """Return the requests of one pod, with the pod itself as a resource."""
    return {**requests.amounts(requests.raw_requests(requests.complete(spec, {}, {}))), PODS: 1}


def is_bound(pod: Json) -> bool:
    """Return whether the pod uses a node: it is bound, and its processes have not ended."""
    over = fields.text_at(pod, ("status", "phase")) in ("Succeeded", "Failed")
    return not over and bool(fields.text_at(pod, ("spec", "nodeName")))
