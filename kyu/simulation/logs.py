"""
Loads from logs: CSV, the Standard Workload Format (SWF), and the pods of Alibaba's openb trace.

SWF is the format of the Parallel Workloads Archive: 18 numbers per job, -1 where a number is unknown, `;` before a
comment. The openb trace is a CSV file with the columns of Alibaba's cluster trace of GPUs, 2023.

Called by: simulation/load.py.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kyu.api import quantity
from kyu.simulation.jobs import LoadError, PodRequest, SimulatedJob, size_class

OPENB_COLUMNS = frozenset({"name", "cpu_milli", "memory_mib", "num_gpu", "creation_time", "deletion_time"})
GPU = "nvidia.com/gpu"
GPU_MODEL = "gpu-model"
"""The node label that the flavors of a GPU model carry, for pods of openb that name a model."""
# A line of SWF has 18 fields; writers leave out fields at the end.
SWF_FIELDS = 18
SWF_LEAST = 5
# The columns of a CSV file, with the other names under which they are known.
ALIASES = {
    "job": ("job", "name", "job_id"),
    "submit": ("submit_s", "submit"),
    "run": ("run_s", "runtime_s", "runtime"),
    "limit": ("limit_s", "req_time_s", "time_limit_s"),
    "procs": ("procs", "processors"),
    "pods": ("pods",),
    "queue": ("queue",),
    "class": ("class",),
    "team": ("team", "user"),
    "priority": ("priority",),
}
REQUEST = "requests."
PLAIN_RESOURCES = ("cpu", "memory", GPU)


@dataclass(slots=True)
class LeftOut:
    """The jobs of a log that never ran, or requested nothing, and are left out."""

    count: int = 0


def parse_swf(text: str, left_out: LeftOut) -> Iterator[SimulatedJob]:
    """Yield the jobs of an SWF log. Jobs without a run time or processors are left out."""
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith(";"):
            continue
        words = line.split()
        if not SWF_LEAST <= len(words) <= SWF_FIELDS:
            raise LoadError(f"line {number}: expected {SWF_FIELDS} fields of SWF, found {len(words)}")
        fields = [_number(word, f"line {number}") for word in words]
        fields += [-1.0] * (SWF_FIELDS - len(fields))
        processors = int(fields[7] if fields[7] > 0 else fields[4])
        if processors <= 0 or fields[3] <= 0:
            left_out.count += 1
            continue
        yield SimulatedJob(
            name=f"job-{words[0]}",
            submitted=fields[1],
            runtime=fields[3],
            request=_processors(processors),
            limit=int(fields[8]) if fields[8] > 0 else None,
            job_class=size_class(processors),
            team=f"user-{words[11]}" if fields[11] >= 0 else "",
        )


def _processors(count: int) -> PodRequest:
    return PodRequest((("cpu", "1"),), count)


def parse_csv(text: str, left_out: LeftOut) -> Iterator[SimulatedJob]:
    """Yield the jobs of a CSV file with a header, of our own columns or of openb."""
    rows = csv.DictReader(io.StringIO(text))
    header = frozenset(rows.fieldnames or ())
    read = _openb_job if header >= OPENB_COLUMNS else _csv_job
    if read is _csv_job:
        _check_header(header)
    for number, row in enumerate(rows, start=2):
        values = {name: (value or "").strip() for name, value in row.items() if isinstance(name, str)}
        job = read(values, f"line {number}")
        if job is None:
            left_out.count += 1
        else:
            yield job


def _check_header(header: frozenset[str]) -> None:
    for column in ("submit", "run"):
        if not header.intersection(ALIASES[column]):
            raise LoadError(f"line 1: no column {ALIASES[column][0]!r}; a load needs {_names()}")


def _names() -> str:
    return "submit_s, run_s, and procs, cpu, memory or requests.RESOURCE"


def _csv_job(row: Mapping[str, str], where: str) -> SimulatedJob | None:
    cell = {column: next((row[n] for n in names if row.get(n)), "") for column, names in ALIASES.items()}
    runtime = _number(cell["run"] or "-1", where)
    requests = {name: row[name] for name in PLAIN_RESOURCES if row.get(name)}
    requests |= {name.removeprefix(REQUEST): value for name, value in row.items() if name.startswith(REQUEST) and value}
    for resource, value in requests.items():
        check_quantity(value, f"{where}: {resource}")
    pods = _whole(cell["pods"] or "1", where)
    processors = _whole(cell["procs"], where) if cell["procs"] else 0
    if processors > 0 and not requests:
        requests, pods = {"cpu": "1"}, processors
    if runtime <= 0 or pods <= 0 or not requests:
        return None
    limit = _number(cell["limit"], where) if cell["limit"] else 0
    return SimulatedJob(
        name=_object_name(cell["job"]) or f"job-{where.removeprefix('line ')}",
        submitted=_number(cell["submit"], where),
        runtime=runtime,
        request=PodRequest(tuple(sorted(requests.items())), pods),
        queue=cell["queue"],
        limit=int(limit) if limit > 0 else None,
        priority=_whole(cell["priority"], where) if cell["priority"] else 0,
        job_class=cell["class"] or (size_class(processors) if processors else ""),
        team=f"user-{cell['team']}" if cell["team"].isdigit() else cell["team"],
    )


def _object_name(text: str) -> str:
    """Return a name that an object may have."""
    plain = "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in text.lower()).strip("-.")
    return f"job-{plain}" if plain.isdigit() else plain


def _openb_job(row: Mapping[str, str], where: str) -> SimulatedJob | None:
    created, deleted = _number(row["creation_time"], where), row["deletion_time"]
    began = _number(row.get("scheduled_time") or row["creation_time"], where)
    runtime = _number(deleted, where) - began if deleted else 0.0
    if runtime <= 0:
        return None
    gpus = _whole(row["num_gpu"] or "0", where)
    requests = {"cpu": f"{_whole(row['cpu_milli'], where)}m", "memory": f"{_whole(row['memory_mib'], where)}Mi"}
    if gpus:
        requests[GPU] = str(gpus)
    model = row.get("gpu_spec", "")
    return SimulatedJob(
        name=row["name"],
        submitted=created,
        runtime=runtime,
        # A pod that may use several models is not bound to one of them.
        request=PodRequest(
            tuple(sorted(requests.items())), 1, ((GPU_MODEL, model),) if model and "|" not in model else ()
        ),
        job_class=row.get("qos", ""),
    )


def check_quantity(value: str, where: str) -> None:
    """Raise LoadError if the value is no quantity of Kubernetes."""
    try:
        quantity.parse(value)
    except quantity.QuantityError as error:
        raise LoadError(f"{where}: {error}") from None


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise LoadError(f"{where}: {text!r} is not a number") from None
    if not abs(value) < 1e12:
        raise LoadError(f"{where}: {text!r} is out of range")
    return value


def _whole(text: str, where: str) -> int:
    value = _number(text, where)
    if value != int(value):
        raise LoadError(f"{where}: {text!r} is not a whole number")
    return int(value)
