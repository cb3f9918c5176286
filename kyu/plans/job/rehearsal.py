"""
A rehearsal of jobs in files: the Workloads that their controllers would make.

The same functions run as on a server: a job is defaulted and checked by the webhook, and its plan makes the Workload.
The order of the files is the order of creation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from kyu.api import codec
from kyu.api.actions import Action, Create
from kyu.api.config.config import Configuration
from kyu.api.errors import FieldError
from kyu.api.meta import Json, Key, Kind, Object
from kyu.kinds import pod as plain_pod
from kyu.kinds import pod_group, table
from kyu.kinds.kind import JobKind
from kyu.plans.job import lifecycle, webhook

T = TypeVar("T", bound=Object)


class ObjectsView:
    """Implements ``View`` on objects in memory."""

    def __init__(self, objects: Iterable[Json], configuration: Configuration) -> None:
        self.configuration = configuration
        self.objects: dict[tuple[str, str, Key], Json] = {}
        for obj in objects:
            self.put(obj)

    def put(self, obj: Json) -> None:
        group = str(obj["apiVersion"]).rpartition("/")[0]
        self.objects[group, obj["kind"], key_of(obj)] = obj

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


def key_of(obj: Json) -> Key:
    meta = obj.get("metadata") or {}
    return Key(str(meta.get("namespace") or ""), str(meta.get("name") or ""))


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """The result for one job: its Workload, its errors, or nothing if it is not queued."""

    workload: Json | None = None
    errors: tuple[FieldError, ...] = ()


def rehearse(view: ObjectsView, jobs: Sequence[Json], now: datetime) -> list[Rehearsed]:
    """
    Return a result for each job, in their order.

    The first pod of a group has the result of the group. The view is filled with the jobs as a server would store them.
    """
    found: list[Rehearsed] = []
    stored: list[Json] = []
    for number, given in enumerate(jobs):
        verdict = webhook.admit(view, with_identity(given, number, now), None)
        found.append(Rehearsed(errors=verdict.errors))
        stored.append(verdict.obj)
        view.put(verdict.obj)
    groups: set[Key] = set()
    for number, obj in enumerate(stored):
        kind = table.find(obj)
        if kind is None or found[number].errors:
            continue
        if workload := made_workload(plan(view, kind, obj, groups, now)):
            found[number] = Rehearsed(with_identity(workload, number, now))
    return found


def with_identity(obj: Json, number: int, now: datetime) -> Json:
    """Return the object with the metadata that a server adds."""
    given = obj.get("metadata") or {}
    made = {"uid": f"{number:08d}", "creationTimestamp": now.isoformat()}
    if not given.get("name") and (stem := given.get("generateName")):
        made["name"] = f"{stem}{number:05d}"
    return {**obj, "metadata": {**made, **given}}


def plan(view: ObjectsView, kind: JobKind, obj: Json, groups: set[Key], now: datetime) -> list[Action]:
    """Return the plan of a job, or for the first pod of a group that of the group."""
    key = key_of(obj)
    group = pod_group.name(obj) if kind.kind == plain_pod.POD else ""
    if not group:
        return lifecycle.plan(kind, view, key, now)
    group_key = Key(key.namespace, group)
    if group_key in groups:
        return []
    groups.add(group_key)
    return lifecycle.plan_group(view, group_key, now)


def made_workload(actions: Iterable[Action]) -> Json | None:
    return next((action.body for action in actions if isinstance(action, Create)), None)


def is_job(obj: Json) -> bool:
    """Return whether a manifest is a job. A pod without a queue only takes room on a node."""
    kind = table.find(obj)
    return kind is not None and (kind.kind != plain_pod.POD or bool(kind.queue_name(obj)))
