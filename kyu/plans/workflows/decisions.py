"""Whether a step runs, waits or is skipped, by the outcomes and outputs of the steps before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kyu.api.workflows import ENDED, MAX_OUTPUT_BYTES, MAX_OUTPUT_BYTES_OF_ALL, OutputCondition, WorkflowStep
from kyu.plans.workflows.values import NoValue, member

SHOWN_NAMES = 3
OUTPUT_LIMIT = f"a step may pass on {MAX_OUTPUT_BYTES} bytes, all of them {MAX_OUTPUT_BYTES_OF_ALL // 1024} KiB"


@dataclass(frozen=True, slots=True)
class Verdict:
    decision: Literal["Run", "Wait", "Skip"]
    reason: str = ""
    message: str = ""


RUN = Verdict("Run")


def outcome(states: Sequence[str]) -> str | None:
    """Return the outcome of a step from those of its items; None while one is not over."""
    if not all(state in ENDED for state in states):
        return None
    if "Failed" in states:
        return "Failed"
    return "Skipped" if states and all(state == "Skipped" for state in states) else "Succeeded"


def verdict(step: WorkflowStep, outcomes: Mapping[str, str | None], outputs: Mapping[str, Sequence[str]]) -> Verdict:
    """Return whether a step runs. A step that needs success is skipped as soon as an earlier one has none."""
    found = {name: outcomes[name] for name in step.after}
    without = [name for name, one in found.items() if one in ("Failed", "Skipped")]
    if step.run_if == "AllSucceeded" and without:
        return Verdict("Skip", "NotSucceeded", f"did not succeed: {listed(without)}")
    if waits := [name for name, one in found.items() if one is None]:
        return Verdict("Wait", "", f"waits for {listed(waits)}")
    if step.run_if == "AnySucceeded" and "Succeeded" not in found.values():
        return Verdict("Skip", "NoneSucceeded", f"none succeeded: {listed(list(found))}")
    if step.run_if == "AnyFailed" and "Failed" not in found.values():
        return Verdict("Skip", "NoneFailed", f"none failed: {listed(list(found))}")
    for condition in step.when:
        if (why := objection(condition, outputs)) is not None:
            return Verdict("Skip", "When", why)
    return RUN


def objection(condition: OutputCondition, outputs: Mapping[str, Sequence[str]]) -> str | None:
    """Return why a condition does not hold. An output that lacks the member is in no list of values."""
    try:
        value: str | None = member(next(iter(outputs[condition.step]), ""), condition.key, condition.step)
    except NoValue:
        value = None
    if (value in condition.values) == (condition.operator == "In"):
        return None
    shown = f"{condition.step}{'.' + condition.key if condition.key else ''}"
    return f"the output of {shown} is {value!r}, which is {'not ' if condition.operator == 'In' else ''}in when"


def listed(names: Sequence[str]) -> str:
    more = len(names) - SHOWN_NAMES
    return ", ".join(names[:SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")
