"""
How server-side apply takes over what ``kubectl apply`` did before on the client.

The older apply keeps what it applied last in an annotation. When kubectl applies on the server, fields that still have
the value of the annotation are its own, whoever is written down as their owner, and the annotation is kept up to date
for clients that go on reading it.

Called by: managed.py, for the manager ``kubectl`` only. Kubernetes: managedfields/internal/lastapplied*.go
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kyu.api.meta import Json
from kyu.server import managed_fields, managed_objects
from kyu.server import managed_sets as sets
from kyu.server.managed_fields import ShapeError
from kyu.server.managed_objects import Changes
from kyu.server.managed_sets import FieldSet
from kyu.server.schema_node import Schema

MANAGER: Final = "kubectl"
ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"


def own_fields(schema: Schema, live: Json) -> FieldSet:
    """The fields of the annotation that the live object has with the same value."""
    text = _annotations(live).get(ANNOTATION)
    if not text:
        return {}
    try:
        applied: Json = msgspec.json.decode(text, type=dict[str, Any])
        changes = Changes()
        managed_objects.compare_fields(schema, applied, live, (), changes)
        return sets.difference(managed_fields.applied_set(schema, applied), changes.touched)
    except (msgspec.DecodeError, ShapeError):
        return {}


def with_annotation(obj: Json, config: Json) -> Json:
    """The object with the annotation renewed, if it has one."""
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
