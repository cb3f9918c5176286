"""
The two API servers that are compared, each alone: without controllers, which would change answers.

Called by: test_same_answers.py, test_random_answers.py.
"""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.cluster import client
from tests.cluster.client import Client, Manifest
from tests.cluster.controlplane import ControlPlane

DEFAULT_ACCOUNT: Manifest = {
    "apiVersion": "v1",
    "kind": "ServiceAccount",
    "metadata": {"name": "default", "namespace": "default"},
}


@contextmanager
def real_server() -> Iterator[Client]:
    """Kubernetes's API server with Kyu's CustomResourceDefinitions."""
    printed = subprocess.run([sys.executable, "-m", "kyu", "manifests", "--crds-only"], capture_output=True, check=True)
    manifests = list(yaml.load_all(printed.stdout, yaml.CSafeLoader))
    with ControlPlane.start() as plane:
        plane.admin.apply([*manifests, DEFAULT_ACCOUNT])
        names = [manifest["metadata"]["name"] for manifest in manifests]
        kind = "CustomResourceDefinition"
        plane.admin.until_all(client.has("Established"), "apiextensions.k8s.io/v1", kind, names)
        yield plane.admin


@contextmanager
def kyu_server(data: Path) -> Iterator[Client]:
    """Kyu's API server."""
    command = [sys.executable, "-m", "kyu", "up", "--server-only", "--bare", "--data", str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        # It says where its kubeconfig is when it answers requests.
        while "KUBECONFIG" not in (line := process.stdout.readline()):
            assert line, "kyu ended before it was ready"
        running = client_of(data / "kubeconfig")
        running.apply([DEFAULT_ACCOUNT])
        try:
            yield running
        finally:
            running.close()
            process.terminate()


def client_of(kubeconfig: Path) -> Client:
    content: Manifest = yaml.safe_load(kubeconfig.read_text())
    cluster = content["clusters"][0]["cluster"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    return client.client_of_token(cluster["server"], authority, content["users"][0]["user"]["token"])
