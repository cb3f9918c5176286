"""
An object on its way to a scheduler: the task of a workflow and the object that the engine made for it.

Facts that all plugins need are computed once; the object must not change meanwhile.
"""

from __future__ import annotations

from kyu.api.meta import Json
from kyu.kinds import table
from kyu.workflows import roles as job_roles
from kyu.workflows.settings import Refusal
from kyu.workflows.task import DEFAULT_TYPE, TYPE_OF_KIND, Task, safe_name


class Submission:
    __slots__ = ("_roles", "job_kind", "kind", "object", "slots", "task", "type")

    def __init__(self, task: Task, obj: Json) -> None:
        self.task = task
        self.object = obj
        self.kind = str(obj.get("kind"))
        # The type of the task, or that of the object's kind.
        self.type = task.type or TYPE_OF_KIND.get(self.kind, DEFAULT_TYPE)
        # None for a kind that Kyu does not queue.
        self.job_kind = table.find(obj)
        self.slots = job_roles.slots_of(obj, self.job_kind)
        self._roles: list[job_roles.Role] | Refusal | None = None

    @property
    def application_id(self) -> str:
        """The name of the application: the same on all pods and in all retries of the submission."""
        return safe_name(f"{self.type}-{self.task.execution_id}")

    @property
    def roles(self) -> list[job_roles.Role] | Refusal:
        """The roles of its pods, or the reason why they are unknown."""
        if self._roles is None:
            self._roles = job_roles.roles_of(self.object, self.job_kind, self.slots)
        return self._roles
