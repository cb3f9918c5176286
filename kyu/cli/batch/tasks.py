"""
Show the tasks of an array by their state.

    kyu tasks sweep               how many tasks are in which state, and which ones
    kyu tasks sweep -o wide       a line for each task that has started: attempts, exit code, pod
    kyu tasks sweep --state Failed -o name

Numbers of tasks are those of `kyu submit --array`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from kyu.api.meta import Json, Key
from kyu.cli import connection, output
from kyu.cli.batch import attempts, jobs, lookup
from kyu.cli.batch.attempts import JobPod
from kyu.cli.connection import ServerConnection
from kyu.cli.main import Failed
from kyu.kinds import arrays, fields
from kyu.kinds.arrays import TaskArray
from kyu.kinds.job import index_ranges, is_indexed

STATES = ("Succeeded", "Failed", "Running", "Waiting")


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task: its number, state, pods so far, and the exit code and pod of the last one."""

    task: int
    state: str
    attempts: int = 0
    exit_code: int | None = None
    pod: str = ""


def arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser)
    parser.add_argument("job", metavar="JOB", help="name of the array")
    parser.add_argument("--state", choices=STATES, default="", help="only tasks in this state")
    choices = ["table", "wide", "json", "name"]
    parser.add_argument("-o", "--output", choices=choices, default="table", help="output format (default: table)")


def run(args: argparse.Namespace) -> int:
    server = connection.connect(args)
    job = find_array(server, args.job)
    rows = [row for row in task_rows(server, job) if not args.state or row.state == args.state]
    match args.output:
        case "json":
            print(json.dumps([asdict(row) for row in rows], indent=2))
        case "name":
            print("\n".join(str(row.task) for row in rows))
        case "wide":
            shown = [row for row in rows if row.attempts or row.state != "Waiting"]
            cells = [[row.task, row.state, row.attempts, code_of(row), row.pod] for row in shown]
            print(output.table(["TASK", "STATE", "ATTEMPTS", "EXIT", "POD"], cells))
        case _:
            print(output.table(["STATE", "TASKS", "NUMBERS"], summary(rows), output.terminal_room()))
    return 0


def code_of(row: TaskRow) -> object:
    return 0 if row.state == "Succeeded" else row.exit_code


def summary(rows: list[TaskRow]) -> list[list[object]]:
    """Return a line for each state that a task has."""
    by_state = {state: [row.task for row in rows if row.state == state] for state in STATES}
    return [[state, len(tasks), str(arrays.of_numbers(tasks))] for state, tasks in by_state.items() if tasks]


def find_array(server: ServerConnection, name: str) -> Json:
    """Return the Indexed Job of this name, or raise Failed."""
    kind, plain = lookup.split(name)
    job = lookup.find_job(server, kind, plain)
    if job is None:
        kind, plain = jobs.owner_of(lookup.find_workload(server, name))
        raise Failed(f"{plain} is a {kind}; only Jobs have tasks")
    if not is_indexed(job):
        raise Failed(f"{plain} is no array: it was submitted without --array")
    return job


def array_of(job: Json) -> TaskArray:
    """Return the numbers of the tasks. An Indexed Job of another client counts from 0."""
    return arrays.of_job(job) or TaskArray((range(fields.int_at(job, ("spec", "completions"), 1)),))


def ended_tasks(job: Json, field: str) -> list[int]:
    """Return the numbers of the tasks in `completedIndexes` or `failedIndexes`."""
    array = array_of(job)
    indexes = (index for part in index_ranges(fields.text_at(job, ("status", field))) for index in part)
    return [task for index in indexes if (task := array.task(index)) is not None]


def task_rows(server: ServerConnection, job: Json) -> list[TaskRow]:
    """Return all tasks in the order of the array."""
    states = {
        **dict.fromkeys(ended_tasks(job, "completedIndexes"), "Succeeded"),
        **dict.fromkeys(ended_tasks(job, "failedIndexes"), "Failed"),
    }
    last = {pod.task: (number, pod) for number, pod in attempts.numbered(pods_of(server, job))}
    return [task_row(task, states.get(task, ""), last.get(str(task))) for task in array_of(job)]


def task_row(task: int, state: str, last: tuple[int, JobPod] | None) -> TaskRow:
    if last is None:
        return TaskRow(task, state or "Waiting")
    number, pod = last
    # A pod that has ended is counted a moment later, or tried again.
    present = "Waiting" if pod.ended else "Running"
    return TaskRow(task, state or present, number, pod.exit_code, pod.name)


def pods_of(server: ServerConnection, job: Json) -> Iterable[JobPod]:
    """Return the pods of a Job, those that exist and those that are kept."""
    key = Key(job["metadata"]["namespace"], job["metadata"]["name"])
    found = lookup.workloads_of(server, "job", key.name)
    if not found:
        return []
    workload = max(found, key=lookup.newness)
    existing = attempts.existing_pods(server, workload)
    return attempts.all_pods(attempts.kept_pods(server, key.name), existing, workload)
