"""
The composition root of the embedded control plane: makes the parts, runs them, and stops them in order.

Modules that the API server alone does not need are imported within functions, which halves its start time.

A data folder belongs to one process at a time. It has the database, the certificates, the administrator's kubeconfig,
and the port, which stays the same between two starts.

Controllers on a cluster are put together in on_cluster.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import uvloop

from kyu import log
from kyu.api.config import unused
from kyu.api.config.config import Configuration
from kyu.bus.connector import Bus, ConnectionState, Connector
from kyu.controllers import memory
from kyu.controllers.initial_objects import controller_objects, embedded_settings, read_configuration, settings_object
from kyu.kube import kubeconfig
from kyu.kube.client import Client
from kyu.kube.direct import Direct
from kyu.lock import Lock
from kyu.server import bootstrap, errors, job_definitions, pauses, process
from kyu.server.api import Api
from kyu.server.auth import auth, tls, tokens
from kyu.server.background.namespace_objects import NamespaceObjects
from kyu.server.exchange import Handler, Request, Response, error_response
from kyu.server.http.limits import limits_within
from kyu.server.http.listen import Server
from kyu.server.http.site import Site
from kyu.server.routing.audit import AuditLog
from kyu.server.storage.batches import Unwritable
from kyu.server.storage.database import DatabaseError
from kyu.write_fairness import Full, WriteFairness

if TYPE_CHECKING:
    from kyu.embedded import ControlPlane, NodeSettings
    from kyu.runtime.identity.service_account import ServerAddress
    from kyu.server.auth.login_socket import LoginSocket

ADMINISTRATOR = "admin"
# The thread that stores writes needs the interpreter a few times per transaction. With Python's own interval of five
# milliseconds it would wait for a busy event loop longer than for the disk.
SWITCH_SECONDS = 0.0005
# The periods of the checks of the data folder and of the certificate.
FOLDER_SECONDS = 2.0
CERTIFICATE_SECONDS = 86_400.0


class CannotStart(Exception):
    """The server cannot start in this folder or at this address; the message says why."""


class FolderLost(Exception):
    """The data folder was deleted or replaced while the server ran."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of the embedded control plane.

    ``host`` and ``port``: where to listen; port 0 is that of the last start, or any. ``bare``: no initial queues.
    ``server_only``: the API alone, without garbage collection, controllers and pods. ``config``: the settings of the
    controllers. ``nodes``: a file of simulated nodes. ``cores``: the CPUs offered to pods, all of the machine if None.
    ``trust_users``: users need not be isolated from each other. ``host_paths``: pods may use hostPath volumes.
    ``log_days`` and ``log_bytes``: the age and size up to which logs of deleted pods are kept.
    ``history_days`` and ``history_bytes``: the same for the ledger of accounts.
    ``mount_over``: folders of the system that volumes may cover. ``pod_network``: the network of pods. ``runtime``:
    whether pods run as processes or from images. ``hub``: the kubeconfig of the hub that this server reports its nodes
    to, as the cluster ``cluster_name``. ``socket``: the socket where local accounts log in.
    """

    data: Path
    host: str = "127.0.0.1"
    port: int = 0
    bare: bool = False
    server_only: bool = False
    config: Path | None = None
    nodes: Path | None = None
    cores: int | None = None
    trust_users: bool = False
    host_paths: bool = False
    mount_over: tuple[str, ...] = ()
    pod_network: Literal["host", "none"] = "host"
    runtime: Literal["auto", "process", "podman"] = "process"
    virtual_node: Literal["pools", "local", "simulate"] = "pools"
    log_days: float = 14
    log_bytes: int = 1024**3
    history_days: float = 400
    history_bytes: int = 64 * 1024**2
    hub: Path | None = None
    cluster_name: str = ""
    socket: Path | None = None

    def configuration(self) -> Configuration:
        try:
            configuration = read_configuration(self.config, embedded_settings())
        except (OSError, ValueError) as error:
            raise CannotStart(f"{self.config}: {error}") from error
        for warning in unused.embedded_warnings(configuration):
            log.warning("settings", source=self.config, warning=warning)
        return configuration

    def node_settings(self) -> NodeSettings:
        from kyu.accounting.ledger import LedgerLimits
        from kyu.embedded import NodeSettings
        from kyu.runtime import podplan
        from kyu.runtime.log_archive import ArchiveLimits
        from kyu.runtime.nodes import simulated_nodes

        try:
            text = self.nodes.read_text() if self.nodes else ""
            simulated = simulated_nodes.read(text, str(self.nodes), clock())
        except OSError as error:
            raise CannotStart(f"{self.nodes}: {error.strerror}") from error
        except simulated_nodes.BadNodes as error:
            raise CannotStart(str(error)) from error
        path = os.environ.get("PATH") or podplan.DEFAULT_PATH
        kept_logs = ArchiveLimits(longest_seconds=self.log_days * 24 * 3600, most_bytes=self.log_bytes)
        return NodeSettings(
            path,
            self.cores,
            self.trust_users,
            self.host_paths,
            self.mount_over,
            self.pod_network,
            tuple(simulated),
            self.virtual_node,
            kept_logs,
            LedgerLimits(self.history_days * 24 * 3600, self.history_bytes),
            self.runtime,
        )


@dataclass(frozen=True, slots=True)
class Embedded:
    """The running control plane."""

    settings: Settings
    api: Api
    address: str
    fairness: WriteFairness

    def client(self, manager: str = "kyu") -> Client:
        """Return an in-process client with all permissions."""
        return Client(Direct(self.api, partial(self.fairness.turn, manager)), manager)

    @property
    def kubeconfig(self) -> Path:
        return self.settings.data / "kubeconfig"


def run(settings: Settings, ready: Callable[[Embedded], None]) -> None:
    """Run until SIGINT or SIGTERM, or ``FolderLost``. ``ready`` is called when requests are answered."""
    process.return_freed_memory()
    uvloop.run(_run(settings, ready))


async def _run(settings: Settings, ready: Callable[[Embedded], None]) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with embedded(settings) as running:
        memory.collect_seldom()
        database = settings.data / "kyu.db"
        ours = identity(database)
        ready(running)
        has_folder = await wait_for_end(stopped, database, ours)
        log.info("stopping")
    if not has_folder:
        raise FolderLost(
            f"{settings.data} was deleted or replaced while the server ran: nothing more could be kept in it"
        )


async def wait_for_end(stopped: asyncio.Event, database: Path, ours: tuple[int, int] | None) -> bool:
    """Wait for the event. Return False if the file is gone before: writes to it would be accepted and lost."""
    while not stopped.is_set():
        if ours is None or identity(database) != ours:
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FOLDER_SECONDS):
                await stopped.wait()
    return True


def identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file, or None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextlib.asynccontextmanager
async def embedded(settings: Settings) -> AsyncIterator[Embedded]:
    """Run the control plane while the context is open."""
    is_started = False
    try:
        async with _embedded(settings) as running:
            is_started = True
            yield running
    except (OSError, Unwritable) as error:
        if is_started:
            raise
        raise CannotStart(f"cannot write to {settings.data}: {error}; is the disk full?") from error


@contextlib.asynccontextmanager
async def _embedded(settings: Settings) -> AsyncIterator[Embedded]:
    sys.setswitchinterval(SWITCH_SECONDS)
    data = settings.data
    prepare_folder(data)
    lock = Lock(data / "lock")
    try:
        listener = listen(settings)
        host, port = listener.getsockname()[:2]
        address = f"https://{_url_host(host)}:{port}"
        certificate = make_certificate(data, host)
        is_fresh = refuse_lost_database(data)
        if not settings.server_only:
            migrate_pods(data)
        plane = None if settings.server_only else control_plane(settings, host)
        if plane is not None and settings.pod_network == "host":
            plane.server_address = pod_address(host, port)
        try:
            api = Api(data / "kyu.db", clock, plane)
        except DatabaseError as error:
            raise CannotStart(str(error)) from error
        try:
            await bootstrap.ensure(api)
            if plane is not None:
                await job_definitions.ensure(api)
            if is_fresh:
                await bootstrap.create_all(api, controller_objects())
            if plane is not None and settings.config is not None:
                # From now on the ConfigMap holds the settings, and is read live.
                await bootstrap.apply(api, settings_object(settings.config.read_text()))
            if is_fresh and not settings.bare:
                nodes = settings.node_settings().simulated if settings.nodes else ()
                await bootstrap.create_all(api, bootstrap.local_queues(*machine_size(settings.cores), nodes))
            await ensure_administrator(api, data, address, certificate.authority.read_bytes())
            fairness = WriteFairness()
            handle = with_write_fairness(api.handle, fairness)
            limits = limits_within(process.raise_descriptor_limit())
            audit = AuditLog(data / "audit.log", clock)
            site = Site(handle, api.tokens.authenticate, limits=limits, check_guest=api.check_guest, audit=audit)
            server = Server(site, listener, certificate=certificate.certificate, key=certificate.key)
            running = Embedded(settings, api, address, fairness)
            authority = certificate.authority.read_text()
            parts = background(running, plane, authority)
            if settings.socket is not None:
                parts.append(login_socket(settings.socket, running, plane, authority).serve)
            async with running_parts(*parts):
                if plane is not None:
                    # A job created before the controllers watch would run without being queued.
                    await plane.ready.wait()
                async with running_parts(server.serve, partial(keep_certificate, data, _reachable(host), server)):
                    await server.started()
                    yield running
                    server.stop()
                    await server.stopped()
                    audit.close()
        finally:
            await api.close()
    finally:
        lock.release()


def refuse_lost_database(data: Path) -> bool:
    """Return whether the folder is new. A folder with a kubeconfig had a database, and must not start without it."""
    database = data / "kyu.db"
    is_fresh = not database.exists() or database.stat().st_size == 0
    if is_fresh and (data / "kubeconfig").exists():
        raise CannotStart(
            f"{database} is {'empty' if database.exists() else 'missing'}, and {data / 'kubeconfig'} is there:"
            " `kyu restore FILE` puts a backup in its place; with the kubeconfig deleted an empty server is started"
        )
    return is_fresh


def migrate_pods(data: Path) -> None:
    from kyu.runtime import podfolder

    try:
        podfolder.migrate(str(data / "runtime" / "pods"))
    except podfolder.StillRuns as error:
        raise CannotStart(str(error)) from error


def login_socket(path: Path, running: Embedded, plane: ControlPlane | None, authority: str) -> LoginSocket:
    """Make the socket for local accounts. Their jobs run as them, so pods must be isolated."""
    from kyu.server.auth.login_socket import LoginSocket, UnsafeSocket

    if plane is None or not plane.isolates_tenants:
        raise CannotStart(
            f"--socket {path}: local accounts need pods that can run as them: start `kyu up` as root, with a data"
            " folder that other users may pass to, such as /var/lib/kyu"
        )
    try:
        return LoginSocket(path, running.api.unix_tokens, running.api.authorizer, running.address, authority)
    except UnsafeSocket as error:
        raise CannotStart(str(error)) from error


def make_certificate(data: Path, host: str) -> tls.Certificate:
    if found := tls.authority_problem(data):
        raise CannotStart(
            f"{found}; put ca.crt and ca.key back from a copy of the folder, or delete both: then new ones are made,"
            " and every user needs a new kubeconfig (`kyu user rotate`)"
        )
    return tls.ensure(data, _reachable(host), tls.now())


async def keep_certificate(data: Path, host: str, server: Server) -> None:
    """Renew the certificate in time while the server runs."""
    while True:
        await asyncio.sleep(CERTIFICATE_SECONDS)
        renew_certificate(data, host, server)


def renew_certificate(data: Path, host: str, server: Server) -> None:
    """Renew the certificate if it is due. A failed write, on a full disk for example, is retried at the next check."""
    try:
        found = tls.ensure(data, host, tls.now())
        server.use(found.certificate, found.key)
    except OSError as error:
        log.warning("certificate not renewed", folder=data, error=error)


def background(running: Embedded, plane: ControlPlane | None, authority: str) -> list[Callable[[], Awaitable[None]]]:
    """Return the tasks that run beside the server."""
    api = running.api
    tasks: list[Callable[[], Awaitable[None]]] = [api.definitions.run, api.expiry.run]
    if plane is not None:
        namespaces = NamespaceObjects(api.store, api.add, api.merge, authority)
        tasks += [api.collector.run, api.cleaner.run, namespaces.run, partial(plane.run, api, running.fairness)]
        if running.settings.hub is not None:
            tasks += [partial(report_to_hub, running, running.settings.hub, plane.ready)]
    return tasks


async def report_to_hub(running: Embedded, hub: Path, ready: asyncio.Event) -> None:
    """Report the nodes of this server to its hub. A hub that does not answer must not end this server."""
    from kyu.controllers.clusters.publisher import PERIOD_SECONDS, ClusterPublisher
    from kyu.kube import http
    from kyu.kube.errors import ApiError

    await ready.wait()
    name = running.settings.cluster_name
    while True:
        try:
            client = Client(await http.connect(kubeconfig.load(hub)), "kyu")
            try:
                origin = running.settings.configuration().multi_kueue.origin
                source = running.client("kyu-cluster")
                await ClusterPublisher(source, client, name, origin, PERIOD_SECONDS, clock).run()
            finally:
                await client.close()
        except* (ApiError, OSError, kubeconfig.BadKubeconfig) as group:
            log.warning("not reported", cluster=name, error=group.exceptions[0])
        await asyncio.sleep(PERIOD_SECONDS)


def with_write_fairness(
    handler: Callable[[Request], Coroutine[Any, Any, Response]], fairness: WriteFairness
) -> Handler:
    """Return a handler whose requests wait for their turn among those of other users and of controllers."""

    async def handle(request: Request) -> Response:
        flow = request.user.name
        try:
            await fairness.request(flow)
        except Full:
            return error_response(errors.too_many_requests("too many requests of this user wait for their answer"))
        # A request that has begun is never refused.
        pauses.wait_for_turn.set(partial(fairness.turn, flow))
        pauses.charged.set(partial(fairness.charged, flow))
        return await fairness.charged(flow, handler(request))

    return handle


@contextlib.asynccontextmanager
async def running_parts(*parts: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Run all parts while the context is open; one that fails ends it, and all are cancelled at the end."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_as_coroutine(part)) for part in parts]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


async def _as_coroutine(part: Callable[[], Awaitable[None]]) -> None:
    await part()


def control_plane(settings: Settings, host: str) -> ControlPlane:
    """Make the control plane. Reject a public address if pods of different users are not isolated."""
    from kyu.embedded import ControlPlane

    plane = ControlPlane(settings.data, settings.configuration(), clock, connect, settings.node_settings())
    if not plane.isolates_tenants and not settings.trust_users and not ipaddress.ip_address(host).is_loopback:
        raise CannotStart(
            f"{host} can be reached by others, and all pods run as one user here: anyone with the right to submit jobs "
            "may do what this user may. Allow it with --trust-users; as root, each namespace gets a user of its own"
        )
    return plane


def connect(connector: Connector, name: str, on_state: Callable[[ConnectionState], None]) -> Bus:
    """Return a connection to the NATS server of pools. Its library takes long to import, and few need it."""
    from kyu.bus.nats import NatsConnection

    return NatsConnection(connector, name, on_state)


def machine_size(cores: int | None) -> tuple[int, int]:
    """Return the offered CPUs, and bytes of memory."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores or processors, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def clock() -> datetime:
    return datetime.now(UTC)


def prepare_folder(data: Path) -> None:
    """Make the folder, readable by its owner only."""
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        data.chmod(0o700)
    except OSError as error:
        raise CannotStart(f"cannot use {data}: {error}") from error


def listen(settings: Settings) -> socket.socket:
    """Return a listening socket. The port is chosen once and kept, so that kubeconfigs stay valid."""
    remembered = settings.data / "port"
    port = settings.port
    if not port and remembered.exists():
        text = remembered.read_text().strip()
        if not text.isdigit():
            raise CannotStart(f"{remembered} holds no port; delete it, and another one is chosen")
        port = int(text)
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, port))
    except OSError as error:
        listener.close()
        remedy = f"choose another port with --listen {settings.host}:PORT"
        if error.errno == errno.EADDRINUSE and not settings.port:
            remedy = f"stop that program, or delete {remembered} to get any free port"
        why = "another program uses the port" if error.errno == errno.EADDRINUSE else error.strerror or error
        raise CannotStart(f"cannot listen on {settings.host}:{port}: {why}; {remedy}") from error
    _write_private(remembered, f"{listener.getsockname()[1]}\n")
    return listener


async def ensure_administrator(api: Api, data: Path, address: str, authority: bytes) -> None:
    """Write the administrator's kubeconfig if its address or token is not valid any more."""
    path = data / "kubeconfig"
    token = ""
    if path.exists():
        with contextlib.suppress(kubeconfig.BadKubeconfig):
            token = kubeconfig.load(path).token
    if not token or not api.tokens.knows(token):
        token = tokens.new_token()
        await bootstrap.apply(api, tokens.token_secret(ADMINISTRATOR, (auth.MASTERS,), token))
    _write_private(path, kubeconfig.render(address, authority, ADMINISTRATOR, token))


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all. One that is right already is left alone."""
    if path.exists() and path.read_bytes() == text.encode():
        return
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    temporary.replace(path)


def _reachable(host: str) -> str:
    """Return a reachable name for a host: that of the machine if the server listens on all addresses."""
    return socket.gethostname() if host in ("0.0.0.0", "::") else host


def pod_address(host: str, port: int) -> ServerAddress:
    """Return where pods of this machine reach the server. They are on its network."""
    from kyu.runtime.identity.service_account import ServerAddress

    local = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    return ServerAddress(local.get(host, host), port)


def _url_host(host: str) -> str:
    reachable = _reachable(host)
    return f"[{reachable}]" if ":" in reachable else reachable
