"""
Pictures of a simulation: shares over time and waits, in the terminal and as SVG.

The SVG file stands alone: no script, no font, no other file. Its upper part stacks the shares of the ClusterQueues
under a line for the whole quota. Below are the pending jobs, and the waits of each class.

Called by: cli/admin/simulate.py. Calls: nothing; it draws the values of simulation/report.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from kyu.api import duration

BLOCKS: Final = " ▁▂▃▄▅▆▇█"
COLUMNS: Final = 60
# Colours that people with colour blindness can tell apart (Okabe and Ito), then greys.
COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#666666", "#AAAAAA")
MOST_SERIES: Final = 8
OTHERS: Final = "others"
WIDTH: Final = 900
LEFT: Final = 70
RIGHT: Final = 20
PLOT: Final = WIDTH - LEFT - RIGHT
BAR: Final = 22


def main_resource(report: Mapping[str, Any]) -> str:
    """Return the resource of which most is used, which plots show."""
    used = {name: found["utilisation"] or 0.0 for name, found in report["resources"].items()}
    return max(used, key=lambda name: (used[name], name), default="")


def leading(queues: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Return the series with the largest sums, and the rest as one."""
    order = sorted(queues, key=lambda name: (-sum(queues[name]), name))
    found = {name: list(queues[name]) for name in sorted(order[:MOST_SERIES])}
    if rest := order[MOST_SERIES:]:
        found[OTHERS] = [sum(values) for values in zip(*(queues[name] for name in rest), strict=True)]
    return found


# Terminal


def sparkline(values: Sequence[float], top: float, columns: int = COLUMNS) -> str:
    """Return the values as a line of blocks, the highest block for the value ``top``."""
    each = len(values) / columns
    means = []
    for column in range(columns):
        part = values[int(column * each) : max(int(column * each) + 1, int((column + 1) * each))]
        means.append(sum(part) / len(part) if part else 0.0)
    steps = len(BLOCKS) - 1
    # A value above zero shows at least the lowest block.
    return "".join(BLOCKS[min(steps, max(1, round(steps * mean / top)))] if mean > 0 < top else " " for mean in means)


def terminal_plot(report: Mapping[str, Any], resource: str) -> str:
    """Return the shares of the ClusterQueues and the pending jobs over time."""
    shares = leading(report["shares"]["resources"].get(resource, {}))
    pending = report["shares"]["pending"]
    longest = max(map(len, [*shares, "pending"]))
    lines = [f"Share of all {resource} quota over {duration.short(report['seconds'])} (full height: the whole quota)"]
    for name, values in shares.items():
        mean = sum(values) / len(values)
        lines.append(f"{name:>{longest}} │{sparkline(values, max(1.0, *values))}│ {mean:4.0%} on average")
    most = max(pending, default=0.0)
    lines.append(f"{'pending':>{longest}} │{sparkline(pending, most)}│ {most:.0f} at most")
    return "\n".join(lines)


# SVG


def svg_plot(report: Mapping[str, Any], resource: str, title: str) -> str:
    """Return an SVG picture of the shares, the pending jobs and the waits by class."""
    shares = leading(report["shares"]["resources"].get(resource, {}))
    classes = {name: found for name, found in report["classes"].items() if found["waitSeconds"]}
    classes = classes or {"all jobs": report["total"]}
    parts, bottom = [text(LEFT, 28, title, size=18, weight="bold")], 60
    parts += stacked_areas(shares, report["seconds"], resource, bottom)
    bottom += 300
    parts += filled_line(report["shares"]["pending"], report["seconds"], bottom)
    bottom += 170
    parts += wait_bars(classes, bottom)
    height = bottom + 50 + BAR * len(classes)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="system-ui, sans-serif" role="img">'
    )
    return "\n".join([head, f'<rect width="{WIDTH}" height="{height}" fill="white"/>', *parts, "</svg>", ""])


def text(x: float, y: float, words: str, *, size: int = 12, anchor: str = "start", weight: str = "normal") -> str:
    """Return a text element."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="#222">{escape(words)}</text>'
    )


def line(x1: float, y1: float, x2: float, y2: float, colour: str = "#ccc") -> str:
    """Return a thin line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def time_axis(seconds: float, y: float) -> list[str]:
    """Return the labels of five moments below a plot."""
    return [
        text(LEFT + PLOT * part / 4, y + 16, duration.short(seconds * part / 4), anchor="middle") for part in range(5)
    ]


def points(values: Sequence[float], top: float, y: float, height: float) -> list[str]:
    """Return the corners of a curve over the width of the plot."""
    step = PLOT / max(1, len(values) - 1)
    return [f"{LEFT + step * i:.1f},{y + height - height * value / top:.1f}" for i, value in enumerate(values)]


def stacked_areas(
    shares: Mapping[str, Sequence[float]], seconds: float, resource: str, y: float, when: str = ""
) -> list[str]:
    """Return the shares of the ClusterQueues, one upon another."""
    height = 210.0
    parts = [text(LEFT, y, f"Share of all {resource} quota, by ClusterQueue{when}", weight="bold")]
    y += 12
    below = [0.0] * len(next(iter(shares.values()), ()))
    stacks: list[tuple[str, list[float], list[float]]] = []
    for name, values in shares.items():
        above = [low + value for low, value in zip(below, values, strict=True)]
        stacks.append((name, below, above))
        below = above
    top = max(1.0, *below) if below else 1.0
    for part in range(5):
        level = y + height - height * part / 4 / top
        parts += [line(LEFT, level, LEFT + PLOT, level), text(LEFT - 8, level + 4, f"{part * 25} %", anchor="end")]
    x = float(LEFT)
    for index, (name, low, high) in enumerate(stacks):
        colour = COLOURS[index % len(COLOURS)]
        corners = points(high, top, y, height) + points(low, top, y, height)[::-1]
        parts.append(f'<polygon points="{" ".join(corners)}" fill="{colour}" fill-opacity="0.85"/>')
        parts += [f'<rect x="{x:.0f}" y="{y + height + 26:.0f}" width="11" height="11" fill="{colour}"/>']
        parts.append(text(x + 16, y + height + 36, name))
        x += 34 + 7 * len(name)
    return [*parts, line(LEFT, y + height, LEFT + PLOT, y + height, "#222"), *time_axis(seconds, y + height)]


def filled_line(pending: Sequence[float], seconds: float, y: float) -> list[str]:
    """Return the number of pending jobs over time."""
    height = 90.0
    most = max(pending, default=0.0) or 1.0
    parts = [text(LEFT, y, "Pending jobs", weight="bold")]
    y += 12
    corners = [f"{LEFT},{y + height}", *points(pending, most, y, height), f"{LEFT + PLOT},{y + height}"]
    parts.append(f'<polygon points="{" ".join(corners)}" fill="#888" fill-opacity="0.6"/>')
    parts += [text(LEFT - 8, y + 8, f"{most:,.0f}", anchor="end"), text(LEFT - 8, y + height, "0", anchor="end")]
    return [*parts, line(LEFT, y + height, LEFT + PLOT, y + height, "#222"), *time_axis(seconds, y + height)]


def wait_bars(classes: Mapping[str, Mapping[str, Any]], y: float) -> list[str]:
    """Return a bar for each class: the median wait dark, the wait of nine tenths light."""
    parts = [text(LEFT, y, "Wait by class: median (dark) and 90th percentile (light)", weight="bold")]
    left, room = LEFT + 110.0, PLOT - 260.0
    most = max((found["waitSeconds"]["p90"] for found in classes.values()), default=0.0) or 1.0
    for index, (name, found) in enumerate(classes.items()):
        level, waits = y + 14 + BAR * index, found["waitSeconds"]
        parts.append(text(left - 8, level + 13, name, anchor="end"))
        for share, colour in ((waits["p90"], "#9BC4E2"), (waits["p50"], "#0072B2")):
            width = room * share / most
            parts.append(f'<rect x="{left}" y="{level:.0f}" width="{width:.1f}" height="{BAR - 6}" fill="{colour}"/>')
        label = f"{duration.short(waits['p50'])} / {duration.short(waits['p90'])}, {found['jobs']:,} jobs"
        parts.append(text(left + room * waits["p90"] / most + 8, level + 13, label))
    return parts
