"""
The admission of Workflows: their own rules, and in embedded mode those of the objects that the steps will be.

The embedded controller creates the objects of the steps with all rights, so a rule that binds users is checked here. On
a cluster the rules of a step's object are checked when it is created.
"""

from __future__ import annotations

from dataclasses import dataclass

from kyu.api import codec
from kyu.api.actions import View
from kyu.api.errors import FieldError, invalid
from kyu.api.meta import Json
from kyu.api.workflows import Workflow, WorkflowStep
from kyu.kinds import fields
from kyu.plans.job import managed, webhook
from kyu.plans.workflows import objects, validate
from kyu.plans.workflows.objects import StepRun
from kyu.plans.workflows.values import Reference, Values


@dataclass(frozen=True, slots=True)
class AnyValues(Values):
    """Values that are not known yet."""

    def find(self, reference: Reference) -> str:
        return "0"


def find_errors(view: View, new: Json, old: Json | None, *, on_cluster: bool = False) -> list[FieldError]:
    """Return the errors of a new or changed Workflow, and in embedded mode of the objects of its steps."""
    if old is not None and old.get("spec") == new.get("spec"):
        return []
    try:
        workflow = codec.decode_as(Workflow, new)
    except codec.DecodeError as error:
        return [invalid(error.field, None, error.detail)]
    found = validate.find_errors(workflow, needs_image=on_cluster)
    if old is not None:
        found += validate.change_errors(new, old)
    if found or on_cluster:
        return found
    for position, step in enumerate(workflow.spec.steps):
        if step.template is not None:
            found += step_errors(view, workflow, new, step, f"spec.steps[{position}].template")
    return found


def step_errors(view: View, workflow: Workflow, raw: Json, step: WorkflowStep, path: str) -> list[FieldError]:
    """Return the errors of the object of a step, as if the user created it."""
    run = StepRun(raw, workflow.spec, step, "step", AnyValues(workflow.metadata.name, "0", 0))
    try:
        made = objects.make(run)[0]
    except (ValueError, fields.Misshapen) as error:
        return [invalid(path, step.name, str(error))]
    if managed.context_of(view, run.kind, made) is None:
        return [invalid(f"{path}.kind", run.kind.kind.kind, objects.NOT_QUEUED)]
    verdict = webhook.admit(view, made, None)
    errors = [*verdict.errors, *webhook.not_run_here(made, None)]
    return [FieldError(one.type, f"{path}.{one.field}", one.value, one.detail) for one in errors]
