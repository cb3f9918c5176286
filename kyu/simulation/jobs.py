"""
The jobs of a load, and the Workloads that they become.

A job arrives, runs for a time that only the simulation knows, and may declare a limit that the scheduler knows. Jobs
with equal requests share one decoded Workload, of which each job gets a copy with its own name and creation time.

Called by: simulation/scenario.py and simulation/logs.py (make jobs), simulation/virtual_time.py (submits them).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from kyu.api import codec
from kyu.api.meta import Key
from kyu.api.workloads import Workload

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""The moment that second 0 of a load stands for."""
# Upper bounds of the classes of jobs whose load names no class, by number of processors.
SIZES: Final = (1, 8, 32, 128)
NO_SELECTOR: Final[Mapping[str, str]] = {}


class LoadError(ValueError):
    """The text of a load is not readable. The message names the place and the remedy."""


@dataclass(frozen=True, slots=True)
class PodRequest:
    """The pods of a job: their number, and what each of them requests and selects."""

    requests: tuple[tuple[str, str], ...]
    pods: int = 1
    node_selector: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """A job of a load. Times are seconds since the start of the load."""

    name: str
    submitted: float
    runtime: float
    request: PodRequest
    queue: str = ""
    """The LocalQueue, as NAME or NAMESPACE/NAME; empty if the load does not say."""
    limit: int | None = None
    """The declared maximum execution time in seconds. The job is stopped when it has run so long."""
    priority: int = 0
    job_class: str = ""
    team: str = ""

    @property
    def run_seconds(self) -> float:
        """The seconds that the job runs: to its end or to its limit."""
        return self.runtime if self.limit is None else min(self.runtime, self.limit)


def size_class(processors: int) -> str:
    """Return the class of a job by its processors, for loads that name no classes."""
    lower = 1
    for upper in SIZES:
        if processors <= upper:
            return f"{upper} cpu" if lower == upper else f"{lower}-{upper} cpu"
        lower = upper + 1
    return f"{lower}+ cpu"


@dataclass(slots=True)
class WorkloadFactory:
    """A maker of Workloads, which decodes one Workload for each kind of request."""

    _models: dict[tuple[object, ...], Workload] = field(default_factory=dict)

    def make(self, job: SimulatedJob, queue: Key, number: int) -> Workload:
        """Return the Workload of a job. The number decides the order of jobs that arrive at the same time."""
        known = (job.request, queue, job.priority, job.limit)
        model = self._models.get(known)
        if model is None:
            model = self._models[known] = decode_model(job, queue)
        metadata = msgspec.structs.replace(
            model.metadata,
            name=job.name,
            uid=f"{number:012d}",
            creation_timestamp=(START + timedelta(seconds=job.submitted)).isoformat(),
        )
        return msgspec.structs.replace(model, metadata=metadata)


def decode_model(job: SimulatedJob, queue: Key) -> Workload:
    """Return the Workload that jobs with an equal request have in common."""
    container = {"name": "main", "image": "none", "resources": {"requests": dict(job.request.requests)}}
    pod: dict[str, Any] = {"containers": [container], "restartPolicy": "Never"}
    if job.request.node_selector:
        pod["nodeSelector"] = dict(job.request.node_selector)
    spec: dict[str, Any] = {
        "queueName": queue.name,
        "priority": job.priority,
        "podSets": [{"name": "main", "count": job.request.pods, "template": {"spec": pod}}],
    }
    if job.limit is not None:
        spec["maximumExecutionTimeSeconds"] = job.limit
    metadata = {"name": "model", "namespace": queue.namespace}
    found = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": metadata, "spec": spec}
    return codec.decode_as(Workload, found)
