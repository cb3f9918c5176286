"""
The composition root of the controllers on a cluster: leader election, control plane, probes and metrics.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import msgspec
import uvloop

from kyu import endpoints, log
from kyu.api.config.config import Configuration
from kyu.api.core import CONFIG_MAP
from kyu.api.meta import Key
from kyu.app import clock, connect
from kyu.controllers.beside import BesidePlane, Part
from kyu.controllers.initial_objects import default_settings, read_configuration
from kyu.controllers.metrics import kueue as metrics
from kyu.controllers.metrics.labels import Role
from kyu.controllers.plane import Plane
from kyu.controllers.shadow import ReadOnly, ShadowPlane
from kyu.controllers.workflows import rows as workflow_rows
from kyu.install import admission
from kyu.kube import http
from kyu.kube.client import Client
from kyu.kube.kubeconfig import Credentials
from kyu.kube.lease import Lease, Terms
from kyu.server.exchange import JSON
from kyu.shadow import report
from kyu.shadow.comparison import PATIENCE_SECONDS as SHADOW_PATIENCE_SECONDS
from kyu.visibility.front_proxy import AuthorityTrust, ProxyConnection, find_proxy
from kyu.visibility.pending import QueueVisibility
from kyu.visibility.server import review_access, visibility_pages
from kyu.visibility.standby import FollowedQueues
from kyu.webhooks.certificates import CertificateFiles, CertificateKeeper
from kyu.webhooks.server import webhook_pages

# All controllers, or some of them beside an installed Kueue, or none that writes.
Mode: TypeAlias = Literal["all", "pools", "workflows", "kueue", "shadow"]


class Beside(NamedTuple):
    """A mode beside an installed Kueue: its Lease, the author of its events, and its parts."""

    lease: str
    component: str
    parts: tuple[Part, ...]


BESIDE: dict[Mode, Beside] = {
    "pools": Beside("pools.kueue.x-k8s.io", "kyu-pools", ("pools",)),
    "workflows": Beside("workflows.kyu.dev", "kyu-workflows", ("workflows",)),
    "kueue": Beside("beside-kueue.kyu.dev", "kyu-beside-kueue", ("pools", "clusters", "workflows", "dependencies")),
}
NOT_LISTED = "not all objects of the API server were listed yet"


def read_settings(config: Path | None, health_address: str | None, metrics_address: str | None) -> Configuration:
    """Return the settings of the file, with addresses from the command line. Raise ``ValueError``."""
    configuration = read_configuration(config, default_settings())
    if health_address is not None:
        health = msgspec.structs.replace(configuration.health, health_probe_bind_address=health_address)
        configuration = msgspec.structs.replace(configuration, health=health)
    if metrics_address is not None:
        shown = msgspec.structs.replace(configuration.metrics, bind_address=metrics_address)
        configuration = msgspec.structs.replace(configuration, metrics=shown)
    return configuration


def control(
    credentials: Credentials,
    configuration: Configuration,
    mode: Mode = "all",
    webhook_address: str = endpoints.NOWHERE[0],
    patience_seconds: float = SHADOW_PATIENCE_SECONDS,
) -> None:
    """
    Run the controllers of the mode until SIGINT or SIGTERM. With all of them, each process answers webhooks.

    One replica acts at a time. Raise ``LeaseLost`` if this one was the leader and may not be any more. A shadow acts
    never; ``patience_seconds`` is the time that it gives the other scheduler for a decision.
    """
    uvloop.run(_control(credentials, configuration, mode, webhook_address, patience_seconds))


async def _control(
    credentials: Credentials,
    configuration: Configuration,
    mode: Mode,
    webhook_address: str,
    patience_seconds: float,
) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    transport = await http.connect(credentials)
    client = Client(ReadOnly(transport) if mode == "shadow" else transport, "kyu")
    registry = metrics.own_registry()
    # Renewals of the Lease have a connection of their own: they must not wait in line behind other writes.
    renewing = Client(await http.connect(credentials), "kyu")
    lease = make_lease(renewing, configuration, mode)
    pages = {endpoints.METRICS_PATH: endpoints.GuardedPage(partial(metrics.render, registry), endpoints.METRICS_TYPE)}
    held = lease.held() if lease is not None else contextlib.nullcontext()
    plane: Plane | BesidePlane | ShadowPlane
    if mode == "all":
        role: Role = "standalone" if lease is None else "leader"
        extra = workflow_rows.controllers(workflow_rows.ON_CLUSTER)
        plane = Plane(client, configuration, clock, connect, extra, registry, role=role)
    elif mode == "shadow":
        plane = ShadowPlane(client, configuration, clock, registry, patience_seconds)
        pages[report.PATH] = endpoints.GuardedPage(partial(_report, plane), JSON)
    else:
        beside = BESIDE[mode]
        plane = BesidePlane(client, configuration, clock, connect, beside.parts, beside.component)
    handler = endpoints.guarded_pages(pages, partial(endpoints.may_read, credentials))
    shown = endpoints.serving_securely("metrics.bindAddress", configuration.metrics.bind_address, handler)
    try:
        if isinstance(plane, Plane):
            await _run_plane(plane, client, configuration, webhook_address, shown, held)
        else:
            await _run_alone(plane, configuration, lease, shown, held)
    except asyncio.CancelledError:
        log.info("stopping")
    finally:
        await client.close()
        await renewing.close()


def _report(plane: ShadowPlane) -> bytes:
    return msgspec.json.encode(plane.report.as_json())


async def _run_alone(
    plane: BesidePlane | ShadowPlane,
    configuration: Configuration,
    lease: Lease | None,
    shown: AbstractAsyncContextManager[None],
    held: AbstractAsyncContextManager[None],
) -> None:
    def find_obstacle() -> str:
        # A process that stands by is ready: a rollout waits for it.
        return NOT_LISTED if not plane.started.is_set() and not (lease and lease.is_standing_by) else ""

    async with _probes(configuration, find_obstacle), shown, held:
        await plane.run()


async def _run_plane(
    plane: Plane,
    client: Client,
    configuration: Configuration,
    webhook_address: str,
    shown: AbstractAsyncContextManager[None],
    held: AbstractAsyncContextManager[None],
) -> None:
    """Follow the cluster and answer webhooks at once; act when the lease is held."""
    certificates = None if webhook_address in endpoints.NOWHERE else make_certificates(client, configuration)

    def find_obstacle() -> str:
        if not plane.started.is_set():
            return NOT_LISTED
        return "the webhooks have no certificate yet" if certificates and not certificates.is_served else ""

    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(_probes(configuration, find_obstacle))
        await stack.enter_async_context(shown)
        await stack.enter_async_context(beside(plane.follow()))
        if certificates is not None:
            pages = webhook_pages(plane.view, plane.started.is_set)
            serving = endpoints.serving_with("--webhook-bind-address", webhook_address, pages, certificates.context)
            await stack.enter_async_context(serving)
            await stack.enter_async_context(_visibility(plane, client, configuration, certificates.proxied_context))
            await stack.enter_async_context(beside(certificates.keep()))
        await stack.enter_async_context(held)
        await plane.act()


def _visibility(
    plane: Plane, client: Client, configuration: Configuration, context: ssl.SSLContext
) -> AbstractAsyncContextManager[None]:
    """Serve the visibility API to the front proxy, unless its feature gate is off."""
    if not configuration.gates.enabled("VisibilityOnDemand"):
        return contextlib.nullcontext()
    plane.cache.subscribe(AuthorityTrust(context).changed, CONFIG_MAP)
    pending = QueueVisibility(FollowedQueues(plane).current_state, plane.view)
    proxy = partial(find_proxy, plane.view)
    pages = visibility_pages(pending, proxy, partial(review_access, client))
    rules = configuration.visibility_server
    host = f"[{rules.bind_address}]" if ":" in rules.bind_address else rules.bind_address
    address = f"{host}:{rules.bind_port}"
    return endpoints.serving_with("visibilityServer", address, pages, context, partial(ProxyConnection, proxy=proxy))


def make_certificates(client: Client, configuration: Configuration) -> CertificateKeeper | CertificateFiles:
    """Return what keeps the certificate of the webhooks: Kyu itself, or the folder that cert-manager fills."""
    if not configuration.internal_cert_management.enable:
        return CertificateFiles(Path(configuration.webhook.cert_dir))
    namespace = configuration.namespace
    host = f"{admission.SERVICE}.{namespace}.svc"
    return CertificateKeeper(client, Key(namespace, admission.SECRET), host, admission.targets(), clock)


def _probes(configuration: Configuration, find_obstacle: Callable[[], str]) -> AbstractAsyncContextManager[None]:
    pages = endpoints.health_pages(configuration.health, find_obstacle)
    address = configuration.health.health_probe_bind_address
    return endpoints.serving("health.healthProbeBindAddress", address, pages)


@contextlib.asynccontextmanager
async def beside(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run the work while the context is open. If the work fails, the context ends with its error."""
    owner, task = asyncio.current_task(), asyncio.create_task(work)
    assert owner is not None
    task.add_done_callback(lambda done: None if done.cancelled() else owner.cancel())
    try:
        yield
    except asyncio.CancelledError:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error from None
        raise
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def make_lease(client: Client, configuration: Configuration, mode: Mode) -> Lease | None:
    """Return the Lease of the leader election. It is Kueue's own; modes beside Kueue have another, a shadow none."""
    rules = configuration.leader_election
    if not rules.leader_elect or mode == "shadow":
        return None
    terms = Terms(
        Key(
            rules.resource_namespace or configuration.namespace,
            BESIDE[mode].lease if mode in BESIDE else rules.resource_name,
        ),
        f"{socket.gethostname()}_{secrets.token_hex(8)}",
        rules.lease_duration.total_seconds(),
        rules.renew_deadline.total_seconds(),
        rules.retry_period.total_seconds(),
    )
    return Lease(client, terms, clock)
