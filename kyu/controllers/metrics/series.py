"""
Prometheus counters and histograms without locks.

The client library takes a lock for each increment. Kyu counts and answers scrapes in one thread, that of the event
loop, so a number in a map is enough; metric families are built at a scrape.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

Labels = tuple[str, ...]


class LabelRule(Protocol):
    """The labels of a family as a scrape shows them."""

    def names(self) -> Sequence[str]: ...

    def complete(self, labels: Labels) -> Labels | None:
        """Return the values of all labels of a series, or None if the series is not shown."""
        ...


class PlainLabels:
    """Labels that are shown as they were noted."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def names(self) -> Sequence[str]:
        return self._names

    def complete(self, labels: Labels) -> Labels | None:
        return labels


class CounterMetric(Collector):
    """A counter by labels."""

    def __init__(self, registry: CollectorRegistry, name: str, text: str, labels: LabelRule) -> None:
        self._head = (name, text)
        self._labels = labels
        self._numbers: dict[Labels, int] = {}
        registry.register(self)

    def note(self, labels: Labels) -> None:
        self._numbers[labels] = self._numbers.get(labels, 0) + 1

    def drop(self, index: int, values: Labels) -> None:
        """Drop the series whose labels from this index on are these."""
        self._numbers = {
            labels: number for labels, number in self._numbers.items() if not _matches(labels, index, values)
        }

    def collect(self) -> Iterable[CounterMetricFamily]:
        family = CounterMetricFamily(*self._head, labels=self._labels.names())
        shown: dict[Labels, int] = {}
        for labels, number in self._numbers.items():
            if (completed := self._labels.complete(labels)) is not None:
                shown[completed] = shown.get(completed, 0) + number
        for labels, number in shown.items():
            family.add_metric(labels, number)
        return (family,)


class HistogramMetric(Collector):
    """A histogram of seconds by labels. ``limits`` are the upper bounds of all buckets except +Inf."""

    def __init__(
        self, registry: CollectorRegistry, name: str, text: str, labels: LabelRule, limits: Sequence[float]
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

    def drop(self, index: int, values: Labels) -> None:
        """Drop the series whose labels from this index on are these."""
        for labels in [labels for labels in self._numbers if _matches(labels, index, values)]:
            del self._numbers[labels], self._seconds[labels]

    def collect(self) -> Iterable[HistogramMetricFamily]:
        family = HistogramMetricFamily(*self._head, labels=self._labels.names())
        ends = (*map(str, self._limits), "+Inf")
        shown: dict[Labels, tuple[list[int], float]] = {}
        for labels, numbers in self._numbers.items():
            if (completed := self._labels.complete(labels)) is not None:
                others, seconds = shown.get(completed) or ([0] * len(numbers), 0.0)
                added = [one + other for one, other in zip(numbers, others, strict=True)]
                shown[completed] = added, seconds + self._seconds[labels]
        for labels, (numbers, seconds) in shown.items():
            buckets = list(zip(ends, map(float, accumulate(numbers)), strict=True))
            family.add_metric(labels, buckets=buckets, sum_value=seconds)
        return (family,)


def _matches(labels: Labels, index: int, values: Labels) -> bool:
    return labels[index : index + len(values)] == values
