"""Delete objects, by name or as listed in manifests."""

from __future__ import annotations

import argparse

from kyu.cli import connection
from kyu.cli.kubernetes import verbs


def arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser)
    parser.add_argument("what", nargs="*", metavar="KIND NAME…", help="as kubectl names it: job train, cq/main")
    parser.add_argument("-f", "--filename", action="append", default=[], help="delete what this file lists")
    parser.add_argument("--all", action="store_true", help="all objects of the kind in the namespace")
    parser.usage = "kyu delete [OPTION …] KIND NAME … | KIND --all | -f FILE"


def run(args: argparse.Namespace) -> int:
    return verbs.delete(connection.connect(args), args)
