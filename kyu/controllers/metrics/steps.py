"""
Counters and histograms of the steps of Workloads: quota reserved, admitted, ready, evicted, finished.

A step is a condition that a change of the Workload makes true. Steps from before the start are not counted.

Kueue: pkg/scheduler/scheduler.go, pkg/workload/evict, pkg/controller/core/workload_controller.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from prometheus_client import CollectorRegistry

from kyu.api.actions import View
from kyu.api.kueue import Workload
from kyu.api.meta import Condition, Json, Key, find_condition, is_true
from kyu.controllers.metrics import families
from kyu.controllers.metrics.families import Family
from kyu.controllers.metrics.labels import QUEUE_LABELS, FamilyLabels, Role
from kyu.controllers.metrics.series import CounterMetric, HistogramMetric, Labels
from kyu.kinds import metadata, pod_group, table
from kyu.plans.quota.coverage import workloads_of_pod
from kyu.plans.status import parse_time
from kyu.plans.workload.admission import seconds_queued

GATES = frozenset({metadata.ADMISSION_GATE, metadata.TOPOLOGY_GATE, metadata.ELASTIC_GATE})


class Series:
    """The counted families, with their series."""

    def __init__(self, registry: CollectorRegistry, view: View, role: Role) -> None:
        self._counters: dict[Family, CounterMetric] = {}
        self._histograms: dict[Family, HistogramMetric] = {}
        for family in families.COUNTED:
            labels = FamilyLabels(family, view, role)
            if family.type == "counter":
                self._counters[family] = CounterMetric(registry, family.name, family.text, labels)
            else:
                self._histograms[family] = HistogramMetric(registry, family.name, family.text, labels, family.buckets)

    def count(self, family: Family, labels: Labels) -> None:
        self._counters[family].note(labels)

    def observe(self, family: Family, labels: Labels, seconds: float) -> None:
        self._histograms[family].note(labels, max(0.0, seconds))

    def drop_cluster_queue(self, name: str) -> None:
        self._drop(QUEUE_LABELS, (name,))

    def drop_local_queue(self, key: Key) -> None:
        self._drop(families.LOCAL[:1], (key.name, key.namespace), local=True)

    def drop_cohort(self, name: str) -> None:
        self._drop(("cohort",), (name,))

    def _drop(self, labels: tuple[str, ...], values: Labels, *, local: bool = False) -> None:
        metrics: dict[Family, CounterMetric | HistogramMetric] = {**self._counters, **self._histograms}
        for family, metric in metrics.items():
            found = [index for index, label in enumerate(family.labels) if label in labels]
            if found and family.is_local == local:
                metric.drop(found[0], values)


class WorkloadSteps:
    """``cohorts_above`` returns the Cohorts of a ClusterQueue, up to the root."""

    def __init__(self, series: Series, view: View, cohorts_above: Callable[[str], Sequence[str]]) -> None:
        self._series = series
        self._view = view
        self._cohorts_above = cohorts_above

    def note(self, old: Json, new: Workload, now: datetime) -> None:
        before = old.get("status") or {}
        were_true = {c["type"] for c in before.get("conditions") or () if c["status"] == "True"}
        now_true = {c.type: c for c in new.status.conditions if c.status == "True" and c.type not in were_true}
        self._note_evictions(before, new)
        held = (before.get("admission") or {}).get("clusterQueue", "")
        if "QuotaReserved" in were_true and held:
            self._note_returned_quota(held, new, now)
        if not now_true:
            return
        waited = seconds_queued(new, now)
        labels, local = self._labels(new, held), _local_labels(new)
        if "QuotaReserved" in now_true:
            self._count(families.RESERVED, families.LOCAL_RESERVED, labels, local)
            self._observe(families.RESERVED_WAIT, families.LOCAL_RESERVED_WAIT, labels, local, waited)
        if "Admitted" in now_true:
            self._note_admitted(new, now, labels, local)
        if (ready := now_true.get("PodsReady")) and ready.reason == "Started":
            self._observe(families.READY_WAIT, families.LOCAL_READY_WAIT, labels, local, waited)
            seconds = _seconds_between(find_condition(new.status.conditions, "Admitted"), ready)
            self._observe(families.ADMITTED_UNTIL_READY, families.LOCAL_ADMITTED_UNTIL_READY, labels, local, seconds)
        if finished := now_true.get("Finished"):
            self._count(families.FINISHED, families.LOCAL_FINISHED, labels, local)
            if finished.reason == "WorkloadSliceReplaced":
                self._series.count(families.REPLACED_SLICES, labels[:1])

    def _note_admitted(self, new: Workload, now: datetime, labels: Labels, local: Labels) -> None:
        self._count(families.ADMITTED, families.LOCAL_ADMITTED, labels, local)
        waited = seconds_queued(new, now)
        self._observe(families.ADMISSION_WAIT, families.LOCAL_ADMISSION_WAIT, labels, local, waited)
        for cohort in self._cohorts_above(labels[0]):
            self._series.count(families.COHORT_ADMITTED, (cohort, labels[1]))
        reserved = find_condition(new.status.conditions, "QuotaReserved")
        admitted = find_condition(new.status.conditions, "Admitted")
        seconds = _seconds_between(reserved, admitted)
        if seconds or new.status.admission_checks:
            self._observe(families.CHECKS_WAIT, families.LOCAL_CHECKS_WAIT, labels, local, seconds)

    def _note_evictions(self, before: Json, new: Workload) -> None:
        """Count the evictions that the change adds to schedulingStats."""
        queue = (before.get("admission") or {}).get("clusterQueue", "")
        ref = new.spec.priority_class_ref
        class_name = ref.name if ref else ""
        for reason, cause, is_first in _new_evictions(before, new):
            self._series.count(families.EVICTED, (queue, reason, cause, class_name))
            if is_first:
                self._series.count(families.EVICTED_ONCE, (queue, reason, cause, class_name))
            local = (new.spec.queue_name, new.metadata.namespace, reason, cause, class_name)
            self._series.count(families.LOCAL_EVICTED, local)
            ready: Json = next((c for c in before.get("conditions") or () if c["type"] == "PodsReady"), {})
            since = parse_time(ready.get("lastTransitionTime")) if ready.get("status") == "True" else None
            evicted = find_condition(new.status.conditions, "Evicted")
            until = parse_time(evicted.last_transition_time) if evicted else None
            if since is not None and until is not None:
                seconds = (until - since).total_seconds()
                self._series.observe(families.READY_TO_EVICTED, (queue, reason, cause), seconds)

    def _note_returned_quota(self, queue: str, new: Workload, now: datetime) -> None:
        """Note the time from an eviction to the return of the quota."""
        conditions = new.status.conditions
        evicted = find_condition(conditions, "Evicted")
        if is_true(conditions, "QuotaReserved") or is_true(conditions, "Finished"):
            return
        if evicted is not None and evicted.status == "True":
            since = parse_time(evicted.last_transition_time)
            seconds = (now - since).total_seconds() if since else 0.0
            self._series.observe(families.EVICTION_LATENCY, (queue, evicted.reason), seconds)

    def note_created(self, workload: Json) -> None:
        """Note the time from the creation of a job to that of its Workload."""
        owner: Mapping[str, str] = next(iter(workload["metadata"].get("ownerReferences") or ()), {})
        job = self._find_owner(workload["metadata"].get("namespace", ""), owner)
        if job is None or job["metadata"].get("generation", 1) > 1:
            return
        since = parse_time(job["metadata"].get("creationTimestamp"))
        until = parse_time(workload["metadata"].get("creationTimestamp"))
        if since is not None and until is not None:
            queue, namespace = workload["spec"].get("queueName", ""), workload["metadata"].get("namespace", "")
            labels = (owner["kind"], queue, namespace)
            self._series.observe(families.CREATION_LATENCY, labels, (until - since).total_seconds())

    def _find_owner(self, namespace: str, owner: Mapping[str, str]) -> Json | None:
        job_kind = table.find({**owner})
        for kind in job_kind.kinds if job_kind else ():
            if (kind.api_version, kind.kind) == (owner["apiVersion"], owner["kind"]):
                return self._view.find_json(kind, Key(namespace, owner["name"]))
        return None

    def note_pod(self, old: Json | None, new: Json | None, now: datetime) -> None:
        """Note how long after admission a scheduling gate of a pod was removed."""
        if old is None or new is None or not (removed := _gates(old) - _gates(new)):
            return
        for workload in workloads_of_pod(self._view, new)[:1]:
            admitted = find_condition(workload.status.conditions, "Admitted")
            since = parse_time(admitted.last_transition_time) if admitted and admitted.status == "True" else None
            if since is None or workload.status.admission is None:
                continue
            is_group = str(bool(pod_group.name(new))).lower()
            for gate in sorted(removed):
                labels = (gate, workload.status.admission.cluster_queue, is_group)
                self._series.observe(families.GATE_REMOVAL, labels, (now - since).total_seconds())

    def _labels(self, new: Workload, held: str) -> Labels:
        ref = new.spec.priority_class_ref
        admission = new.status.admission
        return admission.cluster_queue if admission else held, ref.name if ref else ""

    def _count(self, family: Family, local_family: Family, labels: Labels, local: Labels) -> None:
        self._series.count(family, labels)
        self._series.count(local_family, (*local, *labels[1:]))

    def _observe(self, family: Family, local_family: Family, labels: Labels, local: Labels, seconds: float) -> None:
        self._series.observe(family, labels, seconds)
        self._series.observe(local_family, (*local, *labels[1:]), seconds)


def _local_labels(workload: Workload) -> Labels:
    return workload.spec.queue_name, workload.metadata.namespace


def _new_evictions(before: Json, new: Workload) -> Iterator[tuple[str, str, bool]]:
    """Yield the reason and cause of each eviction since, and whether it is the first of that kind."""
    stats = new.status.scheduling_stats
    if stats is None or before.get("admission") is None:
        return
    known = {
        (entry["reason"], entry.get("underlyingCause", "")): entry.get("count", 0)
        for entry in (before.get("schedulingStats") or {}).get("evictions") or ()
    }
    for entry in stats.evictions:
        if entry.count > known.get((entry.reason, entry.underlying_cause), 0):
            yield entry.reason, entry.underlying_cause, entry.count == 1


def _seconds_between(first: Condition | None, second: Condition | None) -> float:
    since = parse_time(first.last_transition_time) if first else None
    until = parse_time(second.last_transition_time) if second else None
    return 0.0 if since is None or until is None else (until - since).total_seconds()


def _gates(pod: Json) -> frozenset[str]:
    found = (pod.get("spec") or {}).get("schedulingGates") or ()
    return GATES.intersection(gate.get("name", "") for gate in found)
