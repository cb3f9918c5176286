"""
Counts of Workload objects that the engine does not keep: finished ones, and unadmitted ones by reason.

They follow changes of objects. Counts are kept by LocalQueue, since that is all that a Workload itself tells; a
ClusterQueue has the sum of its LocalQueues.

Kueue: pkg/cache/queue/unadmitted_workloads.go
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from kyu.api.actions import View
from kyu.api.meta import Json, Key
from kyu.controllers.metrics.labels import CustomLabels, values_of
from kyu.controllers.metrics.series import Labels
from kyu.engine.workloads import ALLOWED_FLAVORS
from kyu.kinds import conditions


class Unadmitted(NamedTuple):
    """Why Workloads of a LocalQueue are not admitted."""

    local_queue: Key
    reason: str
    cause: str


class WorkloadCounts:
    def __init__(self, view: View) -> None:
        self._custom = CustomLabels(view)
        self.finished: Counter[Key] = Counter()
        self.unadmitted: Counter[Unadmitted] = Counter()
        # By ClusterQueue and values of the labels of Workloads; empty if the settings name no such label.
        self.admitted: Counter[tuple[str, Labels]] = Counter()

    def reset(self, workloads: Iterable[Json]) -> None:
        """Count all Workloads anew."""
        for counts in (self.finished, self.unadmitted, self.admitted):
            counts.clear()
        for workload in workloads:
            self._add(workload, 1)

    def note(self, old: Json | None, new: Json | None) -> None:
        for workload, change in ((old, -1), (new, 1)):
            if workload is not None:
                self._add(workload, change)

    def _add(self, workload: Json, change: int) -> None:
        metadata = workload["metadata"]
        queue = Key(metadata.get("namespace", ""), (workload.get("spec") or {}).get("queueName", ""))
        if conditions.is_true(workload, "Finished"):
            self.finished[queue] += change
        elif not conditions.is_true(workload, "Admitted"):
            if not metadata.get("deletionTimestamp") and ALLOWED_FLAVORS not in (metadata.get("annotations") or {}):
                self.unadmitted[Unadmitted(queue, *why_unadmitted(workload))] += change
        elif specs := self._custom.specs("Workload"):
            cluster_queue = ((workload.get("status") or {}).get("admission") or {}).get("clusterQueue", "")
            self.admitted[cluster_queue, values_of(specs, workload)] += change


def why_unadmitted(workload: Json) -> tuple[str, str]:
    """Return the reason of the condition Admitted, and that of QuotaReserved as the underlying cause."""
    admitted, reserved = conditions.find(workload, "Admitted"), conditions.find(workload, "QuotaReserved")
    reason = (admitted or {}).get("reason", "NoReservation")
    if reserved is None:
        return reason, "PendingEvaluation"
    return reason, "" if reserved.get("status") == "True" else reserved.get("reason", "")
