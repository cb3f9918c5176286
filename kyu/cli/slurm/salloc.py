"""salloc: queue a shell, or another command, and stay with it in this terminal."""

from __future__ import annotations

import os

from kyu.cli.slurm import srun


def run(words: list[str]) -> int:
    return srun.start("salloc", words, (os.environ.get("SHELL") or "/bin/sh",))
