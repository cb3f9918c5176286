"""
Has this object the shape of its kind? For objects that no API server has looked at yet.

The kinds take objects whose shape a server has checked by the schema of their kind. Where objects come straight from a
user, the parts that the kinds rely on are checked here: what must be a mapping, a list or a text.

Used by: workflows.
"""

from __future__ import annotations

from collections.abc import Sequence

from kyu.api.meta import Json
from kyu.kinds import fields
from kyu.kinds.kind import Slot

TEXTS_OF_METADATA = ("labels", "annotations")
MAPPINGS_OF_SPEC = ("overhead", "affinity")
LISTS_OF_SPEC = ("containers", "initContainers", "tolerations", "schedulingGates", "topologySpreadConstraints")


def why_not_object(obj: Json, slots: Sequence[Slot]) -> str:
    """What is wrong with the shape of an object that has its pod templates in these slots, or an empty text."""
    if not isinstance(obj.get("spec", {}), dict):
        return "spec must be a mapping"
    if problem := why_not_metadata(obj):
        return problem
    for slot in slots:
        template = fields.value_at(obj, slot.template)
        if template is not None and (problem := why_not_template(template)):
            return f"{fields.show(slot.template)}: {problem}"
    return ""


def why_not_template(template: object) -> str:
    """What is wrong with the shape of a pod template, or an empty text."""
    if not isinstance(template, dict):
        return f"must be a mapping, not {template!r}"
    if problem := why_not_metadata(template):
        return problem
    spec = template.get("spec")
    if spec is None:
        return ""
    if not isinstance(spec, dict):
        return f"spec must be a mapping, not {spec!r}"
    if not has_texts(spec.get("nodeSelector")):
        return "spec.nodeSelector must be a mapping of texts"
    for key in MAPPINGS_OF_SPEC:
        if not is_mapping(spec.get(key)):
            return f"spec.{key} must be a mapping"
    for key in LISTS_OF_SPEC:
        listed = spec.get(key)
        if listed is not None and not (isinstance(listed, list) and all(isinstance(item, dict) for item in listed)):
            return f"spec.{key} must be a list of mappings"
    holders = [spec, *(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    return next((problem for holder in holders if (problem := why_not_resources(holder))), "")


def why_not_metadata(holder: Json) -> str:
    meta = holder.get("metadata")
    if meta is None:
        return ""
    if not isinstance(meta, dict):
        return f"metadata must be a mapping, not {meta!r}"
    wrong = next((key for key in TEXTS_OF_METADATA if not has_texts(meta.get(key))), None)
    return f"metadata.{wrong} must be a mapping of texts" if wrong else ""


def is_mapping(value: object) -> bool:
    return value is None or isinstance(value, dict)


def has_texts(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())


def why_not_resources(holder: Json) -> str:
    resources = holder.get("resources")
    if resources is None:
        return ""
    if not isinstance(resources, dict):
        return f"resources must be a mapping, not {resources!r}"
    for key in ("requests", "limits"):
        if not is_mapping(resources.get(key)):
            return f"resources.{key} must be a mapping"
    return ""
