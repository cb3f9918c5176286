"""
Show the tree of cohorts and queues, their usage, and the running and waiting jobs with their reasons.

    kyu top            refresh until Ctrl-C
    kyu top --once     print once, for scripts and pipes
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from kyu.api import quantity
from kyu.api.kueue import ClusterQueue, Cohort, Workload
from kyu.api.meta import Json
from kyu.cli import connection, output
from kyu.cli.batch import jobs
from kyu.cli.batch.jobs import JobRow
from kyu.cli.connection import ServerConnection
from kyu.cli.main import Failed
from kyu.kube.errors import Forbidden

CLEAR_AND_HOME = "\033[2J\033[H"
LONGEST_LIST = 12


def arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser)
    parser.add_argument("--once", action="store_true", help="print once and end")
    parser.add_argument(
        "--every", type=float, default=1.0, metavar="SECONDS", help="seconds between refreshes (default: 1)"
    )


def run(args: argparse.Namespace) -> int:
    server = connection.connect(args)
    refreshes = not args.once and sys.stdout.isatty()
    while True:
        try:
            cohorts, queues = server.client.list(Cohort.KIND), server.client.list(ClusterQueue.KIND)
            lines = running_first(server)
        except Forbidden as error:
            own = f"`kyu jobs` and `kyu queues` show namespace {server.namespace}"
            raise Failed(f"you may not see the queues and jobs of all namespaces; {own}") from error
        picture = draw(list(cohorts), list(queues), lines, output.terminal_room())
        if not refreshes:
            print(picture)
            return 0
        sys.stdout.write(f"{CLEAR_AND_HOME}{server.description}\n\n{picture}\n")
        sys.stdout.flush()
        time.sleep(args.every)


@dataclass(slots=True)
class CohortBranch:
    """A cohort with its child cohorts and queues."""

    name: str
    cohorts: list[CohortBranch] = field(default_factory=list)
    queues: list[Json] = field(default_factory=list)


def running_first(server: ServerConnection) -> list[JobRow]:
    """Return the unfinished jobs, running ones first. Only the rows that are shown get their details."""
    lines = [
        line
        for line in map(jobs.row_of_workload, server.client.list(Workload.KIND))
        if line.state.word not in jobs.ENDED
    ]
    lines.sort(key=lambda line: (line.state.word == "Queued", line.created))
    return [*(jobs.full_row(server, line) for line in lines[:LONGEST_LIST]), *lines[LONGEST_LIST:]]


def draw(cohorts: list[Json], queues: list[Json], lines_of_jobs: list[JobRow], width: int | None) -> str:
    """Draw the tree and the jobs, no wider than the terminal."""
    lines = []
    for root in tree(cohorts, queues):
        lines += list(branch_lines(root, ""))
    lines.append("")
    lines += list(job_lines(lines_of_jobs, width))
    return "\n".join(line if width is None else output.clipped(line, width) for line in lines).rstrip()


def tree(cohorts: list[Json], queues: list[Json]) -> list[CohortBranch]:
    """Build the tree of cohorts. A cohort without an object exists if it is named. Queues without one come last."""
    branches: dict[str, CohortBranch] = {}
    parents: dict[str, str] = {}
    for cohort in cohorts:
        name = cohort["metadata"]["name"]
        branches.setdefault(name, CohortBranch(name))
        if parent := (cohort.get("spec") or {}).get("parentName"):
            branches.setdefault(parent, CohortBranch(parent))
            parents[name] = parent
    alone = CohortBranch("")
    for queue in sorted(queues, key=lambda item: str(item["metadata"]["name"])):
        name = queue["spec"].get("cohortName", "")
        (branches.setdefault(name, CohortBranch(name)) if name else alone).queues.append(queue)
    looped = {name for name in parents if is_looped(name, parents)}
    for child, parent in sorted(parents.items()):
        if child not in looped:
            branches[parent].cohorts.append(branches[child])
    roots = [branches[name] for name in sorted(branches) if name not in parents or name in looped]
    return [*roots, *([alone] if alone.queues else [])]


def is_looped(name: str, parents: dict[str, str]) -> bool:
    """Return whether a cohort is its own ancestor. It is shown as a root then, and its queues show the error."""
    above = parents[name]
    for _ in parents:
        if above == name:
            return True
        above = parents.get(above, "")
    return False


def branch_lines(branch: CohortBranch, indent: str) -> Iterator[str]:
    inner = indent
    if branch.name:
        yield f"{indent}{output.colour('cohort ' + branch.name, 'bold')}"
        inner = indent + "  "
    for cohort in branch.cohorts:
        yield from branch_lines(cohort, inner)
    for queue in branch.queues:
        yield from queue_lines(queue, inner)


def queue_lines(queue: Json, indent: str) -> Iterator[str]:
    status = queue.get("status") or {}
    name = queue["metadata"]["name"]
    counts = f"{status.get('admittedWorkloads', 0)} running, {status.get('pendingWorkloads', 0)} waiting"
    active = next((c for c in status.get("conditions") or () if c["type"] == "Active"), None)
    stopped = "" if active is None or active["status"] == "True" else output.colour(f"  {active['message']}", "red")
    yield f"{indent}{name:<24} {counts}{stopped}"
    used = {
        (flavor["name"], resource["name"]): resource
        for flavor in status.get("flavorsReservation") or ()
        for resource in flavor.get("resources") or ()
    }
    for group in queue["spec"].get("resourceGroups") or ():
        for flavor in group["flavors"]:
            for resource in flavor["resources"]:
                yield usage_line(flavor["name"], resource, used.get((flavor["name"], resource["name"]), {}), indent)


def usage_line(flavor: str, quota: Json, used: Json, indent: str) -> str:
    name = quota["name"]
    total = quantity.amount(name, used.get("total", "0"))
    nominal = quantity.amount(name, quota["nominalQuota"])
    borrowed = quantity.amount(name, used.get("borrowed", "0"))
    share = total / nominal if nominal else (2.0 if total else 0.0)
    shown = f"{quantity.render(name, total)}/{quantity.render(name, nominal)}"
    borrowing = output.colour(f" {quantity.render(name, borrowed)} borrowed", "yellow") if borrowed else ""
    return f"{indent}  {flavor[:14]:<14} {name[:14]:<14} {output.bar(share)} {shown}{borrowing}"


def job_lines(lines: list[JobRow], width: int | None) -> Iterator[str]:
    if not lines:
        yield output.colour("no jobs are running or waiting", "dim")
        return
    yield from jobs.jobs_table(lines[:LONGEST_LIST], namespaces=True, room=width).splitlines()
    if len(lines) > LONGEST_LIST:
        yield output.colour(f"… and {len(lines) - LONGEST_LIST} more", "dim")
