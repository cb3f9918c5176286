"""
What the workloads of one queue want, as far as it depends on nothing but how much is free at the root of their tree.

Called by: fronts.py, which makes them; tree.py keeps one with each queue.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from kyu.engine.quota import Cell

Rank: TypeAlias = tuple[object, ...]


class Bid(NamedTuple):
    """What those who stand at one place of a line would take part in a turn with."""

    rank: Rank
    fits_from: int
    """How much must be free for it to fit."""
    takes: int
    """How much of what is free it takes."""


@dataclass(slots=True)
class Front:
    """What a queue wants, in order."""

    line_changes: int
    queue_changes: int
    root: Cell | None = None
    """Where what it wants has to be free; None if that is not all that counts."""
    bids: list[Bid] = field(default_factory=list)
    asked_from: list[int] = field(default_factory=list)
    """How much must be free for each of the line to be worth asking."""
    least: list[int] = field(default_factory=list)
    """The least that must be free for somebody from there on to be worth asking."""
