"""
Copy the database of a local server to a file, while the server runs.

    kyu backup FILE             write a consistent copy; `kyu restore FILE` puts it back
"""

from __future__ import annotations

import argparse
from pathlib import Path

from kyu.cli import target
from kyu.cli.main import BadInput, Failed


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the new file; it must not exist yet")
    parser.add_argument("--data", type=Path, metavar="DIR", help="data folder (default: the user's)")


def run(args: argparse.Namespace) -> int:
    from kyu.server.storage.database import DatabaseError, back_up

    data: Path = args.data or target.default_data()
    if not (data / "kyu.db").exists():
        raise BadInput(f"{data} contains no database; name the data folder of a server with --data")
    try:
        size = back_up(data / "kyu.db", args.file)
    except DatabaseError as error:
        raise Failed(str(error)) from error
    print(f"wrote {args.file} ({size / 1e6:.1f} MB)")
    return 0
