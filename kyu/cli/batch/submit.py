"""
Queue a command or a batch script. It runs when its queue has enough free quota.

    kyu submit -q research --cpu 4 --memory 8Gi -- python train.py
    kyu submit -q research --array 0-98:2%10 -- ./simulate.sh   # 50 tasks, ten at a time, with KYU_TASK_ID
    kyu submit -q research --after train --name eval -- python evaluate.py
    kyu submit job.sh                                           # a script, kept as it is now

The first comments of a script may hold options: `#KYU --cpu 4 --time 2h`, or common ones of Slurm: `#SBATCH -c 4`.

The command runs in the current folder, with the PATH, VIRTUAL_ENV and CONDA_* of your shell; --export and --env add
variables. `kyu wait NAME` waits for it and returns its exit code, `kyu logs NAME` prints its output.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import NoReturn

from kyu.api.meta import Json
from kyu.cli import connection, output
from kyu.cli.batch import jobs, lookup
from kyu.cli.batch.jobs import JOB
from kyu.cli.batch.submission import environment, script, sizes
from kyu.cli.batch.submission.job import make_job
from kyu.cli.batch.submission.script import Script
from kyu.cli.connection import ServerConnection
from kyu.cli.main import BadInput, Failed
from kyu.kinds import metadata
from kyu.kinds.templates import HOST_IMAGE
from kyu.kube.errors import AlreadyExists


def arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser)
    parser.add_argument("-q", "--queue", default="", help="LocalQueue (default: `default`, or the only one)")
    parser.add_argument("--name", default="", help="name of the job (default: from the command)")
    parser.add_argument("--generate-name", default="", metavar="PREFIX", help="start of a generated name")
    parser.add_argument("--cpu", default="1", help="cores per pod; idle cores may be used as well (default: 1)")
    parser.add_argument(
        "--memory", default="", metavar="SIZE", help="memory per pod, also its limit, for example 512Mi"
    )
    parser.add_argument("--gpu", default="", metavar="N", help="GPUs per pod (nvidia.com/gpu)")
    parser.add_argument(
        "--request", action="append", default=[], metavar="RESOURCE=N", help="any other resource; repeatable"
    )
    parser.add_argument(
        "--count", type=int, default=1, help="number of pods that must run at the same time (default: 1)"
    )
    parser.add_argument(
        "--array",
        default="",
        metavar="TASKS",
        help="tasks: a number, or 0-9, 0-98:2, 1,3,7; %%5 at the end means at most five at a time",
    )
    parser.add_argument(
        "--after",
        action="append",
        default=[],
        metavar="JOB",
        help="start after JOB has succeeded; any:JOB after it has ended, notok:JOB after it has failed, "
        "singleton after earlier jobs of the same name; repeatable",
    )
    parser.add_argument(
        "--time", default="", metavar="LIMIT", help="longest run time: 15m, 2h30, 1-12:00:00; 90 is seconds"
    )
    parser.add_argument("--priority", default="", metavar="CLASS", help="WorkloadPriorityClass")
    parser.add_argument(
        "--export",
        action="append",
        default=[],
        metavar="NAMES",
        help="variables of your shell: ALL, NONE or NAME,NAME (default: PATH, VIRTUAL_ENV and CONDA_*)",
    )
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="environment variable")
    parser.add_argument(
        "-o",
        "--output",
        default="",
        metavar="FILE",
        help="append the output to this file below the current folder; %%j is the job, %%a the task, %%u the user",
    )
    parser.add_argument("-e", "--error", default="", metavar="FILE", help="file for standard error (default: --output)")
    parser.add_argument("--chdir", default="", metavar="DIR", help="folder to run in (default: the current one)")
    parser.add_argument("--image", default=HOST_IMAGE, help="container image, on a cluster")
    parser.add_argument("--retries", type=int, default=0, help="retries of a failed pod (default: 0)")
    parser.add_argument("--dry-run", action="store_true", help="print the Job instead of submitting it")
    parser.add_argument("--print", choices=["table", "json", "yaml", "name"], default="table", help="output format")
    parser.add_argument(
        "command", nargs="+", metavar="COMMAND", help="a script, - for standard input, or a command after `--`"
    )
    parser.usage = "kyu submit [OPTION …] SCRIPT | -- COMMAND [ARGUMENT …]"


def run(args: argparse.Namespace) -> int:
    batch = script.find(args.command[0], is_command=follows_dashes(args))
    if batch is not None:
        args = with_directives(args, batch)
    return submit(args, batch)


def submit(args: argparse.Namespace, batch: Script | None, tell: Callable[[str], None] | None = None) -> int:
    """Create the Job, and print its name, or tell it to the caller."""
    folder = os.path.abspath(args.chdir)
    job = make_job(args, folder, batch)
    container = job["spec"]["template"]["spec"]["containers"][0]
    requests = container["resources"]["requests"]
    for warning in (*(batch.notes if batch else ()), *sizes.suspicious(requests)):
        output.note(f"warning: {warning}")
    if args.dry_run:
        if not args.queue:
            output.note("the Job names no queue: add -q before you apply it")
        print(output.objects([job], "yaml" if args.print == "table" else args.print, is_list=False))
        return 0
    server = connection.connect(args)
    created = create(server, args, job)
    if args.print != "table":
        typed = {"apiVersion": "batch/v1", "kind": "Job", **created}
        print(output.objects([typed], args.print, is_list=False))
        return 0
    if tell is not None:
        tell(created["metadata"]["name"])
        return 0
    output.note(f"submitted to {queue_of(created)} on {server.description}")
    print(created["metadata"]["name"])
    return 0


def create(server: ServerConnection, args: argparse.Namespace, job: Json) -> Json:
    """Create the Job in its queue, after the checks that need the server."""
    requests = job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    if args.image == HOST_IMAGE:
        for warning in sizes.too_large(server, requests):
            output.note(f"warning: {warning}")
    complete(server, args, job)
    for before, trouble in jobs.waits_for(server, job):
        if trouble:
            output.note(f"the job will wait for {before}{trouble}")
    try:
        created = server.client.create(JOB, job)
    except AlreadyExists as error:
        raise Failed(f"{error}; `kyu cancel {args.name}` deletes it; without --name the job gets a new name") from error
    if args.priority and (trouble := lookup.why_not_queued(server, created)):
        output.note(f"{trouble}; `kyu cancel {created['metadata']['name']}` deletes the job")
    return created


def queue_of(job: Json) -> str:
    return str(job["metadata"]["labels"][metadata.QUEUE_NAME])


def complete(server: ServerConnection, args: argparse.Namespace, job: Json) -> None:
    """Set the parts of a Job that depend on the server: namespace, queue and home folder. Check its priority class."""
    job["metadata"]["namespace"] = server.namespace
    job["metadata"]["labels"][metadata.QUEUE_NAME] = server.find_queue(args.queue)
    if args.image == HOST_IMAGE:
        share_home(server, args, job["spec"]["template"]["spec"]["containers"][0])
    if args.priority and (missing := server.why_no_priority(args.priority)):
        raise BadInput(missing)


class DirectiveParser(argparse.ArgumentParser):
    """A parser whose errors name the script."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{self.prog}: {message}")


def with_directives(args: argparse.Namespace, batch: Script) -> argparse.Namespace:
    """Return the options of the script, replaced by those of the command line."""
    parser = DirectiveParser(prog=batch.name, add_help=False)
    arguments(parser)
    found = parser.parse_args([*batch.options, *args.words])
    if found.command != args.command:
        raise BadInput(f"{batch.name}: a line of options contains {found.command[0]!r}, which is no option")
    return found


def follows_dashes(args: argparse.Namespace) -> bool:
    """Return whether the command was written after `--`."""
    words: list[str] = args.words
    return "--" in words and words[words.index("--") + 1 :] == args.command


def share_home(server: ServerConnection, args: argparse.Namespace, container: Json) -> None:
    """Give the job the home folder of its submitter, if the server runs pods as the same user."""
    home = os.environ.get("HOME", "")
    if home and not args.export and environment.runs_as_me(server.client.credentials.server):
        container.setdefault("env", []).insert(0, {"name": "HOME", "value": environment.escape_dollars(home)})
