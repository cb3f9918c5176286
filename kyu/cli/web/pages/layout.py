"""The frame of every page, and small parts that several pages share."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlencode

from kyu.api.meta import Json
from kyu.cli import output
from kyu.cli.batch.jobs import JobRow
from kyu.cli.web.html import Child, Markup, render, tag
from kyu.cli.web.sessions import Session

TONES = {
    "Running": "good",
    "Succeeded": "good",
    "Failed": "bad",
    "Stopped": "bad",
    "Stopping": "warn",
    "Queued": "wait",
    "Starting": "warn",
    "Reserved": "warn",
    # States of steps, clusters and pools.
    "Admitted": "warn",
    "Preempted": "wait",
    "Cancelled": "bad",
    "Ready": "good",
    "Live": "good",
    "Reporting": "good",
    "Connected": "warn",
    "Silent": "warn",
    "Stale": "warn",
    "Unreachable": "bad",
    "Lost": "bad",
}


# The entries of the navigation, in order.
LINKS = {
    "/": "Now",
    "/queues": "Queues",
    "/jobs": "Jobs",
    "/workflows": "Workflows",
    "/clusters": "Clusters",
    "/usage": "Usage",
    "/doctor": "Doctor",
}


def page(title: str, session: Session | None, *content: Child, current: str = "", is_live: bool = True) -> str:
    """Return a whole HTML document. A live page follows changes by itself."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{title} · Kyu"),
        tag("link", rel="stylesheet", href="/static/style.css"),
        tag("link", rel="icon", href="/static/icon.svg", type="image/svg+xml"),
        tag("script", src="/static/live.js", defer=True),
    )
    body = tag(
        "body",
        tag("a", "Skip to the content", href="#content", class_="unseen"),
        navigation(session, current) if session else None,
        tag("main", *content, id="content"),
        data_live="yes" if session and is_live else None,
    )
    return "<!doctype html>" + render(tag("html", head, body, lang="en"))


def navigation(session: Session, current: str) -> Markup:
    entries = [
        tag("a", word, href=path, aria_current="page" if path == current else None) for path, word in LINKS.items()
    ]
    leave = tag("form", csrf(session), tag("button", "Log out", class_="plain"), method="post", action="/logout")
    who = tag("span", session.user, class_="who")
    return tag(
        "header",
        tag("a", tag("img", src="/static/icon.svg", alt="", width=20, height=20), " Kyu", href="/", class_="brand"),
        tag("nav", entries, aria_label="Pages"),
        who,
        leave,
    )


def csrf(session: Session) -> Markup:
    return tag("input", type="hidden", name="csrf", value=session.csrf)


def badge(word: str) -> Markup:
    return tag("span", word, class_=f"badge {TONES.get(word, 'plain')}")


def job_path(workload: Json) -> str:
    meta = workload["metadata"]
    return f"/jobs/{quote(meta['namespace'], safe='')}/{quote(meta['name'], safe='')}"


def queue_path(name: str) -> str:
    return f"/queues/{quote(name, safe='')}"


def with_query(path: str, query: Mapping[str, str]) -> str:
    kept = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(kept)}" if kept else path


def job_cells(row: JobRow) -> list[Child]:
    """Return the cells of a job in a table."""
    name = tag("a", row.name, href=job_path(row.obj)) if row.is_queued else row.name
    why = " ".join(row.state.why.split())
    age = tag("span", output.age(row.created), title=row.created)
    return [name, row.obj["metadata"]["namespace"], row.kind, row.queue, badge(row.state.word), row.pods, age, why]


JOB_HEADER = ["Job", "Namespace", "Kind", "Queue", "State", "Pods", "Age", "Why"]


def bar(used: int, nominal: int, shown: str, label: str, *, whole: int = 0) -> Markup:
    """Return a usage bar. Usage above the nominal quota is borrowed, and is drawn in its own colour."""
    whole = max(used, nominal, whole, 1)
    own = min(used, nominal)
    parts = [
        tag("rect", x=0, y=0, width=f"{100 * own / whole:.1f}%", height="100%", class_="own"),
        tag("rect", x=f"{100 * own / whole:.1f}%", y=0, width=f"{100 * (used - own) / whole:.1f}%", height="100%",
            class_="borrowed") if used > own else None,
    ]  # fmt: skip
    drawn = tag("svg", parts, class_="bar", role="img", aria_label=f"{label}: {shown}")
    return tag("div", tag("span", label, class_="label"), drawn, tag("span", shown, class_="amount"), class_="usage")
