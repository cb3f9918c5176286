"""Our counters and histograms render as those of prometheus_client do, except for the time of creation."""

from __future__ import annotations

import prometheus_client as library
from hypothesis import given
from hypothesis import strategies as st

from kyu.controllers.metrics.series import CounterMetric, HistogramMetric, PlainLabels

LABELS = ("queue", "result")
LIMITS = (0.5, 1.0, 2.5)
labels = st.tuples(st.sampled_from(["a", 'b "c"', "\\"]), st.sampled_from(["", "yes"]))
# Sums of such fractions are exact in any order.
seconds = st.integers(0, 40).map(lambda quarters: quarters / 4)


def shown(registry: library.CollectorRegistry) -> list[str]:
    lines = library.generate_latest(registry).decode().splitlines()
    return [line for line in lines if "_created" not in line]


@given(st.lists(labels))
def test_a_count_is_read_as_that_of_the_library(noted: list[tuple[str, str]]) -> None:
    ours, theirs = library.CollectorRegistry(), library.CollectorRegistry()
    count = CounterMetric(ours, "done_total", "What was done.", PlainLabels(LABELS))
    wanted = library.Counter("done_total", "What was done.", LABELS, registry=theirs)
    for each in noted:
        count.note(each)
        wanted.labels(*each).inc()
    assert shown(ours) == shown(theirs)


@given(st.lists(st.tuples(labels, seconds)))
def test_a_spread_is_read_as_a_histogram_of_the_library(noted: list[tuple[tuple[str, str], float]]) -> None:
    ours, theirs = library.CollectorRegistry(), library.CollectorRegistry()
    spread = HistogramMetric(ours, "wait_seconds", "How long.", PlainLabels(LABELS), LIMITS)
    wanted = library.Histogram("wait_seconds", "How long.", LABELS, registry=theirs, buckets=LIMITS)
    for each, value in noted:
        spread.note(each, value)
        wanted.labels(*each).observe(value)
    assert shown(ours) == shown(theirs)
