"""
What a schema does to an object: unknown fields go, defaults come, and the rest is checked.

The order is fixed: decode, prune, default, validate. A schema says of every place of an object what may stand there;
a place that it does not name holds an unknown field, unless it says ``x-kubernetes-preserve-unknown-fields``.

Called by: server/resources.py on every write of a custom kind. Calls schema_checks.py and cel.py for the verdicts.
Kubernetes: apiextensions-apiserver/pkg/apiserver/schema/{pruning,defaulting}.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from kyu.api.meta import Json
from kyu.server.schema_node import MISSING, Definitions, Schema

__all__ = ["MISSING", "Definitions", "Schema", "apply_defaults", "prune", "unknown_fields"]

# What every object has at its top, and an embedded one too, whatever its schema says.
TYPE_FIELDS = frozenset({"apiVersion", "kind", "metadata"})


def prune(schema: Schema, obj: Json) -> list[str]:
    """Remove the unknown fields in place; their paths, sorted."""
    found: list[tuple[str, dict[str, Any], str]] = []
    _collect(schema, obj, "", found, is_resource=True)
    for _, parent, name in found:
        parent.pop(name, None)
    return sorted(path for path, _, _ in found)


def unknown_fields(schema: Schema, obj: Json) -> list[str]:
    """The paths that ``prune`` would remove."""
    found: list[tuple[str, dict[str, Any], str]] = []
    _collect(schema, obj, "", found, is_resource=True)
    return sorted(path for path, _, _ in found)


def _collect(
    schema: Schema, value: Any, path: str, found: list[tuple[str, dict[str, Any], str]], *, is_resource: bool = False
) -> None:
    if isinstance(value, list):
        if (items := schema.items) is not None:
            for index, item in enumerate(value):
                _collect(items, item, f"{path}[{index}]", found)
        return
    if not isinstance(value, dict):
        return
    is_resource = is_resource or schema.is_embedded
    properties, additional = schema.properties, schema.additional
    for name, item in value.items():
        if is_resource and name in TYPE_FIELDS:
            continue
        child = properties.get(name, additional)
        here = f"{path}.{name}" if path else name
        if child is not None:
            _collect(child, item, here, found)
        elif not schema.preserves_unknown:
            found.append((here, value, name))


def apply_defaults(schema: Schema, value: Any) -> None:
    """Fill in what is absent, in place. A null where null is not allowed counts as absent if there is a default."""
    if not schema.has_defaults:
        return
    if isinstance(value, list):
        if (items := schema.items) is not None and items.has_defaults:
            for index, item in enumerate(value):
                if item is None and _replaces_null(items):
                    value[index] = deepcopy(items.default)
                apply_defaults(items, value[index])
    elif isinstance(value, dict):
        for name, child in schema.properties.items():
            if not child.has_defaults:
                continue
            if child.default is not MISSING and (name not in value or (value[name] is None and _replaces_null(child))):
                value[name] = deepcopy(child.default)
            if name in value:
                apply_defaults(child, value[name])
        if (additional := schema.additional) is not None and additional.has_defaults:
            for name, item in value.items():
                if name not in schema.properties:
                    if item is None and _replaces_null(additional):
                        value[name] = deepcopy(additional.default)
                    apply_defaults(additional, value[name])


def _replaces_null(schema: Schema) -> bool:
    return schema.default is not MISSING and not schema.nullable
