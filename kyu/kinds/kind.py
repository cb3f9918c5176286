"""
The contract of a job kind. START HERE, then read ``job.py`` (the plainest kind) and ``table.py`` (the list).

A kind answers questions about one object and proposes changes to it; it keeps nothing, and all it takes and gives is
JSON. Most kinds only say where their pod templates lie (``slots``) and how to read their status: queueing, starting,
stopping, defaulting and the rules of admission follow from that. A change is a JSON merge patch. Objects are expected
to have the shape that the schema of their kind asks for; a server has checked that (else see ``shape.py``).

Kueue: pkg/controller/jobframework/interface.go
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

import msgspec

from kyu.api.clusters.kubestellar import CLUSTER_LABEL
from kyu.api.errors import FieldError, forbidden
from kyu.api.meta import Json, Key, Kind, Ref
from kyu.kinds import conditions, fields, metadata, pods, templates, validation
from kyu.kinds.templates import NO_RANKS, Mismatch, PodSetInfo, PodSetTemplate, RankLabels, TemplateConflict

# The metadata that users write; the rest belongs to the server that has the object.
COPIED_METADATA = ("name", "namespace", "labels", "annotations")


class Slot(msgspec.Struct, frozen=True):
    """The place of a pod set in the object, and its number of pods."""

    name: str
    template: fields.Path
    count: int
    min_count: int | None = None
    ranks: RankLabels = NO_RANKS


@dataclass(frozen=True, slots=True)
class Finished:
    success: bool
    message: str


@dataclass(frozen=True, slots=True)
class MissingReference:
    """The object refers to another one that is not there (yet)."""

    ref: Ref

    def __str__(self) -> str:
        return f"{self.ref} does not exist"


@dataclass(frozen=True, slots=True)
class Context:
    """The surroundings of an object, for its defaults and validation."""

    # manageJobsWithoutQueueName is on and selects the namespace of the object.
    manages_without_queue_name: bool = False
    # A LocalQueue called "default" exists in the namespace.
    has_default_queue: bool = False
    # A WorkloadPriorityClass called "default" exists.
    has_default_priority_class: bool = False
    # A controller owner, at any height, is itself queued: the object then runs with it.
    owner_is_managed: bool = False
    # LocalQueues of the namespace whose ClusterQueue sends its jobs to other clusters.
    dispatching_queues: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """The place of a pod in a pod group that serves."""

    group: str
    total: int
    role: str
    index_label: str = ""
    # The first pod of the group is enough to start it. The others have the same role.
    is_fast: bool = False

    def annotations(self) -> dict[str, str]:
        """Return the annotations by which the pod belongs to its group and to the Workload of that."""
        return {
            metadata.POD_GROUP_NAME: self.group,
            metadata.PREBUILT_WORKLOAD: self.group,
            metadata.POD_GROUP_TOTAL_COUNT: str(self.total),
            **({metadata.POD_GROUP_FAST_ADMISSION: "true"} if self.is_fast else {}),
            metadata.POD_GROUP_SERVING: "true",
            metadata.ROLE_HASH: self.role,
            **({metadata.POD_GROUP_POD_INDEX_LABEL: self.index_label} if self.index_label else {}),
        }


class JobKind(ABC):
    """One kind of job. Fields that a kind does not have are left at their defaults."""

    kinds: tuple[Kind, ...]
    # As in integrations.frameworks of Kueue's configuration; empty for kinds that are queued through another one.
    framework: str
    completion: pods.Completion = pods.ALL_PODS_SUCCEED
    suspend_path: fields.Path = ("spec", "suspend")
    managed_by_path: fields.Path | None = ("spec", "managedBy")
    may_be_prebuilt: bool = True
    may_be_elastic: bool = False
    # A pod that runs cannot be suspended: such kinds are stopped by deleting their pods.
    stops_by_deletion: bool = False
    # Most have one Workload; some are queued as pods or as the Jobs that they make.
    queued_as: Literal["itself", "its pods", "its jobs"] = "itself"
    # Its pods are groups with a Workload each, of which there may be several.
    has_groups: bool = False
    is_in_parts: bool = False
    # Fields that only the operator of the kind honours: where Kyu runs the job in its place, they are refused.
    operator_fields: tuple[fields.Path, ...] = ()
    # How many seconds it stays when it is over, for kinds that may say so.
    time_to_live_path: fields.Path | None = None
    # The value of managedBy that means the usual controller of the kind.
    own_manager: str = ""
    # Other kinds whose objects ``resolve`` puts in.
    refers_to: tuple[Kind, ...] = ()

    @property
    def kind(self) -> Kind:
        """The version that Kyu writes."""
        return self.kinds[0]

    # Requests

    @abstractmethod
    def slots(self, obj: Json) -> list[Slot]:
        """Return the places of the pod sets, in the order of the Workload."""

    def resolve(self, obj: Json, find: Callable[[Ref], Json | None]) -> Json | MissingReference:
        """Return the object with the objects that it refers to. All other methods expect a resolved object."""
        return obj

    def template(self, obj: Json, slot: Slot) -> Json:
        """Return the pod template of a slot for the Workload."""
        return fields.json_at(obj, slot.template)

    def pod_sets(self, obj: Json) -> list[PodSetTemplate]:
        sets = []
        for slot in self.slots(obj):
            template = self.template(obj, slot)
            request = templates.topology_request(template, slot.ranks)
            sets.append(PodSetTemplate(slot.name, template, slot.count, slot.min_count, request))
        return sets

    def workloads(self, obj: Json) -> list[tuple[str, list[PodSetTemplate]]]:
        """Return the names and pod sets of its Workloads: one, unless it is queued in parts or through others."""
        return [(self.workload_name(obj), self.pod_sets(obj))]

    def group_place(self, obj: Json, pod: Json) -> GroupPlace | None:
        """Return the place of a pod in the groups of the object; None for pods of others."""
        return None

    def queue_name(self, obj: Json) -> str:
        return metadata.queue_name(obj)

    def with_label(self, obj: Json, key: str, value: str) -> Json:
        """Return the object with a label that its Workload is made from, such as its queue."""
        return fields.with_value(obj, ("metadata", "labels", key), value)

    def priority_class(self, obj: Json) -> str:
        """Return the pod priority class: the first that a pod set names."""
        return next((name for s in self.pod_sets(obj) if (name := templates.priority_class(s.template))), "")

    def workload_name(self, obj: Json) -> str:
        return metadata.workload_name(self.kind, metadata.name_of(obj), metadata.uid_of(obj))

    # Start and stop

    def is_suspended(self, obj: Json) -> bool:
        return fields.value_at(obj, self.suspend_path) is True

    def with_suspend(self, obj: Json, *, suspend: bool) -> Json:
        return fields.with_value(obj, self.suspend_path, suspend)

    def suspend_patch(self, obj: Json) -> Json:
        return fields.merge_patch(obj, self.with_suspend(obj, suspend=True))

    def start_patch(self, obj: Json, infos: Sequence[PodSetInfo]) -> Json | TemplateConflict | Mismatch:
        """Unsuspend, with what admission adds to the templates."""
        changed = obj
        slots = self.slots(obj)
        if [slot.name for slot in slots] != [info.name for info in infos]:
            return Mismatch(tuple(s.name for s in slots), tuple(i.name for i in infos))
        for slot, info in zip(slots, infos, strict=True):
            result = self.with_info(changed, slot, info)
            if isinstance(result, TemplateConflict):
                return result
            changed = result
        return fields.merge_patch(obj, self.with_suspend(changed, suspend=False))

    def placement_patch(self, obj: Json, infos: Sequence[PodSetInfo]) -> Json | TemplateConflict | Mismatch:
        """Add to the templates what a start would add. The object stays suspended."""
        started = self.start_patch(obj, infos)
        if isinstance(started, TemplateConflict | Mismatch):
            return started
        return fields.merge_patch(obj, self.with_suspend(fields.merged(obj, started), suspend=True))

    def with_info(self, obj: Json, slot: Slot, info: PodSetInfo) -> Json | TemplateConflict:
        template = templates.merged(fields.json_at(obj, slot.template), info)
        return template if isinstance(template, TemplateConflict) else fields.with_value(obj, slot.template, template)

    def restore_patch(self, obj: Json, originals: Sequence[PodSetTemplate]) -> Json:
        """Put back what admission wrote, from the pod sets of the Workload; the object stays as suspended as it is."""
        original_by_name = {pod_set.name: pod_set for pod_set in originals}
        changed = obj
        for slot in self.slots(obj):
            if slot.name in original_by_name:
                changed = self.with_original(changed, slot, original_by_name[slot.name])
        return fields.merge_patch(obj, changed)

    def with_original(self, obj: Json, slot: Slot, original: PodSetTemplate) -> Json:
        template = templates.restored(fields.json_at(obj, slot.template), original.template)
        return fields.with_value(obj, slot.template, template)

    def reset_patch(self, obj: Json) -> Json:
        """Return the patch of a stopped object's status that is needed before its templates can be restored."""
        return {}

    # Other clusters

    @property
    def may_be_dispatched(self) -> bool:
        """Whether another cluster can run it: it has managedBy, and may use a prebuilt Workload."""
        return bool(self.framework) and self.managed_by_path is not None and self.may_be_prebuilt

    def for_worker(self, obj: Json) -> Json:
        """Return the object for another cluster, where the usual controller of its kind runs it."""
        meta = {name: obj["metadata"][name] for name in COPIED_METADATA if name in obj["metadata"]}
        spec = self.with_suspend({"spec": obj.get("spec") or {}}, suspend=True)
        if self.managed_by_path is not None:
            parent = self.managed_by_path[:-1]
            kept = {name: v for name, v in fields.json_at(spec, parent).items() if name != self.managed_by_path[-1]}
            spec = fields.with_value(spec, parent, kept)
        return {"metadata": meta, **spec}

    def forget_patch(self, obj: Json) -> Json:
        """Return the patch of the status when the state of the pods is no longer known."""
        return dict.fromkeys(fields.json_at(obj, ("status",)))

    # How it does

    @abstractmethod
    def is_active(self, obj: Json) -> bool:
        """Return whether the status tells of pods that may still run: their quota cannot be given back yet."""

    def start_is_seen(self, obj: Json) -> bool:
        """Return whether the controller of the kind has seen the start, so that the status can be believed after it."""
        return True

    def is_untouched(self, obj: Json) -> bool:
        """Return whether the job was started, and its controller has not yet written anything about it."""
        return False

    @abstractmethod
    def pods_ready(self, obj: Json) -> bool:
        """Return whether all pods are ready or have succeeded."""

    @abstractmethod
    def finished(self, obj: Json) -> Finished | None: ...

    def reclaimable_pods(self, obj: Json) -> dict[str, int]:
        """Return the number of pods of each pod set that will not run again: their quota returns early."""
        return {}

    # Admission of the object itself

    def is_managed(self, obj: Json, context: Context) -> bool:
        if context.owner_is_managed:
            return False
        return bool(self.queue_name(obj)) or context.manages_without_queue_name

    def defaults(self, obj: Json, context: Context) -> Json:
        """Return a new object with its defaults: queue, priority, suspend and managedBy."""
        if context.owner_is_managed:
            return obj
        if context.has_default_queue and not self.queue_name(obj):
            obj = fields.with_value(obj, ("metadata", "labels", metadata.QUEUE_NAME), metadata.DEFAULT_NAME)
        if not self.is_managed(obj, context):
            return obj
        if context.has_default_priority_class and metadata.PRIORITY_CLASS not in metadata.labels_of(obj):
            obj = fields.with_value(obj, ("metadata", "labels", metadata.PRIORITY_CLASS), metadata.DEFAULT_NAME)
        obj = self.with_suspend(obj, suspend=True)
        path = self.managed_by_path
        if path and self.queue_name(obj) in context.dispatching_queues and not self.is_managed_elsewhere(obj):
            obj = fields.with_value(obj, path, metadata.MULTI_KUEUE)
        return obj

    def is_managed_elsewhere(self, obj: Json) -> bool:
        """Return whether another than the usual controller of the kind runs the object.

        A suspended object with the label of a cluster is the original of a copy that KubeStellar has sent there.
        """
        if CLUSTER_LABEL in metadata.labels_of(obj) and self.is_suspended(obj):
            return True
        path = self.managed_by_path
        return path is not None and fields.text_at(obj, path) not in ("", self.own_manager)

    def validate(self, obj: Json, old: Json | None, context: Context) -> list[FieldError]:
        """Return the errors of the object, or of the change from ``old``."""
        if not self.is_managed(obj, context) and not (old is not None and self.is_managed(old, context)):
            return []
        facts = validation.JobChange(
            obj=obj,
            old=old,
            running=not self.is_suspended(obj),
            was_running=old is not None and not self.is_suspended(old),
            may_be_prebuilt=self.may_be_prebuilt,
            may_be_elastic=self.may_be_elastic,
            has_default_queue=context.has_default_queue,
        )
        asking = [
            validation.AnnotatedTemplate(slot.template, metadata.annotations_of(self.template(obj, slot)), slot.count)
            for slot in self.slots(obj)
        ]
        return [*validation.metadata_errors(facts), *validation.topology_errors(asking), *self.own_errors(obj, old)]

    def own_errors(self, obj: Json, old: Json | None) -> list[FieldError]:
        """Return errors by the rules of this kind alone."""
        return []

    # Embedded mode: what its operator would do

    def stand_in_errors(self, obj: Json) -> list[FieldError]:
        """Return the fields that only the operator of the kind honours."""
        asked = [path for path in self.operator_fields if fields.value_at(obj, path)]
        return [forbidden(fields.show(path), f"only the operator of {self.kind.kind} can do it") for path in asked]

    def held(self, obj: Json, parts: Sequence[Json]) -> frozenset[str]:
        """Return the names of pods or children that must not be created yet."""
        return frozenset()

    def pods_of(self, obj: Json, address: pods.Address = pods.dns_address) -> list[pods.Blueprint]:
        """Return the pods of an object that is not suspended; none for kinds whose pods come from another object."""
        return []

    def children_of(self, obj: Json) -> list[Json]:
        """Return the objects that an object runs through while it is not suspended."""
        return []

    def status_from_pods(self, obj: Json, its_pods: Sequence[Json], now: datetime) -> Json:
        """Return the merge patch of its status by the state of its pods; empty if nothing changes."""
        return self.status_patch(obj, self.status_of(obj, its_pods, now))

    def status_from_children(self, obj: Json, children: Sequence[Json], now: datetime) -> Json:
        """Return the same as ``status_from_pods``, for kinds that run through other objects."""
        return self.status_patch(obj, self.status_of(obj, children, now))

    def status_patch(self, obj: Json, status: Json) -> Json:
        """Return the merge patch to these fields. None stands for a field that must be absent."""
        present = fields.json_at(obj, ("status",))
        wanted = {key: value for key, value in {**present, **status}.items() if value is not None}
        return fields.merge_patch(present, wanted)

    def status_of(self, obj: Json, parts: Sequence[Json], now: datetime) -> Json:
        """Return the fields of its status that follow from its pods or children."""
        return {}

    def wakes_at(self, obj: Json) -> datetime | None:
        """Return when to plan again without a change: at a deadline, or for the next retry."""
        return None

    def ended_at(self, obj: Json) -> str:
        """Return the time of its end from its status."""
        return fields.text_at(obj, ("status", "completionTime"))

    def expires_at(self, obj: Json) -> datetime | None:
        """Return when a finished job is deleted by its time to live, or None."""
        seconds = fields.value_at(obj, self.time_to_live_path) if self.time_to_live_path else None
        if not isinstance(seconds, int) or self.finished(obj) is None or not (ended := self.ended_at(obj)):
            return None
        return conditions.add_seconds(conditions.parse_timestamp(ended), seconds)

    def surplus_pods(self, obj: Json, its_pods: Sequence[Json]) -> list[str]:
        """Return the names of the pods to delete: all while suspended, and running ones after the end."""
        if self.is_suspended(obj):
            return [metadata.name_of(pod) for pod in its_pods]
        if self.finished(obj) is not None:
            return [metadata.name_of(pod) for pod in its_pods if not pods.is_terminal(pod)]
        wanted = {plan.name for plan in self.pods_of(obj)}
        return [metadata.name_of(pod) for pod in its_pods if metadata.name_of(pod) not in wanted]

    def surplus_children(self, obj: Json, children: Sequence[Json]) -> list[Ref]:
        """Return the children to delete: all while suspended. A finished object keeps them, for logs and status."""
        if not self.is_suspended(obj):
            return []
        return [child_ref(child) for child in children]


def finished_by(obj: Json, succeeded: str) -> Finished | None:
    """Return the end of a job by one of two conditions, as most kinds have them: one of their own, and Failed."""
    if conditions.is_true(obj, succeeded):
        return Finished(success=True, message=conditions.message(obj, succeeded) or "Job finished successfully")
    if conditions.is_true(obj, "Failed"):
        return Finished(success=False, message=conditions.message(obj, "Failed") or "Job failed")
    return None


def child_ref(child: Json) -> Ref:
    """Return a reference to an object of any kind. The plural has an s added, as in Kubernetes."""
    group, _, version = str(child["apiVersion"]).rpartition("/")
    kind = str(child["kind"])
    key = Key(fields.text_at(child, ("metadata", "namespace")), metadata.name_of(child))
    return Ref(Kind(group, version, kind, f"{kind.lower()}s"), key)
