"""The page Jobs: all jobs that the visitor may see, with filters and pages."""

from __future__ import annotations

from collections.abc import Mapping

from kyu.cli.batch import jobs, preemptions
from kyu.cli.connection import ServerConnection
from kyu.cli.web.html import Child, Markup, table, tag
from kyu.cli.web.pages.layout import JOB_HEADER, job_cells, with_query
from kyu.cli.web.pages.now import workloads

PAGE = 100
STATES = ("unfinished", "all", "Running", "Queued", "Succeeded", "Failed")


def all_jobs(server: ServerConnection, query: Mapping[str, str]) -> list[Child]:
    """Return the page for a query: a state, a text to search for, and the number of the page."""
    found = workloads(server)
    state, words = query.get("state", STATES[0]), query.get("q", "").strip().lower()
    rows = [row for row in map(jobs.row_of_workload, found) if matches(row, state, words)]
    rows.sort(key=lambda row: row.created, reverse=True)
    number = read_number(query.get("page", ""))
    first = min((number - 1) * PAGE, max(0, (len(rows) - 1) // PAGE * PAGE))
    shown = preemptions.with_preemptors(server, found, rows[first : first + PAGE])
    if shown:
        listed: Child = table(JOB_HEADER, [job_cells(row) for row in shown], label="Jobs")
    else:
        listed = tag("p", "No job matches. Choose another state, or search for less.", class_="empty")
    pages = links(query, first, len(rows))
    return [tag("h1", "Jobs"), search_form(state, query.get("q", "")), tag("p", f"{len(rows)} jobs"), listed, pages]


def matches(row: jobs.JobRow, state: str, words: str) -> bool:
    if state == "unfinished" and row.state.word in jobs.ENDED:
        return False
    if state not in ("unfinished", "all") and row.state.word != state:
        return False
    text = f"{row.name} {row.obj['metadata']['namespace']} {row.queue} {row.kind} {row.state.why}".lower()
    return all(word in text for word in words.split())


def read_number(text: str) -> int:
    """Parse the number of a page; anything else is the first."""
    return max(1, int(text)) if text.isdecimal() and len(text) < 7 else 1


def search_form(state: str, words: str) -> Markup:
    options = [tag("option", each, value=each, selected=each == state) for each in STATES]
    return tag(
        "form",
        tag("label", "State ", tag("select", options, name="state")),
        tag("label", "Search ", tag("input", type="search", name="q", value=words, placeholder="name, queue, reason")),
        tag("button", "Show"),
        method="get",
        action="/jobs",
        class_="filters",
    )


def links(query: Mapping[str, str], first: int, count: int) -> Child:
    if count <= PAGE:
        return None
    number = first // PAGE + 1
    kept = {name: query.get(name, "") for name in ("state", "q")}
    before = with_query("/jobs", {**kept, "page": str(number - 1)})
    after = with_query("/jobs", {**kept, "page": str(number + 1)})
    return tag(
        "nav",
        tag("a", "newer", href=before) if number > 1 else None,
        tag("span", f"page {number} of {(count - 1) // PAGE + 1}"),
        tag("a", "older", href=after) if first + PAGE < count else None,
        aria_label="Pages of jobs",
        class_="pages",
    )
