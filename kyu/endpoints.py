"""
What controllers on a cluster tell about themselves: health and readiness for probes, metrics for Prometheus.

Probes are answered in plain HTTP, as a kubelet asks. Metrics are read over HTTPS, with a certificate made at the start,
by whoever may `get` the path /metrics in the cluster: the API server is asked with the token of the caller, so that the
controllers need no rights for it.

Called by: on_cluster.py. Kueue: cmd/kueue/main.go, with the filters of controller-runtime's metrics server.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

from kyu import log
from kyu.api.config import ControllerHealth
from kyu.api.meta import Kind
from kyu.kube import errors, http
from kyu.kube.client import Client
from kyu.kube.kubeconfig import Credentials
from kyu.server import tls
from kyu.server.exchange import ANONYMOUS, Handler, Request, Response, text_response
from kyu.server.http_connection import Connection, Site

# Addresses that say: nowhere.
NOWHERE = ("", "0")
METRICS_PATH = "/metrics"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REVIEW = Kind("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False)
CARE_SECONDS = 60.0
IDLE_SECONDS = 120.0


class CannotListen(Exception):
    """There is no listening on an address; the message names the setting and says why."""


# What is answered.


def health_pages(settings: ControllerHealth, find_obstacle: Callable[[], str]) -> Handler:
    """Alive is who answers; ready is who has no obstacle."""

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


def metrics_page(render: Callable[[], bytes], may_read: Callable[[str], Awaitable[bool]]) -> Handler:
    """The metrics, for callers with a token that is good for it."""

    async def handle(request: Request) -> Response:
        if request.path != METRICS_PATH:
            return text_response(404, "404 page not found\n")
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return text_response(401, "a token is needed, as the API server takes it\n")
        try:
            is_allowed = await may_read(token.strip())
        except errors.ApiError as error:
            if error.code == 401:
                return text_response(401, "the API server does not know this token\n")
            log.warning("caller of metrics not reviewed", error=error)
            return text_response(500, "the API server did not say who this is\n")
        if not is_allowed:
            return text_response(403, f"this user may not get the path {METRICS_PATH}\n")
        return Response(200, render(), METRICS_TYPE)

    return handle


async def may_read_metrics(credentials: Credentials, token: str) -> bool:
    """Whether the server of the credentials lets the owner of the token read metrics."""
    theirs = Credentials(
        server=credentials.server,
        authority=credentials.authority,
        verifies=credentials.verifies,
        server_name=credentials.server_name,
        token=token,
    )
    client = Client(await http.connect(theirs), "kyu")
    try:
        attributes = {"path": METRICS_PATH, "verb": "get"}
        review = await client.create(REVIEW, {"metadata": {}, "spec": {"nonResourceAttributes": attributes}})
    finally:
        await client.close()
    return bool(review["status"].get("allowed"))


# Where it is answered.


@contextlib.asynccontextmanager
async def serving(setting: str, address: str, handler: Handler) -> AsyncIterator[None]:
    """Plain HTTP while the context is open, at the address that the setting has; nothing if it is switched off."""
    if address in NOWHERE:
        yield
        return
    async with _listening(setting, address, handler, None, lambda: None):
        yield


@contextlib.asynccontextmanager
async def serving_securely(setting: str, address: str, handler: Handler) -> AsyncIterator[None]:
    """The same over HTTPS, with a certificate that nobody else has signed."""
    if address in NOWHERE:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="kyu-") as folder:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        renew = partial(_use_certificate, context, Path(folder))
        renew()
        async with _listening(setting, address, handler, context, renew):
            yield


def _use_certificate(context: ssl.SSLContext, folder: Path) -> None:
    made = tls.ensure(folder, socket.gethostname(), tls.now())
    context.load_cert_chain(made.certificate, made.key)


@contextlib.asynccontextmanager
async def _listening(
    setting: str, address: str, handler: Handler, context: ssl.SSLContext | None, renew: Callable[[], None]
) -> AsyncIterator[None]:
    site = Site(handler, lambda _: ANONYMOUS)
    try:
        host, port = split_address(address)
        listening = await asyncio.get_running_loop().create_server(
            lambda: Connection(site), host, port, ssl=context, reuse_address=True
        )
    except ValueError as error:
        raise CannotListen(f"{setting} {address!r}: {error}") from error
    except OSError as error:
        # What asyncio adds to the reason of the system repeats the address; of a name there is no such reason.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise CannotListen(f"{setting} {address!r}: {reason}; see --help for how to choose another") from error
    bound = listening.sockets[0].getsockname()
    log.info("listening", setting=setting, host=bound[0], port=bound[1])
    care = asyncio.create_task(_take_care(site, renew))
    try:
        yield
    finally:
        care.cancel()
        listening.close()
        site.abort()


async def _take_care(site: Site, renew: Callable[[], None]) -> None:
    """Now and then: nobody holds a connection that is not used, and the certificate stays good."""
    while True:
        await asyncio.sleep(CARE_SECONDS)
        site.close_idle(IDLE_SECONDS)
        try:
            renew()
        except OSError as error:
            log.warning("certificate not renewed", error=error)


def split_address(address: str) -> tuple[str | None, int]:
    """Host and port of an address as Go writes it; without a host it means all addresses of the machine."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError("must be a host and a port, such as 127.0.0.1:8081, or :8081 for all addresses, or 0 for none")
    return host.removeprefix("[").removesuffix("]") or None, int(port)
