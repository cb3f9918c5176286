"""The Job of a submission: from the options of ``kyu submit`` to the object, with all errors of the input."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

from kyu.api import names, quantity
from kyu.api.meta import Json
from kyu.cli.batch.submission import environment, output_files, times
from kyu.cli.batch.submission.script import Script
from kyu.cli.main import BadInput
from kyu.kinds import metadata

# The image of pods that run commands of this machine. A container must name an image.
HOST_IMAGE = "kyu.dev/host"
# The options of resources, and examples of their values.
OPTIONS = {"cpu": "--cpu", "memory": "--memory", "nvidia.com/gpu": "--gpu"}
EXAMPLES = {"cpu": "500m or 2", "memory": "512Mi or 4Gi", "nvidia.com/gpu": "1 or 2"}
JOB_NAME_FIELD = "metadata.labels['batch.kubernetes.io/job-name']"
TASK_FIELD = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


def make_job(args: argparse.Namespace, folder: str, script: Script | None = None) -> Json:
    """Return the Job, or raise BadInput with all errors of the input."""
    faults: list[str] = []
    meta = job_metadata(args, faults)
    container: Json = {
        "name": "main",
        "image": args.image,
        "command": [environment.escape_dollars(word) for word in command(args, script)],
        "workingDir": folder,
        "resources": resources(requests(args, faults)),
    }
    if variables := pod_environment(args, folder, script, faults):
        container["env"] = variables
    if min(args.count, 1 if args.array is None else args.array) < 1 or args.retries < 0:
        faults.append("--count and --array must be at least 1, --retries at least 0")
    if not args.command[0]:
        faults.append("the command is empty: write it after `--`")
    if args.array and args.count > 1:
        faults.append(
            "--array and --count exclude each other: tasks of an array start one by one, pods of --count together"
        )
    annotations = output_files.pod_annotations(args.output, args.error, folder, faults)
    if args.image == HOST_IMAGE:
        annotations[environment.UMASK] = environment.current_umask()
    elif annotations:
        faults.append("--output and --error have no effect with --image; use `kyu logs`")
    if faults:
        raise BadInput("\n".join(f"kyu submit: {fault}" for fault in faults))
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": job_spec(args, container, annotations)}


def job_metadata(args: argparse.Namespace, faults: list[str]) -> Json:
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
        # Names in the form of `-o name` are accepted.
        before = ",".join(job.rpartition("/")[2] for job in args.after)
        annotations = {metadata.JOB_DEPENDENCIES: before, metadata.ADMISSION_GATED_BY: metadata.DEPENDENCY_GATE}
    if args.array and args.array > 1:
        annotations[metadata.JOB_MIN_PARALLELISM] = "1"
    return {**name, "labels": labels, **({"annotations": annotations} if annotations else {})}


def job_spec(args: argparse.Namespace, container: Json, annotations: dict[str, str]) -> Json:
    pods = args.array or args.count
    spec: Json = {
        "parallelism": pods,
        "completions": pods,
        "backoffLimit": args.retries,
        "template": {
            **({"metadata": {"annotations": annotations}} if annotations else {}),
            "spec": {"restartPolicy": "Never", "containers": [container]},
        },
    }
    if args.array or args.count > 1:
        spec["completionMode"] = "Indexed"
    return spec


def command(args: argparse.Namespace, script: Script | None) -> list[str]:
    return list(args.command) if script is None else script.command(args.command[1:])


def pod_environment(args: argparse.Namespace, folder: str, script: Script | None, faults: list[str]) -> list[Json]:
    """Return the variables of the submitter, those of Slurm for a script of Slurm, and those of ``--env``."""
    by_default = args.image == HOST_IMAGE
    values = environment.exported(args.export, os.environ, faults, by_default=by_default)
    found = environment.as_variables(values)
    if script is not None and script.is_for_slurm:
        found += slurm_variables(args, folder)
    return found + declared(args.env, faults)


def slurm_variables(args: argparse.Namespace, folder: str) -> list[Json]:
    """Return the variables that scripts of Slurm use most."""
    fields = {"SLURM_JOB_ID": JOB_NAME_FIELD, "SLURM_JOB_NAME": JOB_NAME_FIELD}
    if args.array:
        fields |= {"SLURM_ARRAY_TASK_ID": TASK_FIELD, "SLURM_ARRAY_JOB_ID": JOB_NAME_FIELD}
    plain = {"SLURM_SUBMIT_DIR": folder, "SLURM_CPUS_PER_TASK": args.cpu}
    return [
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
        *environment.as_variables(plain),
    ]


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


def resources(requests: dict[str, str]) -> Json:
    """
    Return requests and limits. Memory is limited to its request, so that a job cannot take the memory of others.
    Kubernetes requires a limit for extended resources such as GPUs. Cores have none: a job may use idle ones.
    """
    limits = {name: amount for name, amount in requests.items() if "/" in name or name == "memory"}
    return {"requests": requests, "limits": limits} if limits else {"requests": requests}


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
