"""
Stop the control plane on this machine, and the worker clusters of `kyu up --clusters`. Running pods continue, and the
next `kyu up` takes them over; --stop-jobs stops them too.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path

from kyu import lock
from kyu.cli import target
from kyu.cli.main import Failed

STOP_SECONDS = 20.0
POLL_SECONDS = 0.05
# The folder of worker clusters in the data folder of their hub.
CLUSTERS = "clusters"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, metavar="DIR", help="data folder (default: the user's)")
    parser.add_argument("--stop-jobs", action="store_true", help="stop the running pods too")
    parser.add_argument(
        "--grace", type=float, default=5.0, metavar="SECONDS", help="with --stop-jobs: time before pods are killed"
    )


def run(args: argparse.Namespace) -> int:
    data: Path = args.data or target.default_data()
    folders = [data, *sorted(path.parent for path in (data / CLUSTERS).glob("*/kubeconfig"))]
    for folder in folders:
        if target.is_running(folder):
            stop_server(folder)
            print(f"stopped the server in {folder}")
        else:
            print(f"no server is running in {folder}")
    if args.stop_jobs:
        from kyu.runtime import shutdown

        count = sum(shutdown.stop_all(str(folder / "runtime"), args.grace) for folder in folders)
        print(f"stopped {count} pod(s)")
    return 0


def stop_server(data: Path) -> None:
    holder = lock.holder(data / "lock")
    if holder is None:
        return
    os.kill(holder, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while is_alive(holder):
        if time.monotonic() > deadline:
            raise Failed(f"process {holder} has not stopped after {STOP_SECONDS:.0f} s; it still holds {data}")
        time.sleep(POLL_SECONDS)


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
