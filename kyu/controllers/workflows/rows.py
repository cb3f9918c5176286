"""
The row of Workflows, for every mode, also beside Kueue.

A change of a step's object concerns its owner. A Workload belongs to a job, whose owner is followed up to the Workflow.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from kyu.api.actions import View
from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key, Ref
from kyu.api.workflows import RefusedObject, Workflow
from kyu.controllers.follow import BINDING
from kyu.controllers.loop import Controller, Owned, Watch
from kyu.controllers.table import every, owner_of
from kyu.kinds import table
from kyu.plans import pods_of_jobs
from kyu.plans.workflows import lifecycle
from kyu.plans.workflows.lifecycle import EMBEDDED, WorkflowSettings

# The policy with which an API server checks that the creator of a Workflow may create its objects.
POLICY = "kyu-workflow-rights"
# On a cluster the rights of a Workflow's creator are checked by a policy, and commands need images.
ON_CLUSTER = WorkflowSettings(guard=Ref(BINDING, Key("", POLICY)), needs_image=True)


def controllers(settings: WorkflowSettings = EMBEDDED) -> tuple[Controller, ...]:
    guard = settings.guard
    return (
        Controller(
            "workflow",
            partial(lifecycle.plan, settings),
            (
                Watch(Workflow.KIND),
                Watch(Workload.KIND, workflow_of_workload, state_changed),
                Watch(RefusedObject.KIND, owner_of(Workflow.KIND)),
                *((Watch(guard.kind, every(Workflow.KIND)),) if guard is not None else ()),
            ),
            Owned(tuple(kind.kind for kind in table.STEP_KINDS), Workflow.KIND),
            is_paced=True,
        ),
    )


def workflow_of_workload(view: View, obj: Json) -> Iterable[Key]:
    """Yield the Workflow above the job of a Workload. The job of most Workloads has no owner."""
    namespace = obj["metadata"].get("namespace", "")
    for reference in (obj["metadata"].get("ownerReferences") or ())[:1]:
        kind = pods_of_jobs.kind_of(reference)
        job = view.find_json(kind, Key(namespace, reference["name"])) if kind is not None else None
        if job is None or not job["metadata"].get("ownerReferences"):
            continue
        for one in (job, *pods_of_jobs.owners(view, job)):
            yield from owner_of(Workflow.KIND)(view, one)


def state_changed(old: Json | None, new: Json | None) -> bool:
    """Return whether the conditions of a Workload have changed."""
    if old is None or new is None:
        return True
    return (old.get("status") or {}).get("conditions") != (new.get("status") or {}).get("conditions")
