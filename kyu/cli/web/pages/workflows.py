"""The pages of Workflows: all of them, and one with the graph of its steps."""

from __future__ import annotations

from urllib.parse import quote

from kyu.api import codec
from kyu.api.meta import Json
from kyu.api.workflows import Workflow
from kyu.cli import output
from kyu.cli.connection import ServerConnection
from kyu.cli.web.html import Child, Markup, table, tag
from kyu.cli.web.pages.layout import badge
from kyu.cli.workflows import drawing, workflow
from kyu.kinds import fields
from kyu.kube.errors import Forbidden, NotFound


def all_workflows(server: ServerConnection) -> list[Child]:
    """Return the page Workflows."""
    title = tag("h1", "Workflows")
    found = sorted(listed(server), key=lambda item: str(item["metadata"].get("creationTimestamp")), reverse=True)
    if not found:
        hint = tag("code", "kyu workflow run FILE")
        return [title, tag("p", "There are no workflows. ", hint, " starts one.", class_="empty")]
    header = ["Workflow", "Namespace", "State", "Steps", "Failed", "Age"]
    return [title, table(header, [cells(item) for item in found], label="Workflows")]


def listed(server: ServerConnection) -> list[Json]:
    """Return the Workflows of all namespaces, or of the own one if the visitor may not see more."""
    try:
        return list(server.client.list(Workflow.KIND))
    except Forbidden:
        return list(server.client.list(Workflow.KIND, server.namespace))
    except NotFound:
        return []  # the cluster does not have the kind


def cells(item: Json) -> list[Child]:
    meta, status = item["metadata"], fields.json_at(item, ("status",))
    link = tag("a", meta["name"], href=workflow_path(item))
    failed = fields.int_at(status, ("counts", "failed"))
    age = tag("span", output.age(meta.get("creationTimestamp")), title=meta.get("creationTimestamp"))
    return [link, meta["namespace"], badge(status.get("state") or "Waiting"), status.get("progress"), failed, age]


def workflow_path(item: Json) -> str:
    meta = item["metadata"]
    return f"/workflows/{quote(meta['namespace'], safe='')}/{quote(meta['name'], safe='')}"


def one_workflow(item: Json) -> list[Child]:
    """Return the page of a Workflow: its state, the graph, and its steps."""
    name, status = str(item["metadata"]["name"]), fields.json_at(item, ("status",))
    steps = codec.decode_as(Workflow, item).spec.steps
    # The drawing escapes all names and messages.
    graph = tag("div", Markup(drawing.svg(name, steps, status)), class_="scroll picture", tabindex=0)
    entries = fields.list_at(status, ("steps",))
    rows: list[list[Child]] = []
    for entry in entries:
        why = ": ".join(text for text in (entry.get("reason"), entry.get("message")) if text)
        started = output.age(entry.get("finishedAt") or entry.get("admittedAt"))
        rows.append([entry["name"], badge(entry["state"]), entry.get("attempt", 1), entry.get("object"), started, why])
    header = ["Step", "State", "Attempt", "Object", "Since", "Reason"]
    listed_steps = table(header, rows, label="Steps") if rows else tag("p", "No step has started.", class_="empty")
    return [
        tag("h1", name, " ", badge(status.get("state") or "Waiting")),
        tag("p", workflow.headline(status), class_="counts"),
        graph,
        tag("h2", "Steps"),
        listed_steps,
    ]
