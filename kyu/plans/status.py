"""
Editing the status of an object: conditions with their transition times, and the patch that says only what changed.

A plan reads typed projections but edits the stored JSON, so that fields that Kyu does not know survive. The patch
carries the resource version that the decision was based on: if the object was written in between, it is refused and
planned anew.

Kubernetes: apimachinery meta conditions; JSON merge patch.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

from kyu.api.actions import Patch
from kyu.api.meta import Json, Kind, Ref, key_of
from kyu.kinds.fields import merge_patch

# A condition's message is cut here, as Kueue does, so that a status never outgrows what a server takes.
LONGEST_MESSAGE = 32 * 1024


class StatusEdit:
    """The status of one object, and its next one. ``patch()`` is None when nothing was changed after all.

    ``status`` makes the copy that may be changed at its first use: most plans change nothing.
    """

    def __init__(self, raw: Json, now: datetime) -> None:
        self.raw = raw
        self.now = now
        self._stored: Json = raw.get("status") or {}
        self._draft: Json | None = None
        self._timestamp = ""

    @property
    def status(self) -> Json:
        """The status that a plan may change."""
        if self._draft is None:
            self._draft = clone(self._stored)
        return self._draft

    def read(self, field: str) -> Any:
        """Return a field of the status, or None. The value must not be changed."""
        return (self._stored if self._draft is None else self._draft).get(field)

    def condition(self, type_: str) -> Json | None:
        """Return a condition, or None. It must not be changed."""
        return next((c for c in self.read("conditions") or () if c.get("type") == type_), None)

    def is_true(self, type_: str) -> bool:
        condition = self.condition(type_)
        return condition is not None and condition.get("status") == "True"

    def set_condition(self, type_: str, status: Literal["True", "False"], reason: str, message: str) -> None:
        """Set a condition. The transition time moves only when the status flips."""
        wanted: Json = {"status": status, "reason": reason, "message": message[:LONGEST_MESSAGE]}
        known = self.condition(type_)
        if known is not None and all(known.get(field) == value for field, value in wanted.items()):
            return
        if generation := self.raw["metadata"].get("generation"):
            wanted["observedGeneration"] = generation
        if known is None or known.get("status") != status:
            self._timestamp = self._timestamp or timestamp(self.now)
            wanted["lastTransitionTime"] = self._timestamp
        conditions = self.status.setdefault("conditions", [])
        if known is None:
            conditions.append({"type": type_, **wanted})
        else:
            next(c for c in conditions if c.get("type") == type_).update(wanted)

    def remove_condition(self, type_: str) -> None:
        if self.condition(type_) is not None:
            self.status["conditions"] = [c for c in self.status["conditions"] if c.get("type") != type_]

    def patch(self, kind: Kind) -> Patch | None:
        change = merge_patch(self._stored, self._draft) if self._draft is not None else {}
        if not change:
            return None
        return Patch(
            ref=Ref(kind, key_of(self.raw)),
            patch={"status": change},
            subresource="status",
            resource_version=self.raw["metadata"].get("resourceVersion", ""),
        )


def clone(value: Any) -> Any:
    """Return a deep copy of JSON, several times faster than ``copy.deepcopy``."""
    if type(value) is dict:
        return {key: clone(item) for key, item in value.items()}
    return [clone(item) for item in value] if type(value) is list else value


def timestamp(moment: datetime) -> str:
    """Render a time as Kubernetes does: RFC 3339 in UTC, whole seconds."""
    return f"{moment.astimezone(UTC).isoformat()[:19]}Z"


def parse_time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
