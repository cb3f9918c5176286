"""
Validation of the policies of a Job: podFailurePolicy, successPolicy, and the limits of an Indexed Job.

Kubernetes: pkg/apis/batch/validation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.api.names import label_key
from kyu.server.validation.checks import AT_LEAST_ZERO, objections

ACTIONS: Final = ("Count", "FailIndex", "FailJob", "Ignore")
OPERATORS: Final = ("In", "NotIn")
STATUSES: Final = ("False", "True", "Unknown")
MAX_INDEXED_PARALLELISM: Final = 100_000
MAX_RULES: Final = 20
MAX_EXIT_CODES: Final = 255


class IndexesError(Exception):
    """A text that is no list of indexes. The message is for the user."""


def index_faults(spec: Json, path: str) -> Iterator[FieldError]:
    """Check the limits of an Indexed Job."""
    parallelism, completions = spec.get("parallelism"), spec.get("completions")
    if parallelism is not None and parallelism > MAX_INDEXED_PARALLELISM:
        detail = f"must be less than or equal to {MAX_INDEXED_PARALLELISM} when completion mode is Indexed"
        yield fields.invalid(f"{path}.parallelism", parallelism, detail)
    failed = spec.get("maxFailedIndexes")
    if failed is not None and completions is not None and failed > completions:
        yield fields.invalid(f"{path}.maxFailedIndexes", failed, "must be less than or equal to completions")


def failure_faults(spec: Json, path: str) -> Iterator[FieldError]:
    """Check the podFailurePolicy."""
    pod = (spec.get("template") or {}).get("spec") or {}
    names = {each.get("name") for group in ("containers", "initContainers") for each in pod.get(group) or ()}
    rules = (spec.get("podFailurePolicy") or {}).get("rules") or ()
    if len(rules) > MAX_RULES:
        yield fields.too_many(f"{path}.podFailurePolicy.rules", len(rules), MAX_RULES)
    for index, rule in enumerate(rules):
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
        yield from _condition_faults(rule.get("onPodConditions") or (), f"{here}.onPodConditions")
        if (rule.get("onExitCodes") is None) == (not rule.get("onPodConditions")):
            is_none = rule.get("onExitCodes") is None
            detail = "is required" if is_none else "is not supported"
            how = "specifying one of" if is_none else "specifying both"
            yield fields.broken_rule(here, f"{how} OnExitCodes and OnPodConditions {detail}")


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
    elif len(values) > MAX_EXIT_CODES:
        yield fields.too_many(f"{path}.values", len(values), MAX_EXIT_CODES)
    if values != sorted(values):
        yield fields.invalid(f"{path}.values", values, "must be ordered")
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            yield fields.invalid(f"{path}.values[{index}]", value, "must not be 0 for the In operator")
        if value in values[:index]:
            yield fields.duplicate(f"{path}.values[{index}]", value)


def _condition_faults(patterns: Sequence[Json], path: str) -> Iterator[FieldError]:
    if len(patterns) > MAX_RULES:
        yield fields.too_many(path, len(patterns), MAX_RULES)
    for index, pattern in enumerate(patterns):
        type_, status = pattern.get("type", ""), pattern.get("status", "True")
        yield from objections(f"{path}[{index}].type", type_, label_key)
        if status not in STATUSES:
            yield fields.not_supported(f"{path}[{index}].status", status, STATUSES)


def success_faults(spec: Json, path: str) -> Iterator[FieldError]:
    """Check the successPolicy."""
    policy, path = spec.get("successPolicy"), f"{path}.successPolicy"
    if policy is None:
        return
    if spec.get("completionMode") != "Indexed":
        yield fields.invalid(path, {"Rules": policy.get("rules") or []}, "requires indexed completion mode")
        return
    rules = policy.get("rules") or ()
    if not rules:
        detail = "at least one rules must be specified when the successPolicy is specified"
        yield fields.required(f"{path}.rules", detail)
    elif len(rules) > MAX_RULES:
        yield fields.too_many(f"{path}.rules", len(rules), MAX_RULES)
    for index, rule in enumerate(rules):
        yield from _success_rule(rule, f"{path}.rules[{index}]", spec.get("completions") or 0)


def _success_rule(rule: Json, path: str, completions: int) -> Iterator[FieldError]:
    text, count = rule.get("succeededIndexes"), rule.get("succeededCount")
    if text is None and count is None:
        yield fields.required(path, "at least one of succeededCount or succeededIndexes must be specified")
    named = 0
    if text is not None:
        try:
            named = sum(map(len, parse_indexes(text, completions)))
        except IndexesError as error:
            yield fields.invalid(f"{path}.succeededIndexes", text, f"error parsing succeededIndexes: {error}")
    if count is None:
        return
    path = f"{path}.succeededCount"
    if count < 0:
        yield fields.invalid(path, count, AT_LEAST_ZERO)
    most = "must be less than or equal to"
    if count > completions:
        yield fields.invalid(path, count, f"{most} {completions} (the number of specified completions)")
    if text is not None and count > named:
        detail = f"{most} {named} (the number of indexes in the specified succeededIndexes field)"
        yield fields.invalid(path, count, detail)


def parse_indexes(text: str, completions: int) -> list[range]:
    """Parse ``0-2,4``. The indexes must increase, and be less than ``completions``."""
    found: list[range] = []
    previous = -1
    for fragment in text.split(",") if text else ():
        ends = fragment.split("-")
        if len(ends) > 2:
            rule = "an index interval can have at most two parts separated by '-'"
            raise IndexesError(f'the fragment "{fragment}" violates the requirement that {rule}')
        first = previous = _index(ends[0], completions, previous)
        if len(ends) == 2:
            previous = _index(ends[1], completions, previous)
        found.append(range(first, previous + 1))
    return found


def _index(text: str, completions: int, previous: int) -> int:
    if not (text.isascii() and text.isdigit()):
        raise IndexesError(f'cannot convert string to integer for index: "{text}"')
    # A text with more digits than any index is not converted.
    number = int(text) if len(text) <= 10 else completions
    if number >= completions:
        raise IndexesError(f'too large index: "{text}"')
    if number <= previous:
        raise IndexesError(f"non-increasing order, previous: {previous}, current: {number}")
    return number


def first_shared(ones: list[range], others: list[range]) -> int | None:
    """Return the smallest number in both lists."""
    mine, theirs = 0, 0
    while mine < len(ones) and theirs < len(others):
        one, other = ones[mine], others[theirs]
        if max(one.start, other.start) < min(one.stop, other.stop):
            return max(one.start, other.start)
        mine, theirs = (mine + 1, theirs) if one.stop <= other.stop else (mine, theirs + 1)
    return None
