"""
Wait for jobs, and end with the exit code of the first that did not succeed.

    kyu wait train eval

Progress goes to standard error: queued and why, started, done. With --timeout the wait gives up with exit code 1; the
jobs go on. While the server is away, as when it is restarted, the wait goes on; after two minutes it ends with code
75, which says nothing of the job.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

from kyu.api.kueue import Workload
from kyu.api.meta import Json, key_of
from kyu.cli import connection, jobs, jobs_pods, lookup, output
from kyu.cli.main import Failed
from kyu.cli.patience import Lost, Patience
from kyu.kinds import pods
from kyu.kube.blocking import Unreachable
from kyu.kube.errors import Gone

Tell = Callable[[str], None]


def arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser)
    parser.add_argument("jobs", nargs="+", metavar="JOB", help="names of jobs")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="wait at most this long")
    parser.add_argument("--quiet", action="store_true", help="say nothing")


def run(args: argparse.Namespace) -> int:
    server = connection.connect(args)
    deadline = None if args.timeout is None else time.monotonic() + args.timeout
    try:
        found = {name: lookup.find_workload(server, name) for name in args.jobs}
    except Unreachable as error:
        raise Lost(str(error)) from error

    def teller(name: str) -> Tell:
        start = f"{name}: " if len(found) > 1 else ""
        return (lambda line: None) if args.quiet else (lambda line: output.note(start + line))

    codes = [outcome(server, workload, deadline, teller(name)) for name, workload in found.items()]
    return next((code for code in codes if code), 0)


def outcome(server: connection.Server, workload: Json, deadline: float | None, tell: Tell) -> int:
    """The exit code of a job, as soon as it is over; 1 if it ended without one."""
    name = jobs.owner_of(workload)[1]
    patience = Patience(tell, deadline)
    last = follow(server, workload, deadline, tell, patience)
    if last is None:
        output.note(f"{name} was deleted")
        return 1
    if jobs.state_of(last).word == "Succeeded":
        return 0
    its_pods = patience.ask(partial(jobs_pods.pods_of, server, last))
    for trouble in jobs_pods.troubles(its_pods):
        tell(trouble)
    return next((code for code in map(pods.exit_code, its_pods) if code is not None), 1)


def follow(
    server: connection.Server, workload: Json, deadline: float | None, tell: Tell, patience: Patience
) -> Json | None:
    """The Workload when it is over, or None if it was deleted; a line for each new state until then."""
    told = ""
    while True:
        state = patience.ask(partial(jobs.full_state, server, workload))
        line = f"{state.word.lower()}{': ' + state.why if state.why else ''}"
        if line != told:
            tell(line)
        told = line
        if state.word in ("Succeeded", "Failed", "Stopped"):
            return workload
        changed = patience.ask(partial(next_state, server, workload, deadline))
        if changed is None:
            return None
        workload = patience.ask(partial(lookup.in_force, server, changed))


def next_state(server: connection.Server, workload: Json, deadline: float | None) -> Json | None:
    """As it is after its next change, or when the server ended the watch; None if it was deleted."""
    name = workload["metadata"]["name"]
    limit = None if deadline is None else deadline - time.monotonic()
    if limit is not None and limit <= 0:
        raise Failed(f"{jobs.owner_of(workload)[1]} is not over yet")
    version = workload["metadata"]["resourceVersion"]
    changes = server.client.watch(
        Workload.KIND, server.namespace, version=version, fields=f"metadata.name={name}", timeout_seconds=limit
    )
    try:
        for type_, obj in changes:
            if type_ == "DELETED":
                return None
            if type_ != "BOOKMARK":
                return obj
    except Gone:
        return server.client.find(Workload.KIND, key_of(workload))
    return workload
