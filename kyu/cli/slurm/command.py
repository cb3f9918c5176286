"""
The commands of Slurm, as a thin layer on those of Kyu.

    kyu slurm install ~/bin        put sbatch, srun, salloc, squeue, scancel, sinfo and sacct into a folder
    kyu slurm squeue --me          run one of them without installing it

A partition is a LocalQueue, a job id is the name of a Job, an account is a namespace. Options that Kyu does not know
are refused by name. In a job, `srun` runs its command as a step at once.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
import sys
from pathlib import Path

from kyu.cli import output
from kyu.cli.main import BadInput, Failed

COMMANDS = ("sbatch", "srun", "salloc", "squeue", "scancel", "sinfo", "sacct")
MARK = "# Written by `kyu slurm install`."


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", choices=("install", *COMMANDS), help="install, or a command of Slurm")
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="…", help="the folder, or the words of the command")


def run(args: argparse.Namespace) -> int:
    if args.name == "install":
        return install(args.rest)
    module = importlib.import_module(f"kyu.cli.slurm.{args.name}")
    return int(module.run(list(args.rest)))


def install(words: list[str]) -> int:
    """Write a script for each command."""
    if len(words) != 1 or words[0].startswith("-"):
        raise BadInput("kyu slurm install: name the folder, for example ~/bin")
    folder = Path(words[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name in COMMANDS:
        path = folder / name
        if path.is_symlink() or (path.exists() and MARK not in path.read_text(errors="replace")):
            raise Failed(f"{path} is another program; choose a folder of its own")
    for name in COMMANDS:
        write_script(folder / name, name)
    print("\n".join(str(folder / name) for name in COMMANDS))
    if str(folder.absolute()) not in os.environ.get("PATH", "").split(os.pathsep):
        output.note(f"add the folder to PATH: export PATH={shlex.quote(str(folder.absolute()))}:$PATH")
    return 0


def write_script(path: Path, name: str) -> None:
    # With -P, a folder named kyu in the current folder is not taken for this program.
    command = f"exec {shlex.quote(sys.executable)} -P -m kyu slurm {name}"
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(f'#!/bin/sh\n{MARK}\n{command} "$@"\n')
    temporary.chmod(0o755)
    temporary.replace(path)
