"""
The HTTP endpoints of controllers on a cluster: health and readiness for probes, metrics for Prometheus.

Probes use plain HTTP, as a kubelet does. Metrics use HTTPS with a certificate made at the start. A caller needs the
right to `get` the path: the API server is asked with the caller's own token, so that the controllers need no rights for
it.

Kueue: cmd/kueue/main.go, with the filters of controller-runtime's metrics server.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from kyu import log
from kyu.api.config.config import ControllerHealth
from kyu.api.meta import Kind
from kyu.kube import errors, http
from kyu.kube.client import Client
from kyu.kube.kubeconfig import Credentials
from kyu.server.auth import tls
from kyu.server.exchange import ANONYMOUS, Handler, Request, Response, text_response
from kyu.server.http.connection import Connection
from kyu.server.http.limits import ConnectionLimits
from kyu.server.http.site import Site

# Addresses that switch an endpoint off.
NOWHERE = ("", "0")
METRICS_PATH = "/metrics"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REVIEW = Kind("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False)
CARE_SECONDS = 60.0
# A monitoring system keeps its connection from one scrape to the next.
LIMITS = ConnectionLimits(guest_idle_seconds=120.0)


class CannotListen(Exception):
    """An address cannot be listened on; the message names the setting and the cause."""


def health_pages(settings: ControllerHealth, find_obstacle: Callable[[], str]) -> Handler:
    """Return a handler for both probes; the process is ready if there is no obstacle."""

    async def handle(request: Request) -> Response:
        match request.path.strip("/"):
            case settings.liveness_endpoint_name:
                return text_response(200, "ok")
            case settings.readiness_endpoint_name:
                obstacle = find_obstacle()
                return text_response(503, f"not ready: {obstacle}\n") if obstacle else text_response(200, "ok")
            case _:
                return text_response(404, "404 page not found\n")

    return handle


class GuardedPage(NamedTuple):
    """A page for callers with the right to its path."""

    render: Callable[[], bytes]
    content_type: str


def guarded_pages(pages: Mapping[str, GuardedPage], may_read: Callable[[str, str], Awaitable[bool]]) -> Handler:
    """Return a handler for callers whose token may get the path that they ask for."""

    async def handle(request: Request) -> Response:
        page = pages.get(request.path)
        if page is None:
            return text_response(404, "404 page not found\n")
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return text_response(401, "a token is needed, as the API server takes it\n")
        try:
            is_allowed = await may_read(request.path, token.strip())
        except errors.ApiError as error:
            if error.code == 401:
                return text_response(401, "the API server does not know this token\n")
            log.warning("caller not reviewed", path=request.path, error=error)
            return text_response(500, "the API server could not review the token\n")
        if not is_allowed:
            return text_response(403, f"this user may not get the path {request.path}\n")
        return Response(200, page.render(), page.content_type)

    return handle


async def may_read(credentials: Credentials, path: str, token: str) -> bool:
    """Return whether the server of the credentials lets the owner of the token get the path."""
    theirs = Credentials(
        server=credentials.server,
        authority=credentials.authority,
        verifies=credentials.verifies,
        server_name=credentials.server_name,
        token=token,
    )
    client = Client(await http.connect(theirs), "kyu")
    try:
        attributes = {"path": path, "verb": "get"}
        review = await client.create(REVIEW, {"metadata": {}, "spec": {"nonResourceAttributes": attributes}})
    finally:
        await client.close()
    return bool(review["status"].get("allowed"))


@contextlib.asynccontextmanager
async def serving(setting: str, address: str, handler: Handler) -> AsyncIterator[None]:
    """Serve plain HTTP at the address of the setting while the context is open, unless it is switched off."""
    if address in NOWHERE:
        yield
        return
    async with _listening(setting, address, handler, None, lambda: None):
        yield


@contextlib.asynccontextmanager
async def serving_securely(setting: str, address: str, handler: Handler) -> AsyncIterator[None]:
    """Serve HTTPS with a self-signed certificate."""
    if address in NOWHERE:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="kyu-") as folder:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        renew = partial(_use_certificate, context, Path(folder))
        renew()
        async with _listening(setting, address, handler, context, renew):
            yield


@contextlib.asynccontextmanager
async def serving_with(
    setting: str,
    address: str,
    handler: Handler,
    context: ssl.SSLContext,
    connection: Callable[[Site], Connection] = Connection,
) -> AsyncIterator[None]:
    """Serve HTTPS with a context whose certificate the caller keeps up to date."""
    async with _listening(setting, address, handler, context, lambda: None, connection):
        yield


def _use_certificate(context: ssl.SSLContext, folder: Path) -> None:
    made = tls.ensure(folder, socket.gethostname(), tls.now())
    context.load_cert_chain(made.certificate, made.key)


@contextlib.asynccontextmanager
async def _listening(
    setting: str,
    address: str,
    handler: Handler,
    context: ssl.SSLContext | None,
    renew: Callable[[], None],
    connection: Callable[[Site], Connection] = Connection,
) -> AsyncIterator[None]:
    site = Site(handler, lambda _: ANONYMOUS, limits=LIMITS)
    try:
        host, port = split_address(address)
        listening = await asyncio.get_running_loop().create_server(
            lambda: connection(site), host, port, ssl=context, reuse_address=True
        )
    except ValueError as error:
        raise CannotListen(f"{setting} {address!r}: {error}") from error
    except OSError as error:
        # asyncio's message repeats the address; an address that cannot be resolved has no errno.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise CannotListen(f"{setting} {address!r}: {reason}; see --help for how to choose another") from error
    bound = listening.sockets[0].getsockname()
    log.info("listening", setting=setting, host=bound[0], port=bound[1])
    tasks = [asyncio.create_task(_renew_forever(renew)), asyncio.create_task(site.sweep_forever())]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        listening.close()
        site.abort()


async def _renew_forever(renew: Callable[[], None]) -> None:
    """Keep the certificate valid."""
    while True:
        await asyncio.sleep(CARE_SECONDS)
        try:
            renew()
        except OSError as error:
            log.warning("certificate not renewed", error=error)


def split_address(address: str) -> tuple[str | None, int]:
    """Return host and port of an address as Go writes it; without a host it means all addresses."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError("must be a host and a port, such as 127.0.0.1:8081, or :8081 for all addresses, or 0 for none")
    return host.removeprefix("[").removesuffix("]") or None, int(port)
