"""
Cancel jobs: those that wait leave the queue, those that run are ended. The job objects are deleted.
"""

from __future__ import annotations

import argparse

from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key, Kind
from kyu.cli import connection, jobs, lookup, output
from kyu.cli.main import BadInput
from kyu.kinds import table


def arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser)
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="names of jobs")
    parser.add_argument("--all", action="store_true", help="all jobs of the namespace that are not over")
    parser.add_argument("-q", "--queue", default="", help="with --all: only of this LocalQueue")


def run(args: argparse.Namespace) -> int:
    if bool(args.jobs) == args.all:
        raise BadInput("kyu cancel: name the jobs, or use --all")
    server = connection.connect(args)
    if args.all:
        found = [
            item
            for item in server.listed(Workload.KIND, server.namespace)
            if jobs.state_of(item).word not in jobs.ENDED
            and (not args.queue or item["spec"].get("queueName") == args.queue)
        ]
    else:
        found = [lookup.find_workload(server, name) for name in args.jobs]
    for workload in found:
        for kind, key in owners(workload):
            server.client.delete(kind, key, propagation="Background")
        print(jobs.owner_of(workload)[1])
    output.note(f"cancelled {len(found)} job(s) on {server.description}")
    return 0


def owners(workload: Json) -> list[tuple[Kind, Key]]:
    """The job objects; deleting them takes the Workload and the pods with them."""
    namespace = workload["metadata"]["namespace"]
    found = []
    for owner in workload["metadata"].get("ownerReferences") or ():
        kind = table.find(owner)
        if kind is not None:
            found.append((kind.kind, Key(namespace, owner["name"])))
    return found or [(Workload.KIND, Key(namespace, workload["metadata"]["name"]))]
