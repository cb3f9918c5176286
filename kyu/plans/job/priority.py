"""
The priority of a job's Workload, and where it comes from.

Kueue's own class (a label of the job) comes first, then the pods' priority class, then the cluster's default.

Kueue: pkg/util/priority, pkg/controller/jobframework (PrepareWorkloadPriority)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kyu.api.actions import View
from kyu.api.core import PriorityClass
from kyu.api.kueue import Workload, WorkloadPriorityClass
from kyu.api.meta import Json, Key
from kyu.kinds import metadata
from kyu.kinds.templates import PodSetTemplate
from kyu.plans.job.unit import Unit


@dataclass(frozen=True, slots=True)
class MissingPriorityClass:
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} doesn't exist; the job is queued once it does"


@dataclass(frozen=True, slots=True)
class Priority:
    value: int = 0
    group: str = ""
    kind: str = ""
    name: str = ""

    def fields(self) -> Json:
        """Return the fields of a Workload's spec for the priority."""
        if not self.name:
            return {"priority": self.value}
        ref = {"group": self.group, "kind": self.kind, "name": self.name}
        return {"priority": self.value, "priorityClassRef": ref}

    def differs_from(self, workload: Workload) -> bool:
        """Return whether a WorkloadPriorityClass has another value. Other priorities are fixed with the Workload."""
        if self.kind != "WorkloadPriorityClass":
            return False
        ref = workload.spec.priority_class_ref
        return workload.spec.priority != self.value or ref is None or ref.name != self.name


def of(view: View, unit: Unit, pod_sets: Sequence[PodSetTemplate]) -> Priority | MissingPriorityClass:
    if name := metadata.labels_of(unit.head).get(metadata.PRIORITY_CLASS):
        own = view.get(WorkloadPriorityClass, Key("", name))
        if own is None:
            return MissingPriorityClass("WorkloadPriorityClass", name)
        return Priority(own.value, "kueue.x-k8s.io", "WorkloadPriorityClass", name)
    if name := unit.priority_class():
        of_pods = view.get(PriorityClass, Key("", name))
        if of_pods is None:
            return MissingPriorityClass("PriorityClass", name)
        return Priority(of_pods.value, "scheduling.k8s.io", "PriorityClass", name)
    defaults = [one for one in view.list(PriorityClass) if one.global_default]
    if not defaults:
        return Priority()
    chosen = min(defaults, key=lambda one: (one.value, one.metadata.name))
    return Priority(chosen.value, "scheduling.k8s.io", "PriorityClass", chosen.metadata.name)
