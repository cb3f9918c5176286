"""
MultiKueue's metrics, under Kueue's names.

They follow changes of local Workloads: a nominated cluster gets a copy, and ``status.clusterName`` means admission.

Kueue: pkg/metrics
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from kyu.api.meta import Json
from kyu.controllers.metrics.labels import Role
from kyu.controllers.metrics.series import CounterMetric, PlainLabels

LABELS = PlainLabels(("cluster_queue", "cluster", "replica_role"))


class DispatchMetrics:
    def __init__(self, registry: CollectorRegistry, role: Role) -> None:
        self._role = role
        self._dispatched = CounterMetric(
            registry, "multikueue_workloads_dispatched_total", "Copies made in worker clusters.", LABELS
        )
        self._admitted = CounterMetric(
            registry, "multikueue_workloads_admitted_total", "Workloads that a worker cluster admitted.", LABELS
        )

    def note(self, old: Json | None, new: Json | None) -> None:
        """Count what a change of a Workload shows. The state at the start is not counted."""
        if old is None or new is None:
            return
        before, after = old.get("status") or {}, new.get("status") or {}
        queue = (after.get("admission") or {}).get("clusterQueue", "")
        for cluster in set(after.get("nominatedClusterNames") or ()) - set(before.get("nominatedClusterNames") or ()):
            self._dispatched.note((queue, cluster, self._role))
        if (cluster := after.get("clusterName")) and cluster != before.get("clusterName"):
            self._admitted.note((queue, cluster, self._role))
