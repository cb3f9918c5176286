"""
The composition root of the controllers on somebody else's API server: the election, what acts, and what tells about it.

Called by: cli/controller.py. Calls: controllers/plane.py or controllers/pool_plane.py, kube/lease.py, endpoints.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import socket
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec
import uvloop

from kyu import endpoints, log
from kyu.api.config import Configuration
from kyu.api.meta import Key
from kyu.app import clock, connect
from kyu.controllers import metrics
from kyu.controllers.first import read_configuration
from kyu.controllers.plane import Plane
from kyu.controllers.pool_plane import PoolPlane
from kyu.kube import http
from kyu.kube.client import Client
from kyu.kube.kubeconfig import Credentials
from kyu.kube.lease import Lease, Terms

POOLS_LEASE = "pools.kueue.x-k8s.io"


def read_settings(config: Path | None, health_address: str | None, metrics_address: str | None) -> Configuration:
    """The settings of the file, with the addresses that were given beside it. ``ValueError`` if it cannot be used."""
    configuration = read_configuration(config)
    if health_address is not None:
        health = msgspec.structs.replace(configuration.health, health_probe_bind_address=health_address)
        configuration = msgspec.structs.replace(configuration, health=health)
    if metrics_address is not None:
        shown = msgspec.structs.replace(configuration.metrics, bind_address=metrics_address)
        configuration = msgspec.structs.replace(configuration, metrics=shown)
    return configuration


def control(credentials: Credentials, configuration: Configuration, only: Literal["pools"] | None = None) -> None:
    """
    Run the controllers until SIGINT or SIGTERM; all of them, or those of pools.

    Of several such processes one acts at a time. ``LeaseLost`` if this was the one, and cannot be sure of it any more.
    """
    uvloop.run(_control(credentials, configuration, only))


async def _control(credentials: Credentials, configuration: Configuration, only: Literal["pools"] | None) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    client = Client(await http.connect(credentials), "kyu")
    registry = metrics.own_registry()
    lease = make_lease(client, configuration, only)
    plane: Plane | PoolPlane
    if only == "pools":
        plane = PoolPlane(client, configuration, clock, connect)
    else:
        role: metrics.Role = "standalone" if lease is None else "leader"
        plane = Plane(client, configuration, clock, connect, registry=registry, role=role)
    health = endpoints.health_pages(configuration.health, partial(find_obstacle, plane, lease))
    shown = endpoints.metrics_page(partial(metrics.render, registry), partial(endpoints.may_read_metrics, credentials))
    try:
        async with (
            endpoints.serving("health.healthProbeBindAddress", configuration.health.health_probe_bind_address, health),
            endpoints.serving_securely("metrics.bindAddress", configuration.metrics.bind_address, shown),
            lease.held() if lease is not None else contextlib.nullcontext(),
        ):
            await plane.run()
    except asyncio.CancelledError:
        log.info("stopping")
    finally:
        await client.close()


def find_obstacle(plane: Plane | PoolPlane, lease: Lease | None) -> str:
    """Why the process is not ready, or nothing. Who only stands by is ready: a rollout waits for it."""
    if plane.started.is_set() or (lease is not None and lease.is_standing_by):
        return ""
    return "not everything that the API server has is known yet"


def make_lease(client: Client, configuration: Configuration, only: Literal["pools"] | None) -> Lease | None:
    """To be the only one who decides. It is that of an installed Kueue; what is done for pools has its own."""
    rules = configuration.leader_election
    if not rules.leader_elect:
        return None
    terms = Terms(
        Key(rules.resource_namespace or configuration.namespace, POOLS_LEASE if only else rules.resource_name),
        f"{socket.gethostname()}_{secrets.token_hex(8)}",
        rules.lease_duration.total_seconds(),
        rules.renew_deadline.total_seconds(),
        rules.retry_period.total_seconds(),
    )
    return Lease(client, terms, clock)
