"""
The settings that a plugin writes on an object, and their merge with the object's own values.

A setting is a value at a place, with its reason. A user's own value is never lost: a conflict is an error, or one of
the two values is kept and the choice is recorded.

Flyte: the last step of launching a resource, where labels are merged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from kyu.api.meta import Json
from kyu.kinds import fields

OnConflict: TypeAlias = Literal["error", "keep", "replace"]
Outcome: TypeAlias = Literal["set", "already there", "kept the object's", "replaced the object's"]


class Setting(msgspec.Struct, frozen=True, gc=False):
    """Write ``value`` under ``key`` of the mapping at ``place``."""

    place: fields.Path
    key: str
    value: str
    why: str

    @property
    def where(self) -> str:
        return f"{fields.show(self.place)}[{self.key}]"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why an object is not labelled, and the remedy."""

    reason: str
    way_out: str

    def __str__(self) -> str:
        return f"{self.reason}; {self.way_out}"


class Applied(msgspec.Struct, frozen=True, gc=False):
    """A setting and its result. ``present`` is the object's own value, if it had another one."""

    setting: Setting
    outcome: Outcome
    present: str = ""


class Merged(msgspec.Struct, frozen=True):
    """The object with the settings, the applied settings, the conflicts, and each written mapping."""

    object: Json
    applied: list[Applied]
    conflicts: list[Refusal]
    written: dict[fields.Path, Json]


def merge(obj: Json, settings: Iterable[Setting], on_conflict: OnConflict) -> Merged:
    """Write the settings to a copy of the object."""
    result: Json = msgspec.to_builtins(obj)
    applied: list[Applied] = []
    conflicts: list[Refusal] = []
    written: dict[fields.Path, Json] = {}
    for setting in settings:
        place, key, value = setting.place, setting.key, setting.value
        values = written.get(place)
        if values is None:
            values = written[place] = fields.mapping_in(result, place)
        present = values.get(key)
        if present is None or present == "":
            values[key] = value
            applied.append(Applied(setting, "set"))
        elif present == value:
            applied.append(Applied(setting, "already there"))
        elif on_conflict == "keep":
            applied.append(Applied(setting, "kept the object's", str(present)))
        elif on_conflict == "replace":
            values[key] = value
            applied.append(Applied(setting, "replaced the object's", str(present)))
        else:
            both = f"is {str(present)!r} in the object and should be {value!r} ({setting.why})"
            conflicts.append(Refusal(f"{setting.where} {both}", "remove it from the object, or choose which to keep"))
    return Merged(result, applied, conflicts, written)
