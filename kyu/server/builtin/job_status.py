"""
Validation of the status of a Job: terminal conditions exclude or require each other, and counters never decrease.

Kubernetes: pkg/apis/batch/validation, pkg/registry/batch/job.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.server.builtin.job_policies import IndexesError, first_shared, parse_indexes
from kyu.server.validation.checks import IMMUTABLE, at_least_zero

COUNTERS: Final = ("active", "succeeded", "failed", "ready", "terminating")
# Conditions that cannot be true together, and conditions that require another one.
EXCLUSIVE: Final = (
    ("Complete", "Failed"), ("Complete", "FailureTarget"), ("SuccessCriteriaMet", "Failed"),
    ("SuccessCriteriaMet", "FailureTarget"),
)  # fmt: skip
NEEDED: Final = {"Failed": "FailureTarget", "Complete": "SuccessCriteriaMet"}


def validate_job_status(new: Json, old: Json) -> Iterator[FieldError]:
    after, before = new.get("status") or {}, old.get("status") or {}
    if after == before:
        return
    spec = new.get("spec") or {}
    yield from at_least_zero("status.", after, *COUNTERS)
    yield from _uncounted(after.get("uncountedTerminatedPods") or {})
    yield from _times(after)
    yield from _conditions(after)
    if _is_true(after, "Complete") or _is_true(after, "Failed"):
        yield from _finished(after)
    if after.get("ready", 0) > max(after.get("active", 0), 0):
        yield fields.invalid("status.ready", after.get("ready", 0), "cannot set more ready pods than active")
    yield from _indexes(after, spec)
    yield from _changes(after, before)
    started = before.get("startTime")
    if started and after.get("startTime") != started and not spec.get("suspend"):
        detail = "field is immutable for unsuspended job once set"
        yield fields.invalid("status.startTime", after.get("startTime"), detail)


def _uncounted(pods: Json) -> Iterator[FieldError]:
    seen: set[str] = set()
    for group in ("succeeded", "failed"):
        for index, uid in enumerate(pods.get(group) or ()):
            path = f"status.uncountedTerminatedPods.{group}[{index}]"
            if not uid:
                yield fields.invalid(path, uid, "must not be empty")
            elif uid in seen:
                yield fields.duplicate(path, uid)
            seen.add(uid)


def _conditions(status: Json) -> Iterator[FieldError]:
    for one, other in EXCLUSIVE:
        if _is_true(status, one) and _is_true(status, other):
            yield fields.broken_rule("status.conditions", f"cannot set {one}=True and {other}=true conditions")
    for one, other in NEEDED.items():
        if _is_true(status, one) and not _is_true(status, other):
            yield fields.broken_rule(
                "status.conditions", f"cannot set {one}=True condition without the {other}=true condition"
            )


def _times(status: Json) -> Iterator[FieldError]:
    started, completed = status.get("startTime"), status.get("completionTime")
    is_complete = _is_true(status, "Complete")
    if completed and not is_complete:
        detail = "cannot set completionTime when there is no Complete=True condition"
        yield fields.invalid("status.completionTime", completed, detail)
    elif is_complete and not completed:
        yield fields.required("status.completionTime", "completionTime is required for Complete jobs")
    if started and completed and completed < started:
        yield fields.invalid("status.completionTime", completed, "must be equal to or after `startTime`")


def _finished(status: Json) -> Iterator[FieldError]:
    for name in ("active", "terminating"):
        if status.get(name, 0) > 0:
            yield fields.invalid(f"status.{name}", status[name], f"{name}>0 is invalid for finished job")
    if not status.get("startTime"):
        yield fields.required("status.startTime", "startTime is required for finished job")
    pods = status.get("uncountedTerminatedPods") or {}
    if pods.get("succeeded") or pods.get("failed"):
        shown = {"Succeeded": pods.get("succeeded"), "Failed": pods.get("failed")}
        yield fields.invalid("status.uncountedTerminatedPods", shown, "must be empty for finished job")


def _indexes(status: Json, spec: Json) -> Iterator[FieldError]:
    found: dict[str, list[range]] = {"completedIndexes": [], "failedIndexes": []}
    for name in found:
        try:
            found[name] = parse_indexes(status.get(name) or "", spec.get("completions") or 0)
        except IndexesError as error:
            yield fields.invalid(f"status.{name}", status[name], f"error parsing {name}: {error}")
    shared = first_shared(found["completedIndexes"], found["failedIndexes"])
    if shared is not None:
        detail = f"failedIndexes and completedIndexes overlap at index: {shared}"
        yield fields.invalid("status.failedIndexes", status["failedIndexes"], detail)
    if status.get("completedIndexes") and spec.get("completionMode") != "Indexed":
        detail = "cannot set non-empty completedIndexes when non-indexed completion mode"
        yield fields.invalid("status.completedIndexes", status["completedIndexes"], detail)
    if status.get("failedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        yield fields.invalid("status.failedIndexes", status["failedIndexes"], detail)


def _changes(after: Json, before: Json) -> Iterator[FieldError]:
    for name in ("failed", "succeeded"):
        if after.get(name, 0) < before.get(name, 0):
            yield fields.invalid(f"status.{name}", after.get(name, 0), f"cannot decrease the {name} counter")
    for type_ in ("Failed", "Complete", "FailureTarget", "SuccessCriteriaMet"):
        if _is_true(before, type_) and not _is_true(after, type_):
            terminal = "" if type_ == "SuccessCriteriaMet" else "terminal "
            yield fields.broken_rule("status.conditions", f"cannot disable the {terminal}{type_}=True condition")
    completed = before.get("completionTime")
    if completed and _is_true(after, "Complete") and after.get("completionTime") != completed:
        yield fields.invalid("status.completionTime", after.get("completionTime"), IMMUTABLE)


def _is_true(status: Json, type_: str) -> bool:
    conditions: Sequence[Any] = status.get("conditions") or ()
    return any(each.get("type") == type_ and each.get("status") == "True" for each in conditions)
