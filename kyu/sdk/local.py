"""A control plane of its own, for tests and trials: in a temporary folder, gone at the end."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kyu.cli import target
from kyu.sdk import functions
from kyu.sdk.connections import NoServer
from kyu.sdk.submitter import FOLDER_VARIABLE, Submitter


@contextlib.contextmanager
def local(*, cpu: int | None = None) -> Iterator[Submitter]:
    """
    Start a control plane on this machine, and stop it with all its jobs at the end.

    Inside, ``kyu.submit`` and the others use it, and so do commands and kubectl, by KUBECONFIG. ``cpu`` is the number
    of cores that it offers; by default all.
    """
    with control_plane(cpu) as folder, using(folder) as submitter:
        yield submitter


@contextlib.contextmanager
def control_plane(cpu: int | None = None) -> Iterator[Path]:
    """Start a control plane, and yield the temporary folder of it and its functions."""
    with tempfile.TemporaryDirectory(prefix="kyu-local-", ignore_cleanup_errors=True) as folder:
        data = str(Path(folder, "data"))
        # The jobs are the user's own, and run as the user; also where root would isolate tenants.
        options = ["--trust-users", *(["--cpu", str(cpu)] if cpu is not None else [])]
        started = run_kyu("up", "-d", "--data", data, *options)
        if started.returncode:
            raise NoServer(started.stderr.strip() or started.stdout.strip())
        try:
            yield Path(folder)
        finally:
            run_kyu("down", "--stop-jobs", "--grace", "0", "--data", data)


@contextlib.contextmanager
def using(folder: Path) -> Iterator[Submitter]:
    """Choose a control plane for this process and its children. At the end, futures that are not done are cancelled."""
    chosen = {"KUBECONFIG": str(folder / "data" / "kubeconfig"), FOLDER_VARIABLE: str(folder / "calls")}
    with environment(chosen):
        submitter = functions.current()
        try:
            yield submitter
        finally:
            functions.forget(submitter)
            submitter.close()


def run_kyu(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*target.KYU, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)


@contextlib.contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables, and put the old ones back at the end."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
