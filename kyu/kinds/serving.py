"""
Kinds that serve: they never finish, and are queued through their pods. Deployment and StatefulSet are here.

They have no field to suspend them, so their pod templates are marked and the pods are held by gates. A Deployment's
pods are queued one by one; those of a StatefulSet are one group.

Kueue: pkg/controller/jobs/{deployment,statefulset}
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from kyu.api.errors import FieldError, forbidden, invalid
from kyu.api.meta import Json, Kind
from kyu.kinds import fields, metadata, pods, templates
from kyu.kinds.kind import Context, Finished, JobKind, Slot
from kyu.kinds.pods import Blueprint
from kyu.kinds.templates import PodSet, Ranks
from kyu.kinds.validation import IMMUTABLE

TEMPLATE: fields.Path = ("spec", "template")
POD_INDEX = "apps.kubernetes.io/pod-index"
# The part of a pod that its quota depends on: it cannot change under a reservation.
SHAPE = ("containers", "initContainers", "nodeSelector", "affinity", "tolerations", "runtimeClassName", "overhead")


class Serving(JobKind):
    """What the three have in common."""

    completion = pods.NEVER_FINISHES
    queued_as = "its pods"
    managed_by_path = None
    may_be_prebuilt = False
    stops_by_deletion = True

    def is_suspended(self, obj: Json) -> bool:
        """Nothing of it runs, so that its queue and its priority may still change."""
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
        if not self.is_managed(obj, context):
            return obj
        for slot in self.slots(obj):
            obj = fields.with_value(obj, slot.template, self.marked(obj, slot))
        return obj

    def marked(self, obj: Json, slot: Slot) -> Json:
        """The template with the mark that holds its pods, and with the queue and the priority of the object."""
        template = fields.json_at(obj, slot.template)
        template = templates.with_annotation(template, metadata.POD_SUSPENDING_PARENT, self.framework)
        for key in (metadata.QUEUE_NAME, metadata.PRIORITY_CLASS):
            if value := metadata.labels_of(obj).get(key):
                template = templates.with_label(template, key, value)
        return template

    def surplus_pods(self, obj: Json, its_pods: Sequence[Json]) -> list[str]:
        """Pods of replicas that are no longer wanted. Failed ones go too, to be made again."""
        wanted = {plan.name for plan in self.pods_of(obj)}
        return [metadata.name_of(p) for p in its_pods if metadata.name_of(p) not in wanted or pods.is_terminal(p)]


class Deployment(Serving):
    kinds = (Kind("apps", "v1", "Deployment", "deployments"),)
    framework = "deployment"

    def slots(self, obj: Json) -> list[Slot]:
        return [Slot("main", TEMPLATE, replicas(obj))]

    def workloads(self, obj: Json) -> list[tuple[str, list[PodSet]]]:
        return []

    def marked(self, obj: Json, slot: Slot) -> Json:
        return templates.with_label(super().marked(obj, slot), metadata.MANAGED, "true")


class StatefulSet(Serving):
    kinds = (Kind("apps", "v1", "StatefulSet", "statefulsets"),)
    framework = "statefulset"

    def slots(self, obj: Json) -> list[Slot]:
        return [Slot("main", TEMPLATE, replicas(obj), ranks=Ranks(index_label=POD_INDEX))]

    def own_errors(self, obj: Json, old: Json | None) -> list[FieldError]:
        return [] if old is None else list(self.change_errors(obj, old))

    def change_errors(self, obj: Json, old: Json) -> Iterator[FieldError]:
        yield from shape_errors(obj, old, TEMPLATE)
        before, after = replicas(old), replicas(obj)
        if before != after and 0 not in (before, after):
            yield invalid("spec.replicas", after, "may only change to or from 0")
        elif before == 0 and after > 0 and fields.int_at(old, ("status", "replicas")) > 0:
            yield forbidden("spec.replicas", "scaling down is still in progress")

    def pods_of(self, obj: Json, address: pods.Address = pods.dns_address) -> list[Blueprint]:
        template = fields.json_at(obj, TEMPLATE)
        name = metadata.name_of(obj)
        first = fields.int_at(obj, ("spec", "ordinals", "start"))
        plans = []
        for index in range(first, first + replicas(obj)):
            pod = f"{name}-{index}"
            labels = {POD_INDEX: str(index), "statefulset.kubernetes.io/pod-name": pod}
            marks = group_marks(template, self.workload_name(obj), replicas(obj), "main")
            subdomain = fields.text_at(obj, ("spec", "serviceName"))
            plans.append(Blueprint(pod, "main", index, template, {**labels, **marks[0]}, marks[1], {}, pod, subdomain))
        return plans

    def status_of(self, obj: Json, parts: Sequence[Json], now: datetime) -> Json:
        ready = sum(pods.is_ready(pod) for pod in parts)
        return {
            "replicas": len(parts),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "currentReplicas": len(parts),
            "updatedReplicas": len(parts),
            "observedGeneration": fields.int_at(obj, ("metadata", "generation")),
        }


def replicas(obj: Json) -> int:
    return fields.int_at(obj, ("spec", "replicas"), 1)


def group_marks(template: Json, group: str, total: int, role: str) -> tuple[dict[str, str], dict[str, str]]:
    """Labels and annotations that make the pods of a queued object one group with its own Workload; else none."""
    if metadata.POD_SUSPENDING_PARENT not in metadata.annotations_of(template):
        return {}, {}
    labels = {metadata.MANAGED: "true"}
    annotations = {
        metadata.POD_GROUP_NAME: group,
        metadata.PREBUILT_WORKLOAD: group,
        metadata.POD_GROUP_TOTAL_COUNT: str(total),
        metadata.POD_GROUP_SERVING: "true",
        metadata.ROLE_HASH: role,
    }
    return labels, annotations


def shape_errors(obj: Json, old: Json, path: fields.Path) -> Iterator[FieldError]:
    for key in SHAPE:
        before, after = (fields.value_at(o, (*path, "spec", key)) for o in (old, obj))
        if key in ("containers", "initContainers"):
            before, after = resources(before), resources(after)
        if before != after:
            yield forbidden(fields.show((*path, "spec", key)), IMMUTABLE)


def resources(containers: object) -> list[object]:
    return [c.get("resources") for c in containers if isinstance(c, dict)] if isinstance(containers, list) else []
