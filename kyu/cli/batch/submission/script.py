"""
Batch scripts: the script is kept in the Job as it was submitted, and its first comments may hold options.

    #!/bin/bash
    #KYU --cpu 4 --memory 8Gi --time 2h
    #SBATCH --job-name=train --gres=gpu:1

``#KYU`` lines hold options of ``kyu submit``; ``#SBATCH`` lines those of Slurm. Options of the command line come last.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kyu.cli import sources
from kyu.cli.batch.submission import slurm
from kyu.cli.main import BadInput

# The kernel allows 128 KiB for one argument of a program.
LONGEST_SCRIPT = 100_000
# The options with which interpreters read a program from an argument.
INTERPRETERS = {
    **dict.fromkeys(("sh", "bash", "dash", "ksh", "zsh"), "-c"),
    **dict.fromkeys(("perl", "ruby", "Rscript"), "-e"),
}
PYTHON = re.compile(r"python(\d(\.\d+)?)?")


@dataclass(frozen=True, slots=True)
class Script:
    """A batch script: its text, the command that runs it, and the options in its first comments."""

    name: str
    text: str
    interpreter: tuple[str, ...]
    flag: str
    options: tuple[str, ...]
    notes: tuple[str, ...]
    is_for_slurm: bool

    def command(self, arguments: list[str]) -> list[str]:
        # Shells take the first argument as the name of the script.
        name = [self.name] if self.flag == "-c" and not is_python(self.interpreter) else []
        return [*self.interpreter, self.flag, self.text, *name, *arguments]


def find(word: str, *, is_command: bool) -> Script | None:
    """Return the script that a word names, or None if it is a command. A word after `--` is a command."""
    if word == "-":
        return read("job", sources.read_text("-"))
    path = Path(word)
    if is_command or not path.is_file():
        return None
    with path.open("rb") as file:
        start = file.read(2)
    if start != b"#!":
        if os.access(path, os.X_OK):
            return None
        raise BadInput(f"{word}: the first line must name an interpreter, for example #!/bin/bash")
    return read(path.name, sources.read_text(word))


def read(name: str, text: str) -> Script:
    """Parse a script, or raise BadInput."""
    if not text.startswith("#!"):
        raise BadInput(f"{name}: the first line must name an interpreter, for example #!/bin/bash")
    if len(text.encode()) > LONGEST_SCRIPT:
        raise BadInput(f"{name}: a script has at most {LONGEST_SCRIPT} bytes; run a longer one with `kyu submit -- …`")
    interpreter = tuple(text.partition("\n")[0][2:].split())
    program = next((os.path.basename(word) for word in interpreter[1:] or interpreter if not word.startswith("-")), "")
    program = program if interpreter and os.path.basename(interpreter[0]) == "env" else os.path.basename(interpreter[0])
    flag = "-c" if PYTHON.fullmatch(program) else INTERPRETERS.get(program, "")
    if not flag:
        raise BadInput(f"{name}: scripts of {program} cannot be kept; run it as a command: kyu submit -- ./{name}")
    ours: list[str] = []
    theirs = slurm.Translation(name)
    for number, kind, words in directives(name, text):
        if kind == "#KYU":
            ours += words
        else:
            theirs.add(number, words)
    options = (*theirs.options(), *ours)
    return Script(name, text, interpreter, flag, options, tuple(theirs.notes), bool(theirs.given))


def is_python(interpreter: tuple[str, ...]) -> bool:
    return any(PYTHON.fullmatch(os.path.basename(word)) for word in interpreter)


def directives(name: str, text: str) -> Iterator[tuple[int, str, list[str]]]:
    """Yield the lines of options before the first command: number, kind and words."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            return
        kind, _, rest = line.partition(" ")
        if kind in ("#KYU", "#SBATCH"):
            try:
                yield number, kind, shlex.split(rest, comments=True)
            except ValueError as error:
                raise BadInput(f"{name}: line {number}: {error}") from None
