"""
One object on its way to a scheduler: the job of a workflow and the object that the engine made for it.

What all plugins need to know of it is computed once, when it is first asked for, and kept with it; the object must not
change meanwhile.

Used by: plugin.py makes it, the plugins read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from kyu.api.meta import Json
from kyu.workflows import roles
from kyu.workflows.settings import Refusal
from kyu.workflows.task import DEFAULT_TYPE, TYPE_OF_KIND, Task, application_id


@dataclass(frozen=True)
class Submission:
    task: Task
    object: Json

    @cached_property
    def kind(self) -> str:
        return str(self.object.get("kind"))

    @cached_property
    def type(self) -> str:
        """The type of the job, as the engine says it or by the kind of the object."""
        return self.task.type or TYPE_OF_KIND.get(self.kind, DEFAULT_TYPE)

    @cached_property
    def application_id(self) -> str:
        return application_id(self.task, self.type)

    @cached_property
    def roles(self) -> list[roles.Role] | Refusal:
        return roles.roles_of(self.object)
