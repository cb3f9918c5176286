"""
Kueue's metrics, under Kueue's names: what cycles decided, how long workloads waited, what queues hold.

Counters and histograms move as decisions are written and workloads change; gauges are read off the engine when somebody
asks, so a queue that nobody looks at costs nothing.

Called by: scheduler.py; endpoints.py shows them on a cluster. Kueue: pkg/metrics
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import Literal

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kyu.api.kueue import Workload
from kyu.api.meta import Json, find_condition
from kyu.controllers.counts import Count, Spread
from kyu.engine.decisions import Cycle, Preempt
from kyu.engine.state import State
from kyu.plans.admission import seconds_queued

# What a process is to others like it: alone, or the one of several that acts.
Role = Literal["standalone", "leader"]
ATTEMPT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
WAIT_BUCKETS = (1.0, 2.5, *(5.0 * 2**n for n in range(12)))


def own_registry() -> CollectorRegistry:
    """For controllers without a server of their own: what the process itself takes is in it already."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


def render(registry: CollectorRegistry) -> bytes:
    return generate_latest(registry)


class Metrics:
    """One set for the process; ``state`` gives the engine's state as it is when asked."""

    def __init__(self, registry: CollectorRegistry, state: Callable[[], State], role: Role = "standalone") -> None:
        self._role = role
        count, spread = partial(Count, registry), partial(Spread, registry)
        queue_labels = ("cluster_queue", "priority_class", "replica_role")
        result_labels = ("result", "replica_role")
        self._attempts = count("kueue_admission_attempts_total", "Scheduling passes, by their result.", result_labels)
        self._attempt_seconds = spread(
            "kueue_admission_attempt_duration_seconds",
            "How long a scheduling pass took.",
            result_labels,
            ATTEMPT_BUCKETS,
        )
        self._reserved = count("kueue_quota_reserved_workloads_total", "Workloads that got quota.", queue_labels)
        self._admitted = count("kueue_admitted_workloads_total", "Workloads that were admitted.", queue_labels)
        self._finished = count("kueue_finished_workloads_total", "Workloads that finished.", queue_labels)
        self._evicted = count(
            "kueue_evicted_workloads_total",
            "Evictions, by their reason.",
            ("cluster_queue", "reason", "underlying_cause", "priority_class", "replica_role"),
        )
        self._preempted = count(
            "kueue_preempted_workloads_total",
            "Workloads that were preempted, by the queue that did it.",
            ("preempting_cluster_queue", "reason", "replica_role"),
        )
        self._wait = spread("kueue_admission_wait_time_seconds", "From queued to admitted.", queue_labels, WAIT_BUCKETS)
        self._wait_reserved = spread(
            "kueue_quota_reserved_wait_time_seconds", "From queued to quota reserved.", queue_labels, WAIT_BUCKETS
        )
        registry.register(QueueGauges(state, role))

    def note_cycle(self, decided: Cycle, seconds: float) -> None:
        result = "success" if any(decided.admitted()) else "inadmissible"
        self._attempts.note((result, self._role))
        self._attempt_seconds.note((result, self._role), seconds)
        for decision in decided.decisions:
            if isinstance(decision, Preempt):
                self._preempted.note((decision.cluster_queue, decision.reason, self._role))

    def note_workload(self, old: Json, new: Workload, now: datetime) -> None:
        """Count what became true with this change. What was true when we came is not counted again."""
        before = old.get("status") or {}
        were_true = {c["type"] for c in before.get("conditions") or () if c["status"] == "True"}
        now_true = {c.type: c for c in new.status.conditions if c.status == "True" and c.type not in were_true}
        if not now_true:
            return
        admission = new.status.admission
        name = admission.cluster_queue if admission else (before.get("admission") or {}).get("clusterQueue", "")
        ref = new.spec.priority_class_ref
        labels = (name, ref.name if ref else "", self._role)
        waited = seconds_queued(new, now)
        if "QuotaReserved" in now_true:
            self._reserved.note(labels)
            self._wait_reserved.note(labels, waited)
        if "Admitted" in now_true:
            self._admitted.note(labels)
            self._wait.note(labels, waited)
        if "Finished" in now_true:
            self._finished.note(labels)
        if evicted := now_true.get("Evicted"):
            reason, _, cause = evicted.reason.partition("DueTo")
            preempted = find_condition(new.status.conditions, "Preempted")
            if reason == "Preempted" and preempted is not None:
                cause = preempted.reason
            self._evicted.note((name, reason, cause, labels[1], self._role))


class QueueGauges(Collector):
    """What queues hold and what waits in them, read when it is asked for."""

    def __init__(self, state: Callable[[], State], role: Role) -> None:
        self._state = state
        self._role = role

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Nothing is computed at registration."""
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        state, role = self._state(), self._role
        queue = ["cluster_queue", "replica_role"]
        usage = ["cohort", "cluster_queue", "flavor", "resource", "replica_role"]
        pending = GaugeMetricFamily(
            "kueue_pending_workloads", "Workloads that wait.", labels=["cluster_queue", "status", "replica_role"]
        )
        reserving = GaugeMetricFamily("kueue_reserving_active_workloads", "Workloads that hold quota.", labels=queue)
        admitted = GaugeMetricFamily("kueue_admitted_active_workloads", "Workloads that are admitted.", labels=queue)
        status = GaugeMetricFamily(
            "kueue_cluster_queue_status",
            "1 for the status that holds.",
            labels=["cluster_queue", "status", "replica_role"],
        )
        reserved = GaugeMetricFamily("kueue_cluster_queue_resource_reservation", "Quota that is held.", labels=usage)
        used = GaugeMetricFamily("kueue_cluster_queue_resource_usage", "Quota of admitted workloads.", labels=usage)
        share = GaugeMetricFamily(
            "kueue_cluster_queue_weighted_share",
            "Share above nominal quota.",
            labels=["cluster_queue", "cohort", "replica_role"],
        )
        for name, node in sorted(state.queues.items()):
            stats = state.stats(name)
            cohort = node.parent.name if node.parent else ""
            parked = len(node.line.inadmissible())
            pending.add_metric([name, "active", role], stats.pending - parked)
            pending.add_metric([name, "inadmissible", role], parked)
            reserving.add_metric([name, role], stats.reserving)
            admitted.add_metric([name, role], stats.admitted)
            word = "terminating" if node.terminating else "active" if node.active else "pending"
            for each in ("pending", "active", "terminating"):
                status.add_metric([name, each, role], float(each == word))
            for cell, amounts in stats.usage.items():
                labels = [cohort, name, cell.flavor, cell.resource, role]
                reserved.add_metric(labels, in_units(cell.resource, amounts.reserved))
                used.add_metric(labels, in_units(cell.resource, amounts.admitted))
            share.add_metric([name, cohort, role], stats.weighted_share)
        yield from (pending, reserving, admitted, status, reserved, used, share)


def in_units(resource: str, amount: int) -> float:
    """Cores, bytes, counts."""
    return amount / 1000 if resource == "cpu" else float(amount)
