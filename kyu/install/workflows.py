"""
The policy with which an API server checks the rights of a Workflow's creator, and the controller's right to make steps.

The controller makes the objects of steps with its own rights. So the user who writes the steps must be allowed to
create their kinds. The API server asks this itself (CEL authorizer), so it also holds where no webhook of Kyu runs.
Without the binding of this policy the controller starts no step.

Called by: install/objects.py, install/chart.py, cli/admin/manifests.py.
"""

from __future__ import annotations

from kyu.api.meta import Json
from kyu.api.workflows import Workflow
from kyu.controllers.follow import BINDING
from kyu.controllers.workflows.rows import POLICY
from kyu.kinds.job import JOB
from kyu.kinds.table import STEP_KINDS

# The kinds of all steps. A step without a template is a Job.
KINDS_OF_STEPS = (
    f"object.spec.steps.map(s, has(s.template) ? (has(s.template.kind) ? string(s.template.kind) : '') : '{JOB.kind}')"
)
# A change of other fields makes no new objects, so a user without these rights may stop a Workflow.
ASKS_FOR_OBJECTS = (
    "oldObject == null || object.spec.steps != oldObject.spec.steps"
    " || (has(object.spec.retry) ? object.spec.retry : 0) != (has(oldObject.spec.retry) ? oldObject.spec.retry : 0)"
)
IS_FROZEN = (
    "oldObject == null || object.spec.steps == oldObject.spec.steps || (has(oldObject.status)"
    " && has(oldObject.status.state) && oldObject.status.state in ['Succeeded', 'Failed', 'Cancelled'])"
)


def policy_objects() -> list[Json]:
    """Return the policy and its binding."""
    kind = Workflow.KIND
    rule = {
        "apiGroups": [kind.group],
        "apiVersions": [kind.version],
        "operations": ["CREATE", "UPDATE"],
        "resources": [kind.plural],
    }
    spec: Json = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "asks-for-objects", "expression": ASKS_FOR_OBJECTS}],
        "variables": [{"name": "kinds", "expression": KINDS_OF_STEPS}],
        "validations": [frozen_rule(), known_rule(), *right_rules()],
    }
    name = {"name": POLICY}
    return [
        {"apiVersion": BINDING.api_version, "kind": "ValidatingAdmissionPolicy", "metadata": name, "spec": spec},
        {
            "apiVersion": BINDING.api_version,
            "kind": BINDING.kind,
            "metadata": name,
            "spec": {"policyName": POLICY, "validationActions": ["Deny"]},
        },
    ]


def frozen_rule() -> Json:
    return {"expression": IS_FROZEN, "message": "spec.steps cannot change while the Workflow runs"}


def known_rule() -> Json:
    names = ", ".join(f"'{kind.kind.kind}'" for kind in STEP_KINDS)
    listed = ", ".join(kind.kind.kind for kind in STEP_KINDS)
    return {
        "expression": f"variables.kinds.all(k, k in [{names}])",
        "message": f"spec.steps: the kind of a template must be one of {listed}",
    }


def right_rules() -> list[Json]:
    """Return one rule per kind: no step has it, or the user may create it."""
    return [
        {
            "expression": f"!('{kind.kind}' in variables.kinds) || authorizer.group('{kind.group}')"
            f".resource('{kind.plural}').namespace(request.namespace).check('create').allowed()",
            "message": f"spec.steps: you cannot create {kind.plural} in this namespace, which a step needs",
            "reason": "Forbidden",
        }
        for kind in (job_kind.kind for job_kind in STEP_KINDS)
    ]
