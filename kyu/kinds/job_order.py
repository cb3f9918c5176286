"""
The jobs that a Job waits for, from its annotation `kyu.dev/after`.

    train                 after the Job train has succeeded; also written ok:train
    any:train             after it has ended, or was deleted
    notok:train           after it has failed
    singleton             after all earlier Jobs of the same generateName have ended

Entries are separated by commas, and all of them must hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kyu.api.meta import Json
from kyu.kinds import metadata

Condition = Literal["ok", "any", "notok"]
CONDITIONS: tuple[Condition, ...] = ("ok", "any", "notok")
SINGLETON = "singleton"


@dataclass(frozen=True, slots=True)
class Dependency:
    """A Job that must end first, and how."""

    job: str
    condition: Condition = "ok"

    def __str__(self) -> str:
        return self.job if self.condition == "ok" else f"{self.condition}:{self.job}"


def entries(job: Json) -> list[str]:
    listed = metadata.annotations_of(job).get(metadata.JOB_DEPENDENCIES, "")
    return [entry.strip() for entry in listed.split(",") if entry.strip()]


def dependencies(job: Json) -> list[Dependency]:
    """Return the Jobs that must end first."""
    return [parse(entry) for entry in entries(job) if entry != SINGLETON]


def parse(entry: str) -> Dependency:
    """Parse an entry. An unknown condition stays in the name, which no Job has, so the Job waits."""
    for condition in CONDITIONS:
        if entry.startswith(f"{condition}:"):
            return Dependency(entry.removeprefix(f"{condition}:"), condition)
    return Dependency(entry)


def is_singleton(job: Json) -> bool:
    return SINGLETON in entries(job)


def prefix_of(job: Json) -> str:
    """Return the name that several Jobs share, as jobs of Slurm do: their generateName."""
    return str(job["metadata"].get("generateName") or metadata.name_of(job))


def comes_before(other: Json, job: Json) -> bool:
    """Return whether another Job of the same prefix was created first. Times have whole seconds."""
    return age(other) < age(job)


def age(job: Json) -> tuple[str, str]:
    return str(job["metadata"].get("creationTimestamp")), metadata.name_of(job)
