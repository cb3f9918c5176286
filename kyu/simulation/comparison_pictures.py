"""
Pictures of a comparison: the waits of each group before and after, and the shares over time side by side.

Called by: cli/admin/simulate_compare.py. Calls: simulation/pictures.py for the parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kyu.api import duration
from kyu.simulation import pictures
from kyu.simulation.pictures import LEFT, PLOT, WIDTH, line, text

VERDICT_COLOURS: Final = {"wins": "#009E73", "loses": "#D55E00", "same": "#666666"}
ROW: Final = 44
NAMES: Final = 130.0
ROOM: Final = PLOT - NAMES - 250.0
COLUMNS: Final = 44
STATISTICS: Final = (("mean", "mean"), ("p90", "90th percentile"))
MOST_GROUPS: Final = 12


def chosen_groups(found: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the groups to draw: teams if the load names some, else queues; then classes."""
    teams = "teams" if len(found["teams"]) > 1 else "localQueues"
    drawn = [
        (words, dict(found[name]))
        for name, words in ((teams, "team" if teams == "teams" else "LocalQueue"), ("classes", "class"))
        if len(found[name]) > 1
    ]
    return [(words, _largest(groups)) for words, groups in drawn] or [("load", {"all jobs": found["total"]})]


def _largest(groups: Mapping[str, Any]) -> dict[str, Any]:
    largest = sorted(groups, key=lambda group: -groups[group]["jobs"])[:MOST_GROUPS]
    return {group: groups[group] for group in groups if group in largest}


def terminal_plot(found: Mapping[str, Any]) -> str:
    """Return a line for each group, from its mean wait before (○) to that after (●)."""
    chosen = chosen_groups(found)
    longest = max(len(name) for _, groups in chosen for name in groups)
    return "\n\n".join(arrows_in_text(kind, groups, longest) for kind, groups in chosen)


def arrows_in_text(kind: str, groups: Mapping[str, Any], longest: int) -> str:
    """Return the lines of one kind of groups."""
    most = max(max(_waits(group, "mean")) for group in groups.values()) or 1.0
    lines = [f"Mean wait by {kind}, from ○ before to ● after (full width: {duration.short(most)})"]
    for name, group in groups.items():
        old, new = (round((COLUMNS - 1) * wait / most) for wait in _waits(group, "mean"))
        cells = [" "] * COLUMNS
        for place in range(min(old, new), max(old, new)):
            cells[place] = "━"
        cells[old], cells[new] = "○", "●"
        lines.append(f"{name:>{longest}} │{''.join(cells)}│ {change_text(group)}")
    return "\n".join(lines)


def change_text(group: Mapping[str, Any]) -> str:
    """Return the verdict on a group with the change of its mean wait."""
    change = group["meanWaitChangeSeconds"]
    if group["verdict"] == "same":
        return "same"
    return f"{group['verdict']}: {'+' if change > 0 else '-'}{duration.short(abs(change))}"


def _waits(group: Mapping[str, Any], statistic: str) -> tuple[float, float]:
    return group["before"]["waitSeconds"][statistic], group["after"]["waitSeconds"][statistic]


def svg_plot(found: Mapping[str, Any], reports: tuple[Mapping[str, Any], Mapping[str, Any]], resource: str) -> str:
    """Return an SVG picture: the waits by group above, the shares before and after below."""
    parts = [text(LEFT, 32, "Winners and losers", size=18, weight="bold")]
    bottom = 62.0
    for kind, groups in chosen_groups(found):
        parts += wait_arrows(kind, groups, bottom)
        bottom += 70 + ROW * len(groups)
    seconds = max(report["seconds"] for report in reports)
    for word, report in zip(("before", "after"), reports, strict=True):
        shares = pictures.leading(report["shares"]["resources"].get(resource, {}))
        drawn = {name: _stretched(values, report["seconds"], seconds) for name, values in shares.items()}
        parts += pictures.stacked_areas(drawn, seconds, resource, bottom, f" {word} the change")
        bottom += 300
    height = round(bottom)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="system-ui, sans-serif" role="img">'
    )
    return "\n".join([head, f'<rect width="{WIDTH}" height="{height}" fill="white"/>', *parts, "</svg>", ""])


def _stretched(values: list[float], seconds: float, longest: float) -> list[float]:
    """Return the values on the time axis of the longer simulation."""
    if not seconds or not longest:
        return values
    count = len(values)
    places = [int(index * longest / seconds) for index in range(count)]
    return [values[place] if place < count else 0.0 for place in places]


def wait_arrows(kind: str, groups: Mapping[str, Any], y: float) -> list[str]:
    """Return two arrows for each group, from the wait before to the wait after: the mean, and the 90th percentile."""
    most = max(max(_waits(group, "p90") + _waits(group, "mean")) for group in groups.values()) or 1.0
    parts = [text(LEFT, y, f"Wait by {kind}: from the open circle to the filled one", weight="bold")]
    y += 16
    left = LEFT + NAMES
    floor = y + ROW * len(groups)
    for part in range(5):
        x = left + ROOM * part / 4
        parts += [line(x, y, x, floor), text(x, floor + 16, duration.short(most * part / 4), anchor="middle")]
    for index, (name, group) in enumerate(groups.items()):
        level = y + ROW * index
        colour = VERDICT_COLOURS[group["verdict"]]
        if index % 2 == 0:
            parts.append(f'<rect x="{LEFT}" y="{level:.0f}" width="{PLOT}" height="{ROW}" fill="#000" opacity="0.03"/>')
        parts += [text(left - 14, level + 20, name, anchor="end", weight="bold"),
                  text(left - 14, level + 35, f"{group['jobs']:,} jobs", anchor="end", size=11)]  # fmt: skip
        for (statistic, words), offset in zip(STATISTICS, (14, 31), strict=True):
            old, new = (left + ROOM * wait / most for wait in _waits(group, statistic))
            at = level + offset
            parts += arrow(old, new, at, colour, thick=statistic == "mean")
            label = f"{words} {duration.short(_waits(group, statistic)[1])}"
            parts.append(text(max(old, new) + 12, at + 4, label, size=11))
        parts.append(text(WIDTH - 20, level + 26, change_text(group), anchor="end", weight="bold"))
    return parts


def arrow(old: float, new: float, y: float, colour: str, *, thick: bool) -> list[str]:
    """Return a line from an open circle to a filled one."""
    width, radius = (4, 5.0) if thick else (2, 4.0)
    opacity = "1" if thick else "0.6"
    return [
        f'<line x1="{old:.1f}" y1="{y:.1f}" x2="{new:.1f}" y2="{y:.1f}" stroke="{colour}" stroke-width="{width}" '
        f'opacity="{opacity}"/>',
        f'<circle cx="{old:.1f}" cy="{y:.1f}" r="{radius}" fill="white" stroke="{colour}" stroke-width="2"/>',
        f'<circle cx="{new:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}" opacity="{opacity}"/>',
    ]
