"""Cancel jobs. Waiting jobs leave the queue, running jobs are stopped. The job objects are deleted, their logs kept."""

from __future__ import annotations

import argparse

from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key, Kind, key_of
from kyu.cli import connection, output
from kyu.cli.batch import jobs, lookup
from kyu.cli.connection import ServerConnection
from kyu.cli.main import BadInput
from kyu.kinds import table

Targets = list[tuple[Kind, Key]]


def arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser)
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="names of jobs")
    parser.add_argument("--all", action="store_true", help="all unfinished jobs of the namespace")
    parser.add_argument("-q", "--queue", default="", help="with --all: only jobs of this LocalQueue")


def run(args: argparse.Namespace) -> int:
    if bool(args.jobs) == args.all:
        raise BadInput("kyu cancel: name the jobs, or use --all")
    server = connection.connect(args)
    if args.all:
        workloads = server.listed(Workload.KIND, server.namespace)
        waiting = [jobs.row_of_job(job) for job in jobs.unqueued(server, server.namespace, workloads)]
        found = [
            cancelled(line.obj) if line.is_queued else (line.name, [(jobs.JOB, key_of(line.obj))])
            for line in (*map(jobs.row_of_workload, workloads), *waiting)
            if line.queue and line.state.word not in jobs.ENDED and (not args.queue or line.queue == args.queue)
        ]
        if args.queue and not found:
            server.check_queue(args.queue, server.namespace)
    else:
        found = [named(server, name) for name in args.jobs]
    for name, targets in found:
        for kind, key in targets:
            server.client.delete(kind, key, propagation="Background")
        print(name)
    output.note(f"cancelled {len(found)} job(s) on {server.description}")
    return 0


def named(server: ServerConnection, name: str) -> tuple[str, Targets]:
    """Return the objects to delete for a name: the job of its Workload, or a Job without a Workload."""
    kind, plain = lookup.split(name)
    if not lookup.workloads_of(server, kind, plain) and lookup.find_job(server, kind, plain) is not None:
        return plain, [(jobs.JOB, Key(server.namespace, plain))]
    return cancelled(lookup.find_workload(server, name))


def cancelled(workload: Json) -> tuple[str, Targets]:
    return jobs.owner_of(workload)[1], owners(workload)


def owners(workload: Json) -> Targets:
    """Return the job objects. The garbage collector deletes their Workload and pods."""
    namespace = workload["metadata"]["namespace"]
    found: Targets = []
    for owner in workload["metadata"].get("ownerReferences") or ():
        kind = table.find(owner)
        if kind is not None:
            found.append((kind.kind, Key(namespace, owner["name"])))
    return found or [(Workload.KIND, Key(namespace, workload["metadata"]["name"]))]
