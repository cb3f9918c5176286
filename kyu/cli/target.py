"""
Choose the server that a command talks to.

Options come first: ``--kubeconfig FILE``, or ``--data DIR`` for the local server of that folder. Next is the
environment variable KUBECONFIG. Then come the running local server of the default folder, and the server of this
machine at its socket. The last are the service account of a pod, and the user's default kubeconfig. With
``--context`` only kubeconfigs count. Commands that change objects print the chosen server.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from kyu.cli.main import BadInput, Failed
from kyu.kube import kubeconfig
from kyu.kube.kubeconfig import Credentials

# The command line of this program. -P keeps Python from importing files of the current folder, such as queue.py.
KYU = (sys.executable, "-P", "-m", "kyu")

SHARED_SOCKET = "/run/kyu/kyu.sock"


@dataclass(frozen=True, slots=True)
class ChosenServer:
    """A server, and the option or file that named it."""

    credentials: Credentials
    origin: str

    def announce(self) -> None:
        """Print the server whose objects are about to change."""
        print(f"on {self.credentials.server} ({self.origin})", file=sys.stderr)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that every command with a server has."""
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="use the server of this kubeconfig")
    parser.add_argument("--context", default="", metavar="NAME", help="the context in the kubeconfig")
    parser.add_argument("--data", type=Path, metavar="DIR", help="use the local server of this data folder")


def choose(args: argparse.Namespace) -> ChosenServer:
    """Return the server of a command, or raise BadInput with the remedy."""
    try:
        return _choose(args)
    except kubeconfig.BadKubeconfig as error:
        raise BadInput(str(error)) from error


def _choose(args: argparse.Namespace) -> ChosenServer:
    if args.kubeconfig is not None:
        return ChosenServer(kubeconfig.load(args.kubeconfig, args.context), f"--kubeconfig {args.kubeconfig}")
    if args.data is not None:
        if args.context:
            raise BadInput(f"--context {args.context}: --data names a local server, which has no contexts")
        return ChosenServer(_local(args.data), f"--data {args.data}")
    if named := os.environ.get("KUBECONFIG"):
        path = _first_existing(named)
        return ChosenServer(kubeconfig.load(path, args.context), f"KUBECONFIG={path}")
    default = default_data()
    if not args.context and is_running(default):
        return ChosenServer(_local(default), "the local server")
    shared = socket_path()
    if not args.context and shared.is_socket():
        return ChosenServer(kubeconfig.log_in(shared), str(shared))
    if not args.context and (inside := kubeconfig.in_cluster()) is not None:
        return ChosenServer(inside, "the service account of this pod")
    usual = home() / ".kube" / "config"
    if usual.exists():
        return ChosenServer(kubeconfig.load(usual, args.context), str(usual))
    if args.context:
        raise BadInput(f"--context {args.context}: there is no kubeconfig; name one with --kubeconfig")
    raise BadInput("no server found: start one with `kyu up -d`, or name one with --kubeconfig")


def default_data() -> Path:
    """Return the data folder of the user: $KYU_DATA, or the folder of the XDG convention."""
    if chosen := os.environ.get("KYU_DATA"):
        return Path(chosen)
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else home() / ".local" / "share") / "kyu"


def socket_path() -> Path:
    """Return the socket of the server that all accounts of this machine share: $KYU_SOCKET, or the usual one."""
    return Path(os.environ.get("KYU_SOCKET") or SHARED_SOCKET)


def down_command(data: Path) -> str:
    """Return the command that stops the server of a data folder."""
    return "kyu down" if data == default_data().absolute() else f"kyu down --data {shlex.quote(str(data))}"


def home() -> Path:
    return Path(os.environ.get("HOME", "~")).expanduser()


def is_running(data: Path) -> bool:
    """Return whether a server holds the lock of the folder."""
    from kyu.lock import is_locked

    return is_locked(data / "lock")


def _local(data: Path) -> Credentials:
    path = data / "kubeconfig"
    if not path.exists():
        raise BadInput(f"{data} is not a data folder of Kyu: it has no kubeconfig. `kyu up --data {data}` creates one")
    if not is_running(data):
        raise Failed(f"the server of {data} is not running; start it with `kyu up -d --data {data}`")
    return kubeconfig.load(path)


def _first_existing(paths: str) -> Path:
    """Return the first existing file of KUBECONFIG, which may name several."""
    named = [Path(path) for path in paths.split(os.pathsep) if path]
    for path in named:
        if path.exists():
            return path
    raise BadInput(f"KUBECONFIG={paths}: no such file")
