"""The pod of a job that a user means: the only one that runs, that of a task, or one by its own name."""

from __future__ import annotations

import argparse

from kyu.api.meta import Json, Key
from kyu.cli import output
from kyu.cli.batch import jobs_pods, lookup
from kyu.cli.connection import ServerConnection
from kyu.cli.main import BadInput, Failed
from kyu.kinds import metadata
from kyu.kinds.job import INDEX


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB", help="name of the job, or pod/NAME")
    parser.add_argument("--task", type=int, metavar="I", help="the pod of task I of an array")
    parser.add_argument("-c", "--container", default="", help="the container of the pod")


def find_running(server: ServerConnection, job: str, task: int | None) -> Json:
    """Return the pod, or raise with the reason why there is none or more than one."""
    kind, _, name = job.rpartition("/")
    if kind in ("pod", "pods"):
        return server.client.get(jobs_pods.POD, Key(server.namespace, name))
    workload = lookup.find_workload(server, job)
    found = [pod for pod in jobs_pods.pods_of(server, workload) if is_running(pod)]
    if task is not None:
        found = [pod for pod in found if metadata.annotations_of(pod).get(INDEX) == str(task)]
    if not found:
        which = f"task {task} of {job}" if task is not None else job
        raise Failed(f"no pod of {which} runs; `kyu why {job}` says why, `kyu logs {job}` prints its output")
    if len(found) > 1:
        names = [f"pod/{metadata.name_of(pod)}" for pod in found]
        raise BadInput(f"{len(found)} pods of {job} run; name one, or a --task: {output.short_list(names)}")
    return found[0]


def is_running(pod: Json) -> bool:
    return phase_of(pod) == "Running"


def has_started(pod: Json) -> bool:
    return phase_of(pod) in ("Running", "Succeeded", "Failed")


def phase_of(pod: Json) -> str:
    return str((pod.get("status") or {}).get("phase", ""))


def has_terminal(pod: Json, container: str) -> bool:
    """Return whether a container, or the only one, has a terminal."""
    named = [each for each in pod["spec"]["containers"] if container in ("", each["name"])]
    return bool(named and named[0].get("tty"))
