"""
List jobs of the past, with what they used. Jobs stay listed after they are deleted.

    kyu history                            jobs of your namespace that ran in the last week
    kyu history --since 2026-11-01 --state Failed
    kyu history --attempts                 a line for each attempt of each task
    kyu history -A --user alice -o csv     for a spreadsheet; of all namespaces, if you may

A preempted or retried job has several attempts. Times of CPU and memory are measured on the node.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import get_args

import msgspec

from kyu.api import duration
from kyu.api.accounting import WASTED, AttemptState, JobAttempt
from kyu.cli import connection, output
from kyu.cli.accounts import attempts

GIB = 1024**3
# Resources that are counted as GPUs: those of device plugins end like this.
GPU = "/gpu"


def arguments(parser: argparse.ArgumentParser) -> None:
    attempts.arguments(parser, since="7d")
    parser.add_argument("--state", choices=get_args(AttemptState), default="", help="only jobs that ended like this")
    parser.add_argument("--attempts", action="store_true", help="a line for each attempt")
    choices = ["table", "wide", "json", "csv"]
    parser.add_argument("-o", "--output", choices=choices, default="table", help="output format (default: table)")
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="names of jobs (default: all)")


@dataclass(frozen=True, slots=True)
class PastJob:
    """The attempts of one job, or one attempt of it, the oldest first."""

    attempts: tuple[JobAttempt, ...]

    @property
    def last(self) -> JobAttempt:
        return self.attempts[-1]

    @property
    def state(self) -> str:
        """The last state of a job. Of the last states of several tasks, the first that is no success."""
        ends = {one.task: one.state for one in self.attempts}
        return next((state for state in ends.values() if state != "Succeeded"), "Succeeded")

    def fields(self) -> dict[str, object]:
        """Return the values of the formats for programs."""
        first, last = self.attempts[0], self.last
        failed = next((one.exit_code for one in self.attempts if one.exit_code), last.exit_code)
        peaks = [one.peak_bytes for one in self.attempts if one.peak_bytes is not None]
        return {
            "namespace": last.namespace, "job": last.job, "kind": last.kind, "task": last.task,
            "submitter": last.submitter, "queue": last.queue, "cluster_queue": last.cluster_queue,
            "flavor": "+".join(sorted(set(last.flavors.values()))), "node": last.node,
            "state": self.state, "exit_code": last.exit_code if self.state == "Succeeded" else failed,
            "attempts": len(self.attempts), "tasks": len({one.task for one in self.attempts}),
            "queued": first.queued, "started": first.started, "ended": last.ended,
            "waited_seconds": attempts.seconds_between(first.queued, first.started),
            "run_seconds": round(sum(one.seconds for one in self.attempts), 3),
            "cpu": last.requests.get("cpu", 0.0), "memory_bytes": int(last.requests.get("memory", 0)),
            "gpus": gpus(last),
            "cpu_seconds": round(sum(one.cpu_seconds or 0.0 for one in self.attempts), 3),
            "peak_bytes": max(peaks, default=None),
            "gpu_hours": round(sum(gpus(one) * one.seconds for one in self.attempts) / 3600, 6),
            "wasted_seconds": round(sum(one.seconds for one in self.attempts if one.state in WASTED), 3),
        }  # fmt: skip


def gpus(attempt: JobAttempt) -> float:
    return sum(amount for name, amount in attempt.requests.items() if name.endswith(GPU))


def run(args: argparse.Namespace) -> int:
    server = connection.connect(args)
    found = attempts.read(server, args, datetime.now(UTC))
    wanted = {name.rpartition("/")[2] for name in args.jobs}
    found = [one for one in found if not wanted or one.job in wanted]
    rows = [PastJob((one,)) for one in found] if args.attempts else by_job(found)
    rows = [row for row in rows if not args.state or row.state == args.state]
    print_rows(rows, args)
    return 0


def by_job(found: Sequence[JobAttempt]) -> list[PastJob]:
    """Group attempts by their job, in the order of the last end."""
    groups: dict[tuple[str, str], list[JobAttempt]] = {}
    for one in found:
        groups.setdefault((one.namespace, one.job_uid), []).append(one)
    jobs = [PastJob(tuple(sorted(group, key=lambda one: (one.started, one.ended)))) for group in groups.values()]
    return sorted(jobs, key=lambda job: job.last.ended)


def print_rows(rows: Sequence[PastJob], args: argparse.Namespace) -> None:
    if args.output == "json":
        shown = [msgspec.to_builtins(row.last) for row in rows] if args.attempts else [row.fields() for row in rows]
        print(json.dumps(shown, indent=2))
        return
    if args.output == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        names = list(PastJob.fields(rows[0])) if rows else []
        writer.writerow(names)
        writer.writerows([safe_cell(value) for value in row.fields().values()] for row in rows)
        return
    if not rows:
        place = "any namespace" if args.all_namespaces else "this namespace"
        output.note(f"no jobs of {place} ended in this time; --since all shows older ones")
        return
    print(history_table(rows, is_wide=args.output == "wide", namespaces=args.all_namespaces, tasks=args.attempts))


def safe_cell(value: object) -> object:
    """Return a cell that a spreadsheet does not take for a formula: names come from users."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def history_table(rows: Sequence[PastJob], *, is_wide: bool, namespaces: bool, tasks: bool) -> str:
    header = ["JOB", "USER", "QUEUE", "STATE", "EXIT", "TRIES", "WAITED", "RAN", "CPU", "MEMORY", "ENDED"]
    more = ["FLAVOR", "REQUESTS", "GPU-H", "WASTED", "STARTED", "NODE"] if is_wide else []
    cells = [[*plain_cells(row, tasks=tasks), *(wide_cells(row) if is_wide else [])] for row in rows]
    full = [[row.last.namespace, *line] if namespaces else line for row, line in zip(rows, cells, strict=True)]
    room = None if is_wide else output.terminal_room()
    return output.table([*(["NAMESPACE"] if namespaces else []), *header, *more], full, room)


def plain_cells(row: PastJob, *, tasks: bool) -> list[object]:
    values = row.fields()
    name = f"{row.last.job}[{row.last.task}]" if tasks and row.last.task else row.last.job
    return [
        name, row.last.submitter, row.last.queue, row.state, values["exit_code"], len(row.attempts),
        duration.short(float(str(values["waited_seconds"]))), duration.short(float(str(values["run_seconds"]))),
        duration.short(float(str(values["cpu_seconds"]))), size(values["peak_bytes"]), local_time(row.last.ended),
    ]  # fmt: skip


def wide_cells(row: PastJob) -> list[object]:
    values = row.fields()
    asked = row.last.requests
    parts = [f"{amount:g} {name}" for name, amount in asked.items() if name != "memory"]
    parts += [f"{size(int(asked['memory']))} memory"] if "memory" in asked else []
    wasted = float(str(values["wasted_seconds"]))
    return [
        values["flavor"], ", ".join(parts), values["gpu_hours"] or "", duration.short(wasted) if wasted else "",
        local_time(row.attempts[0].started), row.last.node,
    ]  # fmt: skip


def size(count: object) -> str:
    """Return a number of bytes in the largest unit that fits."""
    if not isinstance(count, int):
        return ""
    for unit, factor in (("Gi", GIB), ("Mi", 1024**2), ("Ki", 1024)):
        if count >= factor:
            return f"{count / factor:.3g}{unit}" if count < 1000 * factor else f"{count // factor}{unit}"
    return str(count)


def local_time(text: str) -> str:
    return datetime.fromisoformat(text).astimezone().strftime("%m-%d %H:%M:%S")
