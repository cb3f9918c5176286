"""
Label the job of a workflow for Kueue or YuniKorn, and explain each label.

    kyu plugin render --scheduler yunikorn --queueconfig queueconfig.yaml --org organization1 --user user1 -f ray.yaml
    kyu plugin list

``render`` prints the objects to submit. With --explain it prints each setting and its reason to standard error. An
object that the scheduler would ignore or never start is rejected with a remedy.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from kyu.cli.main import BadInput

if TYPE_CHECKING:
    from kyu.api.codec import Manifest
    from kyu.api.meta import Json
    from kyu.workflows.plugin import Rendered
    from kyu.workflows.queueconfig import QueueConfig
    from kyu.workflows.task import Task


def arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    commands.add_parser("list", help="list the plugins and the kinds that they support")
    render = commands.add_parser("render", help="print the objects to submit")
    render.add_argument(
        "--scheduler", metavar="NAME", help="kueue, yunikorn or another plugin (default: from --queueconfig)"
    )
    render.add_argument("--queueconfig", metavar="FILE", help="settings per type of job")
    render.add_argument("--org", required=True, help="organization of the user")
    render.add_argument("--project", default="", help="project, for queue templates")
    render.add_argument("--domain", default="", help="domain, for queue templates")
    render.add_argument("--user", default="", help="user who submits the job")
    render.add_argument("--groups", default="", metavar="A,B", help="groups of the user")
    render.add_argument("--type", default="", help="type of job (default: by the kind of the object)")
    render.add_argument(
        "--execution-id", metavar="ID", help="name of this run in the workflow engine (default: the name of the object)"
    )
    render.add_argument(
        "--array-size", type=int, default=1, metavar="N", help="number of such pods in the execution (default: 1)"
    )
    render.add_argument(
        "--on-conflict",
        choices=("error", "keep", "replace"),
        default="error",
        help="action if the object has another value (default: error)",
    )
    render.add_argument("-f", "--filename", required=True, metavar="OBJECT", help="a manifest, or - for standard input")
    render.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml")
    render.add_argument("--explain", action="store_true", help="explain each setting")


def run(args: argparse.Namespace) -> int:
    return list_plugins() if args.action == "list" else render(args)


def render(args: argparse.Namespace) -> int:
    from kyu.workflows import plugin

    config = load_config(args)
    scheduler = plugin.load(config)
    results = []
    for manifest in read(args.filename):
        result = plugin.render(scheduler, task_of(args, manifest), manifest.object, args.on_conflict)
        if isinstance(result, plugin.NotRendered):
            where = f"{manifest.source}: {manifest.kind} {manifest.key}"
            raise BadInput("\n".join(f"{where}: {refusal}" for refusal in result.refusals))
        results.append(result)
    print_objects([result.object for result in results], args.output)
    if args.explain:
        for result in results:
            explain(result)
    return 0


def load_config(args: argparse.Namespace) -> QueueConfig:
    """Return the settings of the file, for the scheduler of --scheduler."""
    from dataclasses import replace

    from kyu.cli import sources
    from kyu.workflows import plugin, queueconfig

    known = plugin.schedulers()
    if args.scheduler is not None and args.scheduler not in known:
        raise BadInput(f"--scheduler: there is no plugin {args.scheduler!r}; `kyu plugin list` shows all plugins")
    if args.queueconfig is None:
        if args.scheduler is None:
            raise BadInput("name a scheduler with --scheduler, or in a --queueconfig")
        return queueconfig.QueueConfig(args.scheduler)
    try:
        config = queueconfig.parse(sources.read_text(args.queueconfig), args.queueconfig, known)
    except queueconfig.QueueConfigError as error:
        raise BadInput(str(error)) from None
    return replace(config, scheduler=args.scheduler) if args.scheduler else config


def task_of(args: argparse.Namespace, manifest: Manifest) -> Task:
    from kyu.workflows.task import Task

    if args.array_size < 1:
        raise BadInput("--array-size must be at least 1")
    execution_id = args.execution_id or manifest.key.name
    if not execution_id:
        raise BadInput(f"{manifest.source}: the {manifest.kind} has no name; add --execution-id")
    groups = tuple(group for group in args.groups.split(",") if group)
    return Task(
        organization=args.org,
        execution_id=execution_id,
        project=args.project,
        domain=args.domain,
        user=args.user,
        groups=groups,
        type=args.type,
        array_size=args.array_size,
    )


def read(filename: str) -> list[Manifest]:
    from kyu.cli import sources

    manifests = sources.read_manifests(filename)
    if not manifests:
        raise BadInput(f"{filename}: it contains no object")
    return manifests


def print_objects(objects: list[Json], output: str) -> None:
    from kyu.api import documents

    if output == "yaml":
        print(documents.render(objects), end="")
        return
    for obj in objects:
        print(json.dumps(obj, indent=2, ensure_ascii=False))


def explain(result: Rendered) -> None:
    for applied in result.applied:
        setting = applied.setting
        own = f" ({applied.present})" if applied.present else ""
        print(f"{applied.outcome}{own}: {setting.where} = {setting.value}  # {setting.why}", file=sys.stderr)
    for note in result.notes:
        print(f"note: {note}", file=sys.stderr)


def list_plugins() -> int:
    from kyu.cli import output
    from kyu.workflows import plugin, support

    print("plugins: " + ", ".join(plugin.schedulers()))
    print()
    rows = [(row.kind, row.type, row.kueue, row.yunikorn) for row in support.ROWS]
    print(output.table(("KIND", "TYPE", "KUEUE", "YUNIKORN TASK GROUPS"), rows))
    return 0
