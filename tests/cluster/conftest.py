"""
Fixtures: running control planes, shared by the tests of a file, with their logs when a test fails.

A test that needs a part which is not built is skipped and says which.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.cluster import kueue, kyu, parts, yunikorn
from tests.cluster.controlplane import EVERYTHING, ControlPlane


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """Kubernetes with KWOK, without nodes."""
    require(*EVERYTHING)
    with ControlPlane.start(*EVERYTHING) as running:
        yield running


@pytest.fixture(scope="module")
def kueue_plane() -> Iterator[ControlPlane]:
    """Kubernetes with two nodes of 64 CPUs, and upstream Kueue as released: webhooks, roles, visibility."""
    require(*EVERYTHING, "kueue")
    with ControlPlane.start(*EVERYTHING) as running:
        running.add_nodes(["node-1", "node-2"], {"cpu": "64", "memory": "256Gi"}, {"pool": "main"})
        kueue.start(running, {})
        yield running


@pytest.fixture(scope="module")
def kyu_plane() -> Iterator[ControlPlane]:
    """The same with Kyu's controllers, from its own manifests, in place of Kueue."""
    require(*EVERYTHING)
    with ControlPlane.start(*EVERYTHING) as running:
        running.add_nodes(["node-1", "node-2"], {"cpu": "64", "memory": "256Gi"}, {"pool": "main"})
        with kyu.running(running):
            yield running


@pytest.fixture(scope="module")
def yunikorn_plane() -> Iterator[ControlPlane]:
    """Kubernetes with YuniKorn as second scheduler, and one node of 2 CPUs."""
    require(*EVERYTHING, "yunikorn")
    with ControlPlane.start(*EVERYTHING) as running:
        running.add_nodes(["small"], {"cpu": "2", "memory": "8Gi"})
        yunikorn.start(running)
        yield running


def require(*names: str) -> None:
    """Skip the test unless these parts, and the API server below them, are built."""
    try:
        for name in ("etcd", "kube-apiserver", *names):
            parts.binary(name)
    except parts.NotBuilt as missing:
        pytest.skip(str(missing))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The end of every log, below the failure."""
    report = yield
    values = getattr(item, "funcargs", {}).values()
    for running in (value for value in values if isinstance(value, ControlPlane)):
        if report.failed:
            for name in running.processes.pid_by_name:
                report.sections.append((f"end of {name}.log", running.processes.log_tail(name)))
    return report
