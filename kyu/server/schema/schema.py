"""
Prune, default and validate an object by its schema, in this order.

A field that the schema does not name is unknown, unless ``x-kubernetes-preserve-unknown-fields`` is set.

Kubernetes: apiextensions-apiserver/pkg/apiserver/schema/{pruning,defaulting}.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Final

import msgspec

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.server.schema import cel, checks, fast, quick
from kyu.server.schema.fast import is_certain
from kyu.server.schema.node import MISSING, Schema

# The fields of every object, and of an embedded one, whatever its schema says.
TYPE_FIELDS = frozenset({"apiVersion", "kind", "metadata"})
# The schema of the items of an undeclared list.
UNDECLARED: Final = Schema({})
CONTAINERS: Final = (dict, list)


def prune(schema: Schema, obj: Json, stored: Json | None = None) -> list[str]:
    """Remove unknown fields in place. Return their paths, sorted."""
    found: list[tuple[str, dict[str, Any], str]] = []
    for name, value in new_parts(obj, stored):
        child = schema.child(name)
        if child is None:
            if not schema.preserves_unknown:
                found.append((name, obj, name))
        elif not is_certain(child, fast.known, value):
            _collect(child, value, name, found)
    if not found:
        return []
    for _, parent, name in found:
        parent.pop(name, None)
    return sorted(path for path, _, _ in found)


def new_parts(obj: Json, stored: Json | None) -> list[tuple[str, Any]]:
    """Return the top-level fields, without those that are shared with the stored object.

    The stored object was pruned, defaulted and validated before.
    """
    if stored is None:
        return [(name, value) for name, value in obj.items() if name not in TYPE_FIELDS]
    return [
        (name, value)
        for name, value in obj.items()
        if name not in TYPE_FIELDS and stored.get(name, MISSING) is not value
    ]


def unknown_parts(schema: Schema, value: Any, *, is_resource: bool) -> list[str]:
    """Return the paths of unknown fields in a value of any type."""
    found: list[tuple[str, dict[str, Any], str]] = []
    _collect(schema, value, "", found, is_resource=is_resource)
    return sorted(path for path, _, _ in found)


def _collect(
    schema: Schema, value: Any, path: str, found: list[tuple[str, dict[str, Any], str]], *, is_resource: bool = False
) -> None:
    if isinstance(value, list):
        items = schema.items or (None if schema.preserves_unknown else UNDECLARED)
        if items is not None:
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


def drop_nulls(schema: Schema, obj: Json, stored: Json | None = None) -> None:
    """Remove every null in place that is neither allowed nor replaced by a default.

    This applies to bodies and to results of patches. An apply with such a null is rejected.
    """
    for name, value in new_parts(obj, stored):
        child = schema.child(name)
        if child is None or is_certain(child, fast.without_nulls, value):
            continue
        if value is None:
            del obj[name]
        else:
            _drop_nulls(child, value)


def _drop_nulls(schema: Schema, value: Any) -> None:
    if isinstance(value, list):
        if schema.items is not None:
            for item in value:
                _drop_nulls(schema.items, item)
    elif isinstance(value, dict):
        for name in list(value):
            child = schema.child(name)
            if child is None or name == "metadata":
                continue
            if value[name] is None and not child.nullable and child.default is MISSING:
                del value[name]
            else:
                _drop_nulls(child, value[name])


def apply_defaults(schema: Schema, obj: Json, stored: Json | None = None) -> None:
    """Set defaults in place. A default also replaces a null that is not allowed."""
    for name, child in schema.defaulted.items():
        if name in TYPE_FIELDS:
            continue
        value = obj.get(name, MISSING)
        if stored is not None and stored.get(name) is value:
            continue
        if value is MISSING or not is_certain(child, fast.defaulted, value):
            _default_field(child, obj, name)


def _apply_defaults(schema: Schema, value: Any) -> None:
    if isinstance(value, dict):
        for name, child in schema.defaulted.items():
            _default_field(child, value, name)
        if (additional := schema.additional) is not None and additional.has_defaults:
            for name, item in value.items():
                if name not in schema.properties:
                    if item is None and _replaces_null(additional):
                        value[name] = deepcopy(additional.default)
                    _apply_defaults(additional, value[name])
    elif isinstance(value, list) and (items := schema.items) is not None and items.has_defaults:
        for index, item in enumerate(value):
            if item is None and _replaces_null(items):
                value[index] = deepcopy(items.default)
            _apply_defaults(items, value[index])


def _default_field(child: Schema, value: Json, name: str) -> None:
    given = value.get(name, MISSING)
    if given is MISSING or (given is None and not child.nullable):
        if child.default is MISSING:
            return
        given = value[name] = deepcopy(child.default) if isinstance(child.default, CONTAINERS) else child.default
    if isinstance(given, CONTAINERS):
        _apply_defaults(child, given)


NOT_ALL_CHECKED: Final = (
    "some validation rules were not checked because the object was invalid;"
    " correct the existing errors to complete validation"
)


def validate(
    schema: Schema, obj: Json, old: Json | None = None, *, earlier: Sequence[FieldError] = (), root: str = ""
) -> list[FieldError]:
    """Return all errors of an object. On an update, values that did not change are not reported (ratcheting).

    Of the metadata, a schema can only restrict the name. ``earlier`` are errors of other checks: CEL rules may rely on
    their absence. ``root`` is the field that a subresource writes: messages give paths from there.
    """
    found = [fields.required(name) for name in schema.required if name not in obj]
    parts = [(name, child, value) for name, value in new_parts(obj, old) if (child := schema.child(name)) is not None]
    for name, child, value in parts:
        if not is_certain(child, fast.valid, value):
            faults = checks.faults(child, value, _old(old, name), "" if name == root else name)
            found += [_below(root, fault) for fault in faults] if name == root else faults
    if not found and not earlier and quick.certainly_passes(schema, obj, old):
        return found
    for name, child, value in parts:
        if child.has_list_rules:
            checks.check_lists(child, value, _old(old, name), name, found)
    if schema.has_rules:
        if any(error.type in checks.BLOCKING for error in (*earlier, *found)):
            found.append(fields.invalid(checks.NO_FIELD, None, NOT_ALL_CHECKED))
        else:
            cel.check_rules(schema, _seen_by_rules(obj), MISSING if old is None else _seen_by_rules(old), "", found)
    return found


def _below(root: str, fault: FieldError) -> FieldError:
    """Return an error that was found below a field as one of the whole object."""
    field = root if fault.field in ("", checks.NO_FIELD) else f"{root}.{fault.field}"
    return msgspec.structs.replace(fault, field=field)


def _seen_by_rules(obj: Json) -> Json:
    """Return the object with the only metadata that CEL rules see: the name."""
    metadata = obj.get("metadata") or {}
    return {**obj, "metadata": {name: metadata[name] for name in ("name", "generateName") if name in metadata}}


def _old(old: Json | None, name: str) -> Any:
    return MISSING if old is None else old.get(name, MISSING)


def _replaces_null(schema: Schema) -> bool:
    return schema.default is not MISSING and not schema.nullable
