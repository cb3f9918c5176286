"""Start a Workflow from a file, and wait for it."""

from __future__ import annotations

import argparse
import os
import time
from functools import partial

from kyu.api import codec
from kyu.api.codec import Manifest
from kyu.api.meta import Json, key_of
from kyu.api.workflows import ENDED, Workflow
from kyu.cli import output, sources
from kyu.cli.batch.reconnect import Reconnecting
from kyu.cli.connection import ServerConnection
from kyu.cli.main import BadInput, Failed
from kyu.kinds import fields
from kyu.kube.errors import AlreadyExists
from kyu.plans.workflows import objects, validate

OVER = ("Succeeded", "Failed", "Cancelled")
PAUSE_SECONDS = 0.5


def run(server: ServerConnection, args: argparse.Namespace) -> int:
    body = prepare(server, read(args.name), args)
    try:
        created = server.client.create(Workflow.KIND, body)
    except AlreadyExists:
        name = body["metadata"]["name"]
        raise Failed(
            f"Workflow {name} exists already; delete it with `kyu delete workflow {name}`, or give a --name"
        ) from None
    print(f"workflow.kyu.dev/{created['metadata']['name']}")
    output.note(f"started on {server.description}")
    return wait(server, created, args.timeout) if args.wait else 0


def read(file: str) -> Manifest:
    """Return the only Workflow of a file, or raise BadInput."""
    found = [one for one in sources.read_manifests(file) if one.kind == Workflow.KIND.kind]
    if len(found) != 1:
        raise BadInput(f"{file}: has {len(found)} Workflows, and must have one; `kyu apply -f` takes several objects")
    if found[0].api_version != Workflow.KIND.api_version:
        raise BadInput(f"{file}: apiVersion {found[0].api_version}: must be {Workflow.KIND.api_version}")
    return found[0]


def prepare(server: ServerConnection, manifest: Manifest, args: argparse.Namespace) -> Json:
    """Return the Workflow with its namespace, queue and folder. Raise BadInput with all errors."""
    given = manifest.object
    meta = {**(given.get("metadata") or {}), "namespace": server.namespace}
    if args.new_name:
        meta = {name: value for name, value in meta.items() if name != "generateName"} | {"name": args.new_name}
    if not meta.get("name") and not meta.get("generateName"):
        raise BadInput(f"{manifest.source}: metadata.name: give the Workflow a name, or use --name")
    spec = dict(given.get("spec") or {})
    try:
        decoded = codec.decode_as(Workflow, {"metadata": meta, "spec": spec})
    except codec.DecodeError as error:
        raise BadInput(str(manifest.fault(error.detail, error.field))) from None
    if args.queue or not all(objects.queue_of(decoded.spec, step) for step in decoded.spec.steps):
        spec["queue"] = server.find_queue(args.queue)
    if not spec.get("workingDir") and not spec.get("image"):
        # Commands without an image run on the machine of the server, which is this one.
        spec["workingDir"] = os.getcwd()
    body = {**given, "metadata": meta, "spec": spec}
    if faults := validate.find_errors(codec.decode_as(Workflow, body)):
        raise BadInput("\n".join(str(manifest.fault(one.message, one.field)) for one in faults))
    return body


def wait(server: ServerConnection, workflow: Json, timeout: float | None) -> int:
    """Report each step that ends; return 0 if the Workflow succeeds, else 1."""
    deadline = None if timeout is None else time.monotonic() + timeout
    name = workflow["metadata"]["name"]
    requests = Reconnecting(output.note, deadline)
    wanted = fields.int_at(workflow, ("spec", "retry"))
    told: set[tuple[str, str, int]] = set()
    while True:
        found = requests.ask(partial(server.client.find, Workflow.KIND, key_of(workflow)))
        if found is None or found["metadata"]["uid"] != workflow["metadata"]["uid"]:
            raise Failed(f"Workflow {name} was deleted")
        status = fields.json_at(found, ("status",))
        for entry in fields.list_at(status, ("steps",)):
            mark = (entry["name"], entry["state"], entry.get("attempt", 1))
            if entry["state"] in ENDED and mark not in told:
                told.add(mark)
                output.note(line(entry))
        if status.get("state") in OVER and fields.int_at(status, ("retry",)) >= wanted:
            output.note(f"{name}: {status['state'].lower()}, {status.get('progress')} steps are over")
            return 0 if status["state"] == "Succeeded" else 1
        if deadline is not None and time.monotonic() >= deadline:
            raise Failed(f"{name} has not finished yet")
        time.sleep(PAUSE_SECONDS)


def line(entry: Json) -> str:
    why = entry.get("message") if entry["state"] != "Succeeded" else entry.get("output")
    return f"{entry['name']}: {entry['state'].lower()}{': ' + why if why else ''}"
