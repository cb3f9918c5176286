"""scancel: cancel jobs by name, user, partition or state."""

from __future__ import annotations

import contextlib

from kyu.cli import connection
from kyu.cli.batch import cancel
from kyu.cli.main import BadInput
from kyu.cli.slurm import squeue, whoami, words
from kyu.cli.slurm.squeue import QueueLine
from kyu.kube.errors import NotFound


def run(given: list[str]) -> int:
    parser = words.SlurmParser("scancel", "Cancel jobs.")
    parser.add_argument("jobs", nargs="*", help="jobs")
    parser.add_argument("-u", "--user", default="", help="jobs of this user")
    parser.add_argument("--me", action="store_true", help="own jobs")
    parser.add_argument("-p", "--partition", default="", help="jobs of this queue")
    parser.add_argument("-n", "--name", default="", help="jobs of this name")
    parser.add_argument("-t", "--state", default="", help="jobs in this state")
    parser.add_argument("-Q", "--quiet", action="store_true", help="say nothing of jobs that do not exist")
    args = parser.parse_args(given)
    if not (args.jobs or args.user or args.me or args.partition or args.name or args.state):
        raise BadInput("scancel: name the jobs, or choose them with --me, -u, -p, -n or -t")
    server = connection.connect(args)
    users = {whoami.name(server)} if args.me else set(words.listed(args.user))
    states = words.states("scancel", args.state)
    names = words.listed(args.name)

    def is_wanted(line: QueueLine) -> bool:
        return (
            (not users or line.user in users)
            and (not args.partition or line.row.queue == args.partition)
            and (not args.jobs or line.row.name in args.jobs)
            and (not names or any(words.is_named(line.row.name, name) for name in names))
            and (not states or line.state in states)
        )

    found = squeue.own_lines(server, is_wanted)
    reached = {cancel.cancelled(workload)[0] for workload in found}
    for workload in found:
        for kind, key in cancel.cancelled(workload)[1]:
            with contextlib.suppress(NotFound):
                server.client.delete(kind, key, propagation="Background")
    missing = [name for name in args.jobs if name not in reached]
    if missing and not args.quiet:
        raise BadInput("\n".join(f"scancel: {name}: {why(name)}" for name in missing))
    return 0


def why(name: str) -> str:
    if "_" in name:
        return "single tasks cannot be cancelled; name the whole array"
    return "there is no such job that waits or runs"
