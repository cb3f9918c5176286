"""
What is sent to other clusters, in numbers, under Kueue's names.

Counted as Workloads change here: those that are nominated get copies, one that names its cluster was admitted there.

Called by: workers.py. Kueue: pkg/metrics
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from kyu.api.meta import Json
from kyu.controllers.counts import Count
from kyu.controllers.metrics import Role

LABELS = ("cluster_queue", "cluster", "replica_role")


class DispatchMetrics:
    def __init__(self, registry: CollectorRegistry, role: Role) -> None:
        self._role = role
        self._dispatched = Count(
            registry, "multikueue_workloads_dispatched_total", "Copies made in worker clusters.", LABELS
        )
        self._admitted = Count(
            registry, "multikueue_workloads_admitted_total", "Workloads that a worker cluster admitted.", LABELS
        )

    def note(self, old: Json | None, new: Json | None) -> None:
        """For a change of a Workload. What was so when we came is not counted again."""
        if old is None or new is None:
            return
        before, after = old.get("status") or {}, new.get("status") or {}
        queue = (after.get("admission") or {}).get("clusterQueue", "")
        for cluster in set(after.get("nominatedClusterNames") or ()) - set(before.get("nominatedClusterNames") or ()):
            self._dispatched.note((queue, cluster, self._role))
        if (cluster := after.get("clusterName")) and cluster != before.get("clusterName"):
            self._admitted.note((queue, cluster, self._role))
