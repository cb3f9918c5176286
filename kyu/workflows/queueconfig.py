"""
The settings of a scheduler plugin: which scheduler, and for each type of job how its gang is scheduled.

    queueconfig:
      scheduler: yunikorn
      jobs:
        - type: ray
          gangscheduling: "placeholderTimeoutInSeconds=60 gangSchedulingStyle=hard"
          allow-preemption: false

The parser is strict: a setting that a scheduler would silently ignore is an error here, with its line and a remedy.
``gangSchedulingStyle`` is case-insensitive, since YuniKorn itself takes ``hard`` for Soft. ``queue``, for all jobs or
for one type, is an addition of Kyu: the template of the queue's name.
"""

from __future__ import annotations

import difflib
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kyu.api import documents
from kyu.workflows.task import DEFAULT_TYPE

TOP_KEYS = ("scheduler", "queue", "jobs")
JOB_KEYS = ("type", "gangscheduling", "allow-preemption", "queue")
PARAMETERS = ("placeholderTimeoutInSeconds", "gangSchedulingStyle")
STYLES = ("Hard", "Soft")
PLACEHOLDERS = ("organization", "project", "domain", "user", "type")


@dataclass(frozen=True, slots=True)
class Gang:
    """The gang scheduling parameters of a job. None is the scheduler's default."""

    timeout_seconds: int | None = None
    style: str | None = None

    def __str__(self) -> str:
        """The parameters in YuniKorn's format."""
        parts = [f"placeholderTimeoutInSeconds={self.timeout_seconds}"] if self.timeout_seconds is not None else []
        return " ".join(parts + ([f"gangSchedulingStyle={self.style}"] if self.style else []))


@dataclass(frozen=True, slots=True)
class JobSettings:
    type: str
    gang: Gang = Gang()
    allow_preemption: bool | None = None
    queue: str = ""


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """``scheduler`` is the name of a plugin, ``queue`` a template such as ``root.{organization}.{type}``."""

    scheduler: str
    queue: str = ""
    jobs: tuple[JobSettings, ...] = field(default=())

    def settings(self, type_: str) -> JobSettings:
        """Return the settings of a type, or those of ``default``, or empty ones."""
        for wanted in (type_, DEFAULT_TYPE):
            for job in self.jobs:
                if job.type == wanted:
                    return replace(job, queue=job.queue or self.queue)
        return JobSettings(DEFAULT_TYPE if self.jobs else type_, queue=self.queue)


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    line: int
    field: str
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.field}: {self.message}" if self.field else f"line {self.line}: {self.message}"


class QueueConfigError(ValueError):
    """The file cannot be used. Each problem has its line and its remedy."""

    def __init__(self, problems: Iterable[ConfigProblem], source: str = "") -> None:
        self.problems = tuple(problems)
        prefix = f"{source}: " if source else ""
        super().__init__("\n".join(f"{prefix}{problem}" for problem in self.problems))


def parse(text: str, source: str = "", schedulers: Iterable[str] = ("kueue", "yunikorn")) -> QueueConfig:
    """Parse the YAML or JSON text of a file. Sections other than ``queueconfig`` are ignored."""
    try:
        parsed = documents.parse(text)
    except documents.DocumentError as error:
        raise QueueConfigError([ConfigProblem(error.line, "", error.detail)], source) from None
    found = [d for d in parsed if isinstance(d.value, dict) and "queueconfig" in d.value]
    if len(found) != 1:
        what = "there is no section" if not found else "there is more than one section"
        raise QueueConfigError([ConfigProblem(1, "queueconfig", f"{what} queueconfig: write exactly one")], source)
    document = found[0]
    faults = list(faults_of(document.value["queueconfig"], tuple(schedulers)))
    if faults:
        raise QueueConfigError(
            (ConfigProblem(documents.line_of(text, document.number, path), path, message) for path, message in faults),
            source,
        )
    return build(document.value["queueconfig"])


def build(section: Mapping[str, Any]) -> QueueConfig:
    jobs = tuple(
        JobSettings(
            type=job["type"],
            gang=parse_gang(job.get("gangscheduling") or ""),
            allow_preemption=job.get("allow-preemption"),
            queue=job.get("queue") or "",
        )
        for job in section.get("jobs") or ()
    )
    return QueueConfig(section["scheduler"], section.get("queue") or "", jobs)


def parse_gang(text: str) -> Gang:
    """Parse a valid ``gangscheduling``."""
    values = dict(word.split("=", 1) for word in text.split())
    timeout, style = values.get(PARAMETERS[0]), values.get(PARAMETERS[1])
    return Gang(int(timeout) if timeout is not None else None, style.capitalize() if style is not None else None)


def faults_of(section: object, schedulers: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if not isinstance(section, dict):
        yield "queueconfig", "must be a mapping with scheduler and jobs"
        return
    yield from unknown_keys(section, TOP_KEYS, "queueconfig")
    scheduler = section.get("scheduler")
    if scheduler is None:
        yield "queueconfig", f"scheduler is missing: write one of {', '.join(schedulers)}"
    elif scheduler not in schedulers:
        yield "queueconfig.scheduler", f"there is no scheduler {scheduler!r}{suggest(scheduler, schedulers)}"
    yield from template_faults(section.get("queue"), "queueconfig.queue")
    jobs = section.get("jobs")
    if jobs is not None and not isinstance(jobs, list):
        yield "queueconfig.jobs", "must be a list: begin each job with '- type: …'"
        return
    seen: set[str] = set()
    for position, job in enumerate(jobs or ()):
        yield from job_faults(job, f"queueconfig.jobs[{position}]", seen)


def job_faults(job: object, at: str, seen: set[str]) -> Iterator[tuple[str, str]]:
    if not isinstance(job, dict):
        yield at, "must be a mapping with type, and gangscheduling or allow-preemption"
        return
    yield from unknown_keys(job, JOB_KEYS, at)
    type_ = job.get("type")
    if not isinstance(type_, str) or not type_:
        yield at, "type is missing: write the type of job, such as ray or spark"
    elif type_ in seen:
        yield f"{at}.type", f"{type_!r} stands twice: keep one of the two"
    else:
        seen.add(type_)
    preemption = job.get("allow-preemption")
    if preemption is not None and not isinstance(preemption, bool):
        yield f"{at}.allow-preemption", f"{preemption!r} is neither true nor false: write it without quotes"
    yield from template_faults(job.get("queue"), f"{at}.queue")
    gang = job.get("gangscheduling")
    if gang is not None and not isinstance(gang, str):
        yield f"{at}.gangscheduling", 'must be a text such as "placeholderTimeoutInSeconds=60 gangSchedulingStyle=Hard"'
    else:
        yield from ((f"{at}.gangscheduling", message) for message in gang_faults(gang or ""))


def gang_faults(text: str) -> Iterator[str]:
    seen: set[str] = set()
    for word in text.split():
        name, equals, value = word.partition("=")
        if not equals:
            yield f"{word!r} has no value: write {word}=… with no space around the ="
        elif name not in PARAMETERS:
            yield f"YuniKorn would ignore {name!r}{suggest(name, PARAMETERS)}"
        elif name in seen:
            yield f"{name} stands twice: keep one of the two"
        elif name == PARAMETERS[0] and not (value.isascii() and value.isdigit()):
            yield f"{name} must be a whole number of seconds, not {value!r}"
        elif name == PARAMETERS[1] and value.capitalize() not in STYLES:
            yield f"{name} must be Hard or Soft, not {value!r}"
        seen.add(name)


def template_faults(template: object, at: str) -> Iterator[tuple[str, str]]:
    if template is None:
        return
    if not isinstance(template, str) or not template:
        yield at, "must be a text such as root.{organization}.{type}"
        return
    try:
        used = [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]
    except ValueError as error:
        yield at, f"{error}: write names in braces, such as {{organization}}"
        return
    for name in used:
        if name not in PLACEHOLDERS:
            yield at, f"there is no {{{name}}}{suggest(name, PLACEHOLDERS)}"


def unknown_keys(mapping: Mapping[str, object], known: tuple[str, ...], at: str) -> Iterator[tuple[str, str]]:
    for key in mapping:
        if key not in known:
            yield f"{at}.{key}", f"there is no setting {key!r}{suggest(key, known)}"


def suggest(word: object, known: Iterable[str]) -> str:
    choices = tuple(known)
    text = str(word).lower()
    near = difflib.get_close_matches(text, [choice.lower() for choice in choices], n=1)
    for choice in choices:
        if choice.lower() in near or (not near and choice.lower().startswith(text)):
            return f": did you mean {choice}?"
    return f": the choices are {', '.join(choices)}"
