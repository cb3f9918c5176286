"""
Run Kyu as a service of this machine, for all its accounts.

    kyu service install                    write the unit of systemd, and say how to start it
    kyu service print                      print the unit

The service runs as root. It gives each local account its own jobs: `kyu team add` gives a group a queue.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
from pathlib import Path

from kyu.cli import output, target
from kyu.cli.main import BadInput, Failed

UNIT = Path("/etc/systemd/system/kyu.service")
DATA = Path("/var/lib/kyu")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("install", "print"))
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help=f"data folder (default: {DATA})")
    parser.add_argument("--unit", type=Path, default=UNIT, metavar="FILE", help=f"the unit's file (default: {UNIT})")
    parser.add_argument("--listen", default="", metavar="HOST:PORT", help="address (default: 127.0.0.1 and any port)")


def run(args: argparse.Namespace) -> int:
    unit = unit_of(args.data.absolute(), args.listen)
    if args.action == "print":
        print(unit, end="")
        return 0
    if os.geteuid() != 0 and args.unit == UNIT:
        raise BadInput("kyu service install: only root can install a service; `kyu service print` shows the unit")
    try:
        args.unit.write_text(unit)
    except OSError as error:
        raise Failed(f"cannot write {args.unit}: {error.strerror}") from error
    verify(args.unit)
    print(f"wrote {args.unit}")
    print("start it: systemctl daemon-reload && systemctl enable --now kyu")
    print("give a group a queue: kyu team add NAME --group GROUP")
    return 0


def unit_of(data: Path, listen: str) -> str:
    """Return the unit. Pods outlive a restart of the service, so only the main process is ended."""
    words = [*target.KYU, "up", "--data", str(data), "--socket", target.SHARED_SOCKET]
    words += ["--listen", listen] if listen else []
    return f"""\
[Unit]
Description=Kyu batch queues
Documentation=https://kueue.sigs.k8s.io
After=network.target nss-user-lookup.target

[Service]
ExecStart={shlex.join(words)}
Restart=on-failure
KillMode=process
Delegate=yes
TasksMax=infinity
LimitNOFILE=65536
RuntimeDirectory=kyu
RuntimeDirectoryMode=0755

[Install]
WantedBy=multi-user.target
"""


def verify(unit: Path) -> None:
    """Let systemd check the unit, where it is installed."""
    program = shutil.which("systemd-analyze")
    if program is None:
        output.note("systemd-analyze is not installed, so the unit was not checked")
        return
    checked = subprocess.run([program, "verify", str(unit)], capture_output=True, text=True)
    faults = [line for line in checked.stderr.splitlines() if unit.name in line]
    if checked.returncode != 0 and faults:
        raise Failed(f"systemd refuses the unit: {faults[0]}")
