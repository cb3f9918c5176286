"""Show whether the control plane on this machine runs, its address, and its kubeconfig."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from kyu import lock
from kyu.api.core import Node
from kyu.api.meta import Json
from kyu.cli import target
from kyu.kube.blocking import BlockingClient, Unreachable
from kyu.kube.kubeconfig import load
from kyu.runtime.nodes.node import ISOLATED

SAMPLE = re.compile(r"^(kyu_pods_without_quota|kyu_requests_above_quota)\{(.*)\} (\S+)$", re.M)
LABEL = re.compile(r'(\w+)="([^"]*)"')


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, metavar="DIR", help="data folder (default: the user's)")


def run(args: argparse.Namespace) -> int:
    data: Path = args.data or target.default_data()
    if not target.is_running(data):
        print(f"stopped   data {data}")
        return 1
    credentials = load(data / "kubeconfig")
    client = BlockingClient(credentials)
    findings: list[str] = []
    try:
        answer = client.raw("/readyz").decode()
        findings = audit_findings(client.raw("/metrics").decode())
        findings += isolation_findings(client.list(Node.KIND))
    except Unreachable as error:
        answer = str(error)
    finally:
        client.close()
    state = "ready" if answer == "ok" else answer
    print(f"{state}   {credentials.server}   process {lock.holder(data / 'lock')}   data {data}")
    print(f"export KUBECONFIG={data / 'kubeconfig'}")
    for finding in findings:
        print(finding)
    return 0 if answer == "ok" else 1


def isolation_findings(nodes: Sequence[Json]) -> list[str]:
    """Return a line for each node whose pods are refused or not isolated from each other."""
    return [
        f"isolation: node {node['metadata']['name']}: {condition['message']}"
        for node in nodes
        for condition in (node.get("status") or {}).get("conditions") or ()
        if condition["type"] == ISOLATED and condition["status"] == "False"
    ]


def audit_findings(metrics: str) -> list[str]:
    """Return a line for each finding of the quota audit, from the text of the metrics."""
    found = []
    for name, labels, number in SAMPLE.findall(metrics):
        named = dict(LABEL.findall(labels))
        if name == "kyu_requests_above_quota":
            quota = f"ClusterQueue {named['cluster_queue']}, flavor {named['flavor']}"
            found.append(f"quota audit: running pods request {number} {named['resource']} above {quota}")
        elif named["reason"] == "NoReservation":
            found.append(f"quota audit: {float(number):.0f} pods in namespace {named['namespace']} run without quota")
    return found
