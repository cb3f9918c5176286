"""
Check the data folder of a local server: every page and row of the database, and the certificates.

    kyu check                   may run while the server runs; the exit code is 1 if something is damaged
"""

from __future__ import annotations

import argparse
from pathlib import Path

from kyu.cli import target
from kyu.cli.main import BadInput


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, metavar="DIR", help="data folder (default: the user's)")


def run(args: argparse.Namespace) -> int:
    from kyu.server.auth import tls
    from kyu.server.storage import check

    data: Path = args.data or target.default_data()
    if not data.is_dir():
        raise BadInput(f"{data} is no folder; name the data folder of a server with --data")
    found = check.problems(data / "kyu.db", is_in_use=target.is_running(data))
    found += [problem] if (problem := tls.authority_problem(data)) else []
    for problem in found:
        print(f"damaged: {problem}")
    if found:
        print("`kyu restore FILE` puts a backup in place, `kyu restore --salvage` saves what is readable")
        return 1
    print(f"{data} is whole")
    return 0
