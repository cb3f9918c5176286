"""
List the queues of the namespace with their waiting and running jobs, and their usage. Users who may not read
ClusterQueues see the usage without the quota.
"""

from __future__ import annotations

import argparse
from functools import cache

from kyu.api import quantity
from kyu.api.kueue import ClusterQueue, LocalQueue
from kyu.api.meta import Json, Key
from kyu.cli import connection, output
from kyu.kube.errors import Forbidden


def arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser, all_namespaces=True)
    output.add_format(parser)


def run(args: argparse.Namespace) -> int:
    server = connection.connect(args)
    items = list(server.listed(LocalQueue.KIND, None if args.all_namespaces else server.namespace))
    if args.output in ("json", "yaml", "name"):
        typed = [{"apiVersion": LocalQueue.KIND.api_version, "kind": "LocalQueue", **item} for item in items]
        print(output.objects(typed, args.output, is_list=True))
        return 0
    if not items:
        place = "any namespace" if args.all_namespaces else f"namespace {server.namespace}"
        output.note(f"no queues in {place}; an administrator creates one with `kyu ctl create localqueue`")
        return 0
    header = ["QUEUE", "CLUSTER QUEUE", "PENDING", "RUNNING", "USED", "STATE"]
    rows = []

    @cache
    def owner(name: str) -> Json | None:
        try:
            return server.client.find(ClusterQueue.KIND, Key("", name))
        except Forbidden:
            return None

    for item in items:
        status = item.get("status") or {}
        row = [
            item["metadata"]["name"],
            item["spec"].get("clusterQueue"),
            status.get("pendingWorkloads", 0),
            status.get("admittedWorkloads", 0),
            used(item, owner(item["spec"].get("clusterQueue", ""))),
            state(status),
        ]
        rows.append([item["metadata"]["namespace"], *row] if args.all_namespaces else row)
    room = None if args.output == "wide" else output.terminal_room()
    print(output.table(["NAMESPACE", *header] if args.all_namespaces else header, rows, room))
    return 0


def used(queue: Json, cluster_queue: Json | None) -> str:
    """Return `cpu 6/8`: the usage of the queue and the quota of its ClusterQueue; `cpu 6` if the quota is hidden."""
    totals: dict[str, int] = {}
    for flavor in (queue.get("status") or {}).get("flavorsUsage") or ():
        for resource in flavor.get("resources") or ():
            name = resource["name"]
            totals[name] = totals.get(name, 0) + quantity.amount(name, resource.get("total", "0"))
    if cluster_queue is None:
        return ", ".join(f"{name} {quantity.render(name, total)}" for name, total in sorted(totals.items()))
    owned: dict[str, int] = {}
    for group in (cluster_queue.get("spec") or {}).get("resourceGroups") or ():
        for flavor in group["flavors"]:
            for resource in flavor["resources"]:
                name = resource["name"]
                owned[name] = owned.get(name, 0) + quantity.amount(name, resource["nominalQuota"])
    return ", ".join(
        f"{name} {quantity.render(name, totals.get(name, 0))}/{quantity.render(name, most)}"
        for name, most in sorted(owned.items())
    )


def state(status: Json) -> str:
    active = next((c for c in status.get("conditions") or () if c["type"] == "Active"), None)
    if active is None or active["status"] == "True":
        return "active"
    return str(active.get("message") or active.get("reason"))
