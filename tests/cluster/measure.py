"""
How long a control plane takes to start, what memory it holds, and how many writes per second it takes.

Called by: ``python -m tests.cluster measure``; the figures in README.md are its output.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from tests.cluster import kueue, yunikorn
from tests.cluster.client import Manifest
from tests.cluster.controlplane import EVERYTHING, ControlPlane

WRITES = 1000
AT_ONCE = 3


def main() -> int:
    with starting("Kubernetes and KWOK ready"):
        plane = ControlPlane.start(*EVERYTHING)
    with plane:
        print(f"  processor time until ready: {plane.processes.processor_seconds():.1f} s")
        with starting("100 nodes"):
            plane.add_nodes([f"node-{number}" for number in range(100)], {"cpu": "8", "memory": "8Gi"})
        for connections in (1, 8):
            measure_writes(plane, connections)
        with starting("Kueue installed and ready"):
            kueue.start(plane)
        with starting("YuniKorn ready"):
            yunikorn.start(plane)
        for name, size in plane.processes.resident_bytes().items():
            print(f"{name}: {size / 2**20:.0f} MB")
    measure_several()
    return 0


def measure_writes(plane: ControlPlane, connections: int) -> None:
    """Creates of small objects, and the processor time of all parts for each."""
    used, started = plane.processes.processor_seconds(), time.monotonic()
    write(plane, connections)
    seconds, used = time.monotonic() - started, plane.processes.processor_seconds() - used
    print(
        f"{connections} connections: {WRITES / seconds:.0f} creates/s, {used / WRITES * 1000:.1f} ms of processor each"
    )


def measure_several() -> None:
    """Some control planes started at the same moment."""
    with starting(f"{AT_ONCE} control planes at once, ready"), ThreadPoolExecutor(AT_ONCE) as pool:
        planes = [future.result() for future in [pool.submit(ControlPlane.start, *EVERYTHING) for _ in range(AT_ONCE)]]
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


@contextmanager
def starting(what: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - started:.1f} s", flush=True)
