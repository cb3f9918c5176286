"""
The interface of a scheduler plugin, and the order in which it is used. Start here.

A plugin answers four questions about an object: the scheduler's name, the labels of every job, the labels of its gang,
and both as plain mappings. It is stateless and changes nothing: each answer is a list of settings with reasons.
``render`` asks in that order, merges the answers to a new object, and checks it by the scheduler's own rules.

    config = queueconfig.parse(text)
    result = plugin.render(plugin.load(config), Task("organization1", "f3ab12", user="user1"), job)

Another package adds a plugin by an entry point of the group ``kyu.schedulers``: a function from a QueueConfig to it.

Flyte: RFC on YuniKorn and Kueue, SchedulePlugin.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from importlib import metadata as packages
from typing import Any, Protocol, TypeAlias

import msgspec

from kyu.api.meta import Json
from kyu.kinds import fields, shape
from kyu.workflows import kueue, rules, yunikorn
from kyu.workflows.queueconfig import QueueConfig
from kyu.workflows.settings import Applied, OnConflict, Refusal, Setting, merge
from kyu.workflows.submission import Submission
from kyu.workflows.task import Task

ENTRY_POINTS = "kyu.schedulers"


class SchedulerPlugin(Protocol):
    """A plugin for one scheduler. All methods are pure."""

    name: str

    def set_scheduler_name(self, job: Submission) -> list[Setting] | Refusal:
        """Return the scheduler name for every pod; nothing if kube-scheduler places the pods."""
        ...

    def create_labels(self, job: Submission) -> list[Setting] | Refusal:
        """Return the queue, user and application of the job."""
        ...

    def create_group_labels(self, job: Submission) -> list[Setting] | Refusal:
        """Return the settings that make its pods start together, computed from the object."""
        ...

    def get_group_labels(self, job: Submission) -> tuple[dict[str, str], dict[str, str]]:
        """Return labels and annotations of the object itself, for engines that merge on their own; empty if refused."""
        ...

    def notes(self, job: Submission) -> list[str]:
        """Return notes for the user that are no errors."""
        ...


Factory: TypeAlias = Callable[[QueueConfig], SchedulerPlugin]

BUILT_IN: dict[str, Factory] = {"kueue": kueue.KueuePlugin, "yunikorn": yunikorn.YuniKornPlugin}


class Rendered(msgspec.Struct, frozen=True):
    """The object to submit, with the applied settings and notes."""

    object: Json
    applied: tuple[Applied, ...]
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class NotRendered:
    """The object should not be submitted to this scheduler as it is."""

    refusals: tuple[Refusal, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.refusals))


def schedulers() -> dict[str, Factory]:
    """Return all plugins by name; an entry point cannot replace a built-in one."""
    others = {point.name: point for point in packages.entry_points(group=ENTRY_POINTS)}
    return {**{name: loader(point) for name, point in sorted(others.items())}, **BUILT_IN}


def loader(point: packages.EntryPoint) -> Factory:
    """Return a factory that imports the entry point when it is used."""

    def make(config: QueueConfig) -> SchedulerPlugin:
        factory: Factory = point.load()
        return factory(config)

    return make


def load(config: QueueConfig) -> SchedulerPlugin:
    """Return the plugin that the settings name. Raise ``KeyError`` for an unknown name."""
    return schedulers()[config.scheduler](config)


def render(
    plugin: SchedulerPlugin, task: Task, obj: object, on_conflict: OnConflict = "error"
) -> Rendered | NotRendered:
    """Return a copy of the object with all that the scheduler needs."""
    job = Submission(task, to_json(obj))
    problem = shape.why_not_object(job.object, job.slots)
    if not problem:
        try:
            return render_known(plugin, job, on_conflict)
        except fields.Misshapen as error:
            problem = str(error)
    return NotRendered((Refusal(f"the {job.kind} is malformed: {problem}", "correct the object"),))


def render_known(plugin: SchedulerPlugin, job: Submission, on_conflict: OnConflict) -> Rendered | NotRendered:
    answers = (plugin.set_scheduler_name(job), plugin.create_labels(job), plugin.create_group_labels(job))
    refusals = [answer for answer in answers if isinstance(answer, Refusal)]
    if refusals:
        return NotRendered(tuple(dict.fromkeys(refusals)))
    settings = [setting for answer in answers if not isinstance(answer, Refusal) for setting in answer]
    merged = merge(job.object, settings, on_conflict)
    if faults := merged.conflicts or rules.refusals(plugin.name, merged.object, merged.written):
        return NotRendered(tuple(faults))
    return Rendered(merged.object, tuple(merged.applied), tuple(plugin.notes(job)))


def to_json(obj: object) -> Json:
    """Convert a dictionary, a model of the Kubernetes client, a Struct or a dataclass to JSON."""
    if isinstance(obj, dict):
        return obj
    body = plain(obj)
    if not isinstance(body, dict):
        raise TypeError(f"{type(obj).__name__} is not a Kubernetes object: pass a dictionary or a typed object")
    return body


def plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    # Models of the Kubernetes client have their own map to JSON names.
    names = getattr(value, "attribute_map", None)
    if isinstance(names, dict):
        pairs = ((names[key], getattr(value, key)) for key in names)
        return {name: plain(item) for name, item in pairs if item is not None}
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(dataclasses.asdict(value))
    raise TypeError(f"{type(value).__name__} has no form in JSON")
