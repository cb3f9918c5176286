"""
What the API server checks about a field besides its type, and the words of the API that many kinds share.

A Struct says the shape. ``Annotated[..., Field(...)]`` adds the bounds, the default and the rules that a stored object
obeys, next to the field and without any effect on decoding: an object that was stored before a bound was introduced
still decodes. The text under a field is its description in the CustomResourceDefinition.

Used by: the kinds of ``kueue.py`` (to say), ``crds.py`` (to publish), ``structure.py`` (to check).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from kyu.api.quantity import QuantityValue


class Rule(msgspec.Struct, frozen=True):
    """A CEL rule, and what to tell the user who broke it. A rule with ``oldSelf`` is checked on updates only."""

    rule: str
    message: str
    reason: Literal["", "FieldValueInvalid", "FieldValueForbidden"] = ""
    field_path: str = ""


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one field. ``items`` are the bounds of each element of a list or each value of a mapping."""

    required: bool = False
    default: Any = msgspec.UNSET
    minimum: int | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    max_properties: int | None = None
    pattern: str = ""
    format: str = ""
    list_type: Literal["", "atomic", "set", "map"] = ""
    map_type: Literal["", "atomic"] = ""
    list_keys: tuple[str, ...] = ()
    items: Field | None = None
    rules: tuple[Rule, ...] = ()


DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
LABEL_KEY = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)

# References to objects of other kinds, by name.
ObjectName: TypeAlias = Annotated[str, Field(max_length=253, pattern=DNS_SUBDOMAIN)]
AdmissionCheckReference: TypeAlias = Annotated[str, Field(min_length=1, max_length=316)]
PodSetReference: TypeAlias = Annotated[str, Field(max_length=63, pattern=DNS_LABEL)]
ResourceName: TypeAlias = str

Time: TypeAlias = Annotated[str, Field(format="date-time")]
Int32: TypeAlias = Annotated[int, Field(format="int32")]
Count: TypeAlias = Annotated[int, Field(format="int32", minimum=0)]
Positive: TypeAlias = Annotated[int, Field(format="int32", minimum=1)]
ResourceList: TypeAlias = dict[str, QuantityValue]

StopPolicy: TypeAlias = Literal["None", "Hold", "HoldAndDrain"]


def unique_by(*keys: str, max_items: int, min_items: int | None = None) -> Field:
    """A list whose elements are told apart by these fields, so that two writers can own different elements."""
    return Field(list_type="map", list_keys=keys, max_items=max_items, min_items=min_items)
