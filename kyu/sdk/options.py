"""The options of a job, and the Job that they make: the same words and rules as those of ``kyu submit``."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Literal, TypedDict

from kyu.api.meta import Json
from kyu.cli.batch import submit
from kyu.cli.batch.submission.job import make_job
from kyu.cli.connection import ServerConnection
from kyu.cli.main import BadInput
from kyu.kinds.templates import HOST_IMAGE

# The options of `kyu submit` that take one text.
TEXTS = ("name", "generate_name", "queue", "cpu", "memory", "gpu", "priority", "retries", "image")


class JobOptions(TypedDict, total=False):
    """The options of a job. All are optional."""

    name: str
    """Name of the job; by default it is made from the function or command."""
    queue: str
    """LocalQueue; by default `default`, or the only one of the namespace."""
    cpu: float | str
    """Cores of each pod: 2, 0.5 or "500m"; 1 by default."""
    memory: str
    """Memory of each pod, also its limit, such as "4Gi"."""
    gpu: int | str
    """GPUs of each pod."""
    requests: Mapping[str, int | str]
    """Amounts of other resources."""
    priority: str
    """WorkloadPriorityClass."""
    time: str | int | timedelta
    """Longest run time: "2h", seconds, or a timedelta. It counts from the admission of the job."""
    retries: int
    """Retries of a failed pod; of an array: of each task."""
    env: Mapping[str, str]
    """Environment variables."""
    secrets: Mapping[str, str]
    """Environment variables whose values are kept in a Secret, and not in the Job."""
    export: Sequence[str]
    """Variables of this process that the job gets besides PATH, VIRTUAL_ENV and CONDA_*; "ALL" for all."""
    after: Sequence[object]
    """Futures or names of jobs that must have succeeded before."""
    cwd: str | os.PathLike[str]
    """Folder to run in; by default the current one."""
    image: str
    """Container image, on a cluster."""
    python: str
    """Python interpreter of the image; `python3` by default."""
    folder: str | os.PathLike[str] | Literal[False]
    """Folder that this process and the job both reach by this path, for large arguments and results; False: none."""
    mounts: Mapping[str, str]
    """Volumes of a cluster: path to name of a PersistentVolumeClaim."""


def parse(options: JobOptions, command: Sequence[str], tasks: int | None = None) -> argparse.Namespace:
    """Return the options as ``kyu submit`` parses them, or raise ValueError. ``tasks`` is the size of an array."""
    words = [word for name in TEXTS if name in options for word in (option_of(name), str(options[name]))]  # type: ignore[literal-required]
    for name, amount in options.get("requests", {}).items():
        words += ["--request", f"{name}={amount}"]
    for name, value in options.get("env", {}).items():
        words += ["--env", f"{name}={value}"]
    for name in options.get("export", ()):
        words += ["--export", name]
    for job in options.get("after", ()):
        words += ["--after", str(getattr(job, "job", job))]
    if "time" in options:
        limit = options["time"]
        words += ["--time", str(round(limit.total_seconds()) if isinstance(limit, timedelta) else limit)]
    if tasks is not None:
        words += ["--array", str(tasks)]
    parser = submit.DirectiveParser(prog="kyu", add_help=False)
    submit.arguments(parser)
    try:
        return parser.parse_args([*words, "--", *command])
    except BadInput as error:
        raise ValueError(str(error)) from None


def option_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def build(options: JobOptions, args: argparse.Namespace) -> Json:
    """Return the Job of one pod, or raise ValueError with all errors of the options."""
    folder = os.path.abspath(options.get("cwd", ""))
    try:
        job = make_job(args, folder)
    except BadInput as error:
        raise ValueError(in_words_of_python(str(error))) from None
    pod = job["spec"]["template"]["spec"]
    if args.image != HOST_IMAGE and "cwd" not in options:
        # The current folder of this machine means nothing in an image.
        del pod["containers"][0]["workingDir"]
    # A pod that its node loses, or that is evicted from it, is replaced. It is no failure of the job.
    lost = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    job["spec"]["podFailurePolicy"] = {"rules": [lost]}
    for number, (path, claim) in enumerate(options.get("mounts", {}).items()):
        add_volume(pod, f"mount-{number}", path, {"persistentVolumeClaim": {"claimName": claim}})
    return job


def complete(server: ServerConnection, args: argparse.Namespace, job: Json) -> None:
    """Fill in what depends on the server: namespace, queue, home folder; raise ValueError for what does not exist."""
    try:
        submit.complete(server, args, job)
    except BadInput as error:
        raise ValueError(in_words_of_python(str(error))) from None


def add_secrets(job: Json, secret: str, names: Iterable[str]) -> None:
    """Give the container the variables that a Secret holds."""
    variables = [{"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": name}}} for name in names]
    job["spec"]["template"]["spec"]["containers"][0].setdefault("env", []).extend(variables)


def add_volume(pod: Json, name: str, path: str, source: Json, *, read_only: bool = False) -> None:
    pod.setdefault("volumes", []).append({"name": name, **source})
    mount: Json = {"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})}
    pod["containers"][0].setdefault("volumeMounts", []).append(mount)


def in_words_of_python(message: str) -> str:
    """Turn a message about the options of a command into one about keyword arguments."""
    plain = re.sub(r"^kyu submit: ", "", message, flags=re.M)
    return re.sub(r"--([a-z-]+) ", lambda match: f"{match[1].replace('-', '_')}=", plain)
