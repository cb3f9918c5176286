"""A view on objects in memory, and the effect of actions on them: what plans are tested on, without a server."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable

from kyu.api.actions import Action, Apply, Bind, Create, Delete, Event, Patch, WakeAt
from kyu.api.config.config import Configuration
from kyu.api.meta import Json, Key, Kind
from kyu.plans.job.rehearsal import ObjectsView


class MemoryView(ObjectsView):
    """``carry_out`` does what a server would: merge patches, versions, finalizers."""

    def __init__(self, objects: Iterable[Json] = (), configuration: Configuration | None = None) -> None:
        self._versions = itertools.count(1)
        super().__init__(objects, configuration or Configuration())

    def put(self, obj: Json) -> None:
        meta = obj.setdefault("metadata", {})
        meta.setdefault("uid", f"uid-{meta['name']}")
        meta["resourceVersion"] = str(next(self._versions))
        super().put(obj)

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
