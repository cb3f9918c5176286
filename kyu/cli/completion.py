"""
Print a shell's completion script, made from the commands themselves.

    source <(kyu completion bash)         # or zsh
    kyu completion fish | source
"""

from __future__ import annotations

import argparse
import importlib

from kyu.cli.commands import COMMANDS
from kyu.cli.main import make_parser


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=["bash", "zsh", "fish"])


def run(args: argparse.Namespace) -> int:
    words = {
        command.name: words_of(make_parser(command, importlib.import_module(command.module))) for command in COMMANDS
    }
    print(fish(words) if args.shell == "fish" else bash(words, zsh=args.shell == "zsh"))
    return 0


def words_of(parser: argparse.ArgumentParser) -> list[str]:
    """What may follow: options, words of a choice, verbs."""
    found: list[str] = []
    for action in parser._actions:
        if action.help == argparse.SUPPRESS:
            continue
        found += [option for option in action.option_strings if option.startswith("--")]
        if not action.option_strings and action.choices:
            found += [str(choice) for choice in action.choices]
    return found


def bash(words: dict[str, list[str]], *, zsh: bool) -> str:
    cases = "\n".join(f"    {name}) words='{' '.join(listed)}' ;;" for name, listed in words.items())
    lines = ["autoload -U +X bashcompinit && bashcompinit"] if zsh else []
    lines += [
        "_kyu() {",
        '  local words current="${COMP_WORDS[COMP_CWORD]}"',
        '  if [ "$COMP_CWORD" -eq 1 ]; then',
        f"    words='{' '.join(words)}'",
        '  else case "${COMP_WORDS[1]}" in',
        cases,
        "  esac; fi",
        '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
        "}",
        "complete -o default -F _kyu kyu",
    ]
    return "\n".join(lines)


def fish(words: dict[str, list[str]]) -> str:
    lines = ["complete -c kyu -f"]
    for command in COMMANDS:
        lines.append(f"complete -c kyu -n __fish_use_subcommand -a {command.name} -d {quoted(command.help)}")
        seen = f"'__fish_seen_subcommand_from {command.name}'"
        options = [
            f"-l {word.removeprefix('--')}" if word.startswith("--") else f"-a {word}" for word in words[command.name]
        ]
        lines += [f"complete -c kyu -n {seen} {option}" for option in options]
    return "\n".join(lines)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "\\'") + "'"
