"""
Bounds, defaults and rules of fields that the API server enforces, and words of the API that many kinds share.

A Struct has the shape. ``Annotated[..., Field(...)]`` adds the bounds, the default and the rules of a stored object,
next to the field. They have no effect on decoding: an object that was stored before a bound was introduced still
decodes. The string below a field is its description in the CustomResourceDefinition.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from kyu.api import names
from kyu.api.quantity import QuantityValue


class Rule(msgspec.Struct, frozen=True):
    """A CEL rule, and the message for users who break it. A rule with ``oldSelf`` is checked on updates only."""

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


DNS_LABEL = f"^{names.LABEL}$"
DNS_SUBDOMAIN = f"^{names.SUBDOMAIN}$"
LABEL_KEY = f"^{names.QUALIFIED_NAME}$"

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
    """Return the bounds of a list whose elements are identified by these fields, so that two managers can own different
    elements.
    """
    return Field(list_type="map", list_keys=keys, max_items=max_items, min_items=min_items)
