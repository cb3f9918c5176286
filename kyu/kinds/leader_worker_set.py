"""
LeaderWorkerSet: replicas that are groups of pods, each with a leader.

Each replica is queued by itself: a group of pods with a Workload of its own. It serves and never finishes.

Kueue: pkg/controller/jobs/leaderworkerset. LeaderWorkerSet: v1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from kyu.api.errors import FieldError, invalid
from kyu.api.meta import Json, Kind
from kyu.kinds import conditions, fields, metadata, pods, templates
from kyu.kinds.kind import GroupPlace, Slot
from kyu.kinds.pods import Blueprint
from kyu.kinds.serving import Serving, frozen_errors, in_group, is_held_by, replicas
from kyu.kinds.templates import PodSetTemplate, RankLabels
from kyu.kinds.validation import IMMUTABLE

LWS_PREFIX = "leaderworkerset.sigs.k8s.io/"
GROUP_INDEX, WORKER_INDEX = LWS_PREFIX + "group-index", LWS_PREFIX + "worker-index"
LWS_TEMPLATE: fields.Path = ("spec", "leaderWorkerTemplate")
LEADER_TEMPLATE: fields.Path = (*LWS_TEMPLATE, "leaderTemplate")
WORKER_TEMPLATE: fields.Path = (*LWS_TEMPLATE, "workerTemplate")
MAX_LWS_REPLICAS = 1_000_000


class LeaderWorkerSet(Serving):
    kinds = (Kind("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets"),)
    framework = "leaderworkerset.x-k8s.io/leaderworkerset"
    has_groups = True
    is_in_parts = True
    template_annotations: Mapping[str, str] = {metadata.POD_GROUP_SERVING: "true"}

    def slots(self, obj: Json) -> list[Slot]:
        """Return the pod sets of one replica."""
        ranks = RankLabels(index_label=WORKER_INDEX)
        if not has_leader(obj):
            return [Slot("main", WORKER_TEMPLATE, size(obj), ranks=ranks)]
        return [Slot("leader", LEADER_TEMPLATE, 1), Slot("worker", WORKER_TEMPLATE, size(obj) - 1, ranks=ranks)]

    def workloads(self, obj: Json) -> list[tuple[str, list[PodSetTemplate]]]:
        sets = self.pod_sets(obj)
        return [(self.group_name(obj, index), sets) for index in range(replicas(obj))]

    def group_place(self, obj: Json, pod: Json) -> GroupPlace | None:
        labels = metadata.labels_of(pod)
        if not is_held_by(self, pod) or labels.get(LWS_PREFIX + "name") != metadata.name_of(obj):
            return None
        number = labels.get(GROUP_INDEX, "")
        if not number.isdecimal():
            return None
        role = ("leader" if labels.get(WORKER_INDEX) == "0" else "worker") if has_leader(obj) else "main"
        return GroupPlace(self.group_name(obj, int(number)), size(obj), role)

    def group_name(self, obj: Json, index: int) -> str:
        name = f"{metadata.name_of(obj)}-{index}"
        return metadata.workload_name(self.kind, name, metadata.uid_of(obj))

    def marked(self, obj: Json, slot: Slot) -> Json:
        template = super().marked(obj, slot)
        grouped = metadata.POD_SET_GROUP_NAME in metadata.annotations_of(template)
        if slot.name == "worker" and not grouped:
            # The leader takes rank 0 of the placement, so the workers are counted from 1.
            template = templates.with_annotations(template, {metadata.POD_INDEX_OFFSET: "1"})
        return template

    def own_errors(self, obj: Json, old: Json | None) -> list[FieldError]:
        errors = []
        if not 0 <= replicas(obj) <= MAX_LWS_REPLICAS:
            errors.append(invalid("spec.replicas", replicas(obj), f"must be between 0 and {MAX_LWS_REPLICAS}"))
        if old is None:
            return errors
        if size(obj) != size(old):
            errors.append(invalid(fields.show((*LWS_TEMPLATE, "size")), size(obj), IMMUTABLE))
        return [*errors, *frozen_errors(obj, old, LEADER_TEMPLATE), *frozen_errors(obj, old, WORKER_TEMPLATE)]

    def pods_of(self, obj: Json, address: pods.Address = pods.dns_address) -> list[Blueprint]:
        return [plan for group in range(replicas(obj)) for plan in self.group_pods(obj, group, address)]

    def group_pods(self, obj: Json, group: int, address: pods.Address) -> list[Blueprint]:
        name = metadata.name_of(obj)
        leader = f"{name}-{group}"
        plans = []
        for index in range(size(obj)):
            leads = index == 0
            role = ("leader" if leads else "worker") if has_leader(obj) else "main"
            template = fields.json_at(obj, LEADER_TEMPLATE if role == "leader" else WORKER_TEMPLATE)
            labels = {LWS_PREFIX + "name": name, GROUP_INDEX: str(group), WORKER_INDEX: str(index)}
            annotations = {LWS_PREFIX + "size": str(size(obj))}
            if not leads:
                annotations[LWS_PREFIX + "leader-name"] = leader
            env = {
                "LWS_LEADER_ADDRESS": address(leader, name),
                "LWS_GROUP_SIZE": str(size(obj)),
                "LWS_WORKER_INDEX": str(index),
            }
            pod = leader if leads else f"{leader}-{index}"
            plan = Blueprint(pod, role, index, template, labels, annotations, env, pod, name)
            plans.append(in_group(plan, GroupPlace(self.group_name(obj, group), size(obj), role)))
        return plans

    def status_of(self, obj: Json, parts: Sequence[Json], now: datetime) -> Json:
        ready_by_group: dict[str, int] = {}
        groups = {metadata.labels_of(pod).get(GROUP_INDEX, "") for pod in parts}
        for pod in parts:
            index = metadata.labels_of(pod).get(GROUP_INDEX, "")
            ready_by_group[index] = ready_by_group.get(index, 0) + pods.is_ready(pod)
        ready = sum(count >= size(obj) for count in ready_by_group.values())
        available: conditions.Status = "True" if ready >= replicas(obj) else "False"
        reason = "AllGroupsReady" if available == "True" else "GroupsProgressing"
        message = f"{ready} of {replicas(obj)} groups are ready"
        present = fields.list_at(obj, ("status", "conditions"))
        return {
            "replicas": len(groups),
            "readyReplicas": ready,
            "updatedReplicas": len(groups),
            "conditions": conditions.with_condition(
                present, "Available", available, reason=reason, message=message, now=now
            ),
        }


def size(obj: Json) -> int:
    return fields.int_at(obj, (*LWS_TEMPLATE, "size"), 1)


def has_leader(obj: Json) -> bool:
    return bool(fields.json_at(obj, LEADER_TEMPLATE))
