"""
The submitter of a job: the user who created it, in an annotation that only the server writes.

An object of a user gets the name of that user, whatever its manifest says. An object that a controller makes (a
Workload, a Pod, a Job of a CronJob) gets the submitter of its owner. It cannot be changed afterwards, because
accounts depend on it.
"""

from __future__ import annotations

from functools import lru_cache

from kyu.api.accounting import SUBMITTER
from kyu.api.kueue import Workload
from kyu.api.meta import Json, Kind
from kyu.api.workflows import Workflow
from kyu.kinds import table
from kyu.server import errors, representations
from kyu.server.admission.request import AdmissionRequest
from kyu.server.exchange import User
from kyu.server.registry import Registry
from kyu.server.storage.store import Store

# Kinds between a user and a pod that are no jobs themselves.
OTHERS = frozenset(
    {("batch", "CronJob"), ("apps", "ReplicaSet"), (Workload.KIND.group, "Workload"), (Workflow.KIND.group, "Workflow")}
)


@lru_cache(maxsize=256)
def is_recorded(kind: Kind) -> bool:
    return table.find_kind(kind) is not None or (kind.group, kind.kind) in OTHERS


def record(request: AdmissionRequest, registry: Registry, store: Store, internal: User) -> None:
    """Set the submitter of a new object; refuse a change of it, and restore it if it was left out."""
    kind = request.resource.kind
    if not is_recorded(kind):
        return
    given = written_in(request.new)
    if request.old is not None:
        wanted = written_in(request.old)
        if given not in ("", wanted) and request.user != internal:
            text = f"the annotation {SUBMITTER} names the user who submitted the object, and cannot be changed"
            raise errors.forbidden(kind, request.new["metadata"].get("name", ""), text)
    elif request.user == internal:
        wanted = of_owner(request.new, registry, store)
    else:
        wanted = request.user.name
    if given != wanted:
        write(request.new, wanted)


def written_in(obj: Json) -> str:
    annotations = (obj.get("metadata") or {}).get("annotations")
    return str(annotations.get(SUBMITTER) or "") if isinstance(annotations, dict) else ""


def write(obj: Json, name: str) -> None:
    """Set the annotation, or remove it if there is no submitter."""
    meta = obj["metadata"]
    others = meta.get("annotations")
    kept = {key: value for key, value in others.items() if key != SUBMITTER} if isinstance(others, dict) else {}
    if name:
        kept[SUBMITTER] = name
    if kept:
        meta["annotations"] = kept
    else:
        meta.pop("annotations", None)


def of_owner(obj: Json, registry: Registry, store: Store) -> str:
    """Return the submitter of the owner: the controller, or the first member of a group of pods."""
    meta = obj["metadata"]
    owners = meta.get("ownerReferences") or ()
    owner = next((one for one in owners if one.get("controller")), owners[0] if owners else None)
    if owner is None:
        return ""
    resource = registry.find_kind(str(owner.get("apiVersion")), str(owner.get("kind")))
    found = store.latest(resource.storage, meta.get("namespace", ""), str(owner.get("name"))) if resource else None
    if found is None or found.uid != owner.get("uid"):
        return ""
    return written_in(representations.decode(found.value))
