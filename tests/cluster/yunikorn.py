"""
YuniKorn's scheduler on a control plane: pods that name it as their scheduler are its own, all others kube-scheduler's.

Its configuration is a ConfigMap with the queues. The program is go/yunikorn/main.go, which leaves out the web pages.

Called by: the tests, __main__.py, measure.py.
YuniKorn: pkg/cmd/shim, pkg/conf.
"""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from tests.cluster import addresses, parts
from tests.cluster.client import Manifest
from tests.cluster.controlplane import ControlPlane

NAME = "yunikorn"
NAMESPACE = "yunikorn"
# A pod in no named queue goes to root.<namespace>, as in YuniKorn's own defaults.
QUEUES: Manifest = {
    "partitions": [
        {
            "name": "default",
            "placementrules": [
                {"name": "provided", "create": True},
                {"name": "tag", "value": "namespace", "create": True},
            ],
            "queues": [{"name": "root", "submitacl": "*"}],
        }
    ]
}


def start(plane: ControlPlane, queues: Manifest = QUEUES, settings: Mapping[str, str] | None = None) -> None:
    """Run YuniKorn, ready when this returns. ``queues`` is its queues.yaml, ``settings`` are other keys beside it."""
    plane.admin.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
    plane.admin.apply(
        [config_map("yunikorn-defaults", {}), config_map("yunikorn-configs", configuration(queues, settings))]
    )
    address = f"{plane.layout.address}:{addresses.YUNIKORN_PORT}"
    environment = {"KUBECONFIG": str(plane.kubeconfig), "NAMESPACE": NAMESPACE}
    plane.processes.start(NAME, [str(parts.binary(NAME)), f"-ready-address={address}"], environment)
    plane.wait_until_healthy(NAME, f"http://{address}/readyz")


def configuration(queues: Manifest, settings: Mapping[str, str] | None) -> dict[str, str]:
    return {"queues.yaml": yaml.safe_dump(queues, sort_keys=False), **(settings or {})}


def config_map(name: str, data: Mapping[str, str]) -> Manifest:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}
