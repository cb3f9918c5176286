"""
The owners of the replicas of an object, in its own managedFields and in those of its scale.

A scale is an object of another kind with one field of the parent. The owners of that field in the parent own
``spec.replicas`` in the scale. After a write, the owners in the scale are those of the field in the parent. New owners
have the subresource ``scale`` and no time, as in Kubernetes.

Kubernetes: apimachinery/pkg/util/managedfields/scalehandler.go
"""

from __future__ import annotations

from typing import Final

from kyu.api.meta import Json
from kyu.server.fieldmanager import entries, sets
from kyu.server.fieldmanager.entries import ManagedFieldsEntry
from kyu.server.fieldmanager.sets import LEAF, FieldSet

SCALE_VERSION: Final = "autoscaling/v1"
REPLICAS: Final = ("f:spec", "f:replicas")


def seen_in_scale(parent: Json, field: tuple[str, ...]) -> list[ManagedFieldsEntry]:
    """Return the entries of the scale: one for each owner of the field."""
    return [
        ManagedFieldsEntry(
            entry.manager, entry.operation, SCALE_VERSION, entry.subresource, entry.time, _only(REPLICAS)
        )
        for entry in entries.decode(parent)
        if _has(entry.fields, field)
    ]


def seen_in_parent(parent: Json, scale: Json, field: tuple[str, ...], api_version: str) -> list[ManagedFieldsEntry]:
    """Return the entries of the parent after its scale was written."""
    owners = {_identity(entry) for entry in entries.decode(scale) if _has(entry.fields, REPLICAS)}
    result: list[ManagedFieldsEntry] = []
    for entry in entries.decode(parent):
        if not _has(entry.fields, field):
            result.append(entry)
        elif _identity(entry) in owners:
            owners.discard(_identity(entry))
            result.append(entry)
        elif rest := sets.difference(entry.fields, _only(field)):
            entry.fields = rest
            result.append(entry)
    added = (entry for entry in entries.decode(scale) if _identity(entry) in owners)
    return result + [
        ManagedFieldsEntry(entry.manager, entry.operation, api_version, entry.subresource, "", _only(field))
        for entry in added
    ]


def _identity(entry: ManagedFieldsEntry) -> tuple[str, str, str]:
    return entry.operation, entry.manager, entry.subresource


def _has(fields: FieldSet, path: tuple[str, ...]) -> bool:
    node: FieldSet | None = fields
    for element in path:
        node = None if node is None else node.get(element)
    return node is not None


def _only(path: tuple[str, ...]) -> FieldSet:
    node = LEAF
    for element in reversed(path):
        node = {element: node}
    return node
