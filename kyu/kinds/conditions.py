"""
Conditions in the status of a job, as JSON.

A condition keeps its place and its time of change while its status stays the same.

Kubernetes: meta/v1 Condition, and the older condition types of jobs, which have the same fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple, TypeAlias

from kyu.api.meta import Json
from kyu.kinds import fields

Status: TypeAlias = Literal["True", "False"]

FIRST_MOMENT = datetime.min.replace(tzinfo=UTC)
LAST_MOMENT = datetime.max.replace(tzinfo=UTC)


def find(obj: Json, type_: str) -> Json | None:
    return next((c for c in fields.list_at(obj, ("status", "conditions")) if c.get("type") == type_), None)


def is_true(obj: Json, type_: str) -> bool:
    condition = find(obj, type_)
    return condition is not None and condition.get("status") == "True"


def message(obj: Json, type_: str) -> str:
    condition = find(obj, type_)
    return str(condition.get("message") or "") if condition else ""


def with_condition(
    conditions: list[Json], type_: str, status: Status, *, reason: str, message: str, now: datetime
) -> list[Json]:
    """Return the list with this condition set. A condition that is new or changes its status goes to the end."""
    wanted: Json = {"type": type_, "status": status, "reason": reason, "message": message}
    present = next((c for c in conditions if c.get("type") == type_), None)
    if present is not None and present.get("status") == status:
        return [{**c, **wanted} if c is present else c for c in conditions]
    others = [c for c in conditions if c is not present]
    return [*others, {**(present or {}), **wanted, "lastTransitionTime": timestamp(now)}]


class Mark(NamedTuple):
    """A condition as it should be."""

    type: str
    status: Status
    reason: str
    message: str


def with_marks(conditions: list[Json], marks: Iterable[Mark], now: datetime) -> list[Json]:
    """Return the list with all of these conditions set."""
    for mark in marks:
        conditions = with_condition(
            conditions, mark.type, mark.status, reason=mark.reason, message=mark.message, now=now
        )
    return conditions


def timestamp(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> datetime:
    return datetime.fromisoformat(text)


def add_seconds(start: datetime, seconds: float) -> datetime:
    """Return the moment so many seconds after the start, bounded by the years that a datetime can hold.

    Kubernetes permits 2^63-1 seconds in deadlines and times to live.
    """
    try:
        return start + timedelta(seconds=seconds)
    except OverflowError:
        return LAST_MOMENT if seconds > 0 else FIRST_MOMENT
