"""The page Doctor: faults of queues, jobs and settings, with their remedies, as far as the visitor may read."""

from __future__ import annotations

from datetime import UTC, datetime

from kyu.cli.admin import doctor
from kyu.cli.connection import ServerConnection
from kyu.cli.web.html import Child, Markup, tag
from kyu.doctor.examine import examine
from kyu.doctor.world import DoctorFinding
from kyu.kube.errors import Forbidden


def findings(server: ServerConnection) -> list[Child]:
    """Return the page Doctor. It needs the right to read the queues of all."""
    title = tag("h1", "Doctor")
    try:
        objects = doctor.read_server(server)
    except Forbidden as error:
        need = "The doctor compares queues, flavors and jobs of all namespaces, which you may not read. "
        return [title, tag("p", need, "An administrator may.", class_="empty"), tag("p", str(error), class_="counts")]
    found = examine(objects, is_live=True, now=datetime.now(UTC))
    errors = sum(finding.severity == "error" for finding in found)
    count = tag("p", f"{len(objects)} objects: {errors} errors, {len(found) - errors} warnings", class_="counts")
    healthy = tag("p", "Nothing is wrong with what you may read.", class_="empty")
    return [title, count, [card(finding) for finding in found] if found else healthy]


def card(finding: DoctorFinding) -> Markup:
    tone = "bad" if finding.severity == "error" else "warn"
    return tag(
        "article",
        tag("h3", tag("span", finding.severity, class_=f"badge {tone}"), " ", finding.object),
        tag("p", finding.what),
        tag("p", finding.why, class_="counts"),
        tag("p", tag("strong", "Mend: "), finding.remedy),
        class_="card finding",
    )
