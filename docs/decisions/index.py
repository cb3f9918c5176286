"""Print the index of the decisions, `docs/decisions/README.md`. Called by: `make update`, tests/test_docs.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
LEAD = """# Decisions

One page per decision that a change could reverse by accident: its context, the decision, and the rejected
alternatives. Figures are in [benchmarks](../benchmarks.md), history is in git. `make update` writes this index.

A new decision gets the next number. A decision that no longer holds stays, with the status "superseded by" and a link
to its successor.
"""
PAGE = re.compile(r"# (\d+)\. (.+)\n\n\*\*Status:\*\* (.+)\. \*\*Area:\*\* (.+)\.\n\n\*\*Context\.\*\* ")


class Decision(NamedTuple):
    """The head of a page."""

    number: int
    title: str
    status: str
    area: str
    file: str


def read(path: Path) -> Decision:
    """Parse the head of a page; reject one without number, status, area or context."""
    head = PAGE.match(path.read_text())
    if head is None or int(head[1]) != int(path.name[:4]):
        raise ValueError(f"{path.name} does not begin as 0001 does: '# NUMBER. TITLE', status and area, context")
    return Decision(int(head[1]), head[2], head[3], head[4], path.name)


def lines(decisions: list[Decision]) -> Iterator[str]:
    for area in dict.fromkeys(decision.area for decision in decisions):
        yield from ("", f"## {area[:1].upper()}{area[1:]}", "", "| | decision | status |", "| --- | --- | --- |")
        for number, title, status, _, file in (decision for decision in decisions if decision.area == area):
            yield f"| {number} | [{title}]({file}) | {status} |"


def page() -> str:
    """Return the index."""
    return LEAD + "\n".join(lines([read(path) for path in sorted(FOLDER.glob("[0-9]*.md"))])) + "\n"


if __name__ == "__main__":
    print(page(), end="")
