"""
The JSONPath of CustomResourceDefinitions: printer columns, the scale subresource, selectable fields.

A path is parsed once to steps. Supported are ``.a.b``, ``['a.b']``, ``[0]``, ``[-1:]``, ``[*]`` and filters that
compare one field with a literal, ``[?(@.type=="Ready")]``. Any other path finds nothing: no column may fail a list.

Kubernetes: client-go/util/jsonpath (the used part).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

_STEP = re.compile(
    r"""\.(?P<field>[^.\[\]'"()?@=*\s]+)
      | \[\s*(?P<quote>['"])(?P<quoted>(?:(?!(?P=quote)).)*)(?P=quote)\s*\]
      | \[\s*(?P<index>-?\d{1,9})\s*\]
      | \[\s*(?P<slice>(?:-?\d{1,9})?:(?:-?\d{1,9})?(?::0*[1-9]\d{0,8})?)\s*\]
      | (?P<all>\[\s*\*\s*\]|\.\*)
      | \[\?\(\s*@(?P<inner>[^=!]+?)\s*(?P<operator>==|!=)\s*(?P<literal>"[^"]*"|'[^']*'|[^)\s]+)\s*\)\]""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class FieldStep:
    name: str


@dataclass(frozen=True, slots=True)
class IndexStep:
    index: int


@dataclass(frozen=True, slots=True)
class SliceStep:
    start: int | None
    stop: int | None
    step: int | None


@dataclass(frozen=True, slots=True)
class EachStep:
    pass


@dataclass(frozen=True, slots=True)
class FilterStep:
    path: tuple[Step, ...]
    literal: str
    equal: bool


Step: TypeAlias = FieldStep | IndexStep | SliceStep | EachStep | FilterStep


class BadPath(ValueError):
    """The path is invalid, or uses an unsupported part of JSONPath."""


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
    """Return the values at the path, none if a part of it is missing or the path cannot be read."""
    try:
        steps = parse(path)
    except BadPath:
        return []
    found = [value]
    for step in steps:
        found = [result for item in found for result in _follow(step, item)]
    return found


def first(path: str, value: Any) -> Any | None:
    return next(iter(find(path, value)), None)


def _step(match: re.Match[str]) -> Step:
    if match["field"] is not None:
        return FieldStep(match["field"].replace("\\", ""))
    if match["quoted"] is not None:
        return FieldStep(match["quoted"])
    if match["index"] is not None:
        return IndexStep(int(match["index"]))
    if match["slice"] is not None:
        parts = [int(part) if part else None for part in match["slice"].split(":")]
        return SliceStep(parts[0], parts[1], parts[2] if len(parts) > 2 else None)
    if match["all"] is not None:
        return EachStep()
    literal = match["literal"]
    return FilterStep(
        parse(match["inner"]), literal[1:-1] if literal[0] in "'\"" else literal, match["operator"] == "=="
    )


def _follow(step: Step, value: Any) -> list[Any]:
    match step, value:
        case FieldStep(name), dict():
            return [value[name]] if name in value else []
        case IndexStep(index), list():
            return [value[index]] if -len(value) <= index < len(value) else []
        case SliceStep(start, stop, stride), list():
            return value[start:stop:stride]
        case EachStep(), list():
            return value
        case EachStep(), dict():
            return list(value.values())
        case FilterStep(), list():
            return [item for item in value if _holds(step, item)]
        case _:
            return []


def _holds(filter_: FilterStep, item: Any) -> bool:
    found = [item]
    for step in filter_.path:
        found = [result for one in found for result in _follow(step, one)]
    return any(_text(one) == filter_.literal for one in found) == filter_.equal


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
