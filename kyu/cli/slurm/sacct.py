"""sacct: list jobs of the past, from the ledger of the server."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from kyu.api.accounting import JobAttempt
from kyu.cli import connection, ledger, output
from kyu.cli.accounts import attempts
from kyu.cli.accounts.history import PastJob, size
from kyu.cli.main import BadInput
from kyu.cli.slurm import whoami, words

DEFAULT = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"


def job_id(job: PastJob) -> str:
    return f"{job.last.job}_{job.last.task}" if job.last.task else job.last.job


def local_time(text: str) -> str:
    return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%dT%H:%M:%S")


FIELDS: dict[str, Callable[[PastJob], object]] = {
    "JobID": job_id,
    "JobName": lambda job: job.last.job,
    "Partition": lambda job: job.last.queue,
    "Account": lambda job: job.last.namespace,
    "User": lambda job: job.last.submitter,
    "AllocCPUS": lambda job: f"{job.last.requests.get('cpu', 0.0):g}",
    "ReqMem": lambda job: size(int(job.last.requests.get("memory", 0))),
    "State": lambda job: words.ENDED[job.last.state],
    "ExitCode": lambda job: words.exit_code(job.last.exit_code),
    "Submit": lambda job: local_time(job.attempts[0].queued),
    "Start": lambda job: local_time(job.last.started),
    "End": lambda job: local_time(job.last.ended),
    "Elapsed": lambda job: words.clock(job.last.seconds),
    "TotalCPU": lambda job: words.clock(job.last.cpu_seconds or 0.0),
    "CPUTime": lambda job: words.clock(job.last.seconds * job.last.requests.get("cpu", 0.0)),
    "MaxRSS": lambda job: size(job.last.peak_bytes),
    "NodeList": lambda job: job.last.node,
    "Restarts": lambda job: len(job.attempts) - 1,
}


def run(given: list[str]) -> int:
    parser = words.SlurmParser("sacct", "List jobs of the past.")
    parser.add_argument("-S", "--starttime", default="", help="ended since (default: midnight)")
    parser.add_argument("-E", "--endtime", default="", help="ended before")
    parser.add_argument("-u", "--user", "--uid", default="", help="jobs of these users")
    parser.add_argument("--me", action="store_true", help="own jobs")
    parser.add_argument("-a", "--allusers", action="store_true", help="jobs of all users, as by default")
    parser.add_argument("-r", "--partition", default="", help="jobs of these queues")
    parser.add_argument("-j", "--jobs", default="", help="these jobs")
    parser.add_argument("-s", "--state", default="", help="jobs that ended in these states")
    parser.add_argument("-X", "--allocations", action="store_true", help="jobs without steps, as by default")
    parser.add_argument("-n", "--noheader", action="store_true", help="no header")
    parser.add_argument("-P", "--parsable2", action="store_true", help="columns separated by |")
    parser.add_argument("-o", "--format", default=DEFAULT, help="columns, for example JobID,State,Elapsed")
    args = parser.parse_args(given)
    columns = chosen_columns(args.format)
    server = connection.connect(args)
    now = datetime.now(UTC)
    since = args.starttime or datetime.now().astimezone().strftime("%Y-%m-%d")
    query = {
        "since": attempts.moment("sacct: --starttime", since, now) if args.starttime or not args.jobs else "",
        "until": attempts.moment("sacct: --endtime", args.endtime, now),
    }
    found = ledger.pages(server, server.namespace, {name: value for name, value in query.items() if value})
    users = {whoami.name(server)} if args.me else set(words.listed(args.user))
    queues, names = set(words.listed(args.partition)), set(words.listed(args.jobs))
    states = words.states("sacct", args.state)
    jobs = [
        job
        for job in by_task(found)
        if (not users or job.last.submitter in users)
        and (not queues or job.last.queue in queues)
        and (not names or {job.last.job, job_id(job)} & names)
        and (not states or words.ENDED[job.last.state] in states)
    ]
    print_jobs(jobs, columns, header=not args.noheader, parsable=args.parsable2)
    return 0


def chosen_columns(text: str) -> list[str]:
    """Return the columns by their names, in any case and without their widths."""
    known = {name.lower(): name for name in FIELDS}
    names = [word.partition("%")[0] for word in words.listed(text)]
    if unknown := [name for name in names if name.lower() not in known]:
        raise BadInput(f"sacct: {unknown[0]} is not a column that Kyu knows; there are: {', '.join(FIELDS)}")
    return [known[name.lower()] for name in names]


def by_task(found: list[JobAttempt]) -> list[PastJob]:
    """Group attempts by the task of their job: sacct shows the tasks of an array one by one."""
    groups: dict[tuple[str, str, str], list[JobAttempt]] = {}
    for one in found:
        # The pods of a job that is no array are its attempts, or parts that ran together.
        groups.setdefault((one.namespace, one.job_uid, one.task), []).append(one)
    jobs = [PastJob(tuple(sorted(group, key=lambda one: (one.started, one.ended)))) for group in groups.values()]
    return sorted(jobs, key=lambda job: (job.attempts[0].queued, job.last.job, int(job.last.task or 0)))


def print_jobs(jobs: list[PastJob], columns: list[str], *, header: bool, parsable: bool) -> None:
    rows = [[str(FIELDS[name](job)) for name in columns] for job in jobs]
    if parsable:
        lines = ["|".join(row) for row in [columns, *rows]]
    else:
        lines = output.table(columns, rows).splitlines()
    print("\n".join(lines if header else lines[1:]))
