"""
Show whether the control plane on this machine runs, where it listens, and how to talk to it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from kyu import lock
from kyu.cli import target
from kyu.kube.blocking import BlockingClient, Unreachable
from kyu.kube.kubeconfig import load


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, metavar="DIR", help="the data folder; default: the user's")


def run(args: argparse.Namespace) -> int:
    data: Path = args.data or target.default_data()
    if not target.is_running(data):
        print(f"stopped   data {data}")
        return 1
    credentials = load(data / "kubeconfig")
    client = BlockingClient(credentials)
    try:
        answer = client.raw("/readyz").decode()
    except Unreachable as error:
        answer = str(error)
    finally:
        client.close()
    state = "ready" if answer == "ok" else answer
    print(f"{state}   {credentials.server}   process {lock.holder(data / 'lock')}   data {data}")
    print(f"export KUBECONFIG={data / 'kubeconfig'}")
    return 0 if answer == "ok" else 1
