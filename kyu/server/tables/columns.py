"""Constructors of the columns of built-in kinds: a name, a description, and the value of a cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeAlias

from kyu.api.meta import Json
from kyu.server.registry import Column
from kyu.server.tables.words import age

# (object, now) -> the value of the cell.
Cell: TypeAlias = Callable[[Json, datetime], Any]


@dataclass(frozen=True, slots=True)
class BuiltInColumn:
    column: Column
    cell: Cell


def timed(name: str, description: str, cell: Cell) -> BuiltInColumn:
    """Make a column with cells that depend on the time."""
    return BuiltInColumn(Column(name, "string", "", description), cell)


def column(name: str, description: str, cell: Callable[[Json], Any], *, kind: str = "string") -> BuiltInColumn:
    return BuiltInColumn(Column(name, kind, "", description), lambda obj, now: cell(obj))


def field(name: str, description: str, path: str, absent: Any = "", *, kind: str = "string") -> BuiltInColumn:
    """Make a column that shows the value at a path of the object."""
    return column(name, description, lambda obj: at(obj, path, absent), kind=kind)


def number(name: str, description: str, path: str, *, kind: str = "integer") -> BuiltInColumn:
    return field(name, description, path, 0, kind=kind)


def wide(made: BuiltInColumn) -> BuiltInColumn:
    """Return the same column, shown with ``-o wide`` only."""
    return replace(made, column=replace(made.column, priority=1))


def at(obj: Json, path: str, absent: Any = "") -> Any:
    """Return the value at a dotted path; an empty value counts as absent."""
    found: Any = obj
    for name in path.split("."):
        found = (found or {}).get(name)
    return found or absent


NAME: Final = BuiltInColumn(
    Column("Name", "string", "", "The name: unique in its namespace, or in the cluster.", format="name"),
    lambda obj, now: obj["metadata"]["name"],
)
AGE: Final = timed(
    "Age", "The time since the object was created.", lambda obj, now: age(obj["metadata"].get("creationTimestamp"), now)
)
CREATED: Final = field("Created At", "When it was created.", "metadata.creationTimestamp", kind="date")
