"""
Who owns the replicas of an object, seen from its scale and back.

A scale is an object of another kind with one field of the parent. Whoever owns that field in the parent owns
``spec.replicas`` in the scale; after a write the owners of the scale decide who owns the field in the parent. New ones
are written down with the subresource ``scale``, and without a time, as Kubernetes has it.

Called by: scale.py. Kubernetes: apimachinery/pkg/util/managedfields/scalehandler.go
"""

from __future__ import annotations

from typing import Final

from kyu.api.meta import Json
from kyu.server import managed_entries
from kyu.server import managed_sets as sets
from kyu.server.managed_entries import Entry
from kyu.server.managed_sets import LEAF, FieldSet

SCALE_VERSION: Final = "autoscaling/v1"
REPLICAS: Final = ("f:spec", "f:replicas")


def seen_in_scale(parent: Json, field: tuple[str, ...]) -> list[Entry]:
    """The entries of the scale: one for each owner of the field."""
    return [
        Entry(entry.manager, entry.operation, SCALE_VERSION, entry.subresource, entry.time, _only(REPLICAS))
        for entry in managed_entries.decode(parent)
        if _has(entry.fields, field)
    ]


def seen_in_parent(parent: Json, scale: Json, field: tuple[str, ...], api_version: str) -> list[Entry]:
    """The entries of the parent after its scale was written."""
    owners = {_identity(entry) for entry in managed_entries.decode(scale) if _has(entry.fields, REPLICAS)}
    result: list[Entry] = []
    for entry in managed_entries.decode(parent):
        if not _has(entry.fields, field):
            result.append(entry)
        elif _identity(entry) in owners:
            owners.discard(_identity(entry))
            result.append(entry)
        elif rest := sets.difference(entry.fields, _only(field)):
            entry.fields = rest
            result.append(entry)
    added = (entry for entry in managed_entries.decode(scale) if _identity(entry) in owners)
    return result + [
        Entry(entry.manager, entry.operation, api_version, entry.subresource, "", _only(field)) for entry in added
    ]


def _identity(entry: Entry) -> tuple[str, str, str]:
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
