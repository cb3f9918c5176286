"""`kyu up` on a machine where the server runs already, or its port is taken."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from kyu import lock
from tests.support.local_kyu import local_kyu


def up(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "kyu", "up", *words], capture_output=True, text=True, timeout=60)


def test_a_second_start_reports_the_running_server(tmp_path: Path) -> None:
    with local_kyu(tmp_path, "--server-only", "--bare") as kyu:
        for words in (["-d"], []):
            again = up(*words, "--data", str(tmp_path))
            assert (again.returncode, again.stderr) == (0, "")
            server = kyu.client.credentials.server
            holder = lock.holder(tmp_path / "lock")
            assert again.stdout.splitlines()[0] == f"already running: {server} in process {holder}"
            assert f"export KUBECONFIG={tmp_path}/kubeconfig" in again.stdout
        other = up("-d", "--data", str(tmp_path), "--cpu", "2")
        assert other.returncode == 0
        stop = f"`kyu down --data {tmp_path}`"
        assert f"--cpu 2 has no effect on a running server; restart it with {stop} and `kyu up`" in other.stderr


def test_a_port_that_is_taken_is_told_with_the_remedy(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = up("-d", "--data", str(tmp_path), "--server-only", "--listen", f"127.0.0.1:{port}")
        assert refused.returncode == 1
        told = "another program uses the port; choose another port with --listen 127.0.0.1:PORT"
        assert told in refused.stderr
        (tmp_path / "port").write_text(f"{port}\n")
        remembered = up("-d", "--data", str(tmp_path), "--server-only")
        assert f"stop that program, or delete {tmp_path}/port to get any free port" in remembered.stderr
