"""Words that the commands of Slurm share: their options, states and times."""

from __future__ import annotations

import argparse
import re
from typing import NoReturn

from kyu.cli.main import BadInput

# The states of `kyu history`, as sacct writes them.
ENDED = {
    "Succeeded": "COMPLETED", "Failed": "FAILED", "OOMKilled": "OUT_OF_MEMORY", "TimeLimit": "TIMEOUT",
    "Preempted": "PREEMPTED", "Evicted": "PREEMPTED", "Cancelled": "CANCELLED", "Stopped": "CANCELLED",
    "Lost": "NODE_FAIL",
}  # fmt: skip
# The states of `kyu jobs`, as squeue writes them.
CURRENT = {
    "Queued": "PENDING", "Reserved": "CONFIGURING", "Starting": "CONFIGURING", "Running": "RUNNING",
    "Stopping": "COMPLETING", "Stopped": "SUSPENDED", "Suspended": "SUSPENDED", "Succeeded": "COMPLETED",
    "Failed": "FAILED",
}  # fmt: skip
SHORT = {
    "PENDING": "PD", "CONFIGURING": "CF", "RUNNING": "R", "COMPLETING": "CG", "SUSPENDED": "S", "COMPLETED": "CD",
    "FAILED": "F", "CANCELLED": "CA", "TIMEOUT": "TO", "PREEMPTED": "PR", "OUT_OF_MEMORY": "OOM", "NODE_FAIL": "NF",
}  # fmt: skip
FIRST_SIGNAL = 128


class SlurmParser(argparse.ArgumentParser):
    """A parser that refuses unknown options by their name."""

    def __init__(self, command: str, description: str) -> None:
        super().__init__(prog=command, description=description, allow_abbrev=False, add_help=False)
        self.add_argument("--help", action="help", help="show this help")
        # The server is that of KUBECONFIG, or the local one.
        self.set_defaults(kubeconfig=None, context="", data=None, namespace="")

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown != message:
            raise BadInput(f"{self.prog}: {unknown.split()[0]} is not an option that Kyu knows")
        raise BadInput(f"{self.prog}: {message}")


def listed(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def states(command: str, text: str) -> set[str]:
    """Return the long names of states: `R,pending` → RUNNING, PENDING. Empty for all."""
    known = {**{short: name for name, short in SHORT.items()}, **{name: name for name in SHORT}}
    found = set()
    for word in listed(text.upper()):
        if word == "ALL":
            return set()
        if word not in known:
            raise BadInput(f"{command}: {word} is not a state that Kyu knows; there are: {', '.join(SHORT)}")
        found.add(known[word])
    return found


def is_named(job: str, name: str) -> bool:
    """Return whether a job has a name of Slurm: `train` is also the name of the job train-x7k2p."""
    return job == name or re.fullmatch(rf"{re.escape(name)}-[a-z0-9]{{5}}", job) is not None


def clock(seconds: float) -> str:
    """Return a duration as Slurm writes it: D-HH:MM:SS."""
    days, rest = divmod(int(seconds), 86400)
    text = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{text}" if days else text


def exit_code(code: int | None) -> str:
    """Return the exit code and the signal, as `1:0` or `0:15`."""
    if code is None:
        return "0:0"
    return f"0:{code - FIRST_SIGNAL}" if code > FIRST_SIGNAL else f"{code}:0"
