"""
The counts and the past usage of each LocalQueue.

Past usage decays: after one half life, half of it is left. A workload counts as soon as it gets quota, by a penalty:
its expected usage until the next sample. So one LocalQueue cannot take all quota between two samples.

Called by: engine/pending_workloads.py (changes, order by past usage), engine/stats.py (counts).
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
from kyu.engine.quota.amounts import FlavorResource, QuotaNode
from kyu.engine.tree import weight_of
from kyu.engine.workloads import ReservedWorkload


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
    """By workload: the usage that counts until samples include the workload."""

    def read(self, local_queue: LocalQueue) -> None:
        self.cluster_queue = local_queue.spec.cluster_queue
        self.stopped = local_queue.spec.stop_policy != "None" or local_queue.metadata.deletion_timestamp is not None
        self.weight = weight_of(local_queue.spec.fair_sharing)
        persisted = local_queue.status.fair_sharing
        if self.sampled_at is None and persisted is not None and persisted.admission_fair_sharing_status is not None:
            past = persisted.admission_fair_sharing_status.consumed_resources
            self.consumed = {resource: parse(value).nanos / NANO for resource, value in past.items()}

    def count(self, reserved: ReservedWorkload, sign: int) -> None:
        """Count a workload that got quota (+1) or released it (-1)."""
        self.reserving += sign
        for quota, amount in reserved.charges:
            usage = self.usage.get(quota.key) or self._add_usage(quota)
            usage.reserved += sign * amount
        if reserved.admitted:
            self.count_admitted(reserved, sign)

    def count_admitted(self, reserved: ReservedWorkload, sign: int) -> None:
        self.admitted += sign
        for quota, amount in reserved.charges:
            usage = self.usage.get(quota.key) or self._add_usage(quota)
            usage.admitted += sign * amount

    def _add_usage(self, quota: QuotaNode) -> FlavorCount:
        found = self.usage[quota.key] = FlavorCount()
        return found

    # Past usage

    def past_usage(self, rules: AdmissionFairSharing) -> float:
        """Return the weighted past usage, lowest first in the queue; infinite for a LocalQueue of weight 0."""
        if self.weight <= 0:
            return inf
        total = 0.0
        # The sum of floats depends on the order, so resources are sorted.
        for resource in sorted({*self.consumed, *(r for penalty in self.penalties.values() for r in penalty)}):
            used = self.consumed.get(resource, 0.0) + sum(p.get(resource, 0.0) for p in self.penalties.values())
            total += _rounded(rules.weight_by_resource.get(resource, 1.0) * used)
        return total / self.weight

    def sample(self, now: float, rules: AdmissionFairSharing) -> None:
        """Decay past usage and add present usage, for the time since the last sample."""
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
        """Add the penalty of a workload that just got quota."""
        alpha = decay(rules.sampling_seconds, rules)
        self.penalties[workload] = {r: _rounded(alpha * base_units(r, amount)) for r, amount in totals.items()}

    def fold_penalty(self, workload: Key) -> None:
        """Add the penalty of an admitted workload to past usage. From now on samples include the workload."""
        for resource, amount in self.penalties.pop(workload, {}).items():
            self.consumed[resource] = self.consumed.get(resource, 0.0) + amount


def decay(elapsed: float, rules: AdmissionFairSharing) -> float:
    """Return the weight of present usage after this time; 0 without a half life."""
    if rules.half_life_seconds <= 0:
        return 0.0
    return float(1 - 0.5 ** (elapsed / rules.half_life_seconds))


def base_units(resource: str, amount: int) -> float:
    return amount / 1000 if resource == "cpu" else float(amount)


def _rounded(value: float) -> float:
    """Round down to nine decimals, so that equal inputs give the same order on every machine."""
    return floor(value * 1e9) / 1e9
