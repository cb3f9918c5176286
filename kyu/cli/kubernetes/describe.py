"""Show an object whole, with the events about it."""

from __future__ import annotations

import argparse

from kyu.cli import connection
from kyu.cli.kubernetes import verbs


def arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser)
    parser.add_argument("what", nargs="+", metavar="KIND [NAME…]", help="as kubectl names it: workload, cq/main")
    parser.usage = "kyu describe [OPTION …] KIND [NAME …]"


def run(args: argparse.Namespace) -> int:
    return verbs.describe(connection.connect(args), args)
