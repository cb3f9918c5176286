"""
Conditions in the status of a job, as JSON.

A condition keeps its time of change while its status stays the same; setting it again with another status moves it.

Used by: the kinds. Kubernetes: meta/v1 Condition, and the older condition types of jobs, which have the same fields.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from kyu.api.meta import Json
from kyu.kinds import fields


def find(obj: Json, type_: str) -> Json | None:
    return next((c for c in fields.list_at(obj, ("status", "conditions")) if c.get("type") == type_), None)


def is_true(obj: Json, type_: str) -> bool:
    condition = find(obj, type_)
    return condition is not None and condition.get("status") == "True"


def message(obj: Json, type_: str) -> str:
    condition = find(obj, type_)
    return str(condition.get("message") or "") if condition else ""


def with_condition(
    conditions: list[Json], type_: str, status: Literal["True", "False"], *, reason: str, message: str, now: datetime
) -> list[Json]:
    """The list with this condition set; the others stay in their order."""
    wanted: Json = {"type": type_, "status": status, "reason": reason, "message": message}
    present = next((c for c in conditions if c.get("type") == type_), None)
    if present is None:
        return [*conditions, {**wanted, "lastTransitionTime": timestamp(now)}]
    moved = present.get("status") != status
    time = timestamp(now) if moved else present.get("lastTransitionTime", timestamp(now))
    changed = {**present, **wanted, "lastTransitionTime": time}
    return [changed if c is present else c for c in conditions]


def timestamp(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> datetime:
    return datetime.fromisoformat(text)
