"""Commands start quickly: they import what they need, and nothing of the server. A server stops with its folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kyu.cli.commands import COMMANDS

HEAVY = {"asyncio", "aiohttp", "uvloop", "sqlite3", "prometheus_client", "nats", "kyu.server.api", "kyu.engine.cycle"}


@pytest.mark.parametrize("command", ["submit", "jobs", "queues", "logs", "wait", "cancel", "get"])
def test_a_command_for_batch_users_imports_nothing_heavy(command: str) -> None:
    module = next(each.module for each in COMMANDS if each.name == command)
    code = f"import {module}, kyu.cli.connection, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY.isdisjoint(done.stdout.split())


def test_a_control_plane_without_pools_does_not_load_their_library() -> None:
    code = "import kyu.app, kyu.embedded, kyu.controllers.beside, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"nats", "aiohttp"}.isdisjoint(done.stdout.split())


def test_a_server_whose_folder_is_gone_says_so_and_stops(tmp_path: Path) -> None:
    data = tmp_path / "data"
    command = [sys.executable, "-m", "kyu", "up", "--data", str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        assert server.stdout.readline().startswith("listening on ")
        data.rename(tmp_path / "elsewhere")
        told = server.stderr.read()
    assert server.returncode == 1
    assert f"kyu up: {data} was deleted or replaced while the server ran" in told
    assert "Traceback" not in told
