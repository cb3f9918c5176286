"""A view on objects in memory, and the effect of actions on them: what plans are tested on, without a server."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Sequence
from typing import TypeVar

from kyu.api import codec
from kyu.api.actions import Action, Apply, Bind, Create, Delete, Event, Patch, WakeAt
from kyu.api.config import Configuration
from kyu.api.meta import Json, Key, Kind, Object

T = TypeVar("T", bound=Object)


class MemoryView:
    """Implements ``View``; ``carry_out`` does what a server would: merge patches, versions, finalizers."""

    def __init__(self, objects: Iterable[Json] = (), configuration: Configuration | None = None) -> None:
        self.configuration = configuration or Configuration()
        self.objects: dict[tuple[str, str, Key], Json] = {}
        self._versions = itertools.count(1)
        for obj in objects:
            self.put(obj)

    def put(self, obj: Json) -> None:
        meta = obj.setdefault("metadata", {})
        meta.setdefault("uid", f"uid-{meta['name']}")
        meta["resourceVersion"] = str(next(self._versions))
        group = str(obj["apiVersion"]).rpartition("/")[0]
        self.objects[group, obj["kind"], Key(meta.get("namespace", ""), meta["name"])] = obj

    def get(self, type_: type[T], key: Key) -> T | None:
        found = self.find_json(type_.KIND, key)
        return None if found is None else codec.decode_as(type_, found)

    def list(self, type_: type[T], namespace: str | None = None) -> Sequence[T]:
        return [codec.decode_as(type_, obj) for obj in self.list_json(type_.KIND, namespace)]

    def find_json(self, kind: Kind, key: Key) -> Json | None:
        return self.objects.get((kind.group, kind.kind, key))

    def list_json(self, kind: Kind, namespace: str | None = None) -> Sequence[Json]:
        return [
            obj
            for (group, name, key), obj in self.objects.items()
            if (group, name) == (kind.group, kind.kind) and namespace in (None, key.namespace)
        ]

    def owned_by(self, kind: Kind, uid: str) -> Sequence[Json]:
        return [
            obj
            for obj in self.list_json(kind)
            if any(o.get("controller") and o["uid"] == uid for o in obj["metadata"].get("ownerReferences") or ())
        ]

    def carry_out(self, action: Action) -> None:
        match action:
            case Create(kind, body):
                self.put({"apiVersion": kind.api_version, "kind": kind.kind, **copy.deepcopy(body)})
            case Apply(kind, body):
                key = Key(body["metadata"].get("namespace", ""), body["metadata"]["name"])
                before = self.find_json(kind, key) or {"apiVersion": kind.api_version, "kind": kind.kind}
                self.put(merged(before, body))
            case Patch(ref, patch, subresource, version):
                before = self.objects[ref.kind.group, ref.kind.kind, ref.key]
                assert version in ("", before["metadata"]["resourceVersion"]), f"{ref}: stale version"
                part = {"status": patch["status"]} if subresource else patch
                self.put(merged(before, part))
                self._drop_if_released(ref.kind, ref.key)
            case Delete(ref):
                found = self.find_json(ref.kind, ref.key)
                if found is not None:
                    found["metadata"].setdefault("deletionTimestamp", "2026-01-01T00:00:00Z")
                    self._drop_if_released(ref.kind, ref.key)
            case Bind(ref, node):
                self.put(merged(self.objects[ref.kind.group, ref.kind.kind, ref.key], {"spec": {"nodeName": node}}))
            case Event() | WakeAt():
                pass

    def _drop_if_released(self, kind: Kind, key: Key) -> None:
        obj = self.objects[kind.group, kind.kind, key]
        if "deletionTimestamp" in obj["metadata"] and not obj["metadata"].get("finalizers"):
            del self.objects[kind.group, kind.kind, key]


def merged(target: object, patch: object) -> Json:
    """JSON merge patch."""
    result = copy.deepcopy(target) if isinstance(target, dict) else {}
    assert isinstance(patch, dict)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = merged(result.get(name), value)
        else:
            result[name] = copy.deepcopy(value)
    return result
