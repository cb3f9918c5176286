"""
How long a control plane takes to start, what memory it holds, and how many writes per second it takes.

Called by: ``python -m tests.cluster measure``; the figures in README.md are its output.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.cluster import kueue, yunikorn
from tests.cluster.client import Manifest
from tests.cluster.controlplane import EVERYTHING, ControlPlane

WRITES = 1000
AT_ONCE = 3


def main() -> int:
    started = time.monotonic()
    with ControlPlane.start(*EVERYTHING) as plane:
        report("Kubernetes and KWOK ready", time.monotonic() - started)
        report(
            "100 nodes", timed(lambda: plane.add_nodes([f"n{i}" for i in range(100)], {"cpu": "8", "memory": "8Gi"}))
        )
        for connections in (1, 8):
            seconds = timed(lambda count=connections: write(plane, count))  # type: ignore[misc]
            print(f"{connections} connections: {WRITES / seconds:.0f} creates/s")
        report("Kueue installed and ready", timed(lambda: kueue.start(plane)))
        report("YuniKorn ready", timed(lambda: yunikorn.start(plane)))
        for name, size in plane.processes.resident_bytes().items():
            print(f"{name}: {size / 2**20:.0f} MB")
    measure_several()
    return 0


def measure_several() -> None:
    """Some control planes started at the same moment."""
    started = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        planes = [future.result() for future in [pool.submit(ControlPlane.start, *EVERYTHING) for _ in range(AT_ONCE)]]
    report(f"{AT_ONCE} control planes at once, ready", time.monotonic() - started)
    used = sum(sum(plane.processes.resident_bytes().values()) for plane in planes)
    print(f"{AT_ONCE} control planes: {used / 2**20:.0f} MB")
    for plane in planes:
        plane.stop()


def write(plane: ControlPlane, connections: int) -> None:
    """Create small objects, each connection as fast as it is answered."""

    def write_some(number: int) -> None:
        user = plane.user(f"writer-{number}", ["system:masters"])
        for count in range(WRITES // connections):
            user.create(config_map(f"of-{connections}-{number}-{count}"))
        user.close()

    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(write_some, range(connections)))


def config_map(name: str) -> Manifest:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": "value"}}


def timed(action: Callable[[], None]) -> float:
    started = time.monotonic()
    action()
    return time.monotonic() - started


def report(what: str, seconds: float) -> None:
    print(f"{what}: {seconds:.1f} s")
