"""
Reject edits of Workloads that would give quota back while pods run with it.

A namespace's administrator of queues may create, change and delete its Workloads. The fields here tie a Workload to its
pods: without them the engine would hand the quota to another workload, or count it twice. Users with the right to run
work outside the queues may change them, as Kueue lets every editor of Workloads.

Called by: kyu/embedded.py.
"""

from __future__ import annotations

from kyu.api.errors import FieldError, forbidden
from kyu.api.kueue import RESOURCE_IN_USE_FINALIZER
from kyu.api.meta import Json
from kyu.kinds import metadata
from kyu.kinds.validation import annotation_field, label_field

SLICE_ANNOTATIONS = (metadata.SLICE_REPLACEMENT_FOR, metadata.SLICE_NAME)


def prepare_create(workload: Json) -> None:
    """Add the finalizer that keeps the Workload until its pods have ended."""
    finalizers = workload["metadata"].setdefault("finalizers", [])
    if RESOURCE_IN_USE_FINALIZER not in finalizers:
        finalizers.append(RESOURCE_IN_USE_FINALIZER)


def find_errors(new: Json, old: Json | None) -> list[FieldError]:
    """Return the fields of a new or changed Workload that only controllers write."""
    found = [
        forbidden(annotation_field(name), "is set by the controller of the job")
        for name in SLICE_ANNOTATIONS
        if metadata.annotations_of(new).get(name) != metadata.annotations_of(old or {}).get(name)
    ]
    if old is None:
        return found
    before, after = ((side["metadata"].get("finalizers") or ()) for side in (old, new))
    if RESOURCE_IN_USE_FINALIZER in before and RESOURCE_IN_USE_FINALIZER not in after:
        found.append(forbidden("metadata.finalizers", f"{RESOURCE_IN_USE_FINALIZER} is removed when no pod is left"))
    return found + quota_errors(new, old) if (old.get("status") or {}).get("admission") is not None else found


def quota_errors(new: Json, old: Json) -> list[FieldError]:
    """Return the changed fields that tie a Workload with quota to its pods."""
    places = {
        "metadata.ownerReferences": [side["metadata"].get("ownerReferences") for side in (new, old)],
        label_field(metadata.JOB_UID): [metadata.labels_of(side).get(metadata.JOB_UID) for side in (new, old)],
        "spec.podSets": [side["spec"].get("podSets") for side in (new, old)],
    }
    remedy = "cannot be changed while the Workload holds quota"
    return [forbidden(field, remedy) for field, (after, before) in places.items() if after != before]
