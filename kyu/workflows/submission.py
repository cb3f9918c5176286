"""
One object on its way to a scheduler: the job of a workflow and the object that the engine made for it.

What all plugins need to know of it is computed once and kept with it; the object must not change meanwhile.

Used by: plugin.py makes it, the plugins read it.
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
        # The type of the job, as the engine says it or by the kind of the object.
        self.type = task.type or TYPE_OF_KIND.get(self.kind, DEFAULT_TYPE)
        # What Kyu knows of the kind (nothing of one that it does not queue), and where its pod templates are.
        self.job_kind = table.find(obj)
        self.slots = job_roles.slots_of(obj, self.job_kind)
        self._roles: list[job_roles.Role] | Refusal | None = None

    @property
    def application_id(self) -> str:
        """One per execution: the same on all pods and over all retries of the submission."""
        return safe_name(f"{self.type}-{self.task.execution_id}")

    @property
    def roles(self) -> list[job_roles.Role] | Refusal:
        """Its pods, or why they are not known."""
        if self._roles is None:
            self._roles = job_roles.roles_of(self.object, self.job_kind, self.slots)
        return self._roles
