"""The quota that Workloads hold, by flavor and resource."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kyu.api import quantity
from kyu.api.actions import View
from kyu.api.kueue import Workload
from kyu.api.meta import is_true, key_of
from kyu.kinds import fields


def usage_by_flavor(workload: Workload) -> Counter[tuple[str, str]]:
    """Return the amounts that a workload holds, without reclaimable pods."""
    admission = workload.status.admission
    assert admission is not None
    pods = {pod_set.name: pod_set.count for pod_set in workload.spec.pod_sets}
    for ended in workload.status.reclaimable_pods:
        pods[ended.name] = pods.get(ended.name, 0) - ended.count
    sums = Counter[tuple[str, str]]()
    for assigned in admission.pod_set_assignments:
        admitted = assigned.count or 1
        left = max(0, min(admitted, pods.get(assigned.name, admitted)))
        for resource, value in assigned.resource_usage.items():
            place = assigned.flavors.get(resource, ""), resource
            sums[place] += quantity.amount(resource, value) * left // admitted
    return sums


def workloads_of(view: View, cluster_queue: str) -> Iterator[Workload]:
    """Yield the workloads that hold quota of the ClusterQueue. All workloads are read."""
    for raw in view.list_json(Workload.KIND):
        if fields.json_at(raw, ("status", "admission")).get("clusterQueue") == cluster_queue:
            workload = view.get(Workload, key_of(raw))
            if workload is not None and not is_true(workload.status.conditions, "Finished"):
                yield workload
