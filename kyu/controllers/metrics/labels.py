"""
Labels that the settings add to metrics, and the LocalQueues that they show.

The values are read from the objects at a scrape, so that a changed label or setting needs no other work.

Kueue: pkg/metrics/custom_labels.go, pkg/metrics/localqueue.go
"""

from __future__ import annotations

from typing import Literal

from kyu.api.actions import View
from kyu.api.config.config import ControllerMetricsCustomLabel
from kyu.api.kueue import ClusterQueue, Cohort, LocalQueue
from kyu.api.meta import Json, Key, selects
from kyu.controllers.metrics import families
from kyu.controllers.metrics.families import Family, Source
from kyu.controllers.metrics.series import Labels

# The label replica_role: alone, or the leader of several replicas.
Role = Literal["standalone", "leader"]
UNTRACKED = "kueue.x-k8s.io/_UNTRACKED_VALUE_"
KIND_BY_SOURCE = {"ClusterQueue": ClusterQueue.KIND, "LocalQueue": LocalQueue.KIND, "Cohort": Cohort.KIND}
QUEUE_LABELS = ("cluster_queue", "preempting_cluster_queue")
GATE_BY_FAMILY = {
    families.CREATION_LATENCY: "MetricForWorkloadCreationLatency",
    families.QUEUE_INFO: "MetricsForCohorts",
    families.COHORT_INFO: "MetricsForCohorts",
    families.UNADMITTED: "UnadmittedWorkloadsObservability",
    families.LOCAL_UNADMITTED: "UnadmittedWorkloadsObservability",
}


class CustomLabels:
    """The labels of the settings, by the kind of the objects that they are read from."""

    def __init__(self, view: View) -> None:
        self._view = view

    def specs(self, source: Source) -> tuple[ControllerMetricsCustomLabel, ...]:
        return self._view.configuration.custom_labels(source)

    def names(self, source: Source) -> Labels:
        return tuple(f"custom_{spec.name}" for spec in self.specs(source))

    def values(self, source: Source, key: Key) -> Labels:
        """Return the values for an object; empty ones if it does not exist."""
        specs = self.specs(source)
        return values_of(specs, self._view.find_json(KIND_BY_SOURCE[source], key) or {}) if specs else ()


def values_of(specs: tuple[ControllerMetricsCustomLabel, ...], obj: Json) -> Labels:
    metadata = obj.get("metadata") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    found = []
    for spec in specs:
        key = spec.label_key
        value = labels.get(key, "") if key else annotations.get(spec.source_annotation_key, "")
        found.append(value if not spec.tracked_values or value in spec.tracked_values else UNTRACKED)
    return tuple(found)


class FamilyLabels:
    """The labels of a family: its own, replica_role, and those of the settings."""

    def __init__(self, family: Family, view: View, role: Role) -> None:
        self._family = family
        self._view = view
        self._role = role
        self._custom = CustomLabels(view)
        self._queue = next((n for n, label in enumerate(family.labels) if label in QUEUE_LABELS), -1)

    def names(self) -> Labels:
        source = self._family.source
        added = self._custom.names(source) if source else ()
        if self._family is families.ADMITTED_NOW:
            added += self._custom.names("Workload")
        return (*self._family.labels, "replica_role", *added)

    def complete(self, labels: Labels) -> Labels | None:
        family = self._family
        gate = GATE_BY_FAMILY.get(family)
        if gate is not None and not self._view.configuration.gates.enabled(gate):
            return None
        if family is families.CREATION_LATENCY:
            # The series is noted with its LocalQueue, for the labels of that.
            kind, *place = labels
            return (kind, self._role, *self._custom.values("LocalQueue", local_queue_key(place)))
        if family.is_local and not is_shown(self._view, local_queue_key(labels)):
            return None
        return (*labels, self._role, *self._custom_values(labels))

    def _custom_values(self, labels: Labels) -> Labels:
        match self._family.source:
            case "LocalQueue":
                return self._custom.values("LocalQueue", local_queue_key(labels))
            case "ClusterQueue" if self._queue >= 0:
                return self._custom.values("ClusterQueue", Key("", labels[self._queue]))
            case "Cohort":
                return self._custom.values("Cohort", Key("", labels[0]))
            case _:
                return ()


def local_queue_key(labels: Labels | list[str]) -> Key:
    name, namespace = labels[:2]
    return Key(namespace, name)


def is_shown(view: View, key: Key) -> bool:
    """Return whether the LocalQueue exists, and the settings show its metrics."""
    rules = view.configuration.metrics.local_queue_metrics
    if not rules.enable or not view.configuration.gates.enabled("LocalQueueMetrics"):
        return False
    found = view.find_json(LocalQueue.KIND, key)
    if found is None or rules.local_queue_selector is None:
        return found is not None
    return selects(rules.local_queue_selector, found["metadata"].get("labels") or {})
