"""
The page of all commands, `docs/commands.md`, made from the commands themselves: `python -m kyu.cli.reference`.

Called by: `make update`; a test compares the page with what is made here.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Container, Iterator
from functools import cache

from kyu.cli import connection
from kyu.cli.commands import COMMANDS, Command
from kyu.cli.main import make_parser

LEAD = """# Commands

Made by `make update` from what each command says with `--help`. Exit codes everywhere: 0 done, 1 failed, 2 bad input or
usage.

Every command that talks to a server looks for it in this order: `--kubeconfig`, `--data`, `$KUBECONFIG`, the running
local server, the service account of a pod, `~/.kube/config`. With `--context` only kubeconfigs count. The data folder
is `$KYU_DATA`, or `~/.local/share/kyu`. The options for this are left out below:
"""


def page() -> str:
    parts = ["\n".join([LEAD, *common()])]
    for group in dict.fromkeys(command.group for command in COMMANDS):
        parts.append(f"## {group[:1].upper()}{group[1:]}")
        parts += [section(command) for command in COMMANDS if command.group == group]
    return "\n\n".join(parts) + "\n"


def section(command: Command) -> str:
    parser = make_parser(command, importlib.import_module(command.module))
    lines = [f"### kyu {command.name}", "", "```", (parser.description or "").strip(), "```", ""]
    return "\n".join([*lines, *rows(parser, "", common())]).rstrip()


@cache
def common() -> tuple[str, ...]:
    """What all commands that talk to a server have."""
    parser = argparse.ArgumentParser()
    connection.arguments(parser)
    return tuple(rows(parser, "", ()))


def rows(parser: argparse.ArgumentParser, verb: str, known: Container[str]) -> Iterator[str]:
    """A line for each option and argument that is not known; those of a verb come after its name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from rows(inner, f"{name} ", known)
        elif action.help != argparse.SUPPRESS and action.dest != "help":
            text = f"{words(action)}`{': ' + action.help if action.help else ''}{choices(action)}"
            if f"- `{text}" not in known:
                yield f"- `{verb}{text}"


def words(action: argparse.Action) -> str:
    """`-q, --queue QUEUE`, or the name of an argument."""
    value = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if not action.option_strings:
        return value
    named = ", ".join(action.option_strings)
    return named if action.nargs == 0 else f"{named} {value}"


def choices(action: argparse.Action) -> str:
    if not action.choices or action.metavar:
        return ""
    return f" ({', '.join(map(str, action.choices))})"


if __name__ == "__main__":
    print(page(), end="")
