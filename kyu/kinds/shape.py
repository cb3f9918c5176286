"""
Has this object the shape of its kind? For objects that no API server has looked at yet.

The kinds take objects whose shape a server has checked by the schema of their kind. Where objects come straight from a
user, the parts that the kinds rely on are checked here: the types below say what must be a mapping, a list or a text.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kyu.api.meta import Json
from kyu.kinds import fields
from kyu.kinds.kind import Slot


class Mapping(msgspec.Struct, frozen=True):
    """Anything that has keys."""


class MetadataShape(msgspec.Struct, frozen=True):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class ResourcesShape(msgspec.Struct, frozen=True):
    requests: Mapping | None = None
    limits: Mapping | None = None


class ContainerShape(msgspec.Struct, frozen=True):
    resources: ResourcesShape | None = None


class PodSpecShape(msgspec.Struct, frozen=True, rename="camel"):
    containers: list[ContainerShape] | None = None
    init_containers: list[ContainerShape] | None = None
    node_selector: dict[str, str] | None = None
    tolerations: list[Mapping] | None = None
    scheduling_gates: list[Mapping] | None = None
    topology_spread_constraints: list[Mapping] | None = None
    affinity: Mapping | None = None
    overhead: Mapping | None = None
    resources: ResourcesShape | None = None


class TemplateShape(msgspec.Struct, frozen=True):
    metadata: MetadataShape | None = None
    spec: PodSpecShape | None = None


class ObjectShape(msgspec.Struct, frozen=True):
    metadata: MetadataShape | None = None
    spec: Mapping = Mapping()


def why_not_object(obj: Json, slots: Sequence[Slot]) -> str:
    """Return the error in the shape of an object with pod templates in these slots, or an empty text."""
    if problem := why_not(obj, ObjectShape):
        return problem
    for slot in slots:
        template = fields.value_at(obj, slot.template)
        if template is not None and (problem := why_not(template, TemplateShape)):
            return f"{fields.show(slot.template)}: {problem}"
    return ""


def why_not_template(template: object) -> str:
    """Return the error in the shape of a pod template, or an empty text."""
    return why_not(template, TemplateShape)


def why_not(value: object, shape: type[ObjectShape] | type[TemplateShape]) -> str:
    try:
        msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at ")
        place = where.replace("`", "").replace("$.", "")
        return f"{place}: {what}" if place else what
    return ""
