"""
srun: queue a command and stay with it, as `kyu run` does. In a job, run the command as a step, at once.

salloc (salloc.py) is the same with a shell.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from kyu.cli import output
from kyu.cli.batch.interactive.session import has_terminal
from kyu.cli.batch.submission import slurm
from kyu.cli.main import BadInput, Failed, dispatch

IN_JOB = "SLURM_JOB_ID"


def run(words: list[str]) -> int:
    return start("srun", words, ())


def start(name: str, words: list[str], usual: Sequence[str]) -> int:
    """Queue the command, or the usual one if none is given, and return its exit code."""
    options = slurm.Translation(name)
    command = options.add_command_line(words) or list(usual)
    usage = f"usage: {name} [OPTION …] COMMAND [ARGUMENT …]; `kyu help run` explains the options"
    if options.pop("--help") is not None:
        print(usage)
        return 0
    wants_terminal = options.pop("--pty") is not None or name == "salloc"
    given = ["--export", "ALL"] if "--export" not in options.given else []
    given += options.options()
    for note in options.notes:
        output.note(note)
    if not command:
        raise BadInput(usage)
    if os.environ.get(IN_JOB):
        return run_step(name, options, command)
    streams = "-it" if wants_terminal and has_terminal() else "-i"
    return dispatch(["run", streams, *given, "--", *command])


def run_step(name: str, options: slurm.Translation, command: list[str]) -> int:
    """Replace this process by the step. A job has one pod, so that there is one task."""
    if int(options.pop("--ntasks") or 1) != 1:
        raise BadInput(f"{name}: a step has one task here; start the tasks of a job with --array or --count")
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise Failed(f"{name}: {command[0]}: {error.strerror}") from error
