"""
Pods as processes of this machine: an indexed Job of many short commands, from submission to completion.

Each pod is created, bound, started with a supervisor, awaited and reported durably.

Called by: bench/embedded.py. Calls: app.py.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from kyu import app
from kyu.api.meta import Json, Key, Kind
from kyu.bench.engine import Row
from kyu.kinds.job import JOB
from kyu.kinds.metadata import QUEUE_NAME
from kyu.kube.cache import Cache, Reflector
from kyu.runtime.identity.service_account import HOST_IMAGE

CORES = 64
AT_ONCE = 20
KEY = Key("default", "many")


async def measure(pods: int) -> Row:
    with tempfile.TemporaryDirectory(prefix="kyu-bench-") as folder:
        async with app.embedded(app.Settings(Path(folder), cores=CORES, trust_users=True)) as running:
            client = running.client("kyu-bench")
            cache, done = Cache(), asyncio.Event()

            def changed(kind: Kind, old: Json | None, new: Json | None) -> None:
                if new is not None and (new.get("status") or {}).get("succeeded", 0) >= pods:
                    done.set()

            cache.subscribe(changed)
            following = asyncio.create_task(Reflector(client, cache, JOB).run())
            await cache.synced()
            started, cpu = time.perf_counter(), time.process_time()
            await client.create(JOB, job(pods))
            await done.wait()
            seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
    text = f"{pods} in {seconds:.1f} s, {AT_ONCE} at a time, {cpu / pods * 1000:.1f} ms cpu of kyu each"
    return Row("pods as processes, from created to reported, per s", text, pods / seconds)


def job(pods: int) -> Json:
    container = {"name": "c", "image": HOST_IMAGE, "command": ["true"], "resources": {"requests": {"cpu": "100m"}}}
    spec: Json = {
        "parallelism": AT_ONCE,
        "completions": pods,
        "completionMode": "Indexed",
        "suspend": True,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    labels = {QUEUE_NAME: "local"}
    return {"metadata": {"name": KEY.name, "namespace": KEY.namespace, "labels": labels}, "spec": spec}
