"""
The table of commands. START HERE to find what a command does.

A command is a module with two functions, ``arguments(parser)`` and ``run(args) -> exit code``. Only the module of the
command that is called gets imported, so that every command starts fast and none pays for another's libraries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Group = Literal["start", "batch", "admin", "Kubernetes", "plugins", "development"]


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    module: str
    group: Group
    help: str


COMMANDS = (
    Command("decide", "kyu.cli.decide", "admin", "what the engine would decide on these manifests, without a cluster"),
    Command("manifests", "kyu.cli.manifests", "admin", "print or write the CRDs and other generated files"),
    Command("bench", "kyu.cli.bench", "development", "measure the engine, the server or the whole, against a rival"),
)
