"""``kill -9`` during writes: no acknowledged write is lost, and no watch has a gap."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from kyu.kube import errors, kubeconfig
from kyu.kube import http as transport
from kyu.kube.client import Client
from tests.support.servers import CONFIG_MAP, config_map

ROUNDS = 3
WRITERS = 8
ACKNOWLEDGED_PER_ROUND = 60


class Server:
    """``kyu up -d`` in a folder, with kill and restart."""

    def __init__(self, data: Path) -> None:
        self.data = data

    def start(self) -> None:
        command = [sys.executable, "-m", "kyu", "up", "-d", "--bare", "--server-only", "--data", str(self.data)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)

    def kill(self) -> None:
        os.kill(int((self.data / "lock").read_text()), signal.SIGKILL)

    async def client(self) -> Client:
        return Client(await transport.connect(kubeconfig.load(self.data / "kubeconfig")), "tests")


class Watching:
    """All versions that a watch has received, across restarts of the server."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.names: list[str] = []
        self.versions: list[int] = []
        self.has_seen_last = asyncio.Event()

    async def follow(self, client: Client) -> None:
        async for type_, obj in client.watch(CONFIG_MAP, "default", version=self.version):
            self.version = obj["metadata"]["resourceVersion"]
            if type_ != "BOOKMARK":
                self.names.append(obj["metadata"]["name"])
                self.versions.append(int(self.version))
            if self.names[-1:] == ["last"]:
                self.has_seen_last.set()


async def write_until_killed(server: Server, watching: Watching, round_: int) -> set[str]:
    """Return the names that were acknowledged before the server was killed."""
    client = await server.client()
    acknowledged: set[str] = set()
    enough = asyncio.Event()

    async def write(writer: int) -> None:
        for number in range(100_000):
            name = f"r{round_}-w{writer}-{number}"
            await client.create(CONFIG_MAP, config_map(name))
            acknowledged.add(name)
            if len(acknowledged) >= ACKNOWLEDGED_PER_ROUND:
                enough.set()

    tasks = [asyncio.ensure_future(write(writer)) for writer in range(WRITERS)]
    tasks.append(asyncio.ensure_future(watching.follow(client)))
    await asyncio.wait_for(enough.wait(), 60)
    server.kill()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert result is None or isinstance(result, errors.ApiError), result
    await client.close()
    return acknowledged


async def test_nothing_acknowledged_is_lost_and_no_watch_has_a_gap(tmp_path: Path) -> None:
    server = Server(tmp_path / "data")
    server.start()
    client = await server.client()
    _, version = await client.list(CONFIG_MAP, "default")
    await client.close()
    watching, acknowledged = Watching(version), set[str]()
    try:
        for round_ in range(ROUNDS):
            acknowledged |= await write_until_killed(server, watching, round_)
            server.start()
            client = await server.client()
            objects, _ = await client.list(CONFIG_MAP, "default")
            stored = {obj["metadata"]["name"] for obj in objects}
            assert acknowledged <= stored
            await client.close()
        client = await server.client()
        following = asyncio.ensure_future(watching.follow(client))
        await client.create(CONFIG_MAP, config_map("last"))
        await asyncio.wait_for(watching.has_seen_last.wait(), 30)
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
        stored = {obj["metadata"]["name"] for obj in (await client.list(CONFIG_MAP, "default"))[0]}
        assert sorted(watching.names) == sorted(stored)
        assert watching.versions == sorted(watching.versions)
        await client.close()
    finally:
        server.kill()
