"""
Put a backup in place of the database of a local server, or save what is readable in a damaged one.

    kyu restore FILE            FILE was written by `kyu backup`; the server must be stopped
    kyu restore --salvage       without a backup: keep every object that can still be read

The files that were there before are kept beside the new ones.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from kyu import lock
from kyu.cli import target
from kyu.cli.main import BadInput, Failed

SHOWN = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, nargs="?", metavar="FILE", help="the backup")
    parser.add_argument("--salvage", action="store_true", help="keep what is readable in the damaged database")
    parser.add_argument("--data", type=Path, metavar="DIR", help="data folder (default: the user's)")


def run(args: argparse.Namespace) -> int:
    from kyu.server.storage import check
    from kyu.server.storage.database import DatabaseError

    if (args.file is None) == (not args.salvage):
        raise BadInput("kyu restore: name the file of a backup, or use --salvage")
    if args.file is not None and not args.file.is_file():
        raise BadInput(f"kyu restore: {args.file}: there is no such file")
    data: Path = args.data or target.default_data()
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    database, suffix = data / "kyu.db", time.strftime("before-%Y%m%d-%H%M%S")
    try:
        held = lock.Lock(data / "lock")
    except lock.Locked as error:
        raise Failed(f"{error}; `kyu down` stops it") from error
    try:
        if args.salvage:
            last = check.last_known_version(database)
            kept = check.set_aside(database, suffix)
            found = check.salvage(database.with_name(f"{database.name}.{suffix}"), database, last)
            print(f"saved {found.objects} objects")
            for name in found.lost[:SHOWN]:
                print(f"lost: a state of {name}")
        else:
            kept = check.restore(args.file, database, suffix)
            print(f"restored {args.file} to {database}")
    except (DatabaseError, OSError) as error:
        raise Failed(str(error)) from error
    finally:
        held.release()
    for path in kept:
        print(f"kept the former {path}")
    return 0
