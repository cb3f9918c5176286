"""
The submitter of a job: the user who created it, in an annotation that only the server writes.

An object of a user gets the name of that user, whatever its manifest says. An object that a controller makes (a
Workload, a Pod, a Job of a CronJob) gets the submitter of its owner. It cannot be changed afterwards, because
accounts depend on it.
"""

from __future__ import annotations

from functools import lru_cache

from kyu.api.accounting import SUBMITTER, submitter_of, unix_account
from kyu.api.kueue import Workload
from kyu.api.meta import Json, Kind
from kyu.api.workflows import Workflow
from kyu.kinds import table
from kyu.server import errors, representations
from kyu.server.admission.request import AdmissionRequest
from kyu.server.auth import auth
from kyu.server.exchange import User
from kyu.server.registry import Registry
from kyu.server.storage.store import Store

# Kinds between a user and a pod that are no jobs themselves.
OTHERS = frozenset(
    {("batch", "CronJob"), ("apps", "ReplicaSet"), (Workload.KIND.group, "Workload"), (Workflow.KIND.group, "Workflow")}
)
# Fields that others may change: they say how many run and when.
CHANGEABLE = frozenset({"suspend", "parallelism", "replicas", "active", "priorityClassName", "priority"})


@lru_cache(maxsize=256)
def is_recorded(kind: Kind) -> bool:
    return table.find_kind(kind) is not None or (kind.group, kind.kind) in OTHERS


def record(request: AdmissionRequest, registry: Registry, store: Store, internal: User) -> None:
    """Set the submitter of a new object; refuse a change of it, and restore it if it was left out."""
    kind = request.resource.kind
    if not is_recorded(kind):
        return
    given = submitter_of(request.new)
    if request.old is not None:
        wanted = submitter_of(request.old)
        if given not in ("", wanted) and request.user != internal:
            text = f"the annotation {SUBMITTER} names the user who submitted the object, and cannot be changed"
            raise errors.forbidden(kind, request.new["metadata"].get("name", ""), text)
        check_work(request, wanted, internal)
    elif request.user == internal:
        wanted = of_owner(request.new, registry, store)
    else:
        wanted = request.user.name
    if given != wanted:
        write(request.new, wanted)


def check_work(request: AdmissionRequest, submitter: str, internal: User) -> None:
    """Reject a change of what runs as a Unix user by another user, who could otherwise run as that user."""
    account = unix_account(submitter)
    if not account or request.old is None or may_act_for(request.user, submitter) or request.user == internal:
        return
    kind = request.resource.kind
    if work_of(kind, request.new) != work_of(kind, request.old):
        text = f"the object runs as the Unix user {account}, so only this user may change what it runs"
        raise errors.forbidden(kind, request.new["metadata"].get("name", ""), text)


def may_act_for(user: User, submitter: str) -> bool:
    """Return whether a user may enter, read and change what a submitter runs."""
    return not unix_account(submitter) or user.name == submitter or auth.MASTERS in user.groups


def check_access(user: User, pod: Json, kind: Kind) -> None:
    """Reject a user who would enter the pod of a Unix user, or read its output."""
    submitter = submitter_of(pod)
    if not may_act_for(user, submitter):
        text = f"the pod runs as the Unix user {unix_account(submitter)}, so only this user may enter it"
        raise errors.forbidden(kind, pod["metadata"]["name"], text)


def work_of(kind: Kind, obj: Json) -> tuple[Json, Json]:
    """Return the parts of an object that say what runs. Numbers of pods are no part of it."""
    spec = {name: value for name, value in (obj.get("spec") or {}).items() if name not in CHANGEABLE}
    annotations = obj["metadata"].get("annotations") or {} if kind.kind == "Pod" else {}
    return spec, annotations


def keep_annotations(request: AdmissionRequest, internal: User) -> None:
    """Keep the annotations of what a Unix user runs in a write of its status, and the submitter of all."""
    if request.old is None or not is_recorded(request.resource.kind) or request.user == internal:
        return
    submitter = submitter_of(request.old)
    if not may_act_for(request.user, submitter):
        kept = request.old["metadata"].get("annotations")
        request.new["metadata"].pop("annotations", None)
        if kept:
            request.new["metadata"]["annotations"] = kept
    elif submitter_of(request.new) != submitter:
        write(request.new, submitter)


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
    # The annotation of another kind could be written by anyone.
    if resource is None or not is_recorded(resource.kind) or found is None or found.uid != owner.get("uid"):
        return ""
    return submitter_of(representations.decode(found.value))
