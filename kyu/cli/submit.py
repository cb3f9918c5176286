"""
Queue a command. It runs on this cluster or machine as soon as its queue has room for it.

    kyu submit -q research --cpu 4 --memory 8Gi -- python train.py
    kyu submit -q research --array 20 -- ./simulate.sh          # JOB_COMPLETION_INDEX tells the tasks apart
    kyu submit -q research --after train --name eval -- python evaluate.py

The command runs in the current folder with a clean environment; --env adds variables. `kyu wait NAME` waits for it
and ends with its exit code, `kyu logs NAME` shows its output.
"""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

from kyu.api import names, quantity
from kyu.api.meta import Json
from kyu.cli import connection, jobs, lookup, output
from kyu.cli.jobs import JOB
from kyu.cli.main import BadInput, Failed
from kyu.kinds import metadata
from kyu.kube.errors import AlreadyExists

# Pods of the embedded control plane run commands of this machine; the image says so where one is required.
HOST_IMAGE = "kyu.dev/host"
# How amounts are asked for, and written.
OPTIONS = {"cpu": "--cpu", "memory": "--memory", "nvidia.com/gpu": "--gpu"}
EXAMPLES = {"cpu": "500m or 2", "memory": "512Mi or 4Gi", "nvidia.com/gpu": "1 or 2"}
DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?")


def arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser)
    parser.add_argument("-q", "--queue", default="", help="LocalQueue (default: the only one of the namespace)")
    parser.add_argument("--name", default="", help="name of the job (default: made from the command)")
    parser.add_argument("--cpu", default="1", help="cores per pod, more if they are idle (default: 1)")
    parser.add_argument("--memory", default="", metavar="SIZE", help="memory per pod, and no more, for example 512Mi")
    parser.add_argument("--gpu", default="", metavar="N", help="GPUs per pod (nvidia.com/gpu)")
    parser.add_argument("--request", action="append", default=[], metavar="RESOURCE=N", help="any other resource")
    parser.add_argument("--count", type=int, default=1, help="pods that must run at the same time (default: 1)")
    parser.add_argument("--array", type=int, metavar="N", help="N tasks, as many at a time as there is room for")
    parser.add_argument("--after", action="append", default=[], metavar="JOB", help="start when JOB has succeeded")
    parser.add_argument("--time", default="", metavar="LIMIT", help="longest run time: 90s, 15m, 2h30m; 90 is seconds")
    parser.add_argument("--priority", default="", metavar="CLASS", help="WorkloadPriorityClass")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="environment variable")
    parser.add_argument("--image", default=HOST_IMAGE, help="container image, on a cluster")
    parser.add_argument("--retries", type=int, default=0, help="how often a failed pod is tried again (default: 0)")
    parser.add_argument("--dry-run", action="store_true", help="print the Job instead of submitting it")
    output.add_format(parser, wide=False)
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="what to run; what follows `--` is left as it is")
    parser.usage = "kyu submit [OPTION …] -- COMMAND [ARGUMENT …]"


def run(args: argparse.Namespace) -> int:
    job = make_job(args, str(Path.cwd()))
    if args.dry_run:
        if not args.queue:
            output.note("no queue is named: add -q before you apply this")
        print(output.objects([job], "yaml" if args.output == "table" else args.output, is_list=False))
        return 0
    server = connection.connect(args)
    job["metadata"]["namespace"] = server.namespace
    job["metadata"]["labels"][metadata.QUEUE_NAME] = server.find_queue(args.queue)
    if args.priority and (missing := server.why_no_priority(args.priority)):
        raise BadInput(missing)
    for before, trouble in jobs.waits_for(server, server.namespace, metadata.jobs_before(job)):
        if trouble:
            output.note(f"it will wait for {before}{trouble}")
    try:
        created = server.client.create(JOB, job)
    except AlreadyExists as error:
        raise Failed(f"{error}; `kyu cancel {args.name}` removes it, without --name a new name is made") from error
    if args.priority and (trouble := lookup.why_not_queued(server, created)):
        output.note(f"{trouble}; `kyu cancel {created['metadata']['name']}` removes it")
    if args.output != "table":
        typed = {"apiVersion": "batch/v1", "kind": "Job", **created}
        print(output.objects([typed], args.output, is_list=False))
        return 0
    output.note(f"submitted to {created['metadata']['labels'][metadata.QUEUE_NAME]} on {server.description}")
    print(created["metadata"]["name"])
    return 0


def make_job(args: argparse.Namespace, folder: str) -> Json:
    """The Job; faults of the input are collected and told together."""
    faults: list[str] = []
    labels = {metadata.QUEUE_NAME: args.queue} if args.queue else {}
    if args.priority:
        labels[metadata.PRIORITY_CLASS] = args.priority
    if args.time:
        labels[metadata.MAX_EXEC_TIME_SECONDS] = str(seconds(args.time, faults))
    name = {"name": args.name} if args.name else {"generateName": name_from(args.command[0])}
    # It becomes the value of a label, too.
    if args.name and (wrong := names.why_not_dns_subdomain(args.name) or names.why_not_label_value(args.name)):
        faults.append(f"--name {args.name!r}: {wrong}")
    annotations = {}
    if args.after:
        # Also as `-o name` prints them.
        before = ",".join(job.rpartition("/")[2] for job in args.after)
        annotations = {metadata.AFTER: before, metadata.ADMISSION_GATED_BY: metadata.AFTER_GATE}
    if args.array and args.array > 1:
        annotations[metadata.JOB_MIN_PARALLELISM] = "1"
    meta: Json = {**name, "labels": labels, **({"annotations": annotations} if annotations else {})}
    container: Json = {
        "name": "main",
        "image": args.image,
        "command": [literally(word) for word in args.command],
        "workingDir": folder,
        "resources": resources(requests(args, faults)),
    }
    if variables := environment(args.env, faults):
        container["env"] = variables
    if min(args.count, 1 if args.array is None else args.array) < 1 or args.retries < 0:
        faults.append("--count and --array start at 1, --retries at 0")
    if not args.command[0]:
        faults.append("the command is empty: write what to run after `--`")
    if args.array and args.count > 1:
        faults.append("--array and --count: use one of them (tasks of an array run on their own, --count all at once)")
    if faults:
        raise BadInput("\n".join(f"kyu submit: {fault}" for fault in faults))
    pods = args.array or args.count
    spec: Json = {
        "parallelism": pods,
        "completions": pods,
        "backoffLimit": args.retries,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    if args.array or args.count > 1:
        spec["completionMode"] = "Indexed"
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def requests(args: argparse.Namespace, faults: list[str]) -> dict[str, str]:
    wanted = {"cpu": args.cpu, "memory": args.memory, "nvidia.com/gpu": args.gpu}
    for item in args.request:
        name, separator, value = item.partition("=")
        if not separator or not name:
            faults.append(f"--request {item}: write it as RESOURCE=AMOUNT, for example example.com/license=1")
        wanted[name] = value
    for name, value in wanted.items():
        if value:
            told = f"{OPTIONS[name]} {value}" if name in OPTIONS else f"--request {name}={value}"
            if wrong := why_not_amount(name, value):
                faults.append(f"{told}: {wrong}; write it as {EXAMPLES.get(name, '1 or 2')}")
    return {name: value for name, value in wanted.items() if value}


def why_not_amount(name: str, text: str) -> str:
    try:
        nanos = quantity.parse(text).nanos
    except ValueError as error:
        return str(error)
    if nanos < 0:
        return "less than nothing"
    return "not a whole number" if "/" in name and nanos % quantity.NANO else ""


def resources(requests: dict[str, str]) -> Json:
    """
    Memory is a limit, too: a job that takes more than it said would take it from others. So is what cannot be shared,
    GPUs and the like, of which Kubernetes wants to be told so. Cores that nobody uses may be used.
    """
    limits = {name: amount for name, amount in requests.items() if "/" in name or name == "memory"}
    return {"requests": requests, "limits": limits} if limits else {"requests": requests}


def environment(items: list[str], faults: list[str]) -> list[Json]:
    found = []
    for item in items:
        name, separator, value = item.partition("=")
        if not separator:
            if name not in os.environ:
                faults.append(f"--env {name}: not set here; write it as {name}=VALUE")
            value = os.environ.get(name, "")
        if not name:
            faults.append(f"--env {item}: write it as NAME=VALUE")
        found.append({"name": name, "value": literally(value)})
    return found


def literally(text: str) -> str:
    """As Kubernetes has to be told it: there `$(NAME)` is replaced and `$$` is one dollar, which nobody means."""
    return re.sub(r"\$(?=[$(])", "$$", text)


def seconds(text: str, faults: list[str]) -> int:
    """90, 90s, 15m, 2h30m, 1d."""
    match = DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        faults.append(f"--time {text}: write it as 90s, 15m, 2h30m or 1d")
        return 0
    days, hours, minutes, rest = (int(group or 0) for group in match.groups())
    total = ((days * 24 + hours) * 60 + minutes) * 60 + rest
    if not total:
        faults.append(f"--time {text}: one second or more")
    return total


def name_from(command: str) -> str:
    """A readable beginning; the server completes it."""
    stem = re.sub(r"[^a-z0-9]+", "-", Path(command).stem.lower()).strip("-")
    return f"{stem[:40] or 'job'}-"
