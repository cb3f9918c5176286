"""
The composition root of the embedded control plane: makes the parts, runs them together, stops them in order.

The API server alone starts in half the time: so what it does not need is imported by the functions that do.

A data folder belongs to one process at a time. In it are the database, the certificates, the kubeconfig of the
administrator, and what must not change between two starts (the port).

Called by: cli/up.py, bench, tests. Controllers on a cluster are put together in on_cluster.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import uvloop

from kyu import log
from kyu.api import config_unused
from kyu.api.config import Configuration
from kyu.bus.connector import Bus, Connector, State
from kyu.controllers import memory
from kyu.controllers.first import first_objects, read_configuration, settings_object
from kyu.kube import kubeconfig
from kyu.kube.client import Client
from kyu.kube.direct import Direct
from kyu.lock import Lock
from kyu.server import auth, bootstrap, job_definitions, tls, tokens
from kyu.server.api import Api
from kyu.server.database import DatabaseError
from kyu.server.exchange import Handler, Request, Response
from kyu.server.http import Server
from kyu.turns import Turns

if TYPE_CHECKING:
    from kyu.embedded import ControlPlane, NodeSettings

ADMINISTRATOR = "admin"
# A thread that has waited this long for the interpreter gets it. The thread that stores writes needs it a few times in
# each transaction; with Python's own five milliseconds a busy event loop keeps it waiting longer than the disk does.
SWITCH_SECONDS = 0.0005
# How often is looked whether the data folder is still there, and whether the certificate is about to end.
FOLDER_SECONDS = 2.0
CERTIFICATE_SECONDS = 86_400.0


class CannotStart(Exception):
    """The server cannot be started in this folder, at this address; the message says why."""


class FolderLost(Exception):
    """The data folder was taken away from under the server; the message says what that means."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How to run the embedded control plane.

    ``host`` and ``port``: where to listen; port 0 is the remembered one, or any. ``bare``: no queues in a fresh folder.
    ``server_only``: the API alone, without garbage collection, controllers and pods. ``config``: the settings of the
    controllers. ``nodes``: a file of simulated nodes. ``cores``: what this machine offers to pods, all it has if None.
    ``trust_users``: users need not be kept apart. ``host_paths``: pods may have places of this machine as volumes.
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
    virtual_node: Literal["pools", "local", "simulate"] = "pools"

    def configuration(self) -> Configuration:
        try:
            configuration = read_configuration(self.config)
        except (OSError, ValueError) as error:
            raise CannotStart(f"{self.config}: {error}") from error
        for warning in config_unused.embedded_warnings(configuration):
            log.warning("settings", source=self.config, warning=warning)
        return configuration

    def node_settings(self) -> NodeSettings:
        from kyu.embedded import NodeSettings
        from kyu.runtime import podplan, simulated_nodes

        try:
            text = self.nodes.read_text() if self.nodes else ""
            simulated = simulated_nodes.read(text, str(self.nodes), clock())
        except OSError as error:
            raise CannotStart(f"{self.nodes}: {error.strerror}") from error
        except simulated_nodes.BadNodes as error:
            raise CannotStart(str(error)) from error
        path = os.environ.get("PATH") or podplan.DEFAULT_PATH
        return NodeSettings(path, self.cores, self.trust_users, self.host_paths, tuple(simulated), self.virtual_node)


@dataclass(frozen=True, slots=True)
class Embedded:
    """The running control plane, for those who add to it."""

    settings: Settings
    api: Api
    address: str
    turns: Turns

    def client(self, manager: str = "kyu") -> Client:
        """A client without a socket in between, with all rights."""
        return Client(Direct(self.api, partial(self.turns.request, manager)), manager)

    @property
    def kubeconfig(self) -> Path:
        return self.settings.data / "kubeconfig"


def run(settings: Settings, ready: Callable[[Embedded], None]) -> None:
    """Run until SIGINT or SIGTERM, or ``FolderLost``. ``ready`` is called when requests are answered."""
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
    """Until the event. False if the file has gone before: writes would be accepted, and lost with the process."""
    while not stopped.is_set():
        if ours is None or identity(database) != ours:
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FOLDER_SECONDS):
                await stopped.wait()
    return True


def identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from others that have its name; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextlib.asynccontextmanager
async def embedded(settings: Settings) -> AsyncIterator[Embedded]:
    """The whole control plane while the context is open."""
    sys.setswitchinterval(SWITCH_SECONDS)
    data = settings.data
    prepare_folder(data)
    lock = Lock(data / "lock")
    try:
        listener = listen(settings)
        host, port = listener.getsockname()[:2]
        address = f"https://{_url_host(host)}:{port}"
        certificate = make_certificate(data, host)
        is_fresh = not (data / "kyu.db").exists()
        plane = None if settings.server_only else control_plane(settings, host)
        try:
            api = Api(data / "kyu.db", clock, plane.read_logs if plane else None)
        except DatabaseError as error:
            raise CannotStart(str(error)) from error
        try:
            await bootstrap.ensure(api)
            if plane is not None:
                await job_definitions.ensure(api)
            if is_fresh:
                await bootstrap.create_all(api, first_objects())
            if plane is not None and settings.config is not None:
                # Where the settings are read live, and can be changed from then on.
                await bootstrap.apply(api, settings_object(settings.config.read_text()))
            if is_fresh and not settings.bare:
                await bootstrap.create_all(api, bootstrap.local_queues(*machine_size(settings.cores)))
            await ensure_administrator(api, data, address, certificate.authority.read_bytes())
            turns = Turns()
            # Alone, the server has nobody to take turns with.
            handle = api.handle if plane is None else taking_turns(api.handle, turns)
            server = Server(
                handle, api.tokens.authenticate, listener, certificate=certificate.certificate, key=certificate.key
            )
            running = Embedded(settings, api, address, turns)
            async with together(*background(running, plane)):
                if plane is not None:
                    # A job that comes before the controllers would run without being queued.
                    await plane.ready.wait()
                async with together(server.serve, partial(keep_certificate, data, _reachable(host), server)):
                    await server.started()
                    yield running
                    server.stop()
                    await server.stopped()
        finally:
            await api.close()
    finally:
        lock.release()


def make_certificate(data: Path, host: str) -> tls.Certificate:
    try:
        return tls.ensure(data, _reachable(host), tls.now())
    except ValueError as error:
        raise CannotStart(
            f"{data}/ca.crt or ca.key cannot be read; with both deleted new ones are made, and kubeconfigs"
        ) from error


async def keep_certificate(data: Path, host: str, server: Server) -> None:
    """A server may run for longer than its certificate is good."""
    while True:
        await asyncio.sleep(CERTIFICATE_SECONDS)
        renew_certificate(data, host, server)


def renew_certificate(data: Path, host: str, server: Server) -> None:
    """If its time has come; a disk that is full, say, is tried again with the next look."""
    try:
        found = tls.ensure(data, host, tls.now())
        server.use(found.certificate, found.key)
    except OSError as error:
        log.warning("certificate not renewed", folder=data, error=error)


def background(running: Embedded, plane: ControlPlane | None) -> list[Callable[[], Awaitable[None]]]:
    """What runs beside the server."""
    api = running.api
    tasks: list[Callable[[], Awaitable[None]]] = [api.definitions.run, api.expiry.run]
    if plane is not None:
        tasks += [api.collector.run, api.cleaner.run, partial(plane.run, api, running.turns)]
    return tasks


def taking_turns(handler: Handler, turns: Turns) -> Handler:
    """The handler, for users of a server whose controllers run in the same process."""

    async def handle(request: Request) -> Response:
        await turns.request(request.user.name)
        return await handler(request)

    return handle


@contextlib.asynccontextmanager
async def together(*parts: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
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
    """Others are let in only where their pods are kept apart, or where somebody has said that this need not be."""
    from kyu.embedded import ControlPlane

    plane = ControlPlane(settings.data, settings.configuration(), clock, connect, settings.node_settings())
    if plane.isolation == "None" and not settings.trust_users and not ipaddress.ip_address(host).is_loopback:
        raise CannotStart(
            f"{host} can be reached by others, and all pods run as one user here: whoever may submit jobs may do what "
            "this user may. With --trust-users it is done nevertheless; as root, each namespace gets a user of its own"
        )
    return plane


def connect(connector: Connector, name: str, on_state: Callable[[State], None]) -> Bus:
    """A connection to the NATS server of pools: most never make one, and its library takes long to import."""
    from kyu.bus.nats import Connection

    return Connection(connector, name, on_state)


def machine_size(cores: int | None) -> tuple[int, int]:
    """Processors, as many as are offered, and bytes of memory."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores or processors, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def clock() -> datetime:
    return datetime.now(UTC)


def prepare_folder(data: Path) -> None:
    """Only the user may look into it."""
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        data.chmod(0o700)
    except OSError as error:
        raise CannotStart(f"cannot use {data}: {error}") from error


def listen(settings: Settings) -> socket.socket:
    """A socket at the wanted place. The port is chosen once and kept, so that kubeconfigs stay valid."""
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
        raise CannotStart(f"cannot listen on {settings.host}:{port}: {error.strerror or error}") from error
    _write_private(remembered, f"{listener.getsockname()[1]}\n")
    return listener


async def ensure_administrator(api: Api, data: Path, address: str, authority: bytes) -> None:
    """The kubeconfig in the folder lets its owner do everything; it is written anew when it does not fit any more."""
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
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    temporary.replace(path)


def _reachable(host: str) -> str:
    """A server on all addresses is reached by the name of the machine."""
    return socket.gethostname() if host in ("0.0.0.0", "::") else host


def _url_host(host: str) -> str:
    reachable = _reachable(host)
    return f"[{reachable}]" if ":" in reachable else reachable
