"""
The reading of a load: find its format, read its jobs, and give each job a LocalQueue.

Called by: cli/admin/simulate.py. Calls: simulation/scenario.py, simulation/logs.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from kyu.api import documents
from kyu.api.meta import Key
from kyu.simulation.jobs import LoadError, SimulatedJob
from kyu.simulation.logs import LeftOut, parse_csv, parse_swf
from kyu.simulation.scenario import parse_scenario

FORMATS: Final = ("scenario", "csv", "swf")


@dataclass(frozen=True, slots=True)
class SimulatedLoad:
    """The jobs of a load in the order of their arrival, each with the key of its LocalQueue."""

    jobs: tuple[tuple[SimulatedJob, Key], ...]
    left_out: int = 0
    """The number of jobs that never ran or requested nothing."""


def find_format(name: str, text: str) -> str:
    """Return the format of a load, by the end of its name or else by its first line."""
    for suffix, form in ((".swf", "swf"), (".csv", "csv"), (".yaml", "scenario"), (".yml", "scenario")):
        if name.removesuffix(".gz").endswith(suffix):
            return form
    first = next((line for line in text.splitlines() if line.strip()), "")
    if first.startswith(";") or (first.split() and all(_is_number(word) for word in first.split())):
        return "swf"
    return "csv" if "," in first and ":" not in first else "scenario"


def _is_number(word: str) -> bool:
    return word.removeprefix("-").replace(".", "", 1).isdigit()


def read_load(text: str, form: str, queues: Collection[Key], default_queue: str = "") -> SimulatedLoad:
    """Return the jobs of a load by arrival, or raise LoadError. The text's order decides between equal times."""
    left_out = LeftOut()
    if form == "swf":
        found = list(parse_swf(text, left_out))
    elif form == "csv":
        found = list(parse_csv(text, left_out))
    else:
        try:
            parsed = documents.parse(text)
        except documents.DocumentError as error:
            raise LoadError(str(error)) from None
        found = [job for document in parsed for job in parse_scenario(document.value)]
    if not found:
        raise LoadError("the load has no job that runs and requests something")
    find_queue = QueueNames(queues, default_queue).find
    ordered = sorted(_named_apart(found), key=lambda job: job.submitted)
    return SimulatedLoad(tuple((job, find_queue(job.queue, job.name)) for job in ordered), left_out.count)


def _named_apart(jobs: list[SimulatedJob]) -> list[SimulatedJob]:
    """Return the jobs with different names: a second job of a name gets a number."""
    seen: dict[str, int] = {}
    apart: list[SimulatedJob] = []
    for job in jobs:
        count = seen[job.name] = seen.get(job.name, 0) + 1
        apart.append(job if count == 1 else dataclasses.replace(job, name=f"{job.name}-again-{count}"))
    return apart


class QueueNames:
    """The LocalQueues of the manifests, which jobs name with or without a namespace."""

    def __init__(self, queues: Collection[Key], default: str) -> None:
        self._queues = sorted(queues)
        self._known = {str(key): key for key in queues}
        self._default = default

    def find(self, name: str, job: str) -> Key:
        """Return the LocalQueue that a job names, or the one for jobs that name none."""
        wanted = name or self._default
        if not wanted:
            if len(self._queues) == 1:
                return self._queues[0]
            raise LoadError(f"job {job}: no queue: name one of {self._listed()} in the load, or with --queue")
        found = self._known.get(wanted)
        if found is None:
            by_name = [key for key in self._queues if key.name == wanted]
            if len(by_name) != 1:
                problem = "is in several namespaces" if by_name else "does not exist"
                raise LoadError(f"job {job}: LocalQueue {wanted!r} {problem}: the manifests have {self._listed()}")
            found = self._known[wanted] = by_name[0]
        return found

    def _listed(self) -> str:
        names = [str(key) for key in self._queues]
        return (", ".join(names[:8]) + (" …" if len(names) > 8 else "")) or "no LocalQueue"
