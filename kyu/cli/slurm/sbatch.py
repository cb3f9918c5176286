"""sbatch: submit a batch script, with the options of Slurm in its lines and on the command line."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from kyu.cli import connection, output, sources
from kyu.cli.batch import submit
from kyu.cli.batch.submission import environment, script, slurm
from kyu.cli.batch.submission.script import Script
from kyu.cli.main import BadInput, dispatch

USAGE = "usage: sbatch [OPTION …] SCRIPT [ARGUMENT …] | --wrap COMMAND; `kyu help submit` explains the options"


def run(words: list[str]) -> int:
    options = slurm.Translation("sbatch")
    rest = options.add_command_line(words)
    if options.pop("--help") is not None:
        print(USAGE)
        return 0
    wrapped = options.pop("--wrap")
    batch = wrapped_script(wrapped, rest) if wrapped is not None else read_script(rest)
    own = options.given
    combined = slurm.Translation(batch.name)
    for number, kind, line in script.directives(batch.name, batch.text):
        if kind == "#SBATCH":
            combined.add(number, line)
    combined.given |= own
    parsable, waits, quiet = (combined.pop(name) is not None for name in ("--parsable", "--wait", "--quiet"))
    args = submit_arguments(combined, batch, rest[1:])
    batch = replace(batch, options=(), notes=() if quiet else tuple(combined.notes), is_for_slurm=True)
    created: list[str] = []
    submit.submit(args, batch, created.append)
    if not quiet or parsable:
        print(created[0] if parsable else f"Submitted batch job {created[0]}")
    return dispatch(["wait", "--quiet", created[0]]) if waits else 0


def submit_arguments(combined: slurm.Translation, batch: Script, arguments: list[str]) -> argparse.Namespace:
    """Return the arguments of `kyu submit`, with the defaults of Slurm: the whole environment, a file for output.

    There is no file if pods run as another user, who may not write to the current folder; `kyu logs` shows the output.
    """
    defaults: list[str] = []
    if "--export" not in combined.given:
        defaults += ["--export", "ALL"]
    if "--output" not in combined.given and environment.runs_as_me(server_address()):
        defaults += ["--output", "slurm-%j_%a.out" if "--array" in combined.given else "slurm-%j.out"]
    if "--job-name" not in combined.given:
        defaults += ["--generate-name", batch.name]
    parser = submit.DirectiveParser(prog="sbatch", add_help=False)
    submit.arguments(parser)
    words = [*defaults, *combined.options(), *own_options(batch), "--", batch.name, *arguments]
    args = parser.parse_args(words)
    args.words = words
    return args


def server_address() -> str:
    args = argparse.Namespace(kubeconfig=None, context="", data=None, namespace="")
    return connection.connect(args).client.credentials.server


def own_options(batch: Script) -> list[str]:
    """Return the options of `#KYU` lines."""
    return [word for _, kind, words in script.directives(batch.name, batch.text) if kind == "#KYU" for word in words]


def wrapped_script(command: str, rest: list[str]) -> Script:
    if rest:
        raise BadInput(f"sbatch: --wrap takes no script, and {rest[0]!r} was given")
    return script.read("wrap", f"#!/bin/sh\n{command}\n")


def read_script(rest: list[str]) -> Script:
    if not rest:
        output.note(USAGE)
        raise BadInput("sbatch: name a script, - for standard input, or use --wrap")
    if rest[0] != "-" and not Path(rest[0]).is_file():
        raise BadInput(f"sbatch: {rest[0]}: the file does not exist")
    return script.read("job" if rest[0] == "-" else Path(rest[0]).name, sources.read_text(rest[0]))
