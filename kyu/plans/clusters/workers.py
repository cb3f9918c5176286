"""
The worker clusters as seen from here: their connections, and their copies of our Workloads and jobs.

A copy carries the origin of this manager. An object of the same name without it belongs to another user there, and is
neither changed nor deleted.

Kueue: MultiKueue's remote client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, TypeAlias

from kyu.api.actions import Action, Create, Delete, Elsewhere, Patch
from kyu.api.kueue import RESOURCE_IN_USE_FINALIZER, Workload
from kyu.api.meta import Json, Key, Kind, Ref, key_of
from kyu.kinds import metadata, table
from kyu.kinds.kind import JobKind


class WorkerObjects(Protocol):
    """Objects of another cluster, as last seen."""

    def find_json(self, kind: Kind, key: Key) -> Json | None: ...

    def list_json(self, kind: Kind, namespace: str | None = None) -> Sequence[Json]: ...


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker cluster. ``since``: of its connection, or of the loss. ``kinds``: what is followed there.

    ``reason`` and ``message`` are those of its condition Active. ``refusals``: for Workloads, why the cluster took
    neither the copy nor the job, lately. ``queues``: its LocalQueues and ClusterQueues, if they are followed.
    """

    name: str
    is_connected: bool
    since: datetime
    reason: str
    message: str
    objects: WorkerObjects
    kinds: frozenset[Kind] = frozenset()
    refusals: Mapping[Key, str] = field(default_factory=dict)
    queues: WorkerObjects | None = None


Workers: TypeAlias = Callable[[], Mapping[str, Worker]]


@dataclass(frozen=True, slots=True)
class Copy:
    """A Workload of ours in another cluster, and its job there, if it was made."""

    worker: Worker
    workload: Json
    job: Json | None

    def does(self, action: Create | Patch | Delete) -> Elsewhere:
        return Elsewhere(self.worker.name, action)


def is_ours(obj: Json | None, origin: str) -> bool:
    return obj is not None and metadata.labels_of(obj).get(metadata.MULTI_KUEUE_ORIGIN) == origin


def find_copy(worker: Worker, key: Key, job: Ref | None, origin: str) -> Copy | None:
    """Return the copy in this cluster, with the job that is named, or else its owner there.

    A job of an earlier Workload of the same name does not count.
    """
    found = worker.objects.find_json(Workload.KIND, key)
    if found is None or not is_ours(found, origin):
        return None
    ref = job or owner_there(found)
    its_job = worker.objects.find_json(ref.kind, ref.key) if ref is not None else None
    return Copy(worker, found, its_job if is_ours(its_job, origin) and is_made_for(its_job, key) else None)


def is_made_for(job: Json | None, workload: Key) -> bool:
    return job is not None and metadata.identifier(job, metadata.PREBUILT_WORKLOAD) == workload.name


def owner_there(copy: Json) -> Ref | None:
    """Return the job that owns a copy in its cluster."""
    for owner in copy["metadata"].get("ownerReferences") or ():
        kind = table.find(owner)
        if owner.get("controller") and kind is not None:
            return Ref(kind.kind, Key(copy["metadata"]["namespace"], owner["name"]))
    return None


def remove(copy: Copy) -> list[Action]:
    """Delete a copy, the job first: without its Workload it would wait there until garbage collection."""
    actions: list[Action] = []
    if copy.job is not None:
        actions += remove_job(copy.worker, copy.job)
    if metadata.is_deleted(copy.workload):
        return actions
    ref = Ref(Workload.KIND, key_of(copy.workload))
    finalizers = copy.workload["metadata"].get("finalizers") or []
    if RESOURCE_IN_USE_FINALIZER in finalizers:
        kept = [name for name in finalizers if name != RESOURCE_IN_USE_FINALIZER]
        actions.append(copy.does(Patch(ref, {"metadata": {"finalizers": kept}})))
    return [*actions, copy.does(Delete(ref, metadata.uid_of(copy.workload)))]


def remove_job(worker: Worker, job: Json) -> list[Action]:
    kind = table.find(job)
    if kind is None or metadata.is_deleted(job):
        return []
    return [Elsewhere(worker.name, Delete(Ref(kind.kind, key_of(job)), metadata.uid_of(job)))]


def garbage(worker: Worker, is_wanted: Callable[[Key], bool], origin: str) -> Iterator[Action]:
    """Yield deletions of copies whose Workload is gone here, and of jobs without a copy there."""
    for workload in worker.objects.list_json(Workload.KIND):
        key = key_of(workload)
        copy = find_copy(worker, key, None, origin)
        if copy is not None and not is_wanted(key):
            yield from remove(copy)
    for kind in worker.kinds - {Workload.KIND}:
        for job in worker.objects.list_json(kind):
            key = Key(job["metadata"]["namespace"], metadata.identifier(job, metadata.PREBUILT_WORKLOAD))
            if is_ours(job, origin) and find_copy(worker, key, None, origin) is None and not is_wanted(key):
                yield from remove_job(worker, job)


# New copies.


def workload_for(raw: Json, origin: str) -> Json:
    """Return the Workload for another cluster. It has no owner there until the job comes."""
    labels = {name: value for name, value in metadata.labels_of(raw).items() if name != metadata.JOB_UID}
    meta = {
        "name": raw["metadata"]["name"],
        "namespace": raw["metadata"]["namespace"],
        "labels": {**labels, metadata.MULTI_KUEUE_ORIGIN: origin},
        "annotations": {**metadata.annotations_of(raw), metadata.MULTI_KUEUE_ORIGIN_UID: metadata.uid_of(raw)},
    }
    return {"metadata": meta, "spec": raw["spec"]}


def job_for(kind: JobKind, job: Json, workload: str, origin: str) -> Json:
    """Return the job for the cluster that has admitted the copy of its Workload."""
    body = kind.for_worker(job)
    labels = {**metadata.labels_of(job), metadata.MULTI_KUEUE_ORIGIN: origin}
    if len(workload) <= metadata.MAX_LABEL_VALUE:
        labels[metadata.PREBUILT_WORKLOAD] = workload
    annotations = {**metadata.annotations_of(job), metadata.PREBUILT_WORKLOAD: workload}
    body["metadata"] = {**body["metadata"], "labels": labels, "annotations": annotations}
    return body
