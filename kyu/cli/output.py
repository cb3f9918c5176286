"""
The output of commands: tables, ages, and objects as JSON, YAML or names.

All tables look the same: numbers to the right, empty cells as `-`, no borders. Only terminals get colours. `-o json`
and `-o yaml` print the objects of the server, so scripts need not parse tables.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal

from kyu.api import documents, duration
from kyu.api.meta import Json

Colour = Literal["red", "green", "yellow", "blue", "dim", "bold"]
GAP = "   "
SHORTEST_REASON = 16
CODES: dict[Colour, str] = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "dim": "2", "bold": "1"}


def add_format(parser: argparse.ArgumentParser, *, wide: bool = True) -> None:
    choices = ["table", "json", "yaml", "name"] + (["wide"] if wide else [])
    parser.add_argument("-o", "--output", choices=choices, default="table", help="output format (default: table)")


def table(header: Sequence[str], rows: Iterable[Sequence[object]], room: int | None = None) -> str:
    """Return a table whose columns are as wide as their longest cell, or cut to the given width."""
    cells = [["-" if cell in (None, "") else str(cell) for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(header), *cells]) for i in range(len(header))]
    if room is not None:
        narrow(widths, header, room - len(GAP) * (len(header) - 1))
    numeric = [is_numeric([row[i] for row in cells]) for i in range(len(header))]
    lines = []
    for line in [list(header), *cells]:
        padded = [
            cut(cell, width).rjust(width) if right else cut(cell, width).ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        lines.append(GAP.join(padded).rstrip())
    return "\n".join(lines)


def terminal_room() -> int | None:
    """Return the width of the terminal, or None if the output is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def narrow(widths: list[int], header: Sequence[str], room: int) -> None:
    """Narrow the last column first (a reason in most tables), then the widest. No heading is cut."""
    last = len(widths) - 1
    least = max(SHORTEST_REASON, len(header[last]))
    widths[last] = min(widths[last], max(least, room - sum(widths[:last])))
    while sum(widths) > room:
        wide = [i for i, width in enumerate(widths) if width > len(header[i])]
        if not wide:
            return
        widths[max(wide, key=lambda i: widths[i])] -= 1


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def is_numeric(column: Sequence[str]) -> bool:
    return all(is_number(cell) for cell in column) and any(cell != "-" for cell in column)


def is_number(text: str) -> bool:
    return text == "-" or text.replace(".", "", 1).isdigit()


def objects(items: Sequence[Json], form: str, *, is_list: bool) -> str:
    """Render objects for programs. A list of one object is still a List, as with kubectl."""
    if form == "name":
        return "\n".join(full_name(item) for item in items)
    body = {"apiVersion": "v1", "kind": "List", "items": list(items)} if is_list else items[0]
    return json.dumps(body, indent=2) if form == "json" else documents.render([body]).rstrip()


def full_name(item: Json) -> str:
    """Return `job.batch/name`, which every command accepts as an argument."""
    group = str(item.get("apiVersion", "")).rpartition("/")[0]
    kind = str(item.get("kind", "")).lower()
    return f"{kind}.{group}/{item['metadata']['name']}" if group else f"{kind}/{item['metadata']['name']}"


def age(since: str | None, now: datetime | None = None) -> str:
    """Return the age in at most two units: 45s, 3m20s, 5h, 12d."""
    if not since:
        return "-"
    moment = datetime.fromisoformat(since.replace("Z", "+00:00"))
    return duration.short(((now or datetime.now(UTC)) - moment).total_seconds())


def colour(text: str, name: Colour) -> str:
    return f"\033[{CODES[name]}m{text}\033[0m" if sys.stdout.isatty() else text


def clipped(line: str, width: int) -> str:
    """Cut a line to the width. A line that is cut loses its colours."""
    plain = re.sub(r"\033\[\d+m", "", line)
    return line if len(plain) <= width else cut(plain, width)


def bar(share: float, width: int = 20) -> str:
    """Draw a share of one as ██████░░░░. More than one is drawn as full, with a mark."""
    filled = max(0, min(width, round(share * width)))
    return "█" * filled + "░" * (width - filled) + ("▸" if share > 1 else " ")


def short_list(names: Sequence[str], most: int = 12) -> str:
    """Join the names, at most ``most`` of them."""
    return (", ".join(names[:most]) or "none") + (" …" if len(names) > most else "")


def note(text: str) -> None:
    """Print a message to standard error, so that standard output holds the answer only."""
    print(text, file=sys.stderr)
