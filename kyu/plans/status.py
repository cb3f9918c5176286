"""
Editing the status of an object: conditions with their transition times, and the patch that says only what changed.

A plan reads typed projections but edits the stored JSON, so that fields that Kyu does not know survive. The patch
carries the resource version that the decision was based on: if somebody wrote in between, the write is refused and
planned anew.

Used by: the plans that write status. Kubernetes: apimachinery meta conditions; JSON merge patch.
"""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Literal

from kyu.api.actions import Patch
from kyu.api.meta import Json, Kind, Ref
from kyu.api.meta import Key as ObjectKey
from kyu.kinds.fields import merge_patch

# A condition's message is cut here, as Kueue does, so that a status never outgrows what a server takes.
LONGEST_MESSAGE = 32 * 1024


class StatusEdit:
    """A working copy of one object's status. ``patch()`` is None when nothing was changed after all."""

    def __init__(self, raw: Json, now: datetime) -> None:
        self.raw = raw
        self.now = now
        self.status: Json = copy.deepcopy(raw.get("status") or {})

    def condition(self, type_: str) -> Json | None:
        return next((c for c in self.status.get("conditions") or () if c.get("type") == type_), None)

    def is_true(self, type_: str) -> bool:
        condition = self.condition(type_)
        return condition is not None and condition.get("status") == "True"

    def set_condition(self, type_: str, status: Literal["True", "False"], reason: str, message: str) -> None:
        """The transition time moves only when the status flips."""
        wanted: Json = {"status": status, "reason": reason, "message": message[:LONGEST_MESSAGE]}
        generation = (self.raw.get("metadata") or {}).get("generation")
        if generation:
            wanted["observedGeneration"] = generation
        condition = self.condition(type_)
        if condition is None:
            self.status.setdefault("conditions", []).append(
                {"type": type_, **wanted, "lastTransitionTime": timestamp(self.now)}
            )
            return
        if all(condition.get(field) == wanted[field] for field in ("status", "reason", "message")):
            return
        if condition.get("status") != status:
            condition["lastTransitionTime"] = timestamp(self.now)
        condition.update(wanted)

    def remove_condition(self, type_: str) -> None:
        conditions = [c for c in self.status.get("conditions") or () if c.get("type") != type_]
        if "conditions" in self.status:
            self.status["conditions"] = conditions

    def patch(self, kind: Kind) -> Patch | None:
        change = merge_patch(self.raw.get("status") or {}, self.status)
        if not change:
            return None
        metadata = self.raw["metadata"]
        return Patch(
            ref=Ref(kind, ObjectKey(metadata.get("namespace", ""), metadata["name"])),
            patch={"status": change},
            subresource="status",
            resource_version=metadata.get("resourceVersion", ""),
        )


def timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC, whole seconds, as Kubernetes writes times."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str | None) -> datetime | None:
    if not text:
        return None
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
