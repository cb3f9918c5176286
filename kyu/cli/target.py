"""
Which server a command talks to, decided in one place.

In this order: ``--kubeconfig FILE``, ``--data DIR`` (the local server of that folder), the environment variable
KUBECONFIG, the running local server of the default folder, the service account of a pod, the user's default kubeconfig.
Who names a context means a kubeconfig: only those are looked at then.
Commands that change something print what was chosen.

Called by: every command that talks to a server.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from kyu.cli.main import BadInput, Failed
from kyu.kube import kubeconfig
from kyu.kube.kubeconfig import Credentials

# This program again. -P: whatever lies in the current folder, a queue.py for example, is not imported.
KYU = (sys.executable, "-P", "-m", "kyu")


@dataclass(frozen=True, slots=True)
class Target:
    credentials: Credentials
    # Where it was found, for people.
    origin: str

    def announce(self) -> None:
        """Tell on which server something is about to be changed."""
        print(f"on {self.credentials.server} ({self.origin})", file=sys.stderr)


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options that every command with a target has."""
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="talk to the server of this kubeconfig")
    parser.add_argument("--context", default="", metavar="NAME", help="the context in the kubeconfig")
    parser.add_argument("--data", type=Path, metavar="DIR", help="talk to the local server of this folder")


def choose(args: argparse.Namespace) -> Target:
    """The target of a command; BadInput says what to do when there is none."""
    try:
        return _choose(args)
    except kubeconfig.BadKubeconfig as error:
        raise BadInput(str(error)) from error


def _choose(args: argparse.Namespace) -> Target:
    if args.kubeconfig is not None:
        return Target(kubeconfig.load(args.kubeconfig, args.context), f"--kubeconfig {args.kubeconfig}")
    if args.data is not None:
        if args.context:
            raise BadInput(f"--context {args.context}: a local server, as of --data, has no contexts")
        return Target(_local(args.data), f"--data {args.data}")
    if named := os.environ.get("KUBECONFIG"):
        path = _first_existing(named)
        return Target(kubeconfig.load(path, args.context), f"KUBECONFIG={path}")
    default = default_data()
    if not args.context and is_running(default):
        return Target(_local(default), "the local server")
    if not args.context and (inside := kubeconfig.in_cluster()) is not None:
        return Target(inside, "the service account of this pod")
    usual = home() / ".kube" / "config"
    if usual.exists():
        return Target(kubeconfig.load(usual, args.context), str(usual))
    if args.context:
        raise BadInput(f"--context {args.context}: there is no kubeconfig; name one with --kubeconfig")
    raise BadInput("no server to talk to: start one with `kyu up -d`, or name one with --kubeconfig")


def default_data() -> Path:
    """The data folder of the user: $KYU_DATA, or the place that the system has for such data."""
    if chosen := os.environ.get("KYU_DATA"):
        return Path(chosen)
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else home() / ".local" / "share") / "kyu"


def home() -> Path:
    return Path(os.environ.get("HOME", "~")).expanduser()


def is_running(data: Path) -> bool:
    """Whether a server holds the lock of the folder."""
    from kyu.lock import is_locked

    return is_locked(data / "lock")


def _local(data: Path) -> Credentials:
    path = data / "kubeconfig"
    if not path.exists():
        raise BadInput(f"{data} is no data folder of Kyu: it has no kubeconfig. `kyu up --data {data}` makes one")
    if not is_running(data):
        raise Failed(f"the server of {data} does not run. Start it with `kyu up -d --data {data}`")
    return kubeconfig.load(path)


def _first_existing(paths: str) -> Path:
    """KUBECONFIG may name several files; the first that exists counts."""
    named = [Path(path) for path in paths.split(os.pathsep) if path]
    for path in named:
        if path.exists():
            return path
    raise BadInput(f"KUBECONFIG={paths}: no such file")
