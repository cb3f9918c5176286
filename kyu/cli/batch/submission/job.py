"""The Job of a submission: from the options of ``kyu submit`` to the object, with all errors of the input."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from pathlib import Path

from kyu.api import names, quantity
from kyu.api.labels import COMPLETION_INDEX, TASK
from kyu.api.meta import Json
from kyu.cli.batch.submission import environment, output_files, times
from kyu.cli.batch.submission.script import Script
from kyu.cli.main import BadInput
from kyu.kinds import arrays, job_order, metadata
from kyu.kinds import requests as resource_requests
from kyu.kinds.arrays import TaskArray
from kyu.kinds.templates import HOST_IMAGE

# The options of resources, and examples of their values.
OPTIONS = {"cpu": "--cpu", "memory": "--memory", "nvidia.com/gpu": "--gpu"}
EXAMPLES = {"cpu": "500m or 2", "memory": "512Mi or 4Gi", "nvidia.com/gpu": "1 or 2"}
JOB_NAME_FIELD = "metadata.labels['batch.kubernetes.io/job-name']"


def make_job(args: argparse.Namespace, folder: str, script: Script | None = None) -> Json:
    """Return the Job, or raise BadInput with all errors of the input."""
    faults: list[str] = []
    array = task_array(args, faults)
    meta = job_metadata(args, array, faults)
    container: Json = {
        "name": "main",
        "image": args.image,
        "command": [environment.escape_dollars(word) for word in command(args, script)],
        "workingDir": folder,
        "resources": resource_requests.with_limits(requests(args, faults)),
    }
    if variables := pod_environment(args, folder, script, array, faults):
        container["env"] = variables
    if args.count < 1 or args.retries < 0:
        faults.append("--count must be at least 1, --retries at least 0")
    if not args.command[0]:
        faults.append("the command is empty: write it after `--`")
    annotations = output_files.pod_annotations(args.output, args.error, folder, faults)
    if args.image == HOST_IMAGE:
        annotations[environment.UMASK] = environment.current_umask()
    elif annotations:
        faults.append("--output and --error have no effect with --image; use `kyu logs`")
    if faults:
        raise BadInput("\n".join(f"kyu submit: {fault}" for fault in faults))
    spec = job_spec(args, array, container, annotations)
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def job_metadata(args: argparse.Namespace, array: TaskArray | None, faults: list[str]) -> Json:
    """Return the name, labels and annotations of the Job."""
    labels = {metadata.QUEUE_NAME: args.queue} if args.queue else {}
    if args.priority:
        labels[metadata.PRIORITY_CLASS] = args.priority
    if args.time:
        labels[metadata.MAX_EXEC_TIME_SECONDS] = str(seconds(args.time, faults))
    name = {"name": args.name} if args.name else {"generateName": name_from(args.generate_name or args.command[0])}
    # The name also becomes a label of the pods.
    if args.name and (wrong := names.why_not_dns_subdomain(args.name) or names.why_not_label_value(args.name)):
        faults.append(f"--name {args.name!r}: {wrong}")
    annotations = {}
    if args.after:
        before = ",".join(dict.fromkeys(dependencies(args, faults)))
        annotations = {metadata.JOB_DEPENDENCIES: before, metadata.ADMISSION_GATED_BY: metadata.DEPENDENCY_GATE}
    if array is not None:
        annotations[arrays.ARRAY] = str(array)
        if pods_at_once(array) > 1:
            annotations[metadata.JOB_MIN_PARALLELISM] = "1"
    return {**name, "labels": labels, **({"annotations": annotations} if annotations else {})}


def dependencies(args: argparse.Namespace, faults: list[str]) -> Iterator[str]:
    """Yield the entries of ``--after``. Names in the form of `-o name` are accepted."""
    for entry in (entry for text in args.after for entry in text.split(",") if entry):
        if entry == job_order.SINGLETON:
            if args.name:
                faults.append(f"--after {entry}: jobs with --name have different names; use --generate-name")
            yield entry
            continue
        condition, separator, name = entry.rpartition(":")
        if separator and condition not in job_order.CONDITIONS:
            faults.append(f"--after {entry}: write ok:JOB, any:JOB, notok:JOB or singleton")
            continue
        name = name.rpartition("/")[2]
        yield f"{condition}:{name}" if condition not in ("", "ok") or name == job_order.SINGLETON else name


def task_array(args: argparse.Namespace, faults: list[str]) -> TaskArray | None:
    """Return the tasks of ``--array``. A plain number is a number of tasks."""
    if not args.array:
        return None
    number, separator, width = args.array.partition("%")
    is_number = number.isascii() and number.isdigit() and len(number) < 10
    if is_number and not int(number):
        faults.append("--array 0: an array has at least one task; task 0 alone is 0-0")
        return None
    if args.count > 1:
        faults.append(
            "--array and --count exclude each other: tasks of an array start one by one, pods of --count together"
        )
    try:
        array = arrays.parse(f"0-{int(number) - 1}{separator}{width}" if is_number else args.array)
    except ValueError as error:
        faults.append(f"--array {args.array}: {error}")
        return None
    if args.image != HOST_IMAGE and not array.is_dense:
        faults.append(f"--array {args.array}: with --image, tasks are numbered from 0 without gaps: write 0-9")
    return array


def pods_at_once(array: TaskArray) -> int:
    return min(len(array), array.width or len(array))


def job_spec(args: argparse.Namespace, array: TaskArray | None, container: Json, annotations: dict[str, str]) -> Json:
    # A failed task of an array does not end the others.
    limit = "backoffLimit" if array is None else "backoffLimitPerIndex"
    spec: Json = {
        "parallelism": args.count if array is None else pods_at_once(array),
        "completions": args.count if array is None else len(array),
        limit: args.retries,
        "template": {
            **({"metadata": {"annotations": annotations}} if annotations else {}),
            "spec": {"restartPolicy": "Never", "containers": [container]},
        },
    }
    if array is not None or args.count > 1:
        spec["completionMode"] = "Indexed"
    return spec


def command(args: argparse.Namespace, script: Script | None) -> list[str]:
    return list(args.command) if script is None else script.command(args.command[1:])


def pod_environment(
    args: argparse.Namespace, folder: str, script: Script | None, array: TaskArray | None, faults: list[str]
) -> list[Json]:
    """Return the variables of the submitter, those of Slurm for a script of Slurm, and those of ``--env``."""
    by_default = args.image == HOST_IMAGE
    values = environment.exported(args.export, os.environ, faults, by_default=by_default)
    found = environment.as_variables(values)
    if array is not None:
        found.append(task_variable(arrays.VARIABLE, args.image))
    if script is not None and script.is_for_slurm:
        found += slurm_variables(args, array, folder)
    return found + declared(args.env, faults)


def slurm_variables(args: argparse.Namespace, array: TaskArray | None, folder: str) -> list[Json]:
    """Return the variables that scripts of Slurm use most."""
    fields = {"SLURM_JOB_ID": JOB_NAME_FIELD, "SLURM_JOB_NAME": JOB_NAME_FIELD}
    plain = {"SLURM_SUBMIT_DIR": folder, "SLURM_CPUS_PER_TASK": args.cpu}
    tasks: list[Json] = []
    if array is not None:
        fields["SLURM_ARRAY_JOB_ID"] = JOB_NAME_FIELD
        numbers = list(array)
        plain |= {
            "SLURM_ARRAY_TASK_COUNT": str(len(numbers)),
            "SLURM_ARRAY_TASK_MIN": str(min(numbers)),
            "SLURM_ARRAY_TASK_MAX": str(max(numbers)),
        }
        tasks = [task_variable("SLURM_ARRAY_TASK_ID", args.image)]
    return [*(field_variable(name, path) for name, path in fields.items()), *tasks, *environment.as_variables(plain)]


def task_variable(name: str, image: str) -> Json:
    """Return a variable with the number of the task. The Job controller of Kubernetes knows only its own index."""
    return field_variable(name, f"metadata.annotations['{TASK if image == HOST_IMAGE else COMPLETION_INDEX}']")


def field_variable(name: str, path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


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
        return "it is negative"
    return "it is not a whole number" if "/" in name and nanos % quantity.NANO else ""


def declared(items: list[str], faults: list[str]) -> list[Json]:
    """Return the variables of ``--env``; a name alone takes its value from the submitter's environment."""
    found: dict[str, str] = {}
    for item in items:
        name, separator, value = item.partition("=")
        if not separator:
            if name not in os.environ:
                faults.append(f"--env {name}: not set in your environment; write it as {name}=VALUE")
            value = os.environ.get(name, "")
        if not name:
            faults.append(f"--env {item}: write it as NAME=VALUE")
        found[name] = value
    return environment.as_variables(found)


def seconds(text: str, faults: list[str]) -> int:
    """Parse the value of ``--time``, or add an error to ``faults``."""
    total = times.seconds(text)
    if total is None:
        faults.append(f"--time {text}: write it as 90s, 15m, 2h30, 1d or 1-12:00:00")
    elif not total:
        faults.append(f"--time {text}: the limit must be at least one second")
    return total or 0


def name_from(command: str) -> str:
    """Return a prefix of the name, made from the command. The server completes it."""
    stem = re.sub(r"[^a-z0-9]+", "-", Path(command).stem.lower()).strip("-")
    return f"{stem[:40] or 'job'}-"
