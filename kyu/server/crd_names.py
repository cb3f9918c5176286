"""
Which of its names a CustomResourceDefinition gets, and the status that tells it.

A name belongs to whom it was given first, in a group. Each name is judged on its own: what is free is given, and the
last that is not is told. A kind is served when it has all its names, and then as long as it lasts.

Called by: server/definitions.py. Kubernetes: apiextensions-apiserver/pkg/controller/{status,establish}
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kyu.api.meta import Json
from kyu.server import crd
from kyu.server.metadata import timestamp

# Names by which objects are asked for, and names that stand in objects, with the word for a name that is taken.
RESOURCE_NAMES: Final = {"plural": "PluralConflict", "singular": "SingularConflict", "shortNames": "ShortNamesConflict"}
KIND_NAMES: Final = {"kind": "KindConflict", "listKind": "ListKindConflict"}
# These are written also if they are empty.
ALWAYS: Final = ("plural", "kind")


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The names that a definition has, and why it does not have the others."""

    names: Json
    reason: str = "NoConflicts"
    message: str = "no conflicts found"

    @property
    def is_whole(self) -> bool:
        return self.reason == "NoConflicts"


def accept(requested: Json, accepted: Json, others: Iterable[Json]) -> Acceptance:
    """``others`` are the names that other kinds of the group have."""
    taken = list(others)
    names, reason, message = dict(accepted), "NoConflicts", "no conflicts found"
    for group in (RESOURCE_NAMES, KIND_NAMES):
        used = {text for each in taken for name in group for text in _texts(each, name)}
        for name, word in group.items():
            known = _texts(accepted, name)
            conflicts = [text for text in _texts(requested, name) if text in used and text not in known]
            if conflicts:
                reason, message = word, _message(conflicts)
            else:
                names[name] = requested.get(name)
    names["categories"] = requested.get("categories")
    return Acceptance({name: value for name, value in names.items() if value or name in ALWAYS}, reason, message)


def _texts(names: Json, name: str) -> list[str]:
    value = names.get(name)
    if not value:
        return []
    return list(value) if isinstance(value, list) else [value]


def _message(conflicts: list[str]) -> str:
    texts = [f'"{text}" is already in use' for text in dict.fromkeys(conflicts)]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def status_of(definition: Json, acceptance: Acceptance, now: datetime) -> Json:
    status = definition.get("status") or {}
    conditions: list[Json] = list(status.get("conditions") or ())
    _set(conditions, "NamesAccepted", acceptance.is_whole, acceptance.reason, acceptance.message, now)
    if not any(each["type"] == "Established" and each["status"] == "True" for each in conditions):
        reason, message = "NotAccepted", "not all names are accepted"
        if acceptance.is_whole:
            reason, message = "InitialNamesAccepted", "the initial names have been accepted"
        _set(conditions, "Established", acceptance.is_whole, reason, message, now)
    stored = crd.stored_versions(definition, tuple(status.get("storedVersions") or ()))
    return {**status, "conditions": conditions, "acceptedNames": acceptance.names, "storedVersions": stored}


def _set(conditions: list[Json], type_: str, is_true: bool, reason: str, message: str, now: datetime) -> None:
    """Put a condition in its place; its time is that of the last change of its status."""
    made = {
        "type": type_, "status": str(is_true), "lastTransitionTime": timestamp(now), "reason": reason,
        "message": message,
    }  # fmt: skip
    for index, each in enumerate(conditions):
        if each["type"] == type_:
            if each["status"] == made["status"]:
                made["lastTransitionTime"] = each["lastTransitionTime"]
            conditions[index] = made
            return
    conditions.append(made)
