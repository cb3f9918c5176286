"""
The `kyu` command: find the command in the table, parse its options, run it, and turn errors into exit codes.

Exit codes: 0 done, 1 failed, 2 bad input or usage, 130 interrupted. `kyu wait` and `kyu logs -f` return 75 if the
server stops answering.
"""

from __future__ import annotations

import argparse
import difflib
import gc
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

import kyu
from kyu.cli.commands import COMMANDS, Command


class BadInput(Exception):
    """An error in the user's input. Each line of the message names the place and the remedy. Exit code 2."""


class Failed(Exception):
    """A failure although the input was correct. Exit code 1, unless a subclass sets its own."""

    exit_code = 1


# Modules and answers live until a command ends, so the cyclic garbage collector finds little.
NEW_OBJECTS_PER_COLLECTION = 50_000


def main(argv: Sequence[str] | None = None) -> int:
    gc.set_threshold(NEW_OBJECTS_PER_COLLECTION)
    try:
        try:
            return dispatch(list(sys.argv[1:] if argv is None else argv))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe (`kyu … | head`). Python must not fail again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def dispatch(words: list[str]) -> int:
    if words[:1] == ["help"] and len(words) > 1:
        words = [words[1], "--help"]
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    if words[0] in ("-V", "--version", "version"):
        print(release())
        return 0
    command = next((c for c in COMMANDS if c.name == words[0]), None)
    if command is None:
        print(f"kyu: there is no command {words[0]!r}{remedy(words[0])} `kyu --help` lists them", file=sys.stderr)
        return 2
    return run(command, words[1:])


def remedy(word: str) -> str:
    """Return the likely meaning of a word that is no command."""
    if word.startswith("-"):
        return ": options come after the command, as in `kyu jobs --data DIR`;"
    close = difflib.get_close_matches(word, [command.name for command in COMMANDS], n=1)
    return f"; did you mean `kyu {close[0]}`?" if close else ";"


def release() -> str:
    """Return the version, and whether the engine is compiled."""
    engine = importlib.util.find_spec("kyu.engine.schedule")
    is_plain = engine is not None and engine.origin is not None and engine.origin.endswith(".py")
    return f"kyu {kyu.__version__}" if is_plain else f"kyu {kyu.__version__} (compiled)"


def run(command: Command, words: Sequence[str]) -> int:
    module = importlib.import_module(command.module)
    args = make_parser(command, module).parse_args(words)
    args.words = list(words)
    try:
        return int(module.run(args))
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    except Failed as error:
        print(f"kyu {command.name}: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        # An error with a file name concerns a file of the user or the data folder. Other errors are bugs.
        if error.filename is None:
            raise
        print(f"kyu {command.name}: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    except Exception as error:
        if (code := exit_code_of_answer(error)) is None:
            raise
        print(f"kyu {command.name}: {error}", file=sys.stderr)
        return code


def exit_code_of_answer(error: Exception) -> int | None:
    """Return the exit code for an error of the server, or None for a bug, which needs its traceback."""
    from kyu.kube.blocking import Unreachable
    from kyu.kube.errors import ApiError

    if isinstance(error, ApiError):
        return 2 if error.code in (400, 422) else 1
    return 1 if isinstance(error, Unreachable) else None


def make_parser(command: Command, module: ModuleType) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"kyu {command.name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.arguments(parser)
    return parser


def overview() -> str:
    lines = [
        "Kyu: a batch queue that speaks the API of Kueue.",
        "",
        "usage: kyu COMMAND [OPTION …]; `kyu help COMMAND` shows the options of a command",
    ]
    for group in dict.fromkeys(command.group for command in COMMANDS):
        lines += ["", f"{group}:"]
        lines += [f"  {c.name:<12} {c.help}" for c in COMMANDS if c.group == group]
    return "\n".join(lines)
