"""
Measure Kyu beside a rival, with ratios and a plot.

    kyu bench engine            the cost of a decision and its growth
    kyu bench engine --textbook tests.support.textbook    the same, beside the textbook scheduler of a checkout
    kyu bench embedded          the whole stack: a burst of jobs, and Kueue's baseline load
    kyu bench embedded --soak 30    the same load for 30 minutes, with the memory of the process
    kyu bench cluster --kubeconfig FILE --system NAME=COMMAND …    schedulers in turn on one cluster, which has the
                                definitions of Kueue's kinds
    kyu bench pools             MasterQueues with many pools that report every second
    kyu bench plugins           scheduler plugins: every kind of job for Kueue and YuniKorn
    kyu bench server            the API server over TLS: writes, watchers, many objects
    kyu bench server --rival-kubeconfig FILE    the same beside another API server, whose etcd must sync to disk:
                                `python -m tests.cluster up --fsync` starts one
    kyu bench engine --quick    a smaller scale, in a few minutes

Both sides are measured in the same run. Rows of CPU time say so.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from kyu.cli.main import BadInput, release

# Each subject is a module with run(*, quick) that yields rows.
SUBJECTS = {name: f"kyu.bench.{name}" for name in ("cluster", "embedded", "engine", "plugins", "pools", "server")}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subject", choices=sorted(SUBJECTS), help="the part to measure")
    parser.add_argument("--quick", action="store_true", help="measure on a smaller scale")
    parser.add_argument(
        "--rival-kubeconfig",
        type=Path,
        metavar="FILE",
        help="an API server to compare with; its etcd must sync to disk",
    )
    parser.add_argument(
        "--textbook",
        metavar="MODULE",
        help="a textbook scheduler to compare with; in a checkout tests.support.textbook",
    )
    parser.add_argument(
        "--soak", type=float, metavar="MINUTES", help="run the load this long and watch the memory instead"
    )
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="the cluster of `kyu bench cluster`")
    parser.add_argument(
        "--system",
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="a scheduler to measure on the cluster, in turn; repeatable (default: this version of Kyu)",
    )
    parser.add_argument(
        "--load", choices=("baseline", "large-scale"), default="baseline", help="the load of `kyu bench cluster`"
    )
    parser.add_argument("--no-plot", action="store_true", help="print the table only")


def run(args: argparse.Namespace) -> int:
    measure: Callable[..., Iterator[Any]] = importlib.import_module(SUBJECTS[args.subject]).run
    options: dict[str, Any] = {"quick": args.quick}
    if args.rival_kubeconfig is not None:
        if args.subject != "server":
            raise BadInput("--rival-kubeconfig is for `kyu bench server`")
        options["rival"] = args.rival_kubeconfig
    if args.textbook is not None:
        if args.subject != "engine":
            raise BadInput("--textbook is for `kyu bench engine`")
        options["textbook"] = load_textbook(args.textbook)
    if args.soak is not None:
        if args.subject != "embedded" or args.soak <= 0:
            raise BadInput("--soak is for `kyu bench embedded`, and takes a number of minutes")
        options["soak_minutes"] = args.soak
    if args.subject == "cluster":
        options |= cluster_options(args)
    elif args.kubeconfig is not None or args.system:
        raise BadInput("--kubeconfig and --system are for `kyu bench cluster`")
    print(release())
    rows = []
    for row in measure(**options):
        rows.append(row)
        ratio = "" if row.ratio is None else f"{row.ratio:8.2f}"
        print(f"{row.name:52} {ratio:>8}  {row.must:>7}  {row.goal:>7}  {row.value}", flush=True)
    if not args.no_plot:
        print(plot(rows))
    return 0


def cluster_options(args: argparse.Namespace) -> dict[str, Any]:
    from kyu.bench.cluster import own_command

    if args.kubeconfig is None:
        raise BadInput("`kyu bench cluster` makes thousands of Workloads: name the cluster with --kubeconfig")
    systems = {}
    for word in args.system:
        name, equals, command = word.partition("=")
        if not name or not equals or not command:
            raise BadInput(f"--system {word}: must be NAME=COMMAND")
        systems[name] = command
    return {
        "kubeconfig_file": args.kubeconfig,
        "systems": systems or {"kyu": own_command(args.kubeconfig)},
        "load": args.load,
    }


def load_textbook(module: str) -> ModuleType:
    """Import the textbook scheduler, which is a part of the tests and not of the package."""
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise BadInput(f"--textbook: no module {module} here; run in a checkout of the sources") from error


def plot(rows: list[Any]) -> str:
    from kyu.bench import plot as plots

    measured = [row for row in rows if row.ratio is not None]
    return plots.bars("ratios", [row.name for row in measured], [row.ratio for row in measured])
