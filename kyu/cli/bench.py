"""
Measure Kyu against a rival, with ratios and a plot.

    kyu bench engine            what a decision costs, how that grows, and next to the textbook scheduler
    kyu bench embedded          the whole stack in real time: a burst, and Kueue's baseline load
    kyu bench embedded --soak 30    the same work for 30 minutes, and the memory that the process needs
    kyu bench pools             MasterQueues: many pools that speak every second
    kyu bench plugins           scheduler plugins: an object of every kind for Kueue and for YuniKorn
    kyu bench server            the API server over TLS: writes, watchers, many objects
    kyu bench server --rival-kubeconfig FILE    the same, beside another API server, whose etcd must sync to disk as
                                Kyu does: `python -m tests.cluster up --fsync` starts such a one
    kyu bench engine --quick    the same on a smaller scale, in a few minutes

Both sides are measured in the same run; what is CPU time says so.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kyu.cli.main import BadInput, release

# What can be measured: a module with run(*, quick) that yields rows; that of the server also takes a rival.
SUBJECTS = {name: f"kyu.bench.{name}" for name in ("embedded", "engine", "plugins", "pools", "server")}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subject", choices=sorted(SUBJECTS), help="what to measure")
    parser.add_argument("--quick", action="store_true", help="a smaller scale, for a first look")
    parser.add_argument(
        "--rival-kubeconfig",
        type=Path,
        metavar="FILE",
        help="an API server that takes the same writes; its etcd has to sync to disk",
    )
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="watch the memory of the whole stack instead")
    parser.add_argument("--no-plot", action="store_true", help="the table only")


def run(args: argparse.Namespace) -> int:
    measure: Callable[..., Iterator[Any]] = importlib.import_module(SUBJECTS[args.subject]).run
    options = {"quick": args.quick}
    if args.rival_kubeconfig is not None:
        if args.subject != "server":
            raise BadInput("--rival-kubeconfig is for `kyu bench server`")
        options["rival"] = args.rival_kubeconfig
    if args.soak is not None:
        if args.subject != "embedded" or args.soak <= 0:
            raise BadInput("--soak is for `kyu bench embedded`, and takes a number of minutes")
        options["soak_minutes"] = args.soak
    print(release())
    rows = []
    for row in measure(**options):
        rows.append(row)
        ratio = "" if row.ratio is None else f"{row.ratio:8.2f}"
        print(f"{row.name:52} {ratio:>8}  {row.must:>7}  {row.goal:>7}  {row.value}", flush=True)
    if not args.no_plot:
        print(plot(rows))
    return 0


def plot(rows: list[Any]) -> str:
    from kyu.bench import plot as plots

    measured = [row for row in rows if row.ratio is not None]
    return plots.bars("ratios", [row.name for row in measured], [row.ratio for row in measured])
