"""The page Usage: what teams, users or queues have used, from the ledger of the server."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from kyu.api.accounting import ATTEMPT, JobAttempt
from kyu.cli import ledger
from kyu.cli.accounts import attempts, usage
from kyu.cli.accounts.history import safe_cell
from kyu.cli.connection import ServerConnection
from kyu.cli.main import BadInput, Failed
from kyu.cli.web.html import Child, Markup, table, tag
from kyu.cli.web.pages.layout import bar, with_query
from kyu.kube.errors import Forbidden

TIMES = {"24h": "last day", "7d": "last 7 days", "30d": "last 30 days", "all": "all"}
HEADER = [
    "Jobs",
    "Attempts",
    "CPU hours",
    "CPU hours used",
    "GiB hours",
    "GPU hours",
    "CPU hours wasted",
    "Hours waited",
]
DRAWN = 12


def used(server: ServerConnection, query: Mapping[str, str]) -> list[Child]:
    """Return the page: a picture of CPU hours, and a table with all sums."""
    by, since = chosen(query)
    title = tag("h1", "Usage")
    try:
        totals = usage.sum_up(ended(server, since), usage.GROUPS[by], None)
    except (BadInput, Failed):
        hint = "This server keeps no ledger. A server of kyu up does; on a cluster, look at the metrics."
        return [title, tag("p", hint, class_="empty")]
    form = choice(by, since)
    if not totals:
        return [title, form, tag("p", "No job ended in this time. Choose a longer one.", class_="empty")]
    rows = [[name, *map(str, total.cells(costs=False))] for name, total in sorted(totals.items())]
    download = tag("a", "Download as CSV", href=with_query("/usage.csv", {"by": by, "since": since}))
    shown = table([by, *HEADER], rows, label="Usage")
    return [title, form, picture(totals), shown, tag("p", download)]


def as_csv(server: ServerConnection, query: Mapping[str, str]) -> str:
    """Return the table for a spreadsheet."""
    by, since = chosen(query)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([word.lower().replace(" ", "_") for word in (by, *HEADER)])
    totals = usage.sum_up(ended(server, since), usage.GROUPS[by], None)
    writer.writerows(
        [safe_cell(cell) for cell in (name, *total.cells(costs=False))] for name, total in sorted(totals.items())
    )
    return text.getvalue()


def chosen(query: Mapping[str, str]) -> tuple[str, str]:
    """Return what to sum up by, and since when; words that are no choice give the first one."""
    by, since = query.get("by", ""), query.get("since", "")
    return by if by in usage.GROUPS else "team", since if since in TIMES else "7d"


def ended(server: ServerConnection, since: str) -> Sequence[JobAttempt]:
    """Return the attempts that ended since then, of all namespaces or of the visitor's own one."""
    start = attempts.moment("since", since, datetime.now(UTC))
    asked = {"since": start} if start else {}
    try:
        server.client.raw(f"/apis/{ATTEMPT.group}/{ATTEMPT.version}/{ATTEMPT.plural}", {**asked, "limit": "1"})
    except Forbidden:
        return ledger.pages(server, server.namespace, asked)
    return ledger.pages(server, None, asked)


def picture(totals: Mapping[str, usage.Total]) -> Markup:
    """Return bars of CPU hours, the largest first. The second colour was wasted by preemptions and failures."""
    largest = sorted(totals.items(), key=lambda item: -item[1].cpu_hours)[:DRAWN]
    whole = max((total.cpu_hours for _, total in largest), default=0.0)
    bars = [hours_bar(name, total, whole) for name, total in largest]
    return tag("section", tag("h2", "CPU hours"), bars, class_="card")


def hours_bar(name: str, total: usage.Total, whole: float) -> Markup:
    scale = 1000 / whole if whole else 0.0
    shown = f"{total.cpu_hours:.3g} h" + (f", {total.wasted_cpu_hours:.3g} h wasted" if total.wasted_cpu_hours else "")
    good = total.cpu_hours - total.wasted_cpu_hours
    return bar(int(total.cpu_hours * scale), int(good * scale), shown, name, whole=1000)


def choice(by: str, since: str) -> Markup:
    groups = [tag("option", each, value=each, selected=each == by) for each in usage.GROUPS]
    times = [tag("option", word, value=each, selected=each == since) for each, word in TIMES.items()]
    return tag(
        "form",
        tag("label", "By ", tag("select", groups, name="by")),
        tag("label", "Ended in the ", tag("select", times, name="since")),
        tag("button", "Show"),
        method="get",
        action="/usage",
        class_="filters",
    )
