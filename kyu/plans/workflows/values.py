"""
Values in the texts of a step: ``$(item)``, ``$(index)``, ``$(workflow.name)``, ``$(steps.NAME.output)``.

An output that is a JSON object has members: ``$(steps.NAME.output.KEY)``. A step that is repeated for a list has a list
of outputs: ``$(steps.NAME.outputs)``. ``$$(`` is a literal ``$(``. All other parentheses belong to the shell.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kyu.api.workflows import WorkflowStep

REFERENCE = re.compile(r"(\$?)\$\(((?:item|index|workflow|steps)(?:\.[^()\s]*)?)\)")
FORMS = "$(item), $(item.KEY), $(index), $(workflow.name), $(steps.NAME.output), $(steps.NAME.output.KEY) or "
FORMS += "$(steps.NAME.outputs)"


class NoValue(ValueError):
    """A value that a text refers to does not exist."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A parsed reference. ``step`` and ``key`` may be empty; ``all`` means the outputs of all items."""

    source: str
    step: str = ""
    key: str = ""
    all: bool = False


@dataclass(frozen=True, slots=True)
class Values:
    """The values of one step or item. ``outputs`` has the outputs of each earlier step, one per item."""

    workflow: str
    item: str | None = None
    index: int | None = None
    outputs: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def find(self, reference: Reference) -> str:
        """Return the value, or raise NoValue."""
        match reference.source:
            case "workflow":
                return self.workflow
            case "index" if self.index is not None:
                return str(self.index)
            case "item" if self.item is not None:
                return member(self.item, reference.key, "the item")
            case "steps":
                outputs = self.outputs.get(reference.step, ())
                if reference.all:
                    return json.dumps([as_json(output) for output in outputs])
                return member(outputs[0] if outputs else "", reference.key, f"the output of step {reference.step}")
        raise NoValue(f"there is no {reference.source} here")

    def fill(self, text: str) -> str:
        """Return the text with its values, or raise NoValue."""

        def replace(match: re.Match[str]) -> str:
            return match[0][1:] if match[1] else self.find(parse(match[2]))

        return REFERENCE.sub(replace, text)

    def fill_all(self, value: Any) -> Any:
        """Return a JSON value with the values in all of its texts, but not in the names of members."""
        return mapped(value, self.fill)


def mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value) if "$(" in value else value
    if isinstance(value, dict):
        return {name: mapped(item, change) for name, item in value.items()}
    return [mapped(item, change) for item in value] if isinstance(value, list) else value


def member(text: str, key: str, what: str) -> str:
    """Return the text, or one member of the JSON object in it."""
    if not key:
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise NoValue(f"{what} is no JSON object, so it has no member {key}") from None
    if not isinstance(value, dict) or key not in value:
        raise NoValue(f"{what} has no member {key}")
    return value[key] if isinstance(value[key], str) else json.dumps(value[key])


def as_json(text: str) -> Any:
    """Return the JSON value of a text, or the text itself if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def items_of(text: str) -> list[str]:
    """Return the items of a JSON list, or raise NoValue."""
    value = as_json(text)
    if not isinstance(value, list):
        raise NoValue('the output is no JSON list, such as ["a", "b"]')
    return [item if isinstance(item, str) else json.dumps(item) for item in value]


def parse(text: str) -> Reference:
    """Parse the inner part of a reference, or raise NoValue."""
    source, _, rest = text.partition(".")
    if (source, rest) == ("workflow", "name") or (source in ("item", "index") and not rest):
        return Reference(source)
    if source == "item":
        return Reference(source, key=rest)
    if source == "steps":
        step, _, what = rest.partition(".")
        kind, _, key = what.partition(".")
        if step and kind == "output":
            return Reference(source, step, key)
        if step and what == "outputs":
            return Reference(source, step, all=True)
    raise NoValue(f"$({text}) is not known; write {FORMS}")


def references(value: Any) -> Iterator[Reference]:
    """Yield the references in all texts of a JSON value; raise NoValue at one that is not known."""
    if isinstance(value, str):
        for match in REFERENCE.finditer(value) if "$(" in value else ():
            if not match[1]:
                yield parse(match[2])
    elif isinstance(value, dict):
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from references(item)


def texts(step: WorkflowStep) -> list[tuple[str, Any]]:
    """Return the fields of a step that may hold references, with their names."""
    return [
        ("command", step.command),
        ("env", step.env),
        ("workingDir", step.working_dir),
        ("template", step.template),
    ]
