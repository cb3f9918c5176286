"""The metrics of a shadow: same decisions, disagreements, and how much later the other scheduler decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kyu.shadow.report import MEANINGS, ShadowReport

DELAY_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class ShadowMetrics(Collector):
    def __init__(self, registry: CollectorRegistry, report: ShadowReport) -> None:
        self._report = report
        self._delays = Histogram(
            "kyu_shadow_delay_seconds",
            "Time from the moment at which Kyu would decide to the same decision of the other scheduler.",
            registry=registry,
            buckets=DELAY_BUCKETS,
        )
        registry.register(self)

    def observe_delays(self) -> None:
        for seconds in self._report.take_delays():
            self._delays.observe(seconds)

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the registry would otherwise compute all values at registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        same = CounterMetricFamily(
            "kyu_shadow_same_decisions", "Decisions that both schedulers make.", labels=("decision",)
        )
        same.add_metric(["admission"], self._report.same["admission"])
        same.add_metric(["preemption"], self._report.same["preemption"])
        yield same
        counted = CounterMetricFamily("kyu_shadow_disagreements", "Disagreements, by type.", labels=("type",))
        still = GaugeMetricFamily("kyu_shadow_open_disagreements", "Disagreements that go on.", labels=("type",))
        going_on: Counter[str] = Counter(self._report.open())
        for type_ in MEANINGS:
            counted.add_metric([type_], self._report.otherwise[type_])
            still.add_metric([type_], going_on[type_])
        yield counted
        yield still
