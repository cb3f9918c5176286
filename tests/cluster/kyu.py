"""
Kyu's controllers on a control plane: its own CustomResourceDefinitions, the controllers in a thread of the test run.

Called by: conftest.py.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

import yaml

from kyu.api.config.config import Configuration
from kyu.app import connect
from kyu.controllers.plane import Plane
from kyu.install import objects
from kyu.kinds.table import FRAMEWORKS
from kyu.kube import http, kubeconfig
from kyu.kube.client import Client
from tests.cluster import addresses, client, kueue
from tests.cluster.client import Manifest
from tests.cluster.controlplane import ControlPlane

DEFINITION = "CustomResourceDefinition"


@contextmanager
def running(plane: ControlPlane) -> Iterator[None]:
    """Kyu is installed and in charge while the context is open."""
    install(plane)
    loop = asyncio.new_event_loop()
    controllers = loop.create_task(control(plane))
    thread = threading.Thread(target=run_until_done, args=(loop, controllers))
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(controllers.cancel)
        thread.join()
        loop.close()


def install(plane: ControlPlane) -> None:
    definitions = manifests()
    plane.admin.apply(definitions)
    names = [manifest["metadata"]["name"] for manifest in definitions if manifest["kind"] == DEFINITION]
    plane.admin.until_all(client.has("Established"), "apiextensions.k8s.io/v1", DEFINITION, names)


def manifests(*options: str) -> list[Manifest]:
    """Return what ``kyu manifests`` prints."""
    command = [sys.executable, "-m", "kyu", "manifests", *options]
    printed = subprocess.run(command, capture_output=True, check=True).stdout
    return list(yaml.load_all(printed, yaml.CSafeLoader))


def install_all(plane: ControlPlane, *, policies: bool = True) -> None:
    """
    Install what ``kyu manifests --image`` prints, without the Deployment: the process runs outside.

    There is no kube-proxy, so the Service of the webhooks is another name for the address of the process.
    """
    made = list(manifests("--image=kyu", *([] if policies else ["--no-policies"])))
    webhooks = [one for one in made if one["kind"].endswith(("WebhookConfiguration", "Policy", "PolicyBinding"))]
    others = [one for one in made if one not in webhooks and one["kind"] != "Deployment"]
    for manifest in made:
        lead(plane, manifest)
    plane.admin.apply(others)
    names = [manifest["metadata"]["name"] for manifest in made if manifest["kind"] == DEFINITION]
    plane.admin.until_all(client.has("Established"), "apiextensions.k8s.io/v1", DEFINITION, names)
    plane.admin.apply(webhooks)


def lead(plane: ControlPlane, manifest: Manifest) -> None:
    """Lead a Service, and whatever calls it, to the process."""
    for configuration in kueue.client_configurations(manifest):
        configuration["service"]["port"] = addresses.KYU_WEBHOOK_PORT
    if manifest["kind"] == "APIService":
        manifest["spec"]["service"]["port"] = addresses.KYU_VISIBILITY_PORT
    if manifest["kind"] == "Service":
        manifest["spec"] = {"type": "ExternalName", "externalName": plane.layout.address}


def start(plane: ControlPlane, configuration: Manifest | None = None, name: str = "kyu", *, shift: int = 0) -> None:
    """Run the installed controller with the rights of its Deployment, ready when this returns."""
    address = plane.layout.address
    health = f"{address}:{addresses.KYU_HEALTH_PORT + shift}"
    settings = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": health},
        "metrics": {"bindAddress": f"{address}:{addresses.KYU_METRICS_PORT + shift}"},
        "visibilityServer": {"bindAddress": address, "bindPort": addresses.KYU_VISIBILITY_PORT + shift},
        "integrations": {"frameworks": list(FRAMEWORKS)},
        **(configuration or {}),
    }
    path = plane.layout.folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(settings, sort_keys=False))
    account = plane.user_kubeconfig(f"system:serviceaccount:{objects.NAMESPACE}:{objects.NAME}")
    words = [f"--kubeconfig={account}", f"--config={path}"]
    words.append(f"--webhook-bind-address={address}:{addresses.KYU_WEBHOOK_PORT + shift}")
    plane.processes.start(name, [sys.executable, "-m", "kyu", "controller", *words])
    plane.wait_until_healthy(name, f"http://{health}/readyz")


async def control(plane: ControlPlane) -> None:
    connection = Client(await http.connect(kubeconfig.load(plane.kubeconfig)))
    try:
        await Plane(connection, Configuration(), lambda: datetime.now(UTC), connect).run()
    finally:
        await connection.close()


def run_until_done(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    asyncio.set_event_loop(loop)
    with suppress(asyncio.CancelledError):
        loop.run_until_complete(task)
