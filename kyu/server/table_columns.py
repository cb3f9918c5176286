"""
How a column of a built-in kind is made: a name, a description, and what stands in its cells.

Called by: server/table_builtin.py, which has the columns of each kind, and server/table.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeAlias

from kyu.api.meta import Json
from kyu.server.registry import Column
from kyu.server.table_words import age

# What stands in a cell for an object at a time.
Cell: TypeAlias = Callable[[Json, datetime], Any]


@dataclass(frozen=True, slots=True)
class BuiltInColumn:
    column: Column
    cell: Cell


def timed(name: str, description: str, cell: Cell) -> BuiltInColumn:
    """A column whose cells depend on the time."""
    return BuiltInColumn(Column(name, "string", "", description), cell)


def column(name: str, description: str, cell: Callable[[Json], Any], *, kind: str = "string") -> BuiltInColumn:
    return BuiltInColumn(Column(name, kind, "", description), lambda obj, now: cell(obj))


def field(name: str, description: str, path: str, absent: Any = "", *, kind: str = "string") -> BuiltInColumn:
    """A column that shows what stands at a path of the object."""
    return column(name, description, lambda obj: at(obj, path, absent), kind=kind)


def number(name: str, description: str, path: str, *, kind: str = "integer") -> BuiltInColumn:
    return field(name, description, path, 0, kind=kind)


def wide(made: BuiltInColumn) -> BuiltInColumn:
    """The same column, shown with ``-o wide`` only."""
    return replace(made, column=replace(made.column, priority=1))


def at(obj: Json, path: str, absent: Any = "") -> Any:
    """What stands at a dotted path; a field that is empty is absent."""
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
