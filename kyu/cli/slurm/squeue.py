"""squeue: list jobs that wait or run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from kyu.api.accounting import SUBMITTER
from kyu.api.kueue import Workload
from kyu.api.meta import Json
from kyu.cli import connection
from kyu.cli.batch import jobs
from kyu.cli.connection import ServerConnection
from kyu.cli.main import BadInput
from kyu.cli.slurm import whoami, words
from kyu.kinds import metadata

DEFAULT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
FIELD = re.compile(r"%(\.?)(\d*)([A-Za-z])")
# Squeue shows jobs that wait or run, unless states are chosen.
SHOWN = frozenset({"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED"})


@dataclass(frozen=True, slots=True)
class QueueLine:
    """A job as squeue shows it."""

    row: jobs.JobRow
    now: datetime

    @property
    def state(self) -> str:
        return words.CURRENT.get(self.row.state.word, "PENDING")

    @property
    def user(self) -> str:
        return metadata.annotations_of(self.row.obj).get(SUBMITTER, "")

    def time(self) -> str:
        started = jobs.conditions_of(self.row.obj).get("Admitted", {})
        if self.state not in ("RUNNING", "COMPLETING") or started.get("status") != "True":
            return "0:00"
        since = datetime.fromisoformat(started["lastTransitionTime"])
        return words.clock((self.now - since).total_seconds())


FIELDS: dict[str, tuple[str, Callable[[QueueLine], str]]] = {
    "i": ("JOBID", lambda line: line.row.name),
    "A": ("JOBID", lambda line: line.row.name),
    "j": ("NAME", lambda line: line.row.name),
    "P": ("PARTITION", lambda line: line.row.queue),
    "a": ("ACCOUNT", lambda line: str(line.row.obj["metadata"].get("namespace", ""))),
    "u": ("USER", lambda line: line.user),
    "t": ("ST", lambda line: words.SHORT[line.state]),
    "T": ("STATE", lambda line: line.state),
    "M": ("TIME", lambda line: line.time()),
    "D": ("PODS", lambda line: str(line.row.pods)),
    "V": ("SUBMIT_TIME", lambda line: line.row.created),
    "R": ("NODELIST(REASON)", lambda line: f"({line.row.state.why})" if line.row.state.why else ""),
    "r": ("REASON", lambda line: line.row.state.why),
}


def run(given: list[str]) -> int:
    parser = words.SlurmParser("squeue", "List jobs that wait or run.")
    parser.add_argument("-u", "--user", default="", help="jobs of these users")
    parser.add_argument("--me", action="store_true", help="own jobs")
    parser.add_argument("-p", "--partition", default="", help="jobs of these queues")
    parser.add_argument("-j", "--jobs", default="", help="these jobs")
    parser.add_argument("-n", "--name", default="", help="jobs of these names")
    parser.add_argument("-t", "--states", default="", help="jobs in these states, or all")
    parser.add_argument("-h", "--noheader", action="store_true", help="no header")
    parser.add_argument("-o", "--format", default=DEFAULT, help="columns, for example '%%i %%t %%R'")
    args = parser.parse_args(given)
    server = connection.connect(args)
    print_lines(chosen(server, args), args.format, header=not args.noheader)
    return 0


def chosen(server: ServerConnection, args: object) -> list[QueueLine]:
    """Return the jobs that the options choose, the oldest first."""
    options = vars(args)
    users = {whoami.name(server)} if options["me"] else set(words.listed(options["user"]))
    queues, ids = set(words.listed(options["partition"])), set(words.listed(options["jobs"]))
    names = words.listed(options["name"])
    states = words.states("squeue", options["states"]) if options["states"] else SHOWN
    return [
        line
        for line in lines(server)
        if (not users or line.user in users)
        and (not queues or line.row.queue in queues)
        and (not ids or line.row.name in ids)
        and (not names or any(words.is_named(line.row.name, name) for name in names))
        and (not states or line.state in states)
    ]


def lines(server: ServerConnection) -> Iterator[QueueLine]:
    now = datetime.now(UTC)
    workloads = server.listed(Workload.KIND, server.namespace)
    rows = [jobs.full_row(server, jobs.row_of_workload(item)) for item in workloads]
    for row in sorted(rows, key=lambda row: row.created):
        if row.state.word != jobs.REPLACED:
            yield QueueLine(row, now)


def print_lines(found: list[QueueLine], form: str, *, header: bool) -> None:
    letters = [match[3] for match in FIELD.finditer(form)]
    if unknown := [letter for letter in letters if letter not in FIELDS]:
        raise BadInput(f"squeue: %{unknown[0]} is not a column that Kyu knows; there are: %{' %'.join(FIELDS)}")
    if not letters:
        raise BadInput("squeue: the format has no columns, for example '%i %t %R'")
    if header:
        print(FIELD.sub(lambda match: placed(FIELDS[match[3]][0], match), form).rstrip())
    for line in found:
        print(FIELD.sub(partial(filled, line), form).rstrip())


def filled(line: QueueLine, match: re.Match[str]) -> str:
    return placed(FIELDS[match[3]][1](line), match)


def placed(text: str, match: re.Match[str]) -> str:
    """Return a cell of a column. Slurm cuts a name that is too long, so that a script cannot use it; Kyu does not."""
    text, width = " ".join(text.split()), int(match[2] or 0)
    return text.rjust(width) if match[1] else text.ljust(width)


def own_lines(server: ServerConnection, wanted: Callable[[QueueLine], bool]) -> list[Json]:
    """Return the Workloads of unfinished jobs that are wanted."""
    return [line.row.obj for line in lines(server) if line.state in SHOWN and wanted(line)]
