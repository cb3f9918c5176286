"""
The JSONPath of CustomResourceDefinitions: printer columns, the scale subresource, selectable fields.

A path is parsed once to steps and then followed often. Served: ``.a.b``, ``['a.b']``, ``[0]``, ``[-1]``, ``[*]`` and
filters that compare one field with a literal, ``[?(@.type=="Ready")]``.

Called by: server/table.py, server/scale.py. Kubernetes: client-go/util/jsonpath (the used part).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

_STEP = re.compile(
    r"""\.(?P<field>[^.\[\]'"()?@=*\s]+)
      | \[\s*(?P<quote>['"])(?P<quoted>(?:(?!(?P=quote)).)*)(?P=quote)\s*\]
      | \[\s*(?P<index>-?\d+)\s*\]
      | (?P<all>\[\s*\*\s*\]|\.\*)
      | \[\?\(\s*@(?P<inner>[^=!]+?)\s*(?P<operator>==|!=)\s*(?P<literal>"[^"]*"|'[^']*'|[^)\s]+)\s*\)\]""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Field:
    name: str


@dataclass(frozen=True, slots=True)
class Index:
    index: int


@dataclass(frozen=True, slots=True)
class Each:
    pass


@dataclass(frozen=True, slots=True)
class Where:
    path: tuple[Step, ...]
    literal: str
    equal: bool


Step: TypeAlias = Field | Index | Each | Where


class BadPath(ValueError):
    """The path is none, or uses a part of JSONPath that is not served."""


@lru_cache(maxsize=4096)
def parse(path: str) -> tuple[Step, ...]:
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    if not text.startswith((".", "[")):
        raise BadPath(f"{path!r} does not start with a dot")
    steps: list[Step] = []
    at = 0
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            raise BadPath(f"{path!r} is not understood from {text[at:]!r} on")
        steps.append(_step(match))
        at = match.end()
    return tuple(steps)


def find(path: str, value: Any) -> list[Any]:
    """The values at the path, none if a part of it is missing."""
    found = [value]
    for step in parse(path):
        found = [result for item in found for result in _follow(step, item)]
    return found


def first(path: str, value: Any) -> Any | None:
    return next(iter(find(path, value)), None)


def _step(match: re.Match[str]) -> Step:
    if match["field"] is not None:
        return Field(match["field"].replace("\\", ""))
    if match["quoted"] is not None:
        return Field(match["quoted"])
    if match["index"] is not None:
        return Index(int(match["index"]))
    if match["all"] is not None:
        return Each()
    literal = match["literal"]
    return Where(parse(match["inner"]), literal[1:-1] if literal[0] in "'\"" else literal, match["operator"] == "==")


def _follow(step: Step, value: Any) -> list[Any]:
    match step, value:
        case Field(name), dict():
            return [value[name]] if name in value else []
        case Index(index), list():
            return [value[index]] if -len(value) <= index < len(value) else []
        case Each(), list():
            return value
        case Each(), dict():
            return list(value.values())
        case Where(), list():
            return [item for item in value if _holds(step, item)]
        case _:
            return []


def _holds(where: Where, item: Any) -> bool:
    found = [item]
    for step in where.path:
        found = [result for one in found for result in _follow(step, one)]
    return any(_text(one) == where.literal for one in found) == where.equal


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
