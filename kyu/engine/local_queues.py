"""
What each LocalQueue has waiting and running, and what it used in the past.

Past usage decays: after one half life, half of it is forgotten. A workload that was just admitted counts at once, by a
penalty that stands for what it will have used by the next sample, so that one LocalQueue cannot take everything between
two samples.

Called by: waiting.py (changes, order by past usage), stats.py (counts).
Kueue: pkg/util/admissionfairsharing, pkg/cache/queue/afs
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import floor, inf

from kyu.api.meta import Key
from kyu.api.quantity import NANO, parse
from kyu.api.queues import LocalQueue
from kyu.engine.options import AdmissionFairSharing
from kyu.engine.quota import Cell, FlavorResource
from kyu.engine.tree import weight_of
from kyu.engine.workload import Holding


@dataclass(slots=True)
class FlavorCount:
    reserved: int = 0
    admitted: int = 0


@dataclass(slots=True)
class LocalQueueRecord:
    """One LocalQueue as the engine needs it."""

    key: Key
    cluster_queue: str = ""
    stopped: bool = False
    weight: float = 1.0
    pending: int = 0
    reserving: int = 0
    admitted: int = 0
    usage: dict[FlavorResource, FlavorCount] = field(default_factory=dict)
    consumed: dict[str, float] = field(default_factory=dict)
    sampled_at: float | None = None
    penalties: dict[Key, dict[str, float]] = field(default_factory=dict)
    """By workload: what it counts until it shows in the samples."""

    def read(self, local_queue: LocalQueue) -> None:
        self.cluster_queue = local_queue.spec.cluster_queue
        self.stopped = local_queue.spec.stop_policy != "None" or local_queue.metadata.deletion_timestamp is not None
        self.weight = weight_of(local_queue.spec.fair_sharing)
        persisted = local_queue.status.fair_sharing
        if self.sampled_at is None and persisted is not None and persisted.admission_fair_sharing_status is not None:
            past = persisted.admission_fair_sharing_status.consumed_resources
            self.consumed = {resource: parse(value).nanos / NANO for resource, value in past.items()}

    def count(self, holding: Holding, sign: int) -> None:
        """A workload got or returned quota."""
        self.reserving += sign
        for cell, amount in holding.charges:
            usage = self.usage.get(cell.key) or self._add_usage(cell)
            usage.reserved += sign * amount
        if holding.admitted:
            self.count_admitted(holding, sign)

    def count_admitted(self, holding: Holding, sign: int) -> None:
        self.admitted += sign
        for cell, amount in holding.charges:
            usage = self.usage.get(cell.key) or self._add_usage(cell)
            usage.admitted += sign * amount

    def _add_usage(self, cell: Cell) -> FlavorCount:
        found = self.usage[cell.key] = FlavorCount()
        return found

    # Past usage

    def past_usage(self, rules: AdmissionFairSharing) -> float:
        """The lower goes first; a LocalQueue without weight goes last."""
        if self.weight <= 0:
            return inf
        total = 0.0
        # Sorted: a sum of floats depends on its order.
        for resource in sorted({*self.consumed, *(r for penalty in self.penalties.values() for r in penalty)}):
            used = self.consumed.get(resource, 0.0) + sum(p.get(resource, 0.0) for p in self.penalties.values())
            total += _rounded(rules.weight_by_resource.get(resource, 1.0) * used)
        return total / self.weight

    def sample(self, now: float, rules: AdmissionFairSharing) -> None:
        """Let the past fade and the present count, for the time since the last sample."""
        if self.sampled_at is not None and now - self.sampled_at < rules.sampling_seconds and not self.penalties:
            return
        elapsed = 0.0 if self.sampled_at is None else max(0.0, now - self.sampled_at)
        self.sampled_at = now
        if rules.half_life_seconds <= 0:
            self.consumed = {}
            return
        present: dict[str, float] = {}
        for key, count in self.usage.items():
            present[key.resource] = present.get(key.resource, 0.0) + base_units(key.resource, count.admitted)
        alpha = decay(elapsed, rules)
        self.consumed = {
            resource: _rounded((1 - alpha) * self.consumed.get(resource, 0.0))
            + _rounded(alpha * present.get(resource, 0.0))
            for resource in {*self.consumed, *present}
        }

    def add_penalty(self, workload: Key, totals: Mapping[str, int], rules: AdmissionFairSharing) -> None:
        """The workload was just given quota."""
        alpha = decay(rules.sampling_seconds, rules)
        self.penalties[workload] = {r: _rounded(alpha * base_units(r, amount)) for r, amount in totals.items()}

    def fold_penalty(self, workload: Key) -> None:
        """The workload is admitted: from now on the samples see it."""
        for resource, amount in self.penalties.pop(workload, {}).items():
            self.consumed[resource] = self.consumed.get(resource, 0.0) + amount


def decay(elapsed: float, rules: AdmissionFairSharing) -> float:
    """The weight of the present after this time; 0 if there is no memory to weigh it against."""
    if rules.half_life_seconds <= 0:
        return 0.0
    return float(1 - 0.5 ** (elapsed / rules.half_life_seconds))


def base_units(resource: str, amount: int) -> float:
    return amount / 1000 if resource == "cpu" else float(amount)


def _rounded(value: float) -> float:
    """Down to nine decimals, so that the same inputs order the same everywhere."""
    return floor(value * 1e9) / 1e9
