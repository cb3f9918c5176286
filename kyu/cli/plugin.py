"""
Label a workflow's job for Kueue or YuniKorn, and see why each label is there.

    kyu plugin render --scheduler yunikorn --queueconfig queueconfig.yaml --org organization1 --user user1 -f ray.yaml
    kyu plugin list

``render`` prints the objects as they should be submitted; with --explain, what was set and why, on standard error.
An object that would be ignored, or would wait for ever, is refused with the way out.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
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
    commands.add_parser("list", help="the plugins, and what each does with every kind")
    render = commands.add_parser("render", help="print objects as they would be submitted")
    render.add_argument(
        "--scheduler", metavar="NAME", help="kueue, yunikorn or another plugin; default: --queueconfig's"
    )
    render.add_argument("--queueconfig", metavar="FILE", help="settings per type of job")
    render.add_argument("--org", required=True, help="the organisation that submits")
    render.add_argument("--project", default="", help="its project, for queue templates")
    render.add_argument("--domain", default="", help="its domain, for queue templates")
    render.add_argument("--user", default="", help="who submits")
    render.add_argument("--groups", default="", metavar="A,B", help="the groups of the user")
    render.add_argument("--type", default="", help="the type of job; default: by the kind of the object")
    render.add_argument(
        "--execution-id", metavar="ID", help="the engine's name of this run; default: the object's name"
    )
    render.add_argument("--array-size", type=int, default=1, metavar="N", help="pods like this one in the execution")
    render.add_argument(
        "--on-conflict",
        choices=("error", "keep", "replace"),
        default="error",
        help="what to do where the object has another value",
    )
    render.add_argument("-f", "--filename", required=True, metavar="OBJECT", help="a manifest, or - for standard input")
    render.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml")
    render.add_argument("--explain", action="store_true", help="say what was set and why")


def run(args: argparse.Namespace) -> int:
    return list_plugins() if args.action == "list" else render(args)


def render(args: argparse.Namespace) -> int:
    from kyu.workflows import plugin

    config = load_config(args)
    scheduler = plugin.load(config)
    results = []
    for manifest in read(args.filename):
        result = plugin.render(scheduler, task_of(args, manifest), manifest.object, args.on_conflict)
        if isinstance(result, plugin.Refused):
            where = f"{manifest.source}: {manifest.kind} {manifest.key}"
            raise BadInput("\n".join(f"{where}: {refusal}" for refusal in result.refusals))
        results.append(result)
    print_objects([result.object for result in results], args.output)
    if args.explain:
        for result in results:
            explain(result)
    return 0


def load_config(args: argparse.Namespace) -> QueueConfig:
    """The settings of the file, for the scheduler that was asked for."""
    from dataclasses import replace

    from kyu.workflows import plugin, queueconfig

    known = plugin.schedulers()
    if args.scheduler is not None and args.scheduler not in known:
        raise BadInput(f"--scheduler: there is no plugin {args.scheduler!r}; `kyu plugin list` shows them")
    if args.queueconfig is None:
        if args.scheduler is None:
            raise BadInput("say --scheduler, or give a --queueconfig that does")
        return queueconfig.QueueConfig(args.scheduler)
    try:
        config = queueconfig.parse(read_text(args.queueconfig), args.queueconfig, known)
    except queueconfig.QueueConfigError as error:
        raise BadInput(str(error)) from None
    return replace(config, scheduler=args.scheduler) if args.scheduler else config


def task_of(args: argparse.Namespace, manifest: Manifest) -> Task:
    from kyu.workflows.task import Task

    if args.array_size < 1:
        raise BadInput("--array-size must be at least 1")
    execution_id = args.execution_id or manifest.key.name
    if not execution_id:
        raise BadInput(f"{manifest.source}: the {manifest.kind} has no name, so say --execution-id")
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
    from kyu.api import codec

    try:
        manifests = codec.read(read_text(filename), filename)
    except codec.DecodeError as error:
        raise BadInput(str(error)) from None
    if not manifests:
        raise BadInput(f"{filename}: there is no object in it")
    return manifests


def read_text(filename: str) -> str:
    if filename == "-":
        return sys.stdin.read()
    try:
        return Path(filename).read_text()
    except (OSError, UnicodeError) as error:
        raise BadInput(f"{filename}: {error}") from None


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
