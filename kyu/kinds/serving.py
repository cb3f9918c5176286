"""
Kinds that serve: they never finish, and are queued through their pods. Deployment and StatefulSet are here.

They have no field to suspend them. Instead their pod templates are marked: a pod with the mark is held by a gate, and
queued by the labels that it gets from the object. A Deployment's pods are queued one by one; those of a StatefulSet are
one group with one Workload. What a kind adds to the mark is data.

Kueue: site docs on Deployments and StatefulSets
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from kyu.api.errors import FieldError, forbidden, invalid
from kyu.api.meta import Json, Kind
from kyu.kinds import fields, metadata, pods, templates
from kyu.kinds.kind import Context, Finished, GroupPlace, JobKind, Slot
from kyu.kinds.pods import Blueprint
from kyu.kinds.templates import PodSetTemplate, RankLabels
from kyu.kinds.validation import IMMUTABLE

TEMPLATE: fields.Path = ("spec", "template")
POD_INDEX = "apps.kubernetes.io/pod-index"
# Labels that the pods get from the object.
HANDED_DOWN = (metadata.QUEUE_NAME, metadata.PRIORITY_CLASS)
# The quota of a pod depends on these fields, so they cannot change under a reservation. Of containers, the resources.
FROZEN = ("nodeSelector", "affinity", "tolerations", "runtimeClassName", "overhead")
FROZEN_CONTAINERS = ("containers", "initContainers")


class Serving(JobKind):
    """A kind that serves. LeaderWorkerSet is in its own file."""

    completion = pods.NEVER_FINISHES
    queued_as = "its pods"
    managed_by_path = None
    may_be_prebuilt = False
    stops_by_deletion = True
    # Beside the mark that holds the pods.
    template_labels: Mapping[str, str] = {}
    template_annotations: Mapping[str, str] = {}

    def is_suspended(self, obj: Json) -> bool:
        """Return whether no pod is ready: then its queue and its priority may still change."""
        return fields.int_at(obj, ("status", "readyReplicas")) == 0

    def with_suspend(self, obj: Json, *, suspend: bool) -> Json:
        # Its pods are held, not the object.
        return obj

    def is_active(self, obj: Json) -> bool:
        return fields.int_at(obj, ("status", "replicas")) > 0

    def pods_ready(self, obj: Json) -> bool:
        return fields.int_at(obj, ("status", "readyReplicas")) >= replicas(obj)

    def finished(self, obj: Json) -> Finished | None:
        return None

    def defaults(self, obj: Json, context: Context) -> Json:
        obj = super().defaults(obj, context)
        if self.is_managed(obj, context):
            for slot in self.slots(obj):
                obj = fields.with_value(obj, slot.template, self.marked(obj, slot))
        return obj

    def marked(self, obj: Json, slot: Slot) -> Json:
        """Return the template with the mark that holds its pods, and the labels of the object that they need."""
        given = {key: value for key in HANDED_DOWN if (value := metadata.labels_of(obj).get(key))}
        mark = {metadata.POD_SUSPENDING_PARENT: self.framework}
        template = templates.with_labels(fields.json_at(obj, slot.template), {**given, **self.template_labels})
        return templates.with_annotations(template, {**mark, **self.template_annotations})

    def surplus_pods(self, obj: Json, its_pods: Sequence[Json]) -> list[str]:
        """Return the pods of surplus replicas, and those that are over, which are created again."""
        wanted = {plan.name for plan in self.pods_of(obj)}
        return [name for pod in its_pods if (name := metadata.name_of(pod)) not in wanted or pods.is_terminal(pod)]


class Deployment(Serving):
    kinds = (Kind("apps", "v1", "Deployment", "deployments"),)
    framework = "deployment"
    template_labels: Mapping[str, str] = {metadata.MANAGED: "true"}

    def slots(self, obj: Json) -> list[Slot]:
        return [Slot("main", TEMPLATE, replicas(obj))]

    def workloads(self, obj: Json) -> list[tuple[str, list[PodSetTemplate]]]:
        return []


class StatefulSet(Serving):
    kinds = (Kind("apps", "v1", "StatefulSet", "statefulsets"),)
    framework = "statefulset"
    has_groups = True

    def group_place(self, obj: Json, pod: Json) -> GroupPlace | None:
        owners = fields.list_at(pod, ("metadata", "ownerReferences"))
        if not is_held_by(self, pod) or metadata.uid_of(obj) not in {owner.get("uid") for owner in owners}:
            return None
        return self.place(obj)

    def place(self, obj: Json) -> GroupPlace:
        return GroupPlace(self.workload_name(obj), replicas(obj), "main", POD_INDEX, is_fast=True)

    def slots(self, obj: Json) -> list[Slot]:
        return [Slot("main", TEMPLATE, replicas(obj), ranks=RankLabels(index_label=POD_INDEX))]

    def own_errors(self, obj: Json, old: Json | None) -> list[FieldError]:
        return [] if old is None else [*frozen_errors(obj, old, TEMPLATE), *size_errors(obj, old)]

    def pods_of(self, obj: Json, address: pods.Address = pods.dns_address) -> list[Blueprint]:
        name, template = metadata.name_of(obj), fields.json_at(obj, TEMPLATE)
        subdomain = fields.text_at(obj, ("spec", "serviceName"))
        first = fields.int_at(obj, ("spec", "ordinals", "start"))
        plans = []
        for index in range(first, first + replicas(obj)):
            pod = f"{name}-{index}"
            labels = {POD_INDEX: str(index), "statefulset.kubernetes.io/pod-name": pod}
            plan = Blueprint(pod, "main", index, template, labels, hostname=pod, subdomain=subdomain)
            plans.append(in_group(plan, self.place(obj)))
        return plans

    def status_of(self, obj: Json, parts: Sequence[Json], now: datetime) -> Json:
        there, ready = len(parts), sum(pods.is_ready(pod) for pod in parts)
        return {
            **dict.fromkeys(("replicas", "currentReplicas", "updatedReplicas"), there),
            **dict.fromkeys(("readyReplicas", "availableReplicas"), ready),
            "observedGeneration": fields.int_at(obj, ("metadata", "generation")),
        }


def replicas(obj: Json) -> int:
    return fields.int_at(obj, ("spec", "replicas"), 1)


def is_held_by(kind: JobKind, pod: Json) -> bool:
    """Return whether the pod has the mark of the kind, by which it is held."""
    return metadata.annotations_of(pod).get(metadata.POD_SUSPENDING_PARENT) == kind.framework


def in_group(plan: Blueprint, place: GroupPlace) -> Blueprint:
    """Return the pod as a member of the group. Pods without the mark are not queued."""
    if metadata.POD_SUSPENDING_PARENT not in metadata.annotations_of(plan.template):
        return plan
    labels = {**plan.labels, metadata.MANAGED: "true"}
    return replace(plan, labels=labels, annotations={**plan.annotations, **place.annotations()})


def size_errors(obj: Json, old: Json) -> Iterator[FieldError]:
    """Yield changes of the size, except to 0, and from 0 when no pod is left."""
    before, after = replicas(old), replicas(obj)
    if before == after:
        return
    if before and after:
        yield invalid("spec.replicas", after, "may only change to or from 0")
    elif after and fields.int_at(old, ("status", "replicas")):
        yield forbidden("spec.replicas", "scaling down is still in progress")


def frozen_errors(obj: Json, old: Json, path: fields.Path) -> Iterator[FieldError]:
    before, after = (frozen_parts(fields.json_at(side, (*path, "spec"))) for side in (old, obj))
    for key, value in after.items():
        if value != before[key]:
            yield forbidden(fields.show((*path, "spec", key)), IMMUTABLE)


def frozen_parts(spec: Json) -> Json:
    sizes = {key: [c.get("resources") for c in fields.list_at(spec, (key,))] for key in FROZEN_CONTAINERS}
    return {**sizes, **{key: spec.get(key) for key in FROZEN}}
