"""The status of a Workflow as a whole: counts, state and conditions, from the entries of its steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kyu.api.meta import Json
from kyu.api.workflows import ENDED, FINISHED, STEP_STATES, Workflow, WorkflowState
from kyu.plans.status import StatusEdit, timestamp
from kyu.plans.workflows.decisions import listed


def write(edit: StatusEdit, workflow: Workflow, entries: Sequence[Json]) -> None:
    """Write the entries, and all that follows from them."""
    counts = Counter(entry["state"] for entry in entries)
    status = edit.status
    status["steps"] = list(entries)
    status["counts"] = {
        "total": len(entries),
        **{state.lower(): counts[state] for state in STEP_STATES if counts[state]},
    }
    status["progress"] = f"{sum(counts[state] for state in ENDED)}/{len(entries)}"
    status["state"] = state_of(workflow, counts)
    if workflow.spec.suspend:
        edit.set_condition("Suspended", "True", "Suspended", "no further steps start")
    elif edit.condition("Suspended") is not None:
        edit.set_condition("Suspended", "False", "Resumed", "")
    if all(state in ENDED for state in counts):
        finish(edit, workflow, entries)


def state_of(workflow: Workflow, counts: Counter[str]) -> WorkflowState:
    """Return the state of a Workflow that is not over."""
    if counts["Running"] or counts["Admitted"]:
        return "Running"
    if counts["Queued"] or counts["Preempted"]:
        return "Queued"
    return "Suspended" if workflow.spec.suspend else "Waiting"


def finish(edit: StatusEdit, workflow: Workflow, entries: Sequence[Json]) -> None:
    """End the Workflow. A step that may fail does not make it fail."""
    lenient = {step.name for step in workflow.spec.steps if step.may_fail}
    failed = [e["name"] for e in entries if e["state"] == "Failed" and e["name"].partition("[")[0] not in lenient]
    edit.status["finishedAt"] = timestamp(edit.now)
    state: WorkflowState
    if any(entry.get("reason") == "Cancelled" for entry in entries):
        state, message = "Cancelled", "the Workflow was cancelled"
    elif failed:
        state, message = "Failed", f"{len(failed)} of {len(entries)} steps failed: {listed(failed)}"
    else:
        state, message = "Succeeded", f"all {len(entries)} steps are over, none failed"
    edit.status["state"] = state
    edit.set_condition(FINISHED, "True", state, message)
