"""
Gauges of ClusterQueues, LocalQueues and Cohorts, computed at a scrape from numbers that the engine keeps.

The cost is that of the queues and request shapes, not of the workloads, with one exception: if a ClusterQueue has both
active and inadmissible workloads, the inadmissible ones are counted by LocalQueue.

Kueue: pkg/cache/queue/metrics.go, pkg/cache/scheduler/clusterqueue_metrics.go, pkg/cache/scheduler/cohort_metrics.go
"""

from __future__ import annotations

import math
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

import kyu
from kyu.api.actions import View
from kyu.api.kueue import Cohort, LocalQueue
from kyu.api.meta import Json, Key, key_of
from kyu.controllers.metrics import families
from kyu.controllers.metrics.families import Family
from kyu.controllers.metrics.labels import CustomLabels, FamilyLabels, Role, is_shown
from kyu.controllers.metrics.series import Labels
from kyu.controllers.metrics.workload_counts import WorkloadCounts
from kyu.engine.quota.amounts import FlavorResource
from kyu.engine.state import State
from kyu.engine.stats import Stats
from kyu.kinds import conditions

GAUGES = tuple(family for family in families.ALL if family.type == "gauge" and family is not families.BUILD_INFO)


class Gauges(Collector):
    """The gauges of a process; ``state`` returns the current engine state."""

    def __init__(self, state: Callable[[], State], view: View, counts: WorkloadCounts, role: Role) -> None:
        self._state = state
        self._view = view
        self._counts = counts
        self._role: Role = role
        # Skipped preemptions of the last scheduling run that had some, by ClusterQueue.
        self.preemption_skips: dict[str, int] = {}

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return nothing: the registry would otherwise compute all gauges at registration."""
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        scrape = Scrape(self._state(), self._view, self._counts, self._role)
        scrape.show_cluster_queues(self.preemption_skips)
        scrape.show_local_queues()
        scrape.show_cohorts()
        yield from scrape.gauges.values()
        yield build_info()


class Scrape:
    """The gauges at one moment."""

    def __init__(self, state: State, view: View, counts: WorkloadCounts, role: Role) -> None:
        self._state = state
        self._view = view
        self._role = role
        self._labels = {family: FamilyLabels(family, view, role) for family in GAUGES}
        self._custom = CustomLabels(view)
        self.gauges = {
            family: GaugeMetricFamily(family.name, family.text, labels=self._labels[family].names())
            for family in GAUGES
        }
        # The finished and unadmitted Workloads of each ClusterQueue are those of its LocalQueues.
        self._queue_by_local = {
            key_of(queue): (queue.get("spec") or {}).get("clusterQueue", "")
            for queue in view.list_json(LocalQueue.KIND)
        }
        self._unadmitted = counts.unadmitted
        self._finished = counts.finished
        self._admitted_by_labels = counts.admitted
        self._inadmissible: dict[str, int] = {}
        self._inadmissible_by_local: dict[str, Counter[Key]] = {}
        self._cohort_reserved: dict[str, Counter[FlavorResource]] = {}
        self._cohort_admitted: Counter[str] = Counter()
        self._cohort_labels: dict[str, dict[Labels, None]] = {}

    def _add(self, family: Family, labels: Labels, value: float) -> None:
        completed = self._labels[family].complete(labels)
        if completed is not None:
            self.gauges[family].add_metric(completed, value)

    # ClusterQueues.

    def show_cluster_queues(self, preemption_skips: Mapping[str, int]) -> None:
        finished: Counter[str] = Counter()
        for key, count in self._finished.items():
            finished[self._queue_by_local.get(key, "")] += count
        for name in self._state.queue_names():
            stats = self._state.stats(name)
            self._show_pending(name, stats)
            self._add(families.FINISHED_NOW, (name,), finished[name])
            self._add(families.RESERVING, (name,), stats.reserving)
            self._show_admitted(name, stats)
            status = self._state.queue_phase(name)
            for each in ("pending", "active", "terminating"):
                self._add(families.QUEUE_STATUS, (name, each), float(each == status))
            above = self._state.cohorts_above(name)
            self._add(families.QUEUE_INFO, (name, above[0] if above else "", above[-1] if above else ""), 1)
            if name in preemption_skips:
                self._add(families.PREEMPTION_SKIPS, (name,), preemption_skips[name])
            if self._view.configuration.metrics.enable_cluster_queue_resources:
                self._show_resources(name, above[0] if above else "", stats)
            self._add_to_cohorts(name, above, stats)
        self._show_unadmitted()

    def _show_pending(self, name: str, stats: Stats) -> None:
        inadmissible = stats.pending
        if self._state.queue_phase(name) == "active":
            inadmissible = sum(group.size for group in self._state.pending_groups(name) if group.inadmissible)
        self._inadmissible[name] = inadmissible
        self._add(families.PENDING, (name, "active"), stats.pending - inadmissible)
        self._add(families.PENDING, (name, "inadmissible"), inadmissible)

    def _show_admitted(self, name: str, stats: Stats) -> None:
        """Show the admitted workloads, by their own labels if the settings name some."""
        if not self._custom.specs("Workload"):
            self._add(families.ADMITTED_NOW, (name,), stats.admitted)
            return
        own = self._labels[families.ADMITTED_NOW].complete((name,)) or ()
        for (queue, values), count in self._admitted_by_labels.items():
            if queue == name:
                self.gauges[families.ADMITTED_NOW].add_metric((*own, *values), count)

    def _show_unadmitted(self) -> None:
        by_queue: Counter[Labels] = Counter()
        for (key, reason, cause), count in self._unadmitted.items():
            queue = self._queue_by_local.get(key, "")
            if not queue or not count:
                continue
            by_queue[queue, reason, cause] += count
            self._add(families.LOCAL_UNADMITTED, (key.name, key.namespace, queue, reason, cause), count)
        for labels, count in by_queue.items():
            self._add(families.UNADMITTED, labels, count)

    def _show_resources(self, name: str, cohort: str, stats: Stats) -> None:
        pending: Counter[str] = Counter()
        for quota in self._state.queue_quotas(name):
            if quota.declared:
                flavor, resource = quota.key
                pending[resource] += 0
                labels = (cohort, name, flavor, resource)
                self._add(families.NOMINAL, labels, in_units(resource, quota.nominal))
                self._add(families.BORROWING, labels, limit_in_units(resource, quota.borrowing_limit))
                self._add(families.LENDING, labels, limit_in_units(resource, quota.lending_limit))
        for (flavor, resource), usage in stats.usage.items():
            labels = (cohort, name, flavor, resource)
            self._add(families.RESERVATION, labels, in_units(resource, usage.reserved))
            self._add(families.USAGE, labels, in_units(resource, usage.admitted))
        for group in self._state.pending_groups(name):
            for resource, amount in group.shape.totals().items():
                pending[resource] += amount * group.size
        for resource, amount in pending.items():
            self._add(families.PENDING_RESOURCES, (name, resource), in_units(resource, amount))
        if self._view.configuration.fair_sharing is not None:
            share = stats.precise_share
            self._add(families.SHARE, (name, cohort), math.nan if math.isinf(share) else share)

    def _add_to_cohorts(self, name: str, above: list[str], stats: Stats) -> None:
        values = self._custom.values("ClusterQueue", Key("", name))
        for cohort in above:
            reserved = self._cohort_reserved.setdefault(cohort, Counter())
            for key, usage in stats.usage.items():
                reserved[key] += usage.reserved
            self._cohort_admitted[cohort] += stats.admitted
            self._cohort_labels.setdefault(cohort, {})[values] = None

    # LocalQueues.

    def show_local_queues(self) -> None:
        for key, cluster_queue in self._queue_by_local.items():
            if not is_shown(self._view, key):
                continue
            labels = (key.name, key.namespace)
            stats = self._state.local_queue_stats(key)
            inadmissible = self._inadmissible_in(cluster_queue, key, stats.pending)
            self._add(families.LOCAL_PENDING, (*labels, "active"), stats.pending - inadmissible)
            self._add(families.LOCAL_PENDING, (*labels, "inadmissible"), inadmissible)
            self._add(families.LOCAL_FINISHED_NOW, labels, self._finished[key])
            self._add(families.LOCAL_RESERVING, labels, stats.reserving)
            self._add(families.LOCAL_ADMITTED_NOW, labels, stats.admitted)
            self._show_local_status(key, labels)
            for (flavor, resource), usage in stats.usage.items():
                of_quota = (*labels, flavor, resource)
                self._add(families.LOCAL_RESERVATION, of_quota, in_units(resource, usage.reserved))
                self._add(families.LOCAL_USAGE, of_quota, in_units(resource, usage.admitted))
            past = self._state.past_usage_of(key)
            if past is not None:
                self._add(families.LOCAL_PAST_USAGE, (*labels, cluster_queue), past)

    def _show_local_status(self, key: Key, labels: Labels) -> None:
        found: Json = self._view.find_json(LocalQueue.KIND, key) or {}
        active = conditions.find(found, "Active")
        for each in ("True", "False", "Unknown") if active else ():
            self._add(families.LOCAL_STATUS, (*labels, each), float(active is not None and active["status"] == each))

    def _inadmissible_in(self, cluster_queue: str, key: Key, pending: int) -> int:
        """Return how many of the pending workloads of a LocalQueue are inadmissible."""
        if not pending or not self._state.has_queue(cluster_queue):
            return pending
        inadmissible, all_pending = self._inadmissible[cluster_queue], self._state.stats(cluster_queue).pending
        if inadmissible in (0, all_pending):
            return min(pending, inadmissible)
        found = self._inadmissible_by_local.get(cluster_queue)
        if found is None:
            found = Counter(workload.local_queue for workload in self._state.inadmissible_in(cluster_queue))
            self._inadmissible_by_local[cluster_queue] = found
        return found[key]

    # Cohorts.

    def show_cohorts(self) -> None:
        for name in self._state.cohort_names():
            above = self._state.cohorts_above_cohort(name)
            self._add(families.COHORT_INFO, (name, above[0] if above else "", above[-1] if above else name), 1)
            for quota in self._state.cohort_quotas(name):
                if quota.subtree > 0:
                    self._add(families.COHORT_QUOTA, (name, *quota.key), in_units(quota.key.resource, quota.subtree))
            for key, amount in self._cohort_reserved.get(name, {}).items():
                if amount > 0:
                    self._add(families.COHORT_RESERVATION, (name, *key), in_units(key.resource, amount))
            for values in self._cohort_labels.get(name, ()):
                labels = (name, self._role, *values)
                self.gauges[families.COHORT_ADMITTED_NOW].add_metric(labels, self._cohort_admitted[name])
            is_object = self._view.find_json(Cohort.KIND, Key("", name)) is not None
            if is_object and self._view.configuration.fair_sharing is not None:
                self._add(families.COHORT_SHARE, (name,), self._state.cohort_stats(name).precise_share)


def build_info() -> GaugeMetricFamily:
    family = families.BUILD_INFO
    gauge = GaugeMetricFamily(family.name, family.text, labels=family.labels)
    compiler = f"{platform.python_implementation()} {platform.python_version()}"
    system = f"{platform.system().lower()}/{platform.machine()}"
    gauge.add_metric((f"v{kyu.__version__}", "", "", "", compiler, system), 1)
    return gauge


def in_units(resource: str, amount: int) -> float:
    """Return the amount in cores, bytes or counts."""
    return amount / 1000 if resource == "cpu" else float(amount)


def limit_in_units(resource: str, amount: int | None) -> float:
    """Return the limit in cores, bytes or counts; infinite if there is none."""
    return math.inf if amount is None else in_units(resource, amount)
