"""
The rules of a Job about failures: which of them count, and how many indexes may fail.

Called by: server/builtin_jobs.py. Kubernetes: pkg/apis/batch/validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.server.errors import Unshown

ACTIONS: Final = ("Count", "FailIndex", "FailJob", "Ignore")
OPERATORS: Final = ("In", "NotIn")
MAX_INDEXED_PARALLELISM: Final = 100_000


def index_faults(spec: Json, path: str) -> Iterator[FieldError]:
    """Of an Indexed Job."""
    parallelism, completions = spec.get("parallelism"), spec.get("completions")
    if parallelism is not None and parallelism > MAX_INDEXED_PARALLELISM:
        detail = f"must be less than or equal to {MAX_INDEXED_PARALLELISM} when completion mode is Indexed"
        yield fields.invalid(f"{path}.parallelism", parallelism, detail)
    failed = spec.get("maxFailedIndexes")
    if failed is not None and completions is not None and failed > completions:
        yield fields.invalid(f"{path}.maxFailedIndexes", failed, "must be less than or equal to completions")


def failure_faults(spec: Json, path: str) -> Iterator[FieldError]:
    """Of the podFailurePolicy."""
    pod = (spec.get("template") or {}).get("spec") or {}
    names = {each.get("name") for group in ("containers", "initContainers") for each in pod.get(group) or ()}
    for index, rule in enumerate((spec.get("podFailurePolicy") or {}).get("rules") or ()):
        here = f"{path}.podFailurePolicy.rules[{index}]"
        action = rule.get("action", "")
        if action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            yield fields.invalid(f"{here}.action", action, "requires the backoffLimitPerIndex to be set")
        elif not action:
            yield fields.required(f"{here}.action", f"valid values: {list(ACTIONS)}")
        elif action not in ACTIONS:
            yield fields.not_supported(f"{here}.action", action, ACTIONS)
        if rule.get("onExitCodes") is not None:
            yield from _exit_code_faults(rule["onExitCodes"], f"{here}.onExitCodes", names)
        if (rule.get("onExitCodes") is None) == (not rule.get("onPodConditions")):
            is_none = rule.get("onExitCodes") is None
            detail = "is required" if is_none else "is supported"
            how = "specifying one of" if is_none else "specifying both"
            yield Unshown("Invalid", here, None, f"{how} OnExitCodes and OnPodConditions {detail}")


def _exit_code_faults(codes: Json, path: str, names: set[str | None]) -> Iterator[FieldError]:
    operator = codes.get("operator", "")
    if operator not in OPERATORS:
        yield fields.not_supported(f"{path}.operator", operator, OPERATORS)
    container = codes.get("containerName")
    if container is not None and container not in names:
        detail = "must be one of the container or initContainer names in the pod template"
        yield fields.invalid(f"{path}.containerName", container, detail)
    values = codes.get("values") or []
    if not values:
        yield fields.invalid(f"{path}.values", values, "at least one value is required")
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            yield fields.invalid(f"{path}.values[{index}]", value, "must not be 0 for the In operator")
        if value in values[:index]:
            yield fields.duplicate(f"{path}.values[{index}]", value)
