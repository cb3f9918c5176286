"""
Objects as rows of a Table: what ``kubectl get`` prints.

A custom kind defines its columns itself; those of built-in kinds are in builtin.py.

Kubernetes: apiextensions-apiserver tableconvertor.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from kyu.api.meta import Json
from kyu.server.registry import Column, Resource
from kyu.server.tables import builtin, jsonpath
from kyu.server.tables.columns import NAME
from kyu.server.tables.words import age


def definitions(resource: Resource) -> list[Json]:
    return [
        {"name": c.name, "type": c.type, "format": c.format, "description": c.description, "priority": c.priority}
        for c in columns(resource)
    ]


def columns(resource: Resource) -> tuple[Column, ...]:
    if resource.columns:
        return (NAME.column, *resource.columns)
    return tuple(each.column for each in builtin.columns(resource.storage))


def cells(resource: Resource, obj: Json, now: datetime) -> list[Any]:
    if resource.columns:
        return [obj["metadata"]["name"], *(_custom_cell(column, obj, now) for column in resource.columns)]
    return [each.cell(obj, now) for each in builtin.columns(resource.storage)]


def conditions(resource: Resource, obj: Json) -> list[Json]:
    """Mark the rows of finished Pods, so that clients can leave them out."""
    if resource.storage != "pods":
        return []
    match obj.get("status", {}).get("phase"):
        case "Succeeded":
            return [_completed("Succeeded", "The pod has completed successfully.")]
        case "Failed":
            return [_completed("Failed", "The pod failed.")]
        case _:
            return []


def _completed(reason: str, message: str) -> Json:
    return {"type": "Completed", "status": "True", "reason": reason, "message": message}


def _custom_cell(column: Column, obj: Json, now: datetime) -> Any:
    found = jsonpath.find(column.path, obj)
    if not found or found[0] is None:
        return None
    match column.type:
        case "date":
            return _age(found[0], now) if isinstance(found[0], str) else None
        case "integer" | "number":
            return found[0] if isinstance(found[0], int | float) and not isinstance(found[0], bool) else None
        case "boolean":
            return found[0] if isinstance(found[0], bool) else None
        case _:
            return _text(found[0])


def _age(text: str, now: datetime) -> str:
    try:
        return age(text, now)
    except ValueError:
        return "<invalid>"


def _text(value: Any) -> str:
    """Encode as JSON, a string without its quotes."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def now() -> datetime:
    return datetime.now(UTC)
