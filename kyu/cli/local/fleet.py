"""
A hub and its worker clusters on one machine, for `kyu up --clusters`.

Each cluster is a server of its own, in a folder below that of the hub, with its share of the cores. The clusters report
their nodes to the hub, whose quota follows. Jobs of the LocalQueue ``default`` go to the first cluster with room.
"""

from __future__ import annotations

import argparse
import base64
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kyu.api.clusters.capacity import CapacityQuota
from kyu.api.core import SECRET
from kyu.api.kueue import (
    MULTIKUEUE_CONTROLLER,
    AdmissionCheck,
    ClusterQueue,
    LocalQueue,
    MultiKueueCluster,
    MultiKueueConfig,
    ResourceFlavor,
)
from kyu.api.meta import Json, Key, Kind
from kyu.cli import target
from kyu.cli.local.down import CLUSTERS
from kyu.cli.main import BadInput, Failed
from kyu.kube import kubeconfig
from kyu.kube.blocking import BlockingClient

NAME = "everywhere"
QUEUE = "default"
MOST_CLUSTERS = 32
# Servers that start at the same time.
MOST_AT_ONCE = 4
PODS_PER_CORE = 50
# The namespace of Kueue, where Secrets with kubeconfigs are.
NAMESPACE = "kueue-system"


def start(args: argparse.Namespace, data: Path) -> int:
    """Start what does not run yet, connect it, and print how to use it."""
    if not 1 <= args.clusters <= MOST_CLUSTERS:
        raise BadInput(f"kyu up: --clusters {args.clusters}: the number must be 1 to {MOST_CLUSTERS}")
    for option, value in (("--nodes", args.nodes), ("--listen", args.listen), ("--server-only", args.server_only)):
        if value:
            raise BadInput(f"kyu up: {option} cannot be combined with --clusters")
    shared = ["--trust-users"] if args.trust_users else []
    shared += ["--config", str(args.config)] if args.config else []
    bring_up(data, *shared)
    names = [f"cluster{number}" for number in range(1, args.clusters + 1)]
    cores = max(1, (args.cpu or os.cpu_count() or 1) // args.clusters)
    hub = BlockingClient(kubeconfig.load(data / "kubeconfig"))
    try:
        options = ["--cpu", str(cores), "--hub", str(data / "kubeconfig"), *shared]
        with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
            list(pool.map(lambda name: bring_up(data / CLUSTERS / name, "--cluster-name", name, *options), names))
        for name in names:
            folder = data / CLUSTERS / name
            worker = BlockingClient(kubeconfig.load(folder / "kubeconfig"))
            apply_all(worker, queue_objects(cores, memory_mebibytes() // args.clusters))
            worker.close()
            apply_all(hub, connection_objects(name, folder / "kubeconfig"))
        apply_all(hub, hub_objects(names))
    finally:
        hub.close()
    print(f"a hub and {len(names)} clusters run in the background; their folders are {data} and {data / CLUSTERS}")
    print(f"export KUBECONFIG={data / 'kubeconfig'}")
    print(f"try: kyu clusters; kyu submit -- hostname; kyu jobs --all-clusters; {target.down_command(data)}")
    return 0


def bring_up(folder: Path, *options: str) -> None:
    if target.is_running(folder):
        return
    words = [*target.KYU, "up", "-d", "--bare", "--data", str(folder), *options]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise Failed(done.stderr.strip().removeprefix("kyu up: ") or f"the server of {folder} did not start")


def memory_mebibytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20


def apply_all(client: BlockingClient, objects: list[tuple[Kind, Json]]) -> None:
    for kind, body in objects:
        if kind == ClusterQueue.KIND and client.find(kind, Key("", body["metadata"]["name"])) is not None:
            # Its quota follows the clusters by now.
            continue
        client.apply(kind, {"apiVersion": kind.api_version, "kind": kind.kind, **body}, force=True)


def queue_objects(cores: int, mebibytes: int, checks: tuple[str, ...] = ()) -> list[tuple[Kind, Json]]:
    """Return a flavor, a ClusterQueue of this size, and a LocalQueue to it."""
    amounts = {"cpu": str(cores), "memory": f"{mebibytes}Mi", "pods": str(cores * PODS_PER_CORE)}
    quotas = [{"name": name, "nominalQuota": amount} for name, amount in amounts.items()]
    group = {"coveredResources": list(amounts), "flavors": [{"name": NAME, "resources": quotas}]}
    spec: Json = {"namespaceSelector": {}, "resourceGroups": [group]}
    if checks:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": check} for check in checks]}
    return [
        (ResourceFlavor.KIND, {"metadata": {"name": NAME}, "spec": {}}),
        (ClusterQueue.KIND, {"metadata": {"name": NAME}, "spec": spec}),
        (
            LocalQueue.KIND,
            {"metadata": {"name": QUEUE, "namespace": "default"}, "spec": {"clusterQueue": NAME}},
        ),
    ]


def connection_objects(name: str, path: Path) -> list[tuple[Kind, Json]]:
    """Return the connection of the hub to a cluster: a Secret with its kubeconfig, and a MultiKueueCluster."""
    text = base64.b64encode(path.read_bytes()).decode()
    source = {"kubeConfig": {"location": name, "locationType": "Secret"}}
    return [
        (SECRET, {"metadata": {"name": name, "namespace": NAMESPACE}, "data": {"kubeconfig": text}}),
        (MultiKueueCluster.KIND, {"metadata": {"name": name}, "spec": {"clusterSource": source}}),
    ]


def hub_objects(names: list[str]) -> list[tuple[Kind, Json]]:
    """Return the check that dispatches jobs, the queue with it, and the quota that follows the clusters."""
    config = {"apiGroup": MultiKueueConfig.KIND.group, "kind": MultiKueueConfig.KIND.kind, "name": NAME}
    check = {"controllerName": MULTIKUEUE_CONTROLLER, "parameters": config}
    return [
        (MultiKueueConfig.KIND, {"metadata": {"name": NAME}, "spec": {"clusters": names}}),
        (AdmissionCheck.KIND, {"metadata": {"name": NAME}, "spec": check}),
        *queue_objects(0, 0, (NAME,)),
        (CapacityQuota.KIND, {"metadata": {"name": NAME}, "spec": {"clusterQueue": NAME}}),
    ]
