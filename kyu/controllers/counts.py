"""
Counters and histograms that cost what they count: a number in a map, by labels.

The library's own take a lock for each number, and ask each time whether they may count. All of Kyu counts in one
thread, that of the event loop, which also answers who asks; only then families are made.

Used by: controllers/metrics.py.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

Labels = tuple[str, ...]


class Count(Collector):
    """How often something happened."""

    def __init__(self, registry: CollectorRegistry, name: str, text: str, labels: Sequence[str]) -> None:
        self._head = (name, text)
        self._labels = labels
        self._numbers: dict[Labels, int] = {}
        registry.register(self)

    def note(self, labels: Labels) -> None:
        self._numbers[labels] = self._numbers.get(labels, 0) + 1

    def collect(self) -> Iterable[CounterMetricFamily]:
        family = CounterMetricFamily(*self._head, labels=self._labels)
        for labels, number in self._numbers.items():
            family.add_metric(labels, number)
        return (family,)


class Spread(Collector):
    """How often it took how many seconds. ``limits`` are the upper ends of the buckets, but the last."""

    def __init__(
        self, registry: CollectorRegistry, name: str, text: str, labels: Sequence[str], limits: Sequence[float]
    ) -> None:
        self._head = (name, text)
        self._labels = labels
        self._limits = limits
        self._numbers: dict[Labels, list[int]] = {}
        self._seconds: dict[Labels, float] = {}
        registry.register(self)

    def note(self, labels: Labels, seconds: float) -> None:
        numbers = self._numbers.get(labels)
        if numbers is None:
            numbers = self._numbers[labels] = [0] * (len(self._limits) + 1)
        numbers[bisect_left(self._limits, seconds)] += 1
        self._seconds[labels] = self._seconds.get(labels, 0.0) + seconds

    def collect(self) -> Iterable[HistogramMetricFamily]:
        family = HistogramMetricFamily(*self._head, labels=self._labels)
        ends = (*map(str, self._limits), "+Inf")
        for labels, numbers in self._numbers.items():
            buckets = list(zip(ends, map(float, accumulate(numbers)), strict=True))
            family.add_metric(labels, buckets=buckets, sum_value=self._seconds[labels])
        return (family,)
