"""
Dashboards and alerts for Prometheus and Grafana, from one table of panels and one of alerts.

Every expression uses metrics that Kyu exports under Kueue's names, so both work beside an installed Kueue too, but for
the panels of the audit. Prometheus finds the addresses by itself (``serviceMonitor`` of the chart).

Called by: cli/admin/manifests.py, install/chart.py.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from kyu.api.meta import Json
from kyu.install.objects import LABELS, METADATA

# The columns of a row.
WIDTH: Final = 24
HEIGHT: Final = 8
QUEUES = 'cluster_queue=~"$cluster_queue"'
SOURCE = {"type": "prometheus", "uid": "${source}"}


class Panel(NamedTuple):
    """A graph: its title, its lines as pairs of an expression and a legend, its unit, and what to read from it."""

    title: str
    lines: tuple[tuple[str, str], ...]
    unit: str
    description: str


class Alert(NamedTuple):
    """An alert: its expression must hold for a time. The summary says what is wrong, the remedy what to do."""

    name: str
    expression: str
    lasts: str
    severity: str
    summary: str
    remedy: str


def wait_quantile(share: float, metric: str) -> str:
    """Return the expression of a quantile of waiting times, by ClusterQueue, over the last half hour."""
    return f"histogram_quantile({share}, sum by (cluster_queue, le) (rate({metric}_bucket{{{QUEUES}}}[30m])))"


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Running and waiting",
        (
            Panel(
                "Admitted workloads",
                ((f"sum by (cluster_queue) (kueue_admitted_active_workloads{{{QUEUES}}})", "{{cluster_queue}}"),),
                "short",
                "Workloads that are admitted now.",
            ),
            Panel(
                "Pending workloads",
                (
                    (
                        f"sum by (cluster_queue, status) (kueue_pending_workloads{{{QUEUES}}})",
                        "{{cluster_queue}} {{status}}",
                    ),
                ),
                "short",
                "Active workloads are tried in the next cycle. Inadmissible ones wait for a change.",
            ),
            Panel(
                "Admissions and evictions",
                (
                    (
                        f"sum by (cluster_queue) (rate(kueue_admitted_workloads_total{{{QUEUES}}}[5m]))",
                        "{{cluster_queue}} admitted",
                    ),
                    (
                        f"sum by (cluster_queue, reason) (rate(kueue_evicted_workloads_total{{{QUEUES}}}[5m]))",
                        "{{cluster_queue}} {{reason}}",
                    ),
                ),
                "ops",
                "Per second, over five minutes.",
            ),
        ),
    ),
    (
        "Quota",
        (
            Panel(
                "Reserved share of the nominal quota",
                (
                    (
                        "sum by (cluster_queue, flavor, resource)"
                        f" (kueue_cluster_queue_resource_reservation{{{QUEUES}}})"
                        " / (sum by (cluster_queue, flavor, resource)"
                        f" (kueue_cluster_queue_nominal_quota{{{QUEUES}}}) > 0)",
                        "{{cluster_queue}} {{flavor}} {{resource}}",
                    ),
                ),
                "percentunit",
                "Above 100 %, the queue borrows. Needs metrics.enableClusterQueueResources.",
            ),
            Panel(
                "Requests of pending workloads",
                (
                    (
                        f"sum by (cluster_queue, resource) (kueue_cluster_queue_resource_pending{{{QUEUES}}})",
                        "{{cluster_queue}} {{resource}}",
                    ),
                ),
                "short",
                "Needs metrics.enableClusterQueueResources.",
            ),
            Panel(
                "Weighted share",
                ((f"sum by (cluster_queue) (kueue_cluster_queue_weighted_share{{{QUEUES}}})", "{{cluster_queue}}"),),
                "short",
                "What a queue uses above its nominal quota, by its weight. Needs fair sharing.",
            ),
        ),
    ),
    (
        "Waiting",
        (
            Panel(
                "Wait until admission, median",
                ((wait_quantile(0.5, "kueue_admission_wait_time_seconds"), "{{cluster_queue}}"),),
                "s",
                "Of the workloads that were admitted in the last half hour.",
            ),
            Panel(
                "Wait until admission, 90th percentile",
                ((wait_quantile(0.9, "kueue_admission_wait_time_seconds"), "{{cluster_queue}}"),),
                "s",
                "Of the workloads that were admitted in the last half hour.",
            ),
            Panel(
                "From admission to ready pods, 90th percentile",
                ((wait_quantile(0.9, "kueue_admitted_until_ready_wait_time_seconds"), "{{cluster_queue}}"),),
                "s",
                "A long time means that admitted pods find no node, image or volume.",
            ),
        ),
    ),
    (
        "Faults",
        (
            Panel(
                "Preemptions",
                (
                    (
                        "sum by (preempting_cluster_queue, reason) (rate(kueue_preempted_workloads_total[5m]))",
                        "{{preempting_cluster_queue}} {{reason}}",
                    ),
                ),
                "ops",
                "Per second, by the queue of the preemptor.",
            ),
            Panel(
                "Running without quota",
                (
                    ("sum by (namespace, reason) (kyu_pods_without_quota)", "{{namespace}} {{reason}}"),
                    (
                        "sum by (cluster_queue, resource) (kyu_requests_above_quota)",
                        "{{cluster_queue}} {{resource}} above quota",
                    ),
                ),
                "short",
                "What the audit found. Zero is right.",
            ),
            Panel(
                "Duration of scheduling cycles, 99th percentile",
                (
                    (
                        "histogram_quantile(0.99, sum by (result, le)"
                        " (rate(kueue_admission_attempt_duration_seconds_bucket[5m])))",
                        "{{result}}",
                    ),
                ),
                "s",
                "Time of the controller for one cycle.",
            ),
        ),
    ),
)

ALERTS: tuple[Alert, ...] = (
    Alert(
        "KyuAbsent",
        "absent(kueue_build_info)",
        "5m",
        "critical",
        "No controller of queues reports metrics.",
        "Look at the pods of kueue-system. Queued jobs wait until a controller runs; running jobs go on.",
    ),
    Alert(
        "KyuQueueInactive",
        'max by (cluster_queue) (kueue_cluster_queue_status{status="pending"}) == 1',
        "15m",
        "warning",
        "ClusterQueue {{ $labels.cluster_queue }} is inactive: it admits nothing.",
        "kubectl describe clusterqueue names the missing flavor or AdmissionCheck; so does kyu doctor.",
    ),
    Alert(
        "KyuQueueStuck",
        "sum by (cluster_queue) (kueue_pending_workloads) > 0"
        " and sum by (cluster_queue) (kueue_admitted_active_workloads) == 0"
        " and sum by (cluster_queue) (increase(kueue_admitted_workloads_total[30m])) == 0",
        "30m",
        "warning",
        "Workloads of {{ $labels.cluster_queue }} wait, and nothing of it runs.",
        "kyu why NAME says what the first of them lacks. It may be larger than the quota.",
    ),
    Alert(
        "KyuPreemptionThrash",
        'sum by (cluster_queue) (increase(kueue_evicted_workloads_total{reason="Preempted"}[30m]))'
        " > 2 * sum by (cluster_queue) (increase(kueue_finished_workloads_total[30m])) + 20",
        "15m",
        "warning",
        "{{ $labels.cluster_queue }} preempts more workloads than it finishes.",
        "Look at the priorities of its workloads and at reclaimWithinCohort of its neighbours.",
    ),
    Alert(
        "KyuPodsNotReady",
        "histogram_quantile(0.9, sum by (cluster_queue, le)"
        " (rate(kueue_admitted_until_ready_wait_time_seconds_bucket[30m]))) > 600",
        "15m",
        "warning",
        "Admitted pods of {{ $labels.cluster_queue }} take over ten minutes to become ready.",
        "The quota may exceed the nodes. Compare it with kyu doctor.",
    ),
    Alert(
        "KyuQuotaBypassed",
        "sum by (namespace, reason) (kyu_pods_without_quota) > 0",
        "10m",
        "warning",
        "Pods in {{ $labels.namespace }} run without quota ({{ $labels.reason }}).",
        "kubectl describe on these pods shows their owner. Label them with a queue, or set a default LocalQueue.",
    ),
    Alert(
        "KyuUsageAboveQuota",
        "sum by (cluster_queue, flavor, resource) (kyu_requests_above_quota) > 0",
        "10m",
        "warning",
        "Pods of {{ $labels.cluster_queue }} request more {{ $labels.resource }} than was admitted.",
        "The audit names the Workloads in events. Delete pods that their job no longer has.",
    ),
    Alert(
        "KyuCycleSlow",
        "histogram_quantile(0.99, sum by (le) (rate(kueue_admission_attempt_duration_seconds_bucket[10m]))) > 5",
        "15m",
        "warning",
        "Scheduling cycles take over five seconds.",
        "Look at the CPU limit of the controller, and at the latency of the API server.",
    ),
)


def rules() -> Json:
    """Return the alerts as a rule file of Prometheus."""
    return {"groups": [{"name": "kyu", "rules": [rule(alert) for alert in ALERTS]}]}


def prometheus_rule() -> Json:
    """Return the alerts as an object of the Prometheus operator."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {**METADATA, "labels": LABELS},
        "spec": rules(),
    }


def dashboard_map() -> Json:
    """Return the dashboard as a ConfigMap, which the sidecar of Grafana's chart finds by its label."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**METADATA, "name": "kyu-dashboard", "labels": {**LABELS, "grafana_dashboard": "1"}},
        "data": {"kyu.json": dashboard()},
    }


def rule(alert: Alert) -> Json:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.lasts,
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "description": alert.remedy},
    }


def dashboard() -> str:
    """Return the dashboard as Grafana imports it."""
    panels: list[Json] = []
    top = 0
    for title, row in ROWS:
        panels.append(
            {
                "type": "row",
                "title": title,
                "collapsed": False,
                "panels": [],
                **placed(0, top, WIDTH, 1),
                "id": len(panels) + 1,
            }
        )
        width = WIDTH // len(row)
        for column, panel in enumerate(row):
            panels.append({**graph(panel), **placed(column * width, top + 1, width, HEIGHT), "id": len(panels) + 1})
        top += HEIGHT + 1
    content = {
        "title": "Kyu: queues and quota",
        "uid": "kyu-queues",
        "tags": ["kyu", "kueue"],
        "editable": True,
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [variable_of_sources(), variable_of_queues()]},
        "panels": panels,
    }
    return msgspec.json.format(msgspec.json.encode(content)).decode() + "\n"


def graph(panel: Panel) -> Json:
    targets = [
        {"refId": chr(ord("A") + i), "expr": expression, "legendFormat": legend, "datasource": SOURCE}
        for i, (expression, legend) in enumerate(panel.lines)
    ]
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "targets": targets,
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "custom": {"fillOpacity": 10, "showPoints": "never"}},
            "overrides": [],
        },
        "options": {"legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]}},
    }


def placed(x: int, y: int, width: int, height: int) -> Json:
    return {"gridPos": {"x": x, "y": y, "w": width, "h": height}}


def variable_of_sources() -> Json:
    return {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}


def variable_of_queues() -> Json:
    query = "label_values(kueue_cluster_queue_status, cluster_queue)"
    return {
        "name": "cluster_queue",
        "label": "ClusterQueue",
        "type": "query",
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": "queues"},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "sort": 1,
    }
