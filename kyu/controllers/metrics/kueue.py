"""
Kueue's metrics, under Kueue's names: results of cycles, waiting times, contents of queues.

Counters and histograms move as decisions are written and objects change. Gauges are read from the engine at a scrape.

Kueue: pkg/metrics
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from kyu.api.actions import View
from kyu.api.core import Pod
from kyu.api.kueue import ClusterQueue, Cohort, LocalQueue, Workload
from kyu.api.meta import Json, Object, key_of
from kyu.controllers.metrics import families
from kyu.controllers.metrics.gauges import Gauges
from kyu.controllers.metrics.labels import Role
from kyu.controllers.metrics.steps import Series, WorkloadSteps
from kyu.controllers.metrics.workload_counts import WorkloadCounts
from kyu.engine.decisions import Cycle, Preempt, Wait
from kyu.engine.reasons import Skipped
from kyu.engine.state import State

SKIPPED_PREEMPTION = Skipped("overlap")


def own_registry() -> CollectorRegistry:
    """Return a registry with the metrics of the process, for controllers without an API server of their own."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


def render(registry: CollectorRegistry) -> bytes:
    return generate_latest(registry)


class KueueMetrics:
    """The metrics of a process; ``state`` returns the current engine state."""

    def __init__(
        self, registry: CollectorRegistry, state: Callable[[], State], view: View, role: Role = "standalone"
    ) -> None:
        self._state = state
        self._view = view
        self._series = Series(registry, view, role)
        self._steps = WorkloadSteps(self._series, view, self._cohorts_above)
        self._counts = WorkloadCounts(view)
        self._gauges = Gauges(state, view, self._counts, role)
        registry.register(self._gauges)

    def reset(self, workloads: Iterable[Json]) -> None:
        """Count the Workload objects anew, because the settings have changed or the process starts."""
        self._counts.reset(workloads)

    def note_cycle(self, decided: Cycle, seconds: float) -> None:
        if not decided.decisions:
            # Kueue waits for a head before it begins a cycle. Kyu looks after each change of an object.
            return
        result = "success" if any(decided.admitted()) else "inadmissible"
        self._series.count(families.ATTEMPTS, (result,))
        self._series.observe(families.ATTEMPT_SECONDS, (result,), seconds)
        skips: Counter[str] = Counter()
        for decision in decided.decisions:
            if isinstance(decision, Preempt):
                self._series.count(families.PREEMPTED, (decision.cluster_queue, decision.reason))
            elif isinstance(decision, Wait) and decision.reason == SKIPPED_PREEMPTION:
                skips[decision.cluster_queue] += 1
        self._gauges.preemption_skips.update(skips)

    def note(self, type_: type[Object], old: Json | None, new: Json | None, now: datetime) -> None:
        """Note a change of an object."""
        if type_ is Workload:
            self._note_workload(old, new, now)
        elif type_ is Pod:
            self._steps.note_pod(old, new, now)
        elif new is None and old is not None:
            self._note_deleted(type_, old)

    def _note_workload(self, old: Json | None, new: Json | None, now: datetime) -> None:
        self._counts.note(old, new)
        if new is None:
            return
        if old is None:
            self._steps.note_created(new)
        elif old.get("status") != new.get("status"):
            typed = self._view.get(Workload, key_of(new))
            if typed is not None:
                self._steps.note(old, typed, now)

    def _note_deleted(self, type_: type[Object], old: Json) -> None:
        """Drop the series of a queue or Cohort that is gone."""
        key = key_of(old)
        if type_ is ClusterQueue:
            self._series.drop_cluster_queue(key.name)
            self._gauges.preemption_skips.pop(key.name, None)
        elif type_ is LocalQueue:
            self._series.drop_local_queue(key)
        elif type_ is Cohort:
            self._series.drop_cohort(key.name)

    def _cohorts_above(self, cluster_queue: str) -> Sequence[str]:
        state = self._state()
        return state.cohorts_above(cluster_queue) if state.has_queue(cluster_queue) else ()
