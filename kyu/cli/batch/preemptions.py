"""The preemption of a job: by which job, by name, and why. A Workload names its preemptor by uid only."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from kyu.api.kueue import Workload
from kyu.api.meta import Json
from kyu.cli.batch import jobs
from kyu.cli.batch.jobs import JobRow
from kyu.cli.connection import ServerConnection
from kyu.kinds import metadata
from kyu.kube.errors import Forbidden

MESSAGE = re.compile(r"Preempted to accommodate a workload \(UID: (\S+), JobUID: \S+\) due to ([^;]+)")
UNKNOWN = "a job that you may not see"


@dataclass(frozen=True, slots=True)
class Preemption:
    """The last preemption of a Workload. It is over when the Workload has been admitted again."""

    uid: str
    cause: str
    at: str
    is_over: bool


def find(workload: Json) -> Preemption | None:
    """Return the last preemption of a Workload."""
    condition = jobs.conditions_of(workload).get("Preempted", {})
    match = MESSAGE.search(condition.get("message", ""))
    if match is None:
        return None
    return Preemption(match[1], match[2], condition.get("lastTransitionTime", ""), condition.get("status") != "True")


def preemptors(server: ServerConnection, workloads: Iterable[Json]) -> dict[str, str]:
    """Return the names of the jobs that preempted these Workloads, by uid."""
    workloads = list(workloads)
    wanted = {found.uid for item in workloads if (found := find(item))}
    if not wanted:
        return {}
    if not wanted <= {metadata.uid_of(item) for item in workloads}:
        with contextlib.suppress(Forbidden):
            workloads = list(server.client.list(Workload.KIND))
    return {metadata.uid_of(item): full_name(item, server.namespace) for item in workloads}


def with_preemptors(server: ServerConnection, workloads: Iterable[Json], rows: list[JobRow]) -> list[JobRow]:
    """Name the preemptor in the rows of jobs that were preempted and are not admitted again."""
    found = {metadata.uid_of(row.obj): one for row in rows if (one := find(row.obj)) and not one.is_over}
    names = preemptors(server, workloads) if found else {}

    def with_preemptor(row: JobRow) -> JobRow:
        preemption = found.get(metadata.uid_of(row.obj))
        if preemption is None or row.state.word in jobs.ENDED:
            return row
        who = describe(preemption, names)
        # The message of a job that is being stopped is that of its preemption.
        why = preemption.cause if MESSAGE.search(row.state.why) else row.state.why
        return replace(row, state=replace(row.state, why=f"{who}; {why}" if why else who))

    return [with_preemptor(row) for row in rows]


def full_name(workload: Json, namespace: str) -> str:
    """Return the name of the job, with its namespace if that is another one."""
    name, own = jobs.owner_of(workload)[1], workload["metadata"]["namespace"]
    return name if own == namespace else f"{own}/{name}"


def describe(preemption: Preemption, names: dict[str, str]) -> str:
    return f"preempted by {names.get(preemption.uid, UNKNOWN)}"
