"""
Stop the control plane on this machine. Pods that run go on; the next `kyu up` finds them.
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


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, metavar="DIR", help="the data folder; default: the user's")


def run(args: argparse.Namespace) -> int:
    data: Path = args.data or target.default_data()
    holder = lock.holder(data / "lock")
    if not target.is_running(data) or holder is None:
        print(f"no server runs in {data}")
        return 0
    os.kill(holder, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while target.is_running(data):
        if time.monotonic() > deadline:
            raise Failed(f"process {holder} has not stopped after {STOP_SECONDS:.0f} s; it still holds {data}")
        time.sleep(POLL_SECONDS)
    print(f"stopped the server in {data}")
    return 0
