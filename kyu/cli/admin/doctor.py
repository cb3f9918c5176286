"""
Find faults of queues, jobs and settings before they bite: in files, or on a server.

    kyu doctor -f config/                 # for CI and pre-commit: exit code 1 if there is an error
    kyu doctor                            # the objects of the server

Each finding says what is wrong, where, why it matters, and how to mend it. Exit codes: 0 no error, 1 errors (with
--strict also warnings), 2 input that cannot be read.
"""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kyu.cli import connection, output
from kyu.cli.main import BadInput

if TYPE_CHECKING:
    from kyu.cli.connection import ServerConnection
    from kyu.doctor.world import DoctorFinding, FoundObject

CONFIGURATION_KEY = "controller_manager_config.yaml"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f", "--filename", action="append", default=[], metavar="FILE", help="files or folders, instead of a server"
    )
    connection.arguments(parser)
    parser.add_argument("--strict", action="store_true", help="exit with 1 on warnings, too")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    from kyu.doctor.examine import examine

    objects = read_files(args.filename) if args.filename else read_server(connection.connect(args))
    found = examine(objects, is_live=not args.filename, now=datetime.now(UTC))
    if args.output == "json":
        print(json.dumps({"objects": len(objects), "findings": [f._asdict() for f in found]}, indent=2))
    else:
        print("\n".join(describe(found, len(objects))))
    return int(any(finding.severity == "error" or args.strict for finding in found))


def read_files(names: list[str]) -> list[FoundObject]:
    """Return the objects of files and folders, also those of lists and ConfigMaps, and settings without a kind."""
    from kyu.api import documents
    from kyu.cli.sources import manifest_files, read_text
    from kyu.doctor.world import FoundObject

    found: list[FoundObject] = []
    for name in (path for given in names for path in manifest_files(given)):
        text = read_text(name)
        try:
            parsed = documents.parse(text)
        except documents.DocumentError as error:
            raise BadInput(f"{name}: {error}") from None
        for document in parsed:
            where = f"{name}:{document.line}"
            listed = document.value.get("items") if isinstance(document.value, dict) else None
            values = listed if isinstance(listed, list) else [document.value]
            found += [part for value in values if isinstance(value, dict) for part in unpack(FoundObject(value, where))]
    if not found:
        raise BadInput(f"{', '.join(names)}: no object")
    return found


def unpack(placed: FoundObject) -> list[FoundObject]:
    """Return an object, and the Configuration that a ConfigMap holds."""
    from kyu.api import documents
    from kyu.doctor.world import FoundObject, section

    text = section(placed.object, "data").get(CONFIGURATION_KEY)
    if placed.object.get("kind") != "ConfigMap" or not isinstance(text, str):
        return [placed]
    try:
        inner: list[Any] = [document.value for document in documents.parse(text)]
    except documents.DocumentError as error:
        raise BadInput(f"{placed.where}: {CONFIGURATION_KEY}: {error}") from None
    return [placed, *(FoundObject({"kind": "Configuration", **v}, placed.where) for v in inner if isinstance(v, dict))]


def read_server(server: ServerConnection) -> list[FoundObject]:
    """Return the objects of the server: queues, nodes, Workloads and the jobs that own them."""
    from kyu.api.core import CONFIG_MAP, Node
    from kyu.cli import server_state
    from kyu.doctor.world import FoundObject
    from kyu.kinds import table
    from kyu.kube.errors import ApiError

    objects = server_state.read_objects(server)
    kinds = [Node.KIND, CONFIG_MAP, *(job_kind.kind for job_kind in table.KINDS)]
    seen = {str(obj.get("kind")) for obj in objects}
    for kind in kinds:
        if kind.kind in seen:
            continue
        try:
            listed = server.client.list(kind)
        except ApiError:
            continue  # the server does not have this kind, or the user may not see it
        objects += [{"apiVersion": kind.api_version, "kind": kind.kind, **obj} for obj in listed]
    return [part for obj in objects for part in unpack(FoundObject(obj, "server"))]


def describe(found: list[DoctorFinding], count: int) -> list[str]:
    """Return the findings as text, four lines each, and a summary."""
    lines: list[str] = []
    for finding in found:
        mark = output.colour(finding.severity, "red" if finding.severity == "error" else "yellow")
        lines += [
            f"{mark} [{finding.code}] {finding.object}: {finding.what}",
            f"  where: {finding.where}",
            f"  why:   {finding.why}",
            f"  mend:  {finding.remedy}",
        ]
    errors = sum(finding.severity == "error" for finding in found)
    words = f"{errors} errors, {len(found) - errors} warnings" if found else "no findings"
    return [*lines, *([""] if lines else []), f"{count} objects: {words}"]
