"""
Strategic merge patch: a merge that knows by which key the items of a list are the same.

The schema says of each list whether it is merged (``x-kubernetes-patch-strategy``) and by which key; all other lists
are replaced. A patch may carry directives: ``$patch`` on a map or an item of a list, ``$deleteFromPrimitiveList/X``,
``$setElementOrder/X`` and ``$retainKeys``.

Kubernetes: apimachinery/pkg/util/strategicpatch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from kyu.api.meta import Json
from kyu.server import errors
from kyu.server.exchange import encode
from kyu.server.go_words import json_name, shown
from kyu.server.json_values import clone
from kyu.server.schema.node import Schema

DIRECTIVE: Final = "$patch"
RETAIN: Final = "$retainKeys"
DELETE_PRIMITIVE: Final = "$deleteFromPrimitiveList/"
ORDER: Final = "$setElementOrder/"
ANY: Final = Schema({})


def strategic_patch(schema: Schema, obj: Json, patch: Any) -> Json:
    """Return the patched object; the given one is not changed. A patch of null changes nothing."""
    if patch is None:
        return obj
    if not isinstance(patch, dict):
        found = f"cannot unmarshal {json_name(patch)} into Go value of type map[string]interface {{}}"
        raise errors.bad_request(f"json: {found}")
    return _merge_map(schema, obj, patch)


def _merge_map(schema: Schema, original: Json, patch: Json) -> Json:
    directive = patch.get(DIRECTIVE)
    if directive == "delete":
        return {}
    if directive == "replace":
        return _without_directives(patch)
    if directive is not None and original and schema.additional is None:
        raise errors.internal(f"unknown patch type: {directive} in map: {shown(patch)}")
    result = _retained(original, patch)
    for key, change in patch.items():
        if key.startswith((DELETE_PRIMITIVE, ORDER)) and not isinstance(change, list):
            raise errors.bad_request(f"invalid patch format: {key} must be a list")
        if key.startswith(DELETE_PRIMITIVE):
            field = key.removeprefix(DELETE_PRIMITIVE)
            if isinstance(result.get(field), list):
                result[field] = [item for item in result[field] if item not in change]
        elif key.startswith(ORDER):
            field = key.removeprefix(ORDER)
            if field not in patch:
                _sort_field(schema.child(field), result, field, original, change)
        elif change is None:
            result.pop(key, None)
        elif key not in (DIRECTIVE, RETAIN):
            _merge_field(schema.child(key) or ANY, result, key, change, patch.get(ORDER + key))
    return result


def _retained(original: Json, patch: Json) -> Json:
    """Return a copy of the original, cut to the keys of ``$retainKeys`` where the patch has them."""
    retain = patch.get(RETAIN)
    if retain is None:
        return {key: clone(value) for key, value in original.items()}
    if not isinstance(retain, list):
        raise errors.bad_request("invalid patch format: $retainKeys must be a list")
    retained = {key for key in retain if isinstance(key, str)}
    if unlisted := [key for key in patch if key not in retained and not key.startswith("$")]:
        raise errors.bad_request(f"$retainKeys does not contain all keys of the patch: {', '.join(unlisted)}")
    return {key: clone(value) for key, value in original.items() if key in retained}


def _merge_field(schema: Schema, result: Json, key: str, change: Any, order: list[Any] | None) -> None:
    present = result.get(key)
    if isinstance(change, dict) and DIRECTIVE in change and key not in result:
        # A directive about what is not there is forgotten, and all that stands beside it.
        return
    if isinstance(change, dict):
        result[key] = _merge_map(schema, present if isinstance(present, dict) else {}, change)
        if change.get(DIRECTIVE) == "delete":
            del result[key]
    elif isinstance(change, list) and "merge" in schema.patch_strategies:
        result[key] = _merge_list(schema, present if isinstance(present, list) else [], change, order)
    else:
        result[key] = _cleaned(change)


def _merge_list(schema: Schema, original: list[Any], patch: list[Any], order: list[Any] | None) -> list[Any]:
    merge_key = schema.patch_merge_key
    types = {type(item) for item in original + patch}
    if len(types) > 1:
        raise errors.internal(f"list element types are not identical: [{shown(original)} {shown(patch)}]")
    if not merge_key or types != {dict}:
        present = {_identity(item) for item in original}
        added = {_identity(item): item for item in patch if _identity(item) not in present}
        merged = original + list(added.values())
        return _ordered(merged, original, patch if order is None else order, "")
    plain = [item for item in patch if DIRECTIVE not in item]
    special = [item for item in patch if DIRECTIVE in item]
    if any(item[DIRECTIVE] == "replace" for item in special):
        return [_cleaned(item) for item in plain]
    for item in plain + special:
        if merge_key not in item:
            raise errors.internal(f"map: {shown(item)} does not contain declared merge key: {merge_key}")
    deleted = {_identity(item[merge_key]) for item in special if item[DIRECTIVE] == "delete"}
    kept = [item for item in original if _identity(item.get(merge_key)) not in deleted]
    merged = _merge_items(schema.items or ANY, merge_key, kept, plain)
    return _ordered(merged, original, plain if order is None else order, merge_key)


def _merge_items(items: Schema, merge_key: str, original: list[Any], patch: list[Json]) -> list[Any]:
    result = [clone(item) for item in original]
    places: dict[object, int] = {}
    for index, item in enumerate(result):
        places.setdefault(_identity(item.get(merge_key)), index)
    for change in patch:
        place = places.setdefault(_identity(change[merge_key]), len(result))
        if place == len(result):
            result.append(_merge_map(items, {}, change))
        else:
            result[place] = _merge_map(items, result[place], change)
    return result


def _sort_field(schema: Schema | None, result: Json, field: str, original: Json, order: list[Any]) -> None:
    """``$setElementOrder`` without the list itself: only the order changes."""
    if schema is not None and isinstance(result.get(field), list):
        result[field] = _ordered(result[field], original[field], order, schema.patch_merge_key)


def _ordered(merged: list[Any], original: list[Any], order: list[Any], merge_key: str) -> list[Any]:
    """Items of the patch in its order; the others are put before the first of them that they stood before.

    A new item was nowhere before, so it is never passed: it comes as early as the patch's own order allows.
    """

    def name(item: Any) -> object:
        return _identity(item.get(merge_key) if isinstance(item, dict) else item)

    wanted, lived = _places(map(name, order)), _places(map(name, original))
    patched = sorted((item for item in merged if name(item) in wanted), key=lambda item: wanted[name(item)])
    others = deque(item for item in merged if name(item) not in wanted)
    result: list[Any] = []
    for item in patched:
        while others and name(item) in lived and lived.get(name(others[0]), len(lived)) < lived[name(item)]:
            result.append(others.popleft())
        result.append(item)
    return [*result, *others]


def _places(names: Iterable[object]) -> dict[object, int]:
    """Return the first place of each name."""
    places: dict[object, int] = {}
    for index, name in enumerate(names):
        places.setdefault(name, index)
    return places


def _identity(value: Any) -> object:
    """Return a value by which items are found: as they are, or the text of a map or list."""
    return encode(value) if isinstance(value, dict | list) else value


def _without_directives(patch: Json) -> Json:
    """Return a patch without directives and nulls, for a place where there is nothing to merge it with."""
    return {k: _cleaned(v) for k, v in patch.items() if not k.startswith("$") and v is not None}


def _cleaned(value: Any) -> Any:
    if isinstance(value, dict):
        return _without_directives(value)
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    return value
