"""
Run workflows: steps that wait for each other, each a job of its own in a queue.

    kyu workflow run simulate.yaml --wait     start a Workflow and wait for it
    kyu workflow list
    kyu workflow status simulate              its steps: where they are, and why they wait
    kyu workflow graph simulate --watch       its graph, live
    kyu workflow graph simulate -o svg > simulate.svg
    kyu workflow suspend simulate             start no further steps
    kyu workflow resume simulate
    kyu workflow cancel simulate              stop all steps
    kyu workflow retry simulate               run failed steps again, and all that waited for them

`kyu logs` prints the output of a step; its job is in the column OBJECT of `kyu workflow status`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial

from kyu.api import codec
from kyu.api.meta import Json, Key
from kyu.api.workflows import Workflow
from kyu.cli import connection, output
from kyu.cli.batch.reconnect import Reconnecting
from kyu.cli.batch.top import CLEAR_AND_HOME
from kyu.cli.connection import ServerConnection
from kyu.cli.main import BadInput, Failed
from kyu.cli.workflows import drawing
from kyu.cli.workflows import run as runner
from kyu.cli.workflows.positions import read_positions
from kyu.kinds import fields
from kyu.kube.errors import NotFound
from kyu.plans.workflows import objects

ACTIONS = ("run", "list", "status", "graph", "suspend", "resume", "cancel", "retry")
FORMATS = ("table", "wide", "json", "yaml", "name", "svg")
PAUSE_SECONDS = 1.0
HEADER = ("STEP", "STATE", "ATTEMPT", "OBJECT", "TIME", "REASON")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help="the Workflow; run: a file, or - for input")
    parser.add_argument("-q", "--queue", default="", help="run: LocalQueue of steps that name none")
    parser.add_argument("--name", dest="new_name", default="", metavar="NAME", help="run: name of the Workflow")
    parser.add_argument("--wait", action="store_true", help="run and retry: wait, and return 1 if it fails")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="with --wait: give up after this time")
    parser.add_argument("-w", "--watch", action="store_true", help="graph: draw again until the Workflow is over")
    connection.arguments(parser, all_namespaces=True)
    parser.add_argument(
        "-o", "--output", choices=FORMATS, default="table", help="output format (default: table); graph: svg"
    )


def run(args: argparse.Namespace) -> int:
    if args.action == "list":
        return show_list(connection.connect(args), args)
    if not args.name:
        what = "a file" if args.action == "run" else "a Workflow; `kyu workflow list` shows them"
        raise BadInput(f"kyu workflow {args.action}: name {what}")
    if args.output == "svg" and args.action != "graph":
        raise BadInput("-o svg goes with `kyu workflow graph`")
    server = connection.connect(args)
    match args.action:
        case "run":
            return runner.run(server, args)
        case "status":
            return show_status(server, args)
        case "graph":
            return show_graph(server, args)
        case "suspend" | "resume":
            change(server, args.name, {"suspend": args.action == "suspend"})
        case "cancel":
            change(server, args.name, {"cancel": True})
        case _:
            return retry(server, args)
    output.note(f"{PAST[args.action]} {args.name} on {server.description}")
    return 0


PAST = {"suspend": "suspended", "resume": "resumed", "cancel": "cancelled", "retry": "retried"}


def find(server: ServerConnection, name: str) -> Json:
    """Return a Workflow, or raise BadInput with the names of those that exist."""
    with server.explain_forbidden(Workflow.KIND, server.namespace):
        try:
            return server.client.get(Workflow.KIND, Key(server.namespace, name.rpartition("/")[2]))
        except NotFound:
            names = sorted(str(one["metadata"]["name"]) for one in server.listed(Workflow.KIND, server.namespace))
    raise BadInput(f"namespace {server.namespace} has no Workflow {name!r}; there are: {output.short_list(names)}")


def change(server: ServerConnection, name: str, spec: Json) -> Json:
    found = find(server, name)
    return server.client.patch(Workflow.KIND, Key(server.namespace, found["metadata"]["name"]), {"spec": spec})


def retry(server: ServerConnection, args: argparse.Namespace) -> int:
    """Run the failed steps of a Workflow that is over again."""
    found = find(server, args.name)
    state = fields.text_at(found, ("status", "state"))
    if state not in ("Failed", "Cancelled"):
        raise Failed(f"{args.name} is {state.lower() or 'new'}; only a failed or cancelled Workflow is retried")
    number = fields.int_at(found, ("status", "retry")) + 1
    changed = change(server, args.name, {"retry": number, "cancel": False})
    output.note(f"retried {args.name} on {server.description}")
    return runner.wait(server, changed, args.timeout) if args.wait else 0


def show_list(server: ServerConnection, args: argparse.Namespace) -> int:
    items = list(server.listed(Workflow.KIND, None if args.all_namespaces else server.namespace))
    if args.output in ("json", "yaml", "name"):
        print(output.objects([typed(item) for item in items], args.output, is_list=True))
        return 0
    if not items:
        output.note("no workflows; start one with `kyu workflow run FILE`")
        return 0
    rows = []
    for item in items:
        status = fields.json_at(item, ("status",))
        row = [
            item["metadata"]["name"],
            status.get("state", "Waiting"),
            status.get("progress"),
            fields.int_at(status, ("counts", "failed")),
            output.age(item["metadata"].get("creationTimestamp")),
        ]
        rows.append([item["metadata"]["namespace"], *row] if args.all_namespaces else row)
    header = ["WORKFLOW", "STATE", "STEPS", "FAILED", "AGE"]
    print(output.table(["NAMESPACE", *header] if args.all_namespaces else header, rows, output.terminal_room()))
    return 0


def typed(item: Json) -> Json:
    return {"apiVersion": Workflow.KIND.api_version, "kind": Workflow.KIND.kind, **item}


def show_status(server: ServerConnection, args: argparse.Namespace) -> int:
    found = find(server, args.name)
    if args.output in ("json", "yaml", "name"):
        print(output.objects([typed(found)], args.output, is_list=False))
        return 0
    status = fields.json_at(found, ("status",))
    print(f"{found['metadata']['name']}: {headline(status)}")
    entries = fields.list_at(status, ("steps",))
    if entries:
        room = None if args.output == "wide" else output.terminal_room()
        positions = positions_of(server, found, entries)
        print(output.table(HEADER, [row(entry, positions) for entry in entries], room))
    return 0


def positions_of(server: ServerConnection, workflow: Json, entries: Sequence[Json]) -> Mapping[str, int]:
    """Return the positions of the objects of queued steps, by their names."""
    if not any(entry["state"] in ("Queued", "Preempted") for entry in entries):
        return {}
    spec = codec.decode_as(Workflow, workflow).spec
    return read_positions(server, (objects.queue_of(spec, step) for step in spec.steps))


def show_graph(server: ServerConnection, args: argparse.Namespace) -> int:
    """Draw the graph once, or again and again until the Workflow is over."""
    requests = Reconnecting(output.note)
    while True:
        found = requests.ask(partial(find, server, args.name))
        status = fields.json_at(found, ("status",))
        steps, name = codec.decode_as(Workflow, found).spec.steps, str(found["metadata"]["name"])
        if args.output == "svg":
            print(drawing.svg(name, steps, status))
            return 0
        width = output.terminal_room()
        lines = [f"{name}: {headline(status)}", *drawing.tree_lines(steps, status)]
        picture = "\n".join(line if width is None else output.clipped(line, width) for line in lines)
        is_live = args.watch and sys.stdout.isatty()
        print(f"{CLEAR_AND_HOME}{picture}" if is_live else picture)
        if not is_live or status.get("state") in runner.OVER:
            return 0
        time.sleep(PAUSE_SECONDS)


def headline(status: Json) -> str:
    """Return the state of a Workflow in one line."""
    state, progress = status.get("state") or "Waiting", status.get("progress") or "-"
    told = [
        str(one.get("message"))
        for one in fields.list_at(status, ("conditions",))
        if one.get("type") in ("Finished", "Blocked") and one.get("status") == "True"
    ]
    return f"{state}, {progress} steps are over" + "".join(f"; {text}" for text in told if text)


def row(entry: Json, positions: Mapping[str, int]) -> Sequence[object]:
    since = entry.get("finishedAt") or entry.get("admittedAt")
    why = ": ".join(text for text in (entry.get("reason"), entry.get("message")) if text)
    if entry["state"] in ("Queued", "Preempted") and (position := positions.get(entry.get("object", ""))):
        why = f"position {position}; {why}"
    if entry["state"] == "Succeeded":
        why = str(entry.get("output") or "")
    return (entry["name"], entry["state"], entry.get("attempt", 1), entry.get("object"), output.age(since), why)
