"""
The audit of quota as a task: it compares what runs with what is admitted, twice a minute.

Its findings are metrics. A finding that two audits in a row have is also an event of the pod or Workload.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kyu import log
from kyu.api.actions import View
from kyu.api.kueue import LocalQueue
from kyu.controllers.loop import Write
from kyu.controllers.metrics.gauges import in_units
from kyu.kube.errors import ApiError
from kyu.plans.quota import audit
from kyu.plans.quota.audit import QuotaKey, Report

PERIOD_SECONDS = 30.0
# After so many pods the other tasks of the process get their turn.
PODS_AT_ONCE = 50


class QuotaAudit(Collector):
    """The last audit of each namespace, as metrics."""

    def __init__(self, view: View, write: Write) -> None:
        self._view = view
        self._write = write
        self._reports: Mapping[str, Report] = {}

    async def run(self) -> None:
        while True:
            await self.audit()
            await asyncio.sleep(PERIOD_SECONDS)

    async def audit(self) -> None:
        """Audit all namespaces that have a LocalQueue."""
        namespaces = {queue["metadata"]["namespace"] for queue in self._view.list_json(LocalQueue.KIND)}
        reports = {}
        for namespace in sorted(namespaces):
            report = reports[namespace] = await self._audit_namespace(namespace)
            if told := audit.events(report, self._reports.get(namespace)):
                try:
                    await self._write([*told])
                except (ApiError, OSError) as error:
                    log.warning("audit events not written", namespace=namespace, error=error)
        self._reports = reports

    async def _audit_namespace(self, namespace: str) -> Report:
        running = audit.Audit(self._view)
        for number, key in enumerate(audit.pods_to_audit(self._view, namespace), 1):
            running.note(key)
            if number % PODS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return running.finish()

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return nothing: the names are known only from ``collect``."""
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        running: Counter[QuotaKey] = Counter()
        excess: Counter[QuotaKey] = Counter()
        uncovered = GaugeMetricFamily(
            "kyu_pods_without_quota", "Pods that run without quota.", labels=("namespace", "reason")
        )
        for namespace, report in self._reports.items():
            running.update(report.running)
            for finding in report.excess:
                excess[finding.quota] += finding.amount
            for reason, count in sorted(Counter(pod.reason for pod in report.uncovered).items()):
                uncovered.add_metric([namespace, reason], count)
        yield uncovered
        yield quota_gauge("kyu_running_requests", "Requests of the pods that run with quota.", running)
        yield quota_gauge("kyu_requests_above_quota", "Requests of running pods above what was admitted.", excess)


def quota_gauge(name: str, text: str, amounts: Counter[QuotaKey]) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(name, text, labels=("cluster_queue", "flavor", "resource"))
    for quota, amount in sorted(amounts.items()):
        gauge.add_metric(list(quota), in_units(quota.resource, amount))
    return gauge
