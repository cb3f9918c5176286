"""
Arrays of tasks: an Indexed Job whose tasks carry the numbers that the user chose.

Kubernetes numbers the pods of an Indexed Job from 0 without gaps. The annotation `kyu.dev/array` of the Job lists the
numbers of the user in the same order, for example `0-98:2` or `1,3,7`; each pod carries its own in `kyu.dev/task`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from kyu.api import labels
from kyu.api.meta import Json
from kyu.kinds import metadata

ARRAY = "kyu.dev/array"
# The variable of a task with the user's number.
VARIABLE = "KYU_TASK_ID"
# Kubernetes allows more only with further limits.
MOST_TASKS = 100_000
LARGEST_TASK = 2**31 - 1
# All annotations of an object have 256 KiB together.
LONGEST_TEXT = 200_000
PART = re.compile(r"(\d{1,10})(?:-(\d{1,10})(?::(\d{1,10}))?)?", re.ASCII)
FORMS = "write a number of tasks, or 0-9, 0-98:2, 1,3,7; %5 at the end means five at a time"


@dataclass(frozen=True, slots=True)
class TaskArray:
    """The numbers of tasks, in the order of their indexes, and how many may run at a time."""

    parts: tuple[range, ...]
    width: int | None = None

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __iter__(self) -> Iterator[int]:
        for part in self.parts:
            yield from part

    @property
    def is_dense(self) -> bool:
        """Return whether the user's numbers are those of Kubernetes."""
        return all(task == index for index, task in enumerate(self))

    def task(self, index: int) -> int | None:
        """Return the user's number of an index of the Job."""
        for part in self.parts:
            if index < len(part):
                return part[index]
            index -= len(part)
        return None

    def index(self, task: int) -> int | None:
        """Return the index of the Job for a number of the user."""
        before = 0
        for part in self.parts:
            if task in part:
                return before + part.index(task)
            before += len(part)
        return None

    def __str__(self) -> str:
        """Return the text of the annotation, without the width."""
        return ",".join(map(render_range, self.parts))


def parse(text: str) -> TaskArray:
    """Parse ``0-98:2%10``; raise ValueError with the reason."""
    listed, separator, width = text.partition("%")
    if separator and (not width.isascii() or not width.isdigit() or int(width) < 1):
        raise ValueError(f"the number after % must be 1 or more; {FORMS}")
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"the list has more than {LONGEST_TEXT} characters; submit it in parts")
    parts = tuple(parse_part(part) for part in listed.split(","))
    count = sum(map(len, parts))
    if count > MOST_TASKS:
        raise ValueError(f"an array has at most {MOST_TASKS} tasks, and this has {count}")
    if len({task for part in parts for task in part}) < count:
        raise ValueError("a task is listed twice")
    return TaskArray(parts, int(width) if separator else None)


def parse_part(text: str) -> range:
    match = PART.fullmatch(text)
    if match is None:
        raise ValueError(FORMS)
    first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
    if last < first or step < 1:
        raise ValueError(f"{text}: the range is empty; write it as FIRST-LAST:STEP")
    if last > LARGEST_TASK:
        raise ValueError(f"{text}: the largest number of a task is {LARGEST_TASK}")
    return range(first, last + 1, step)


def of_numbers(tasks: Iterable[int], width: int | None = None) -> TaskArray:
    """Return the array of these tasks, with runs of neighbours as ranges."""
    parts: list[range] = []
    for task in sorted(tasks):
        if parts and task == parts[-1].stop:
            parts[-1] = range(parts[-1].start, task + 1)
        else:
            parts.append(range(task, task + 1))
    return TaskArray(tuple(parts), width)


def render_range(part: range) -> str:
    if len(part) == 1:
        return str(part[0])
    return f"{part[0]}-{part[-1]}" + (f":{part.step}" if part.step > 1 else "")


@lru_cache(maxsize=64)
def parse_annotation(text: str) -> TaskArray | None:
    try:
        return parse(text)
    except ValueError:
        return None


def of_job(job: Json) -> TaskArray | None:
    """Return the array of a Job, or None if the annotation is missing or does not fit the Job."""
    text = metadata.annotations_of(job).get(ARRAY)
    found = parse_annotation(text) if isinstance(text, str) and text else None
    completions = (job.get("spec") or {}).get("completions")
    return found if found is not None and len(found) == completions else None


def task_of(pod: Json) -> str:
    """Return the number of a pod's task, or an empty text for a pod that is no task."""
    return labels.task_number(metadata.annotations_of(pod))
