"""Entries of the status of a Workflow, as JSON: one per step, or per item of a list."""

from __future__ import annotations

from datetime import datetime

from kyu.api.meta import Json
from kyu.plans.status import timestamp

LONGEST_MESSAGE = 1024


def waiting(name: str, attempt: int = 1) -> Json:
    return {"name": name, "state": "Waiting", "attempt": attempt}


def ended(state: str, reason: str, message: str, now: datetime) -> Json:
    """Return the fields of an entry that is over."""
    found: Json = {"state": state, "finishedAt": timestamp(now)}
    put(found, reason=reason, message=message[:LONGEST_MESSAGE])
    return found


def put(entry: Json, **texts: str) -> None:
    """Set fields of an entry; an empty text removes its field."""
    for name, text in texts.items():
        if text:
            entry[name] = text
        else:
            entry.pop(name, None)
