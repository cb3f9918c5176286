"""Kyu's server answers as Kubernetes does: the same dialogues with both (see twins.py)."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster import client, twins
from tests.cluster.client import Client, Manifest
from tests.cluster.conftest import require
from tests.cluster.controlplane import ControlPlane

DIALOGUES = sorted((Path(__file__).parent / "dialogues").glob("*.yaml"))
DEFAULT_ACCOUNT: Manifest = {
    "apiVersion": "v1",
    "kind": "ServiceAccount",
    "metadata": {"name": "default", "namespace": "default"},
}


@pytest.fixture(scope="module")
def real() -> Iterator[Client]:
    """Kubernetes's API server with Kyu's CustomResourceDefinitions; without controllers, which would change answers."""
    require()
    printed = subprocess.run([sys.executable, "-m", "kyu", "manifests", "--crds-only"], capture_output=True, check=True)
    manifests = list(yaml.load_all(printed.stdout, yaml.CSafeLoader))
    with ControlPlane.start() as plane:
        plane.admin.apply([*manifests, DEFAULT_ACCOUNT])
        names = [manifest["metadata"]["name"] for manifest in manifests]
        kind = "CustomResourceDefinition"
        plane.admin.until_all(client.has("Established"), "apiextensions.k8s.io/v1", kind, names)
        yield plane.admin


@pytest.fixture(scope="module")
def kyu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Kyu's API server alone."""
    data = tmp_path_factory.mktemp("kyu")
    command = [sys.executable, "-m", "kyu", "up", "--server-only", "--bare", "--data", str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        # It says where its kubeconfig is when it answers requests.
        while "KUBECONFIG" not in (line := process.stdout.readline()):
            assert line, "kyu ended before it was ready"
        running = client_of(data / "kubeconfig")
        running.apply([DEFAULT_ACCOUNT])
        yield running
        running.close()
        process.terminate()


def client_of(kubeconfig: Path) -> Client:
    content: Manifest = yaml.safe_load(kubeconfig.read_text())
    cluster = content["clusters"][0]["cluster"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    return client.client_of_token(cluster["server"], authority, content["users"][0]["user"]["token"])


@pytest.mark.parametrize("path", DIALOGUES, ids=lambda path: path.stem)
def test_same_answers(path: Path, real: Client, kyu: Client) -> None:
    found = list(twins.differences(twins.read(path), real, kyu))
    assert not found, "\n\n".join(found)
