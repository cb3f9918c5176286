"""
The priority of Workloads that refer to a WorkloadPriorityClass, with or without a job.

Called by: controllers/table.py.
Kueue: pkg/controller/core/workloadpriorityclass_controller.go
"""

from __future__ import annotations

from datetime import datetime

from kyu.api.actions import Action, Patch, View
from kyu.api.kueue import Workload, WorkloadPriorityClass
from kyu.api.meta import Json, Key, Ref, is_true, key_of


def plan(view: View, key: Key, now: datetime) -> list[Action]:
    """Write the value of the class to the Workloads that refer to it. A finished Workload keeps its priority."""
    found = view.get(WorkloadPriorityClass, key)
    if found is None:
        return []
    users = [view.get(Workload, key_of(raw)) for raw in view.list_json(Workload.KIND) if refers_to(raw, key.name)]
    patch = {"spec": {"priority": found.value}}
    return [
        Patch(Ref(Workload.KIND, one.key), patch, resource_version=one.metadata.resource_version)
        for one in users
        if one is not None and one.spec.priority != found.value and not is_true(one.status.conditions, "Finished")
    ]


def refers_to(workload: Json, name: str) -> bool:
    ref = (workload.get("spec") or {}).get("priorityClassRef") or {}
    return ref.get("kind") == WorkloadPriorityClass.KIND.kind and ref.get("name") == name
