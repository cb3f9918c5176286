"""
Wait for jobs, and return the exit code of the first one that did not succeed.

    kyu wait train eval

Progress is printed to standard error: queued and why, started, done. After --timeout the command returns 1; the jobs
continue. If the server stops answering, the command waits two minutes for it, then returns 75.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

from kyu.api.kueue import Workload
from kyu.api.meta import Json, key_of
from kyu.cli import connection, output
from kyu.cli.batch import jobs, jobs_pods, lookup
from kyu.cli.batch.reconnect import Reconnecting, ServerLost
from kyu.cli.connection import ServerConnection
from kyu.cli.main import Failed
from kyu.kinds import pods
from kyu.kube.blocking import Unreachable
from kyu.kube.errors import Gone

Tell = Callable[[str], None]


def arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser)
    parser.add_argument("jobs", nargs="+", metavar="JOB", help="names of jobs")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="give up after this time")
    parser.add_argument("--quiet", action="store_true", help="print no progress")


def run(args: argparse.Namespace) -> int:
    server = connection.connect(args)
    deadline = None if args.timeout is None else time.monotonic() + args.timeout
    try:
        found = {name: lookup.find_workload(server, name) for name in args.jobs}
    except Unreachable as error:
        raise ServerLost(str(error)) from error

    def teller(name: str) -> Tell:
        start = f"{name}: " if len(found) > 1 else ""
        return (lambda line: None) if args.quiet else (lambda line: output.note(start + line))

    codes = [exit_code_of(server, workload, deadline, teller(name)) for name, workload in found.items()]
    return next((code for code in codes if code), 0)


def exit_code_of(server: ServerConnection, workload: Json, deadline: float | None, tell: Tell) -> int:
    """Wait for a job; return its exit code, or 1 if it ended without one."""
    name = jobs.owner_of(workload)[1]
    requests = Reconnecting(tell, deadline)
    last = follow(server, workload, deadline, tell, requests)
    if last is None:
        output.note(f"{name} was deleted")
        return 1
    if jobs.state_of(last).word == "Succeeded":
        return 0
    its_pods = requests.ask(partial(jobs_pods.pods_of, server, last))
    for trouble in jobs_pods.troubles(its_pods):
        tell(trouble)
    return next((code for code in map(pods.exit_code, its_pods) if code is not None), 1)


def follow(
    server: ServerConnection, workload: Json, deadline: float | None, tell: Tell, requests: Reconnecting
) -> Json | None:
    """Report each new state of a job until it ends; return its Workload, or None if it was deleted."""
    told = ""
    while True:
        state = requests.ask(partial(jobs.full_state, server, workload))
        line = f"{state.word.lower()}{': ' + state.why if state.why else ''}"
        if line != told:
            tell(line)
        told = line
        if state.word in ("Succeeded", "Failed", "Stopped"):
            return workload
        changed = requests.ask(partial(next_state, server, workload, deadline))
        if changed is None:
            return None
        workload = requests.ask(partial(lookup.current_workload, server, changed))


def next_state(server: ServerConnection, workload: Json, deadline: float | None) -> Json | None:
    """Wait for the next change of a Workload; return it, or None if it was deleted."""
    name = workload["metadata"]["name"]
    limit = None if deadline is None else deadline - time.monotonic()
    if limit is not None and limit <= 0:
        raise Failed(f"{jobs.owner_of(workload)[1]} has not finished yet")
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
