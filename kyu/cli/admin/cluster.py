"""
Report the capacity of a cluster to a hub, as a ClusterMetrics.

    kyu cluster publish --name east --hub hub.kubeconfig    report until Ctrl-C: changes at once, at most every 10 s
    kyu cluster publish --name here                         report this cluster to itself
    kyu cluster publish --name east --hub FILE --once       report once
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from kyu.cli import target
from kyu.cli.main import BadInput, Failed

if TYPE_CHECKING:
    from kyu.kube.kubeconfig import Credentials

SHORTEST_PERIOD_SECONDS = 1.0
# The hub takes a report for stale after 20 seconds, at the earliest.
LONGEST_PERIOD_SECONDS = 15.0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("publish",))
    parser.add_argument("--name", default="", metavar="NAME", help="name of the cluster in the hub")
    parser.add_argument("--hub", type=Path, metavar="FILE", help="kubeconfig of the hub (default: the cluster itself)")
    parser.add_argument(
        "--origin",
        default="multikueue",
        help="multiKueue.origin of the hub, which marks its jobs (default: multikueue)",
    )
    parser.add_argument(
        "--period", type=float, default=10.0, metavar="SECONDS", help="shortest time between reports (default: 10)"
    )
    parser.add_argument("--once", action="store_true", help="report once")
    target.arguments(parser)


def run(args: argparse.Namespace) -> int:
    from kyu import log
    from kyu.api import names
    from kyu.kube import kubeconfig
    from kyu.kube.errors import ApiError

    if not args.name:
        raise BadInput("kyu cluster publish: --name is required")
    if reason := names.why_not_dns_label(args.name):
        raise BadInput(f"--name {args.name}: {reason}")
    if not SHORTEST_PERIOD_SECONDS <= args.period <= LONGEST_PERIOD_SECONDS:
        limits = f"{SHORTEST_PERIOD_SECONDS:g} to {LONGEST_PERIOD_SECONDS:g} seconds"
        raise BadInput(f"--period {args.period:g}: the period must be {limits}")
    source = target.choose(args).credentials
    try:
        hub = kubeconfig.load(args.hub) if args.hub else source
    except kubeconfig.BadKubeconfig as error:
        raise BadInput(f"--hub: {error}") from error
    log.start()
    try:
        asyncio.run(_publish(args, source, hub))
    except* (ApiError, OSError) as group:
        raise Failed(str(group.exceptions[0])) from group
    return 0


async def _publish(args: argparse.Namespace, source: Credentials, hub: Credentials) -> None:
    from datetime import UTC, datetime

    from kyu.controllers.clusters.publisher import ClusterPublisher
    from kyu.kube import http
    from kyu.kube.client import Client

    clients = Client(await http.connect(source), "kyu"), Client(await http.connect(hub), "kyu")
    try:
        publisher = ClusterPublisher(*clients, args.name, args.origin, args.period, lambda: datetime.now(UTC))
        await publisher.run(once=args.once)
    finally:
        for client in clients:
            await client.close()
