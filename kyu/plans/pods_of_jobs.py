"""
The pods of a job, and the job of a pod: owner references followed down and up.

A reference counts only where it names the controller and carries the uid of the object. Pods of a job whose
intermediate owner was deleted are found by the annotation that admission writes.

Called by: plans/quota/coverage.py, plans/job/managed.py, plans/job/unit.py, plans/workload/lifecycle.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import datetime

from kyu.api.actions import View
from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key, Kind
from kyu.kinds import metadata, pod_group, pods, table
from kyu.kinds.pod import POD

REPLICA_SET = Kind("apps", "v1", "ReplicaSet", "replicasets")
# Kinds between a job and its pods.
PARENT_KINDS: tuple[Kind, ...] = (*(kind.kind for kind in table.KINDS if kind.kind != POD), REPLICA_SET)
# Kueue follows owner references this far.
HIGHEST_OWNER = 10


def kind_of(reference: Json) -> Kind | None:
    """Return the kind that an object or an owner reference names, if its objects can own pods."""
    if job_kind := table.find(reference):
        return job_kind.kind
    is_set = (reference.get("apiVersion"), reference.get("kind")) == (REPLICA_SET.api_version, REPLICA_SET.kind)
    return REPLICA_SET if is_set else None


def controller_reference(obj: Json) -> Json | None:
    references = (obj.get("metadata") or {}).get("ownerReferences") or ()
    return next((reference for reference in references if reference.get("controller")), None)


def owners(view: View, obj: Json) -> Iterator[Json]:
    """Yield the controllers above an object, the nearest first."""
    namespace = str((obj.get("metadata") or {}).get("namespace") or "")
    for _ in range(HIGHEST_OWNER):
        reference = controller_reference(obj)
        kind = kind_of(reference) if reference is not None else None
        if reference is None or kind is None:
            return
        owner = view.find_json(kind, Key(namespace, str(reference.get("name"))))
        if owner is None or metadata.uid_of(owner) != reference.get("uid"):
            return
        yield owner
        obj = owner


def pods_below(view: View, uid: str, depth: int = HIGHEST_OWNER) -> Iterator[Json]:
    """Yield the pods that the object of this uid controls, directly or through others."""
    if depth == 0 or not uid:
        return
    for pod in view.owned_by(POD, uid):
        yield pod
        # The executors of a Spark application are owned by the pod of its driver.
        yield from view.owned_by(POD, metadata.uid_of(pod))
    for kind in PARENT_KINDS:
        for child in view.owned_by(kind, uid):
            yield from pods_below(view, metadata.uid_of(child), depth - 1)


def pods_of_owners(view: View, workload: Workload) -> Iterator[Json]:
    """Yield the pods below the owners of a Workload: a job, or the pods of a group.

    A set of groups owns the Workload of each, so of its pods those of the group count.
    """
    is_group = workload.metadata.annotations.get(metadata.IS_GROUP_WORKLOAD) == "true"
    for reference in workload.metadata.owner_references:
        if (reference.api_version, reference.kind) == (POD.api_version, POD.kind):
            pod = view.find_json(POD, Key(workload.metadata.namespace, reference.name))
            if pod is not None and metadata.uid_of(pod) == reference.uid:
                yield pod
        for pod in pods_below(view, reference.uid):
            if not is_group or pod_group.name(pod) in ("", workload.metadata.name):
                yield pod


def pods_of_workload(view: View, workload: Workload) -> list[Json]:
    """Return all pods that run, or ran, with the quota of a Workload, whatever has become of its job."""
    both = itertools.chain(pods_of_owners(view, workload), pods_by_annotation(view, workload))
    return list({metadata.uid_of(pod): pod for pod in both}.values())


def pods_by_annotation(view: View, workload: Workload) -> Iterator[Json]:
    """Yield the pods that admission has marked with the name of the Workload, or of its first slice."""
    name = workload.metadata.name
    names = {name, workload.metadata.annotations.get(metadata.SLICE_NAME, name)}
    for pod in view.list_json(POD, workload.metadata.namespace):
        annotations = pod["metadata"].get("annotations")
        if annotations and annotations.get(metadata.WORKLOAD) in names:
            yield pod


def has_pods(view: View, workload: Workload, now: datetime) -> bool:
    """Return whether pods run with the quota of the Workload, or may still start."""
    # Owners are indexed. All pods of the namespace are read only if none of the job is left.
    found = itertools.chain(pods_of_owners(view, workload), pods_by_annotation(view, workload))
    return any(pods.holds_quota(pod, now) and not pod_group.is_gated(pod) for pod in found)
