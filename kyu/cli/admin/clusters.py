"""
List the worker clusters of a hub: whether they answer, their capacity, and the jobs that run there.

    kyu clusters             clusters of this hub
    kyu clusters -o json     their ClusterMetrics and MultiKueueClusters
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from kyu.api import quantity
from kyu.api.clusters.capacity import REPORTED_AT, ClusterMetrics
from kyu.api.kueue import MultiKueueCluster, Workload
from kyu.api.meta import Json
from kyu.cli import connection, output

RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
# `kyu cluster publish` reports every 10 seconds.
STALE_SECONDS = 30.0


def arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser)
    output.add_format(parser, wide=False)


def run(args: argparse.Namespace) -> int:
    server = connection.connect(args)
    reports = {one["metadata"]["name"]: one for one in server.listed(ClusterMetrics.KIND, None)}
    connections = {one["metadata"]["name"]: one for one in server.listed(MultiKueueCluster.KIND, None)}
    if args.output != "table":
        typed = [
            {"apiVersion": kind.api_version, "kind": kind.kind, **one}
            for kind, found in ((ClusterMetrics.KIND, reports), (MultiKueueCluster.KIND, connections))
            for one in found.values()
        ]
        print(output.objects(typed, args.output, is_list=True))
        return 0
    names = sorted(reports.keys() | connections.keys())
    if not names:
        output.note("no clusters: create a MultiKueueCluster, or run `kyu cluster publish` in a cluster")
        return 0
    running = running_jobs(server.listed(Workload.KIND, None))
    now = datetime.now(UTC)
    rows = [row(name, reports.get(name), connections.get(name), running.get(name, 0), now) for name in names]
    header = ("CLUSTER", "HEALTH", "LAG", "NODES", "CPU", "MEMORY", "GPUS", "RUNNING", "LAST ERROR")
    print(output.table(header, rows, output.terminal_room()))
    return 0


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """The health of a cluster in a word, and its last error."""

    word: str
    error: str = ""


def health_of(report: Json | None, cluster: Json | None, now: datetime) -> ClusterHealth:
    """Return the worse of the two: the connection to the cluster, and the age of its report."""
    conditions = ((cluster or {}).get("status") or {}).get("conditions") or ()
    active = next((one for one in conditions if one["type"] == "Active"), None)
    if cluster is not None and (active is None or active["status"] != "True"):
        return ClusterHealth("Unreachable", active.get("message", "") if active else "not connected yet")
    age = lag_of(report, now)
    if age is not None and age > STALE_SECONDS:
        return ClusterHealth("Silent", f"no report for {output.age(reported_at(report), now)}")
    if report is None:
        return ClusterHealth("Connected", "it reports no capacity")
    return ClusterHealth("Ready" if cluster is not None else "Reporting")


def reported_at(report: Json | None) -> str:
    return str((((report or {}).get("metadata") or {}).get("annotations") or {}).get(REPORTED_AT, ""))


def lag_of(report: Json | None, now: datetime) -> float | None:
    """Return the age of the report in seconds; None if it has no time that can be read."""
    try:
        return (now - datetime.fromisoformat(reported_at(report))).total_seconds()
    except (ValueError, TypeError):
        return None


def row(name: str, report: Json | None, cluster: Json | None, running: int, now: datetime) -> list[object]:
    nodes = ((report or {}).get("status") or {}).get("nodes") or []
    health = health_of(report, cluster, now)
    lag = "-" if lag_of(report, now) is None else output.age(reported_at(report), now)
    amounts = [used_of_all(nodes, resource) if report is not None else "" for resource in RESOURCES]
    count = len(nodes) if report is not None else ""
    return [name, health.word, lag, count, *amounts, running, " ".join(health.error.split())]


def used_of_all(nodes: Iterable[Json], resource: str) -> str:
    """Return `used/allocatable` of the nodes that take pods."""
    used = has = 0
    for node in nodes:
        if not node.get("unschedulable"):
            used += quantity.amount(resource, node.get("allocatedResourceRequests", {}).get(resource, 0))
            has += quantity.amount(resource, node.get("allocatableResources", {}).get(resource, 0))
    return f"{quantity.render(resource, used)}/{quantity.render(resource, has)}" if has else ""


def running_jobs(workloads: Iterable[Json]) -> Mapping[str, int]:
    """Return the number of unfinished Workloads in each cluster."""
    counts: dict[str, int] = {}
    for one in workloads:
        status = one.get("status") or {}
        ended = any(c["type"] == "Finished" and c["status"] == "True" for c in status.get("conditions") or ())
        if (name := status.get("clusterName")) and not ended:
            counts[name] = counts.get(name, 0) + 1
    return counts
