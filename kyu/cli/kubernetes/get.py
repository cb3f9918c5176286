"""
List objects of a kind, or show some of them.

    kyu get jobs
    kyu get clusterqueue main -o yaml
"""

from __future__ import annotations

import argparse

from kyu.cli import connection, output
from kyu.cli.kubernetes import verbs


def arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser, all_namespaces=True)
    parser.add_argument("what", nargs="+", metavar="KIND [NAME…]", help="as kubectl names it: jobs, cq, queue/main")
    parser.add_argument("-l", "--selector", default="", help="label selector")
    output.add_format(parser)
    parser.usage = "kyu get [OPTION …] KIND [NAME …]"


def run(args: argparse.Namespace) -> int:
    return verbs.get(connection.connect(args), args)
