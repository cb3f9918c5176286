"""
The server on a socket: certificates, tokens, streams, shutdown; and ``kyu up``, ``down``, ``status``, ``user``,
``backup``.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import select
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from kyu import app, lock
from kyu.api.meta import Json, Key
from kyu.kube import errors, kubeconfig
from kyu.kube import http as transport
from kyu.kube.client import Client
from kyu.lock import Locked
from kyu.server.api import Api
from kyu.server.auth import tls
from kyu.server.http.listen import Server
from kyu.server.http.site import Site
from tests.support.servers import CONFIG_MAP, config_map


def settings(folder: Path) -> app.Settings:
    return app.Settings(folder / "data", bare=True, server_only=True)


async def until(holds: Callable[[], bool]) -> None:
    """Wait until it holds; the socket gives no other sign."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def connected(running: app.Embedded) -> Client:
    return Client(await transport.connect(kubeconfig.load(running.kubeconfig)), "tests")


async def test_a_client_on_the_socket_writes_and_watches(tmp_path: Path) -> None:
    async with app.embedded(settings(tmp_path)) as running:
        client = await connected(running)
        _, version = await client.list(CONFIG_MAP, "default")
        watch = client.watch(CONFIG_MAP, "default", version=version)
        await client.create(CONFIG_MAP, config_map("a"))
        await client.patch(CONFIG_MAP, Key("default", "a"), {"data": {"k": "x" * 200_000}})
        assert [(await anext(watch))[0] for _ in range(2)] == ["ADDED", "MODIFIED"]
        await watch.aclose()
        await client.close()


async def test_stopping_ends_watches_cleanly_and_quickly(tmp_path: Path) -> None:
    async with app.embedded(settings(tmp_path)) as running:
        client = await connected(running)
        _, version = await client.list(CONFIG_MAP)
        watch = client.watch(CONFIG_MAP, version=version)
        reading = asyncio.ensure_future(_all_types(watch))
        await until(lambda: running.api.hub.count() > 0)
        await client.create(CONFIG_MAP, config_map("a"))
    assert await asyncio.wait_for(reading, 60) == ["ADDED", "BOOKMARK"]
    await client.close()


async def _all_types(watch: AsyncIterator[tuple[str, Json]]) -> list[str]:
    return [type_ async for type_, _ in watch]


async def test_a_watch_ends_when_its_client_has_gone(tmp_path: Path) -> None:
    async with app.embedded(settings(tmp_path)) as running:
        client = await connected(running)
        _, version = await client.list(CONFIG_MAP)
        watch = client.watch(CONFIG_MAP, version=version)
        reading = asyncio.ensure_future(anext(watch))
        await until(lambda: running.api.hub.count() > 0)
        reading.cancel()
        await client.close()
        await until(lambda: running.api.hub.count() == 0)


async def test_a_wrong_token_is_401_and_none_is_403(tmp_path: Path) -> None:
    async with app.embedded(settings(tmp_path)) as running:
        for token, code in (("wrong", 401), ("", 403)):
            credentials = kubeconfig.load(running.kubeconfig)
            credentials.token = token
            client = Client(await transport.connect(credentials))
            with pytest.raises(errors.ApiError) as refused:
                await client.list(CONFIG_MAP)
            assert refused.value.code == code
            await client.close()
        anonymous = kubeconfig.load(running.kubeconfig)
        anonymous.token = ""
        client = Client(await transport.connect(anonymous))
        assert await client.raw("/readyz") == b"ok"
        await client.close()


async def test_a_body_that_is_too_large_is_413(tmp_path: Path) -> None:
    async with app.embedded(settings(tmp_path)) as running:
        client = await connected(running)
        with pytest.raises(errors.ApiError) as refused:
            await client.create(CONFIG_MAP, {**config_map("a"), "data": {"k": "x" * 4_000_000}})
        assert refused.value.code == 413
        await client.close()


async def test_a_folder_has_one_server_and_keeps_its_address_and_token(tmp_path: Path) -> None:
    async with app.embedded(settings(tmp_path)) as first:
        before = kubeconfig.load(first.kubeconfig)
        with pytest.raises(Locked):
            async with app.embedded(settings(tmp_path)):
                pytest.fail("two servers in one folder")
    async with app.embedded(settings(tmp_path)) as second:
        after = kubeconfig.load(second.kubeconfig)
    assert (before.server, before.token, before.authority) == (after.server, after.token, after.authority)


async def test_only_the_owner_can_read_the_folder(tmp_path: Path) -> None:
    async with app.embedded(settings(tmp_path)) as running:
        data = running.settings.data
        assert data.stat().st_mode & 0o777 == 0o700
        assert {path.name: oct(path.stat().st_mode & 0o077) for path in data.iterdir()} == {
            path.name: "0o0" for path in data.iterdir()
        }


def test_a_certificate_is_renewed_before_it_ends_and_the_authority_stays(tmp_path: Path) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    made = tls.ensure(tmp_path, "127.0.0.1", start)
    authority, certificate = made.authority.read_bytes(), made.certificate.read_bytes()
    tls.ensure(tmp_path, "127.0.0.1", start + timedelta(days=300))
    assert made.certificate.read_bytes() == certificate
    tls.ensure(tmp_path, "127.0.0.1", start + timedelta(days=340))
    renewed = made.certificate.read_bytes()
    assert renewed != certificate
    tls.ensure(tmp_path, "kyu.example", start + timedelta(days=340))
    assert made.certificate.read_bytes() != renewed
    assert made.authority.read_bytes() == authority


async def test_files_that_cannot_be_read_are_made_anew_or_named(tmp_path: Path) -> None:
    folder = settings(tmp_path).data
    async with app.embedded(settings(tmp_path)):
        pass
    (folder / "server.crt").write_text("junk")
    async with app.embedded(settings(tmp_path)) as running:
        client = await connected(running)
        assert await client.list(CONFIG_MAP, "default")
        await client.close()
    (folder / "ca.crt").write_text("junk")
    (folder / "server.crt").unlink()
    with pytest.raises(app.CannotStart, match="the certificate cannot be read"):
        await app.embedded(settings(tmp_path)).__aenter__()
    (folder / "port").write_text("junk")
    with pytest.raises(app.CannotStart, match="holds no port; delete it"):
        await app.embedded(settings(tmp_path)).__aenter__()


async def test_a_certificate_that_is_about_to_end_is_replaced_while_the_server_runs(tmp_path: Path) -> None:
    old = tls.ensure(tmp_path, "127.0.0.1", tls.now() - timedelta(days=340))
    listener = app.listen(app.Settings(tmp_path))
    api = Api(tmp_path / "kyu.db", app.clock)
    site = Site(api.handle, api.tokens.authenticate)
    server = Server(site, listener, certificate=old.certificate, key=old.key)

    async def shown() -> str:
        return await asyncio.to_thread(ssl.get_server_certificate, listener.getsockname())

    async with app.running_parts(server.serve):
        await server.started()
        first = await shown()
        app.renew_certificate(tmp_path, "127.0.0.1", server)
        second = await shown()
        app.renew_certificate(tmp_path, "127.0.0.1", server)
        assert (await shown(), second != first) == (second, True)
        server.stop()
        await server.stopped()
    await api.close()


def kyu(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kyu", *words]
    return subprocess.run(command, capture_output=True, text=True, check=check, timeout=60)


@pytest.fixture
def detached(tmp_path: Path) -> Iterator[Path]:
    data = tmp_path / "data"
    kyu("up", "-d", "--bare", "--server-only", "--data", str(data))
    yield data
    kyu("down", "--data", str(data))


def test_up_status_and_down(detached: Path) -> None:
    status = kyu("status", "--data", str(detached))
    assert status.stdout.startswith("ready")
    # A server that runs already is reported, and not started a second time.
    assert f"in process {lock.holder(detached / 'lock')}" in kyu("up", "--data", str(detached)).stdout
    assert "stopped" in kyu("down", "--data", str(detached)).stdout
    assert kyu("status", "--data", str(detached), check=False).returncode == 1


def test_after_kill_9_it_simply_starts_again(detached: Path) -> None:
    holder = lock.holder(detached / "lock")
    assert holder is not None
    descriptor = os.pidfd_open(holder)
    os.kill(holder, signal.SIGKILL)
    select.select([descriptor], [], [])
    os.close(descriptor)
    started = kyu("up", "-d", "--bare", "--server-only", "--data", str(detached))
    assert "listening on" in started.stdout


def test_a_user_is_added_gets_another_token_and_is_removed(detached: Path, tmp_path: Path) -> None:
    data = ("--data", str(detached))
    path = tmp_path / "ana"

    def answer() -> int:
        credentials = kubeconfig.load(path)
        context = credentials.ssl_context()
        assert isinstance(context, ssl.SSLContext)
        address = credentials.server.removeprefix("https://")
        connection = http.client.HTTPSConnection(address, context=context)
        headers = {"authorization": f"Bearer {credentials.token}"}
        connection.request("GET", f"/apis/batch/v1/namespaces/{credentials.namespace}/jobs", headers=headers)
        status = connection.getresponse().status
        connection.close()
        return status

    path.write_text(kyu("user", "add", "ana", "--namespace", "kube-public", *data).stdout)
    assert answer() == 200
    header, *users = kyu("user", "list", *data).stdout.splitlines()
    assert header.split() == ["USER", "ROLES", "TOKEN", "ENDS"]
    assert any(line.startswith("ana ") and "batch-user in kube-public" in line for line in users)
    renewed = kyu("user", "rotate", "ana", *data).stdout
    assert answer() == 401
    path.write_text(renewed)
    assert answer() == 200
    kyu("user", "remove", "ana", *data)
    assert answer() == 401
    assert kyu("user", "remove", "ana", *data, check=False).returncode == 2
    log = (detached / "server.log").read_text()
    assert kubeconfig.load(path).token not in log


def test_a_backup_can_be_started_from(detached: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    kyu("backup", str(copy / "kyu.db"), "--data", str(detached))
    assert kyu("backup", str(copy / "kyu.db"), "--data", str(detached), check=False).returncode == 1
    assert "listening on" in kyu("up", "-d", "--server-only", "--data", str(copy)).stdout
    kyu("down", "--data", str(copy))


@pytest.mark.parametrize(
    ("raw", "start"),
    [
        (b"nonsense\r\n\r\n", b"HTTP/1.1 400"),
        (b"GET /api/v1/pods HTTP/1.1\r\nHost: x\r\nAuthorization: Basic eDp5\r\n\r\n", b"HTTP/1.1 401"),
        (b"BREW /version HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 4"),
        (b"GET /%00%ff/../.. HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 4"),
    ],
)
async def test_odd_requests_get_an_answer(tmp_path: Path, raw: bytes, start: bytes) -> None:
    async with app.embedded(settings(tmp_path)) as running:
        context = kubeconfig.load(running.kubeconfig).ssl_context()
        host, _, port = running.address.removeprefix("https://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        writer.write(raw)
        line = await asyncio.wait_for(reader.readline(), 60)
        assert line.startswith(start)
        writer.close()


async def test_metrics_count_what_was_stored(tmp_path: Path) -> None:
    async with app.embedded(settings(tmp_path)) as running:
        client = await connected(running)
        await client.create(CONFIG_MAP, config_map("a"))
        before = running.api.store.version
        text = (await client.raw("/metrics")).decode()
        count = running.api.store.count("configmaps")
        assert f'apiserver_resource_objects{{resource="configmaps"}} {count}.0' in text
        shown = re.search(r"^kyu_store_version (\S+)$", text, re.MULTILINE)
        assert shown is not None
        # Definitions are still being accepted, so the version may have changed.
        assert before <= float(shown[1]) <= running.api.store.version
        version = msgspec.json.decode(await client.raw("/version"))
        assert version["gitVersion"].startswith("v1.36.0")
        await client.close()
