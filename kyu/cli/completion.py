"""
Print the completion script of a shell.

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
    parsers = {command.name: make_parser(command, importlib.import_module(command.module)) for command in COMMANDS}
    print(fish(parsers) if args.shell == "fish" else bash(parsers, zsh=args.shell == "zsh"))
    return 0


def verbs_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the verbs of a command, such as `create` of `kyu ctl`, with their parsers."""
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= action.choices
    return found


def values_of(parser: argparse.ArgumentParser) -> dict[tuple[str, ...], list[str]]:
    """Return the choices of each option, by its spellings; the options of verbs included."""
    found = {
        tuple(action.option_strings): [str(choice) for choice in action.choices]
        for action in parser._actions
        if action.option_strings and action.choices and action.help != argparse.SUPPRESS
    }
    for verb in verbs_of(parser).values():
        found |= values_of(verb)
    return found


def words_of(parser: argparse.ArgumentParser) -> list[str]:
    """Return the words that may follow: options, choices of an argument, verbs."""
    found: list[str] = []
    for action in parser._actions:
        if action.help == argparse.SUPPRESS:
            continue
        found += [option for option in action.option_strings if option.startswith("--")]
        if not action.option_strings and action.choices:
            found += [str(choice) for choice in action.choices]
    return found


def bash(parsers: dict[str, argparse.ArgumentParser], *, zsh: bool) -> str:
    cases = "\n".join(f"    {name}) words='{' '.join(words_of(parser))}' ;;" for name, parser in parsers.items())
    verbs = "\n".join(
        f"    '{name} {verb}') words='{' '.join(words_of(below))}' ;;"
        for name, parser in parsers.items()
        for verb, below in verbs_of(parser).items()
    )
    values = "\n".join(
        f"    '{name} {spelling}') words='{' '.join(listed)}' ;;"
        for name, parser in parsers.items()
        for spellings, listed in values_of(parser).items()
        for spelling in spellings
    )
    lines = ["autoload -U +X bashcompinit && bashcompinit"] if zsh else []
    lines += [
        "_kyu() {",
        '  local words current="${COMP_WORDS[COMP_CWORD]}"',
        '  if [ "$COMP_CWORD" -eq 1 ]; then',
        f"    words='{' '.join(parsers)}'",
        '  else case "${COMP_WORDS[1]}" in',
        cases,
        "  esac; fi",
        '  if [ "$COMP_CWORD" -gt 2 ]; then',
        '    case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in',
        verbs,
        "    esac",
        '    case "${COMP_WORDS[1]} ${COMP_WORDS[COMP_CWORD-1]}" in',
        values,
        "    esac",
        "  fi",
        '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
        "}",
        "complete -o default -F _kyu kyu",
    ]
    return "\n".join(lines)


def fish(parsers: dict[str, argparse.ArgumentParser]) -> str:
    lines = ["complete -c kyu -f"]
    for command in COMMANDS:
        lines.append(f"complete -c kyu -n __fish_use_subcommand -a {command.name} -d {quoted(command.help)}")
        seen = f"__fish_seen_subcommand_from {command.name}"
        parser = parsers[command.name]
        lines += fish_words(seen, parser)
        for verb, below in verbs_of(parser).items():
            lines += fish_words(f"{seen}; and __fish_seen_subcommand_from {verb}", below)
    return "\n".join(lines)


def fish_words(seen: str, parser: argparse.ArgumentParser) -> list[str]:
    """Return the completions of a parser, offered where the fish condition ``seen`` holds."""
    options = [f"-l {word.removeprefix('--')}" if word.startswith("--") else f"-a {word}" for word in words_of(parser)]
    for action in parser._actions:
        if action.option_strings and action.choices:
            names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in action.option_strings]
            options.append(f"{' '.join(names)} -x -a {quoted(' '.join(map(str, action.choices)))}")
    return [f"complete -c kyu -n '{seen}' {option}" for option in options]


def quoted(text: str) -> str:
    return "'" + text.replace("'", "\\'") + "'"
