"""
Migration from client-side ``kubectl apply`` to server-side apply.

Client-side apply stores its last configuration in an annotation. When kubectl applies on the server, it owns the fields
that still have the value of the annotation, whatever managedFields say. The annotation is kept up to date for clients
that still read it.

Kubernetes: managedfields/internal/lastapplied*.go
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kyu.api.meta import Json
from kyu.server.fieldmanager import fields, objects, sets
from kyu.server.fieldmanager.fields import ShapeError
from kyu.server.fieldmanager.objects import Changes
from kyu.server.fieldmanager.sets import FieldSet
from kyu.server.schema.node import Schema

MANAGER: Final = "kubectl"
ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"


def own_fields(schema: Schema, live: Json) -> FieldSet:
    """Return the fields of the annotation that the live object has with the same value."""
    text = _annotations(live).get(ANNOTATION)
    if not text:
        return {}
    try:
        applied: Json = msgspec.json.decode(text, type=dict[str, Any])
        changes = Changes()
        objects.compare_fields(schema, applied, live, (), changes)
        return sets.difference(fields.applied_set(schema, applied), changes.touched)
    except (msgspec.DecodeError, ShapeError):
        return {}


def with_annotation(obj: Json, config: Json) -> Json:
    """Return the object with an updated annotation, if it has one."""
    annotations = _annotations(obj)
    if ANNOTATION not in annotations:
        return obj
    metadata = {**config.get("metadata", {})}
    if "annotations" in metadata:
        metadata["annotations"] = {name: text for name, text in _annotations(config).items() if name != ANNOTATION}
    text = msgspec.json.encode({**config, "metadata": metadata}, order="sorted").decode() + "\n"
    return {**obj, "metadata": {**obj["metadata"], "annotations": {**annotations, ANNOTATION: text}}}


def _annotations(obj: Json) -> Json:
    annotations: Json = (obj.get("metadata") or {}).get("annotations") or {}
    return annotations
