"""
Create or change objects from manifests.

    kyu apply -f queues.yaml -f jobs/
    generate | kyu apply -f -
"""

from __future__ import annotations

import argparse

from kyu.cli import connection
from kyu.cli.kubernetes import verbs


def arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser)
    parser.add_argument(
        "-f", "--filename", action="append", required=True, help="file, folder, or - for standard input"
    )
    parser.add_argument("--force", action="store_true", help="take over fields of other managers")


def run(args: argparse.Namespace) -> int:
    return verbs.apply(connection.connect(args), args)
