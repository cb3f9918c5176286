"""
The accepted names of a CustomResourceDefinition, and the status that reports them.

In a group, a name belongs to the definition that got it first. Each name is accepted on its own, and the last conflict
is reported. A kind is served as soon as all its names are accepted, and from then on.

Kubernetes: apiextensions-apiserver/pkg/controller/{status,establish}
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kyu.api.meta import Json
from kyu.server.crd import crd
from kyu.server.metadata import timestamp

# Names of resources and names of kinds, with the reason of a conflict. The two do not conflict with each other.
RESOURCE_NAMES: Final = {"plural": "PluralConflict", "singular": "SingularConflict", "shortNames": "ShortNamesConflict"}
KIND_NAMES: Final = {"kind": "KindConflict", "listKind": "ListKindConflict"}
# Written also if they are empty.
ALWAYS: Final = ("plural", "kind")


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The accepted names of a definition, and the reason of a conflict."""

    names: Json
    reason: str = "NoConflicts"
    message: str = "no conflicts found"

    @property
    def is_complete(self) -> bool:
        return self.reason == "NoConflicts"


def accept(requested: Json, accepted: Json, others: Iterable[Json]) -> Acceptance:
    """Accept the requested names that no other kind of the group has."""
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
    _set(conditions, "NamesAccepted", acceptance.is_complete, acceptance.reason, acceptance.message, now)
    if not any(each["type"] == "Established" and each["status"] == "True" for each in conditions):
        reason, message = "NotAccepted", "not all names are accepted"
        if acceptance.is_complete:
            reason, message = "InitialNamesAccepted", "the initial names have been accepted"
        _set(conditions, "Established", acceptance.is_complete, reason, message, now)
    stored = crd.stored_versions(definition, tuple(status.get("storedVersions") or ()))
    return {**status, "conditions": conditions, "acceptedNames": acceptance.names, "storedVersions": stored}


def _set(conditions: list[Json], type_: str, is_true: bool, reason: str, message: str, now: datetime) -> None:
    """Set a condition; its transition time changes with its status."""
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
