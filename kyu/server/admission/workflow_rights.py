"""
Workflows: users cannot let a Workflow create an object that they could not create themselves.

The controller creates the objects of the steps with its own rights. So the user who writes the steps must be allowed to
create each of their kinds in the namespace of the Workflow. On a cluster a ValidatingAdmissionPolicy asks the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from kyu.api.errors import FieldError, forbidden
from kyu.api.meta import Json, Kind
from kyu.kinds import fields, table
from kyu.kinds.job import JOB
from kyu.server.admission.request import AdmissionRequest
from kyu.server.auth import rbac

# A user without rights to the jobs may still stop a Workflow.
STOPPING_FIELDS = ("suspend", "cancel")


def find_faults(request: AdmissionRequest, authorizer: rbac.Authorizer) -> list[FieldError]:
    """Return an error for each step whose object the user may not create."""
    if request.old is not None and asked(request.old) == asked(request.new):
        return []
    namespace = request.new["metadata"].get("namespace", "")
    refused: set[Kind] = set()
    found = []
    for position, kind in kinds(request.new):
        wanted = rbac.Attributes("create", kind.group, kind.plural, "", namespace)
        if kind in refused or not authorizer.is_allowed(request.user, wanted):
            refused.add(kind)
            why = f'User "{request.user.name}" cannot create {kind.plural} in namespace {namespace}'
            found.append(forbidden(f"spec.steps[{position}]", why))
    return found


def kinds(workflow: Json) -> Iterator[tuple[int, Kind]]:
    """Yield the position and the kind of each step. Unknown kinds are refused by the rules of Workflows."""
    for position, step in enumerate(fields.list_at(workflow, ("spec", "steps"))):
        found = table.find(fields.json_at(step, ("template",))) if step.get("template") is not None else None
        yield position, found.kind if found is not None else JOB


def asked(workflow: Json) -> Json:
    spec = fields.json_at(workflow, ("spec",))
    return {name: value for name, value in spec.items() if name not in STOPPING_FIELDS}
