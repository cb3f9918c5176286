"""
Wait for a job, and end with its exit code.

Progress goes to standard error: queued and why, started, done. With --timeout the wait gives up with exit code 1; the
job goes on.
"""

from __future__ import annotations

import argparse
import time

from kyu.api.kueue import Workload
from kyu.api.meta import Json
from kyu.cli import connection, jobs, lookup, output
from kyu.cli.main import Failed
from kyu.kinds import pods


def arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser)
    parser.add_argument("job", help="name of the job")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="wait at most this long")
    parser.add_argument("--quiet", action="store_true", help="say nothing")


def run(args: argparse.Namespace) -> int:
    server = connection.connect(args)
    workload = follow(server, lookup.find_workload(server, args.job), args.timeout, quiet=args.quiet)
    state = jobs.state_of(workload)
    if state.word == "Succeeded":
        return 0
    codes = map(pods.exit_code, lookup.pods_of(server, workload))
    return next((code for code in codes if code is not None), 1)


def follow(server: connection.Server, workload: Json, timeout: float | None, *, quiet: bool) -> Json:
    """The Workload when it is over; a line for each new state until then."""
    deadline = None if timeout is None else time.monotonic() + timeout
    told = ""
    name = workload["metadata"]["name"]
    while True:
        state = jobs.state_of(workload)
        line = f"{state.word.lower()}{': ' + state.why if state.why else ''}"
        if line != told and not quiet:
            output.note(line)
        told = line
        if state.word in ("Succeeded", "Failed"):
            return workload
        if state.word == "Stopped":
            raise Failed(f"{jobs.owner_of(workload)[1]} was stopped: {state.why}")
        workload = next_state(server, workload, name, deadline)


def next_state(server: connection.Server, workload: Json, name: str, deadline: float | None) -> Json:
    limit = None if deadline is None else deadline - time.monotonic()
    if limit is not None and limit <= 0:
        raise Failed("the job is not over yet")
    version = workload["metadata"]["resourceVersion"]
    changes = server.client.watch(
        Workload.KIND, server.namespace, version=version, fields=f"metadata.name={name}", timeout_seconds=limit
    )
    for type_, obj in changes:
        if type_ == "DELETED":
            raise Failed(f"{jobs.owner_of(workload)[1]} was deleted")
        if type_ != "BOOKMARK":
            return obj
    return workload
