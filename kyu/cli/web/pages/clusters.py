"""The page Clusters: worker clusters with their health and capacity, and the pools of MasterQueues."""

from __future__ import annotations

from datetime import UTC, datetime

from kyu.api.clusters.capacity import ClusterMetrics
from kyu.api.kueue import MultiKueueCluster
from kyu.api.meta import Json, Kind
from kyu.api.pools import MasterQueue
from kyu.cli import output
from kyu.cli.admin import clusters
from kyu.cli.connection import ServerConnection
from kyu.cli.web.html import Child, table, tag
from kyu.cli.web.pages.layout import badge
from kyu.cli.web.pages.now import workloads
from kyu.kube.errors import Forbidden, NotFound

HEADER = ["Cluster", "Health", "Lag", "Nodes", *clusters.RESOURCES, "Running", "Last error"]


def all_clusters(server: ServerConnection) -> list[Child]:
    """Return the page Clusters."""
    reports = {one["metadata"]["name"]: one for one in listed(server, ClusterMetrics.KIND)}
    connections = {one["metadata"]["name"]: one for one in listed(server, MultiKueueCluster.KIND)}
    running = clusters.running_jobs(workloads(server))
    now = datetime.now(UTC)
    rows: list[list[Child]] = []
    for name in sorted(reports.keys() | connections.keys()):
        cells = clusters.row(name, reports.get(name), connections.get(name), running.get(name, 0), now)
        shown = [str(cell) for cell in cells]
        rows.append([shown[0], badge(shown[1]), *shown[2:]])
    hint = tag("code", "kyu up --clusters 3")
    empty = tag("p", "You see no worker clusters. ", hint, " starts some on one machine.", class_="empty")
    found = table(HEADER, rows, label="Worker clusters") if rows else empty
    return [tag("h1", "Clusters"), found, tag("h2", "Pools"), pools(server)]


def pools(server: ServerConnection) -> Child:
    """Return the members of all MasterQueues."""
    rows: list[list[Child]] = [
        pool_cells(queue["metadata"]["name"], pool)
        for queue in listed(server, MasterQueue.KIND)
        for pool in (queue.get("status") or {}).get("pools") or ()
    ]
    if not rows:
        hint = tag("code", "kyu pool publish")
        return tag(
            "p",
            "You see no pools. ",
            hint,
            " announces a machine, a cluster or a Slurm site.",
            class_="empty",
        )
    return table(["Pool", "MasterQueue", "State", "Since", "Quota", "Reason"], rows, label="Pools")


def pool_cells(master_queue: str, pool: Json) -> list[Child]:
    quota = ", ".join(f"{resource} {amount}" for resource, amount in (pool.get("effective") or {}).items())
    since = tag("span", output.age(pool.get("since")), title=pool.get("since"))
    return [pool["name"], master_queue, badge(pool["state"]), since, quota, pool.get("reason")]


def listed(server: ServerConnection, kind: Kind) -> list[Json]:
    """Return the objects of a kind, as far as the server has it and the visitor may read it."""
    try:
        return list(server.client.list(kind))
    except (NotFound, Forbidden):
        return []
