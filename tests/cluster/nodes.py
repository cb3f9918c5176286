"""
Nodes that exist only in the API server, played by KWOK: any size, no cost, pods that run as long as a test wants.

stages.yaml says how nodes and pods behave; the annotations below steer a pod.

Called by: controlplane.py, and the tests for manifests of nodes and the end of pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.cluster import addresses, parts
from tests.cluster.client import Client, Manifest
from tests.cluster.commands import Layout

STAGES = Path(__file__).parent / "stages.yaml"
RUN_FOR = "test.kyu/run-for"
EXIT_CODE = "test.kyu/exit-code"


def command(layout: Layout) -> list[str]:
    return [
        str(parts.binary("kwok")),
        f"--kubeconfig={layout.kubeconfig}",
        f"--config={STAGES}",
        "--manage-all-nodes=true",
        f"--server-address={layout.address}:{addresses.KWOK_PORT}",
        "--node-lease-duration-seconds=40",
    ]


def nodes(
    names: Iterable[str], resources: Mapping[str, str], labels: Mapping[str, str] | None = None
) -> Iterator[Manifest]:
    """Equal nodes. ``resources`` as in a Node's status, for example {"cpu": "8", "memory": "32Gi"}."""
    for name in names:
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
            "status": {"capacity": {"pods": "110", **resources}, "allocatable": {"pods": "110", **resources}},
        }


def end_pod(admin: Client, job_name: str, namespace: str = "default") -> None:
    """The pod of a Job ends well, as soon as it runs. Until then a test has all the time that it needs."""

    def runs(event: Manifest) -> bool:
        return bool(event["object"]["status"].get("phase") == "Running")

    path, query = admin.path("v1", "Pod", None, namespace), {"labelSelector": f"job-name={job_name}"}
    name = admin.until_event(runs, path, query)["metadata"]["name"]
    admin.patch("v1", "Pod", name, {"metadata": {"annotations": {RUN_FOR: "0s"}}}, namespace)
