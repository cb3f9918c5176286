"""
The cost of isolation: pods that run ``true``, in the runtime alone, with and without it in one run.

    python -m kyu.bench.isolation 300        as root also with the isolation of tenants

Called by hand. Calls: runtime/processes.py.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time

from kyu.api.meta import Json
from kyu.runtime.identity.service_account import HOST_IMAGE
from kyu.runtime.podplan import RuntimeOptions
from kyu.runtime.processes import Machine, Runtime
from kyu.runtime.sandbox.namespaces import Sandbox

AT_ONCE = 20
ROUNDS = 3


class RuntimeWithoutNamespaces(Runtime):
    """The runtime on a machine that permits no namespaces."""

    def _sandboxes(self) -> list[Sandbox]:
        return [Sandbox()]


class NoObjects:
    """The pods of this benchmark read no ConfigMap and no Secret."""

    def config_map(self, namespace: str, name: str) -> Json | None:
        return None

    def secret(self, namespace: str, name: str) -> Json | None:
        return None


class Stopwatch:
    """The time from the start of each pod to its first status, and the end of all."""

    def __init__(self, pods: int) -> None:
        self.slots = asyncio.Semaphore(AT_ONCE)
        self.done = asyncio.Event()
        self.started: dict[str, float] = {}
        self.latencies: list[float] = []
        self._left = pods

    def on_status(self, pod: Json, status: Json) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self.started:
            self.latencies.append(time.perf_counter() - self.started.pop(uid))
        if status["phase"] in ("Succeeded", "Failed"):
            assert status["phase"] == "Succeeded", status
            self.slots.release()
            self._left -= 1
            if self._left == 0:
                self.done.set()


async def measure(name: str, runtime_class: type[Runtime], pods: int, *, tenants: bool) -> str:
    with tempfile.TemporaryDirectory(prefix="kyu-bench-") as folder:
        watch = Stopwatch(pods)
        options = RuntimeOptions(tenants=tenants, user_ids=f"{folder}/user-ids.json")
        runtime = runtime_class(f"{folder}/runtime", Machine("bench"), watch.on_status, options)
        await runtime.open()
        begin = time.perf_counter()
        for number in range(pods):
            await watch.slots.acquire()
            watch.started[f"u{number}"] = time.perf_counter()
            runtime.start(make_pod(number), NoObjects())
        await watch.done.wait()
        seconds = time.perf_counter() - begin
        await runtime.close()
    ordered = sorted(watch.latencies)
    median, high = ordered[len(ordered) // 2] * 1000, ordered[len(ordered) * 99 // 100] * 1000
    return f"{name:28} {pods / seconds:7.1f} pods/s   start p50 {median:6.1f} ms   p99 {high:6.1f} ms"


def make_pod(number: int) -> Json:
    container = {"name": "main", "image": HOST_IMAGE, "command": ["true"]}
    meta = {"name": f"p{number}", "namespace": "bench", "uid": f"u{number}"}
    return {"metadata": meta, "spec": {"restartPolicy": "Never", "containers": [container]}}


async def main(pods: int) -> None:
    for _ in range(ROUNDS):
        print(await measure("no namespaces", RuntimeWithoutNamespaces, pods, tenants=False), flush=True)
        print(await measure("one user, in namespaces", Runtime, pods, tenants=False), flush=True)
        if os.geteuid() == 0:
            print(await measure("tenants, isolated", Runtime, pods, tenants=True), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 300))
