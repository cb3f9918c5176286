"""Pools of a control plane as a user starts it: `kyu pool publish` in processes of their own, on a nats-server."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from kyu.api.meta import Json, Key
from kyu.api.pools import MasterQueue
from kyu.kinds.pod import POD
from tests.support.local_kyu import LocalKyu

NAME = "masterqueue"
RESOURCES = ("--resource", "cpu=8", "--resource", "memory=16Gi", "--resource", "pods=20")


@contextmanager
def publishing(kyu: LocalKyu, url: str, pool: str, *options: str) -> Iterator[None]:
    """The pool speaks while the context is open, and is live at its beginning."""
    words = ["pool", "publish", "--nats", url, "--pool", pool, "--from", "static", "--period", "0.5", *RESOURCES]
    words += ["--pool-data", str(kyu.data / f"pool-{pool}"), *options]
    process = subprocess.Popen([sys.executable, "-m", "kyu", *words], stderr=subprocess.DEVNULL)
    try:
        kyu.wait(f"pool {pool} is live", lambda: state_of(kyu, pool) == "Live")
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def runner_options(kyu: LocalKyu) -> tuple[str, ...]:
    """Those that let a pool run what this control plane sends."""
    key = kyu.kyu("pool", "key", "--data", str(kyu.data)).stdout.strip()
    return ("--run", "--allow", key)


def master_queue(kyu: LocalKyu) -> Json:
    return kyu.client.get(MasterQueue.KIND, Key("", NAME))


def state_of(kyu: LocalKyu, pool: str) -> str:
    pools = (master_queue(kyu).get("status") or {}).get("pools") or ()
    return next((one["state"] for one in pools if one["name"] == pool), "")


def pod_of(kyu: LocalKyu, job: str) -> Json | None:
    found = [one for one in kyu.client.list(POD, "default") if one["metadata"]["name"].startswith(f"{job}-")]
    return found[0] if found else None
