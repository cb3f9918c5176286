"""
One thing that is queued: a job object of any kind, or a group of pods. The rules of job/lifecycle.py see only this.

A unit answers what it asks for and how it does, and says which writes start it and stop it. What differs between a
Job, a RayCluster and a pod group ends here.

Kueue: pkg/controller/jobframework (GenericJob and its optional interfaces).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from kyu.api.actions import Action, Delete, Event, Patch, View
from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key, Kind, Ref, key_of
from kyu.kinds import fields, metadata, pod_group, pods, templates
from kyu.kinds import pod as plain_pod
from kyu.kinds.kind import Finished, JobKind, MissingReference
from kyu.kinds.pod_group import Incomplete
from kyu.kinds.templates import Mismatch, PodSetInfo, PodSetTemplate, TemplateConflict
from kyu.plans import pods_of_jobs


class Unit(ABC):
    """A job or pod group, as the rules see it."""

    @property
    @abstractmethod
    def head(self) -> Json:
        """The object that carries the labels and annotations of the whole unit."""

    @property
    @abstractmethod
    def queue_name(self) -> str: ...

    @property
    @abstractmethod
    def ref(self) -> Ref:
        """The object whose users are told what happens."""

    @property
    def uid(self) -> str:
        return metadata.uid_of(self.head)

    @abstractmethod
    def workloads(self, view: View) -> list[Key]:
        """Return the Workloads of this unit: one, unless something went wrong."""

    @abstractmethod
    def workload_name(self) -> str: ...

    @abstractmethod
    def owners(self) -> list[Json]:
        """Return the owner references of its Workload."""

    def copied(self, keys: Collection[str], values: Callable[[Json], dict[str, str]]) -> dict[str, str] | Incomplete:
        """Return the labels, or annotations, of these keys for its Workload."""
        own = values(self.head)
        return {key: own[key] for key in keys if key in own}

    @abstractmethod
    def pod_sets(self) -> list[PodSetTemplate] | Incomplete: ...

    @abstractmethod
    def priority_class(self) -> str: ...

    @abstractmethod
    def is_suspended(self) -> bool: ...

    @abstractmethod
    def is_active(self) -> bool:
        """Return whether pods of the job run, or may still start: quota is given back only afterwards."""

    def start_is_seen(self) -> bool:
        """Return whether the controller of the job has seen that it was started."""
        return True

    def is_untouched(self) -> bool:
        """Return whether it was started, and its controller has not yet written anything about it."""
        return False

    def stuck_pods(self) -> list[str]:
        """Return the names of pods that did not end with their grace period, and hold no quota any more."""
        return []

    @abstractmethod
    def is_deleted(self) -> bool: ...

    @abstractmethod
    def pods_ready(self) -> bool: ...

    @abstractmethod
    def finished(self) -> Finished | None: ...

    @abstractmethod
    def reclaimable_pods(self) -> dict[str, int]: ...

    @abstractmethod
    def start(self, infos: Sequence[PodSetInfo]) -> list[Action] | TemplateConflict | Mismatch: ...

    @abstractmethod
    def stop(self, reason: str) -> list[Action]:
        """Make its pods end; nothing if that is on its way."""

    @abstractmethod
    def remove(self) -> list[Action]:
        """Delete it."""

    def restore(self, originals: Sequence[PodSetTemplate]) -> list[Action]:
        """Put back what admission wrote, once no pod is active."""
        return []

    def is_short_of_pods(self, workload: Workload) -> bool:
        """Return whether pods must be created before the unit can run."""
        return False

    def upkeep(self, originals: Sequence[PodSetTemplate] | None) -> list[Action]:
        """Return what this unit needs whatever the state of its Workload, of which the pod sets are given."""
        return []

    def event(self, reason: str, message: str, *, warning: bool = False) -> Event:
        return Event(self.ref, "Warning" if warning else "Normal", reason, message, self.uid)


@dataclass(frozen=True)
class JobUnit(Unit):
    """A job object."""

    kind: JobKind
    obj: Json
    view: View
    now: datetime

    @property
    def head(self) -> Json:
        return self.obj

    @property
    def key(self) -> Key:
        return Key(fields.text_at(self.head, ("metadata", "namespace")), metadata.name_of(self.head))

    @property
    def ref(self) -> Ref:
        return Ref(self.kind.kind, self.key)

    @property
    def queue_name(self) -> str:
        return self.kind.queue_name(self.head)

    def workloads(self, view: View) -> list[Key]:
        if prebuilt := metadata.identifier(self.head, metadata.PREBUILT_WORKLOAD):
            key = Key(self.key.namespace, prebuilt)
            controller = pods_of_jobs.controller_reference(view.find_json(Workload.KIND, key) or {})
            # The Workload of another job is not there for this one.
            return [] if controller is not None and controller.get("uid") != self.uid else [key]
        owned = view.owned_by(Workload.KIND, self.uid)
        return [Key(self.key.namespace, metadata.name_of(workload)) for workload in owned]

    def workload_name(self) -> str:
        return self.kind.workload_name(self.head)

    def owners(self) -> list[Json]:
        return [owner_reference(self.kind.kind, self.head, controller=True)]

    def pod_sets(self) -> list[PodSetTemplate] | Incomplete:
        return self.kind.pod_sets(self.head)

    def priority_class(self) -> str:
        return self.kind.priority_class(self.head)

    def is_suspended(self) -> bool:
        return self.kind.is_suspended(self.head)

    def is_active(self) -> bool:
        """Return whether the status of the job or its pods themselves say so: each may be ahead of the other."""
        if any(pods.holds_quota(pod, self.now) for pod in self._pods()):
            return True
        return self.kind.kind != plain_pod.POD and self.kind.is_active(self.head)

    def start_is_seen(self) -> bool:
        return self.kind.start_is_seen(self.head)

    def is_untouched(self) -> bool:
        return self.kind.is_untouched(self.head)

    def stuck_pods(self) -> list[str]:
        return [metadata.name_of(pod) for pod in self._pods() if pods.is_stuck(pod, self.now)]

    def _pods(self) -> Iterator[Json]:
        if self.kind.kind == plain_pod.POD:
            return iter(() if self.is_suspended() else (self.head,))
        return pods_of_jobs.pods_below(self.view, self.uid)

    def is_deleted(self) -> bool:
        return metadata.is_deleted(self.head)

    def pods_ready(self) -> bool:
        return self.kind.pods_ready(self.head)

    def finished(self) -> Finished | None:
        return self.kind.finished(self.head)

    def reclaimable_pods(self) -> dict[str, int]:
        return self.kind.reclaimable_pods(self.head)

    def start(self, infos: Sequence[PodSetInfo]) -> list[Action] | TemplateConflict | Mismatch:
        patch = self.kind.start_patch(self.head, infos)
        return patch if isinstance(patch, TemplateConflict | Mismatch) else [self._patch(patch)]

    def stop(self, reason: str) -> list[Action]:
        if self.kind.stops_by_deletion:
            return stop_pod(self.head, reason)
        return [] if self.is_suspended() else [self._patch(self.kind.suspend_patch(self.head))]

    def remove(self) -> list[Action]:
        return [Delete(self.ref, self.uid)]

    def restore(self, originals: Sequence[PodSetTemplate]) -> list[Action]:
        actions: list[Action] = []
        if reset := self.kind.reset_patch(self.head):
            actions.append(Patch(self.ref, {"status": reset}, subresource="status"))
        if patch := self.kind.restore_patch(self.head, originals):
            actions.append(self._patch(patch, versioned=not reset))
        return actions

    def upkeep(self, originals: Sequence[PodSetTemplate] | None) -> list[Action]:
        if not self.kind.stops_by_deletion:
            return []
        return release_pods([self.head], finished=self.finished() is not None)

    def _patch(self, patch: Json, *, versioned: bool = True) -> Patch:
        version = fields.text_at(self.head, ("metadata", "resourceVersion")) if versioned else ""
        return Patch(self.ref, patch, resource_version=version)


@dataclass(frozen=True)
class PodGroupUnit(Unit):
    """Plain pods that carry one group name."""

    name: str
    namespace: str
    members: tuple[Json, ...]
    now: datetime

    @property
    def head(self) -> Json:
        return min(self.members, key=pod_group.age)

    @property
    def ref(self) -> Ref:
        return pod_ref(self.head)

    @property
    def queue_name(self) -> str:
        return metadata.queue_name(self.head)

    def workloads(self, view: View) -> list[Key]:
        key = Key(self.namespace, self.name)
        return [key] if view.find_json(Workload.KIND, key) is not None else []

    def workload_name(self) -> str:
        return self.name

    def owners(self) -> list[Json]:
        return [owner_reference(plain_pod.POD, pod, controller=False) for pod in self.members]

    def is_serving(self) -> bool:
        return pod_group.is_serving(self.members)

    def active_owners(self) -> list[Json]:
        """Return the owner references to members that may run, or have succeeded."""
        return [owner_reference(plain_pod.POD, pod, controller=False) for pod in pod_group.runnable(self.members)]

    def copied(self, keys: Collection[str], values: Callable[[Json], dict[str, str]]) -> dict[str, str] | Incomplete:
        """Return those of all members, which must not contradict each other."""
        found: dict[str, str] = {}
        for pod in self.members:
            for key, value in values(pod).items():
                if key in keys and found.setdefault(key, value) != value:
                    what = "label" if values is metadata.labels_of else "annotation"
                    return Incomplete(f"constructing workload: pods have different {what} values")
        return found

    def pod_sets(self) -> list[PodSetTemplate] | Incomplete:
        return pod_group.pod_sets(self.members)

    def priority_class(self) -> str:
        return templates.priority_class(plain_pod.template(self.head))

    def is_suspended(self) -> bool:
        return pod_group.is_suspended(self.members)

    def is_active(self) -> bool:
        return pod_group.is_active(self.members, self.now)

    def stuck_pods(self) -> list[str]:
        return [metadata.name_of(pod) for pod in self.members if pods.is_stuck(pod, self.now)]

    def is_deleted(self) -> bool:
        return all(metadata.is_deleted(pod) for pod in self.members)

    def pods_ready(self) -> bool:
        return pod_group.pods_ready(self.members)

    def finished(self) -> Finished | None:
        return pod_group.finished(self.members)

    def reclaimable_pods(self) -> dict[str, int]:
        return pod_group.reclaimable_pods(self.members)

    def is_short_of_pods(self, workload: Workload) -> bool:
        wanted = {pod_set.name: pod_set.count for pod_set in workload.spec.pod_sets}
        missing = pod_group.missing_pods(self.members, wanted)
        if pod_group.is_fast(self.members):
            return any(missing[role] == wanted[role] for role in missing)
        return bool(missing)

    def start(self, infos: Sequence[PodSetInfo]) -> list[Action] | TemplateConflict | Mismatch:
        info_by_role = {info.name: info for info in infos}
        actions: list[Action] = []
        for pod in self.members:
            if not pod_group.is_gated(pod) or metadata.is_deleted(pod):
                continue
            name = pod_group.pod_set_of(pod, tuple(info_by_role), fast=pod_group.is_fast(self.members))
            if name is None:
                return Mismatch((pod_group.role(pod),), tuple(info_by_role))
            info = info_by_role[name]
            patch = plain_pod.release_patch(pod, info)
            if isinstance(patch, TemplateConflict):
                return patch
            actions.append(Patch(pod_ref(pod), patch))
        return actions

    def stop(self, reason: str) -> list[Action]:
        return [action for pod in self.members for action in stop_pod(pod, reason)]

    def remove(self) -> list[Action]:
        return [Delete(pod_ref(pod), metadata.uid_of(pod)) for pod in self.members if not metadata.is_deleted(pod)]

    def upkeep(self, originals: Sequence[PodSetTemplate] | None) -> list[Action]:
        finished = self.finished() is not None
        actions = release_pods(self.members, finished=finished)
        if originals is None or finished:
            return actions
        replaced = pod_group.replaced_pods(self.members, originals)
        actions += release_pods([pod for pod in replaced if not metadata.is_deleted(pod)], finished=True)
        message = "Excess pod deleted"
        for name in pod_group.excess_pods(self.members, originals):
            ref = Ref(plain_pod.POD, Key(self.namespace, name))
            actions += [Event(ref, "Normal", "ExcessPodDeleted", message), Delete(ref)]
        return actions


def resolve(view: View, kind: JobKind, head: Json, now: datetime) -> Unit | MissingReference:
    def find(ref: Ref) -> Json | None:
        return view.find_json(ref.kind, ref.key)

    resolved = kind.resolve(head, find)
    return resolved if isinstance(resolved, MissingReference) else JobUnit(kind, resolved, view, now)


def owner_reference(kind: Kind, obj: Json, *, controller: bool) -> Json:
    reference: Json = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": metadata.name_of(obj),
        "uid": metadata.uid_of(obj),
    }
    if controller:
        reference |= {"controller": True, "blockOwnerDeletion": True}
    return reference


def pod_ref(pod: Json) -> Ref:
    return Ref(plain_pod.POD, key_of(pod))


def stop_pod(pod: Json, reason: str) -> list[Action]:
    """Delete a started pod, which cannot be suspended, with an event. A gated pod stays."""
    if pods.is_terminal(pod) or metadata.is_deleted(pod) or pod_group.is_gated(pod):
        return []
    ref = pod_ref(pod)
    return [Event(ref, "Normal", "Stopped", reason, metadata.uid_of(pod)), Delete(ref)]


def release_pods(members: Sequence[Json], *, finished: bool) -> list[Action]:
    """
    Release pods that are over or deleted. The finalizer only keeps the results of a group's members until the group is
    over; it never holds a deleted pod back.
    """
    actions: list[Action] = []
    for pod in members:
        finalizers = (pod.get("metadata") or {}).get("finalizers") or []
        if metadata.MANAGED in finalizers and (finished or metadata.is_deleted(pod)):
            kept = [name for name in finalizers if name != metadata.MANAGED]
            actions.append(Patch(pod_ref(pod), {"metadata": {"finalizers": kept}}))
    return actions
