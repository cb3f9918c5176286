"""
Drawings of a Workflow: a tree for the terminal, and a picture in SVG.

In the tree a step stands below the last of the steps that it waits for; the others are named beside it. A chain of
steps is not indented. In the picture a column holds the steps of one distance from the start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from kyu.api.meta import Json
from kyu.api.workflows import STEP_STATES, WorkflowStep
from kyu.cli import output
from kyu.cli.output import Colour
from kyu.kinds import fields
from kyu.plans.workflows import graph
from kyu.plans.workflows.decisions import listed

# Marks and colours by state. A step with a list has the state of its furthest item.
MARKS = {
    "Waiting": "○",
    "Queued": "◔",
    "Admitted": "◑",
    "Running": "●",
    "Preempted": "◌",
    "Succeeded": "✓",
    "Failed": "✗",
    "Skipped": "–",
}
TERMINAL_COLOURS: dict[str, Colour] = {
    "Queued": "yellow",
    "Preempted": "yellow",
    "Admitted": "blue",
    "Running": "blue",
    "Succeeded": "green",
    "Failed": "red",
    "Waiting": "dim",
    "Skipped": "dim",
}
FILLS = {
    "Waiting": "#eeeeee",
    "Queued": "#fff3c4",
    "Preempted": "#ffe0b2",
    "Admitted": "#d6e4ff",
    "Running": "#a9c8ff",
    "Succeeded": "#c8ecd0",
    "Failed": "#ffc9c9",
    "Skipped": "#f7f7f7",
}
# The state of a step with a list: the first of these that one of its items has.
FOREMOST = ("Failed", "Running", "Admitted", "Preempted", "Queued", "Waiting", "Succeeded", "Skipped")
BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, EDGE = 180, 44, 60, 16, 20
LONGEST_LABEL = 24


@dataclass(frozen=True, slots=True)
class DrawnStep:
    """A step with its state, and what is written beside it."""

    step: WorkflowStep
    state: str
    note: str


def drawn_steps(steps: Sequence[WorkflowStep], status: Json) -> dict[str, DrawnStep]:
    entries: dict[str, list[Json]] = {}
    for entry in fields.list_at(status, ("steps",)):
        entries.setdefault(entry["name"].partition("[")[0], []).append(entry)
    return {step.name: drawn(step, entries.get(step.name) or [{"state": "Waiting"}]) for step in steps}


def drawn(step: WorkflowStep, entries: Sequence[Json]) -> DrawnStep:
    counts = Counter(str(entry["state"]) for entry in entries)
    state = next(state for state in FOREMOST if counts[state])
    if len(entries) > 1:
        note = ", ".join(f"{counts[one]} {one.lower()}" for one in STEP_STATES if counts[one])
        return DrawnStep(step, state, note)
    entry = entries[0]
    attempt = entry.get("attempt", 1)
    parts = [state.lower()] + ([f"attempt {attempt}"] if attempt > 1 else [])
    why = entry.get("output") if state == "Succeeded" else entry.get("message")
    return DrawnStep(step, state, ", ".join(parts) + (f": {why}" if why else ""))


# The terminal.


def tree_lines(steps: Sequence[WorkflowStep], status: Json) -> Iterator[str]:
    """Yield the lines of the tree. A graph of 1,000 steps may be as deep, so no function calls itself."""
    drawing = drawn_steps(steps, status)
    level_by_name = {step.name: level for level, some in enumerate(graph.levels(steps)) for step in some}
    children: dict[str, list[str]] = {}
    for step in steps:
        above = [name for name in step.after if name in level_by_name]
        parent = max(above, key=lambda name: level_by_name[name], default="")
        children.setdefault(parent, []).append(step.name)
    stack = [(name, "", "") for name in reversed(children.get("", []))]
    while stack:
        name, indent, branch = stack.pop()
        yield indent + branch + step_line(drawing[name])
        inner = indent + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
        below = children.get(name, [])
        if len(below) == 1:
            # The chain goes on at the same depth, under its first step.
            stack.append((below[0], inner, ""))
            continue
        marks = ["├─ "] * (len(below) - 1) + ["└─ "] * bool(below)
        stack += [(one, inner, mark) for one, mark in reversed(list(zip(below, marks, strict=True)))]


def step_line(drawing: DrawnStep) -> str:
    others = drawing.step.after if len(drawing.step.after) > 1 else ()
    also = f"  (after {listed(others)})" if others else ""
    mark = output.colour(f"{MARKS[drawing.state]} {drawing.step.name}", TERMINAL_COLOURS[drawing.state])
    return f"{mark}  {drawing.note}{also}"


# The picture.


def svg(name: str, steps: Sequence[WorkflowStep], status: Json) -> str:
    """Return the picture of a Workflow."""
    drawing = drawn_steps(steps, status)
    columns = list(graph.levels(steps))
    tallest = max(map(len, columns), default=0)
    place_by_name = {
        step.name: place(column, row, len(some), tallest)
        for column, some in enumerate(columns)
        for row, step in enumerate(some)
    }
    width = EDGE * 2 + len(columns) * (BOX_WIDTH + GAP_X) - GAP_X
    height = EDGE * 2 + 24 + tallest * (BOX_HEIGHT + GAP_Y)
    title = escape(f"{name}: {status.get('state') or 'Waiting'}, {status.get('progress') or '0/0'}")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f"<title>{title}</title>",
        f'<text x="{EDGE}" y="{EDGE}" font-size="14" font-weight="bold">{title}</text>',
    ]
    for step in steps:
        parts += [edge(place_by_name[one], place_by_name[step.name]) for one in step.after if one in place_by_name]
    parts += [box(drawing[step.name], *place_by_name[step.name]) for step in steps if step.name in place_by_name]
    return "\n".join([*parts, "</svg>"])


def place(column: int, row: int, rows: int, tallest: int) -> tuple[float, float]:
    """Return the upper left corner of a box. Short columns are centred."""
    top = (tallest - rows) * (BOX_HEIGHT + GAP_Y) / 2
    return EDGE + column * (BOX_WIDTH + GAP_X), EDGE + 24 + top + row * (BOX_HEIGHT + GAP_Y)


def edge(start: tuple[float, float], end: tuple[float, float]) -> str:
    x1, y1 = start[0] + BOX_WIDTH, start[1] + BOX_HEIGHT / 2
    x2, y2 = end[0], end[1] + BOX_HEIGHT / 2
    middle = (x1 + x2) / 2
    curve = f"M{x1:g},{y1:g} C{middle:g},{y1:g} {middle:g},{y2:g} {x2:g},{y2:g}"
    return f'<path d="{curve}" fill="none" stroke="#888888"/>'


def box(drawing: DrawnStep, x: float, y: float) -> str:
    label = escape(output.cut(f"{MARKS[drawing.state]} {drawing.step.name}", LONGEST_LABEL))
    note = escape(output.cut(drawing.note, LONGEST_LABEL + 4))
    return (
        f"<g><title>{escape(f'{drawing.step.name}: {drawing.note}')}</title>"
        f'<rect x="{x:g}" y="{y:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6" fill="{FILLS[drawing.state]}" '
        f'stroke="#555555"/><text x="{x + 8:g}" y="{y + 18:g}" font-weight="bold">{label}</text>'
        f'<text x="{x + 8:g}" y="{y + 34:g}" font-size="10">{note}</text></g>'
    )
