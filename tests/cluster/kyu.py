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

from kyu.api.config import Configuration
from kyu.app import connect
from kyu.controllers.plane import Plane
from kyu.kube import http, kubeconfig
from kyu.kube.client import Client
from tests.cluster import client
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


def manifests() -> list[Manifest]:
    """What ``kyu manifests`` prints."""
    printed = subprocess.run([sys.executable, "-m", "kyu", "manifests"], capture_output=True, check=True).stdout
    return list(yaml.load_all(printed, yaml.CSafeLoader))


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
