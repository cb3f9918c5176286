"""
Ray: RayCluster, RayJob and RayService. Each has a cluster somewhere in the object; ``pods.py`` knows its pods.

A RayJob ends with its entrypoint, and is tried again with a new cluster while its backoffLimit allows; the other two
never end. Containers that KubeRay adds to the head (autoscaler, submitter) are counted in the head's pod set.

Kueue: site docs on RayJobs and RayClusters. KubeRay: v1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from kyu.api.errors import FieldError, forbidden, invalid, too_many
from kyu.api.meta import Json, Kind
from kyu.kinds import conditions, fields, metadata, pods
from kyu.kinds.kind import Context, Finished, JobKind, Slot
from kyu.kinds.pods import Blueprint, Completion, PodsVerdict
from kyu.kinds.ray.pods import (
    AUTOSCALER,
    HEAD,
    SUBMITTER,
    SUBMITTER_PATH,
    SUBMITTING,
    RayGroup,
    cluster_pods,
    groups_of,
    head_name,
    submitter_pod,
    submitter_template,
    with_containers,
)
from kyu.kinds.templates import PodSetInfo, TemplateConflict

MAX_POD_SETS = 18
SUSPENDING = "RayClusterSuspending"
# How the state of a RayJob is told: of its deployment, and of the entrypoint.
WORDS_OF_VERDICT = {
    "Pending": ("Initializing", "PENDING"),
    "Running": ("Running", "RUNNING"),
    "Succeeded": ("Complete", "SUCCEEDED"),
    "Failed": ("Failed", "FAILED"),
}
RETRYING = "Retrying"


def versions(kind: str) -> tuple[Kind, ...]:
    return tuple(Kind("ray.io", version, kind, f"{kind.lower()}s") for version in ("v1", "v1alpha1"))


class RayKind(JobKind):
    """A kind with a Ray cluster in its objects."""

    # The path of the cluster, and the names of pod sets that its worker groups may not take.
    cluster: fields.Path
    reserved_names: tuple[str, ...] = (HEAD,)
    completion = pods.NEVER_FINISHES
    own_manager = "ray.io/kuberay-operator"
    may_be_elastic = True

    def groups(self, obj: Json) -> list[RayGroup]:
        return groups_of(obj, self.cluster)

    def slots(self, obj: Json) -> list[Slot]:
        return [Slot(group.pod_set, (*group.path, "template"), group.count) for group in self.groups(obj)]

    def template(self, obj: Json, slot: Slot) -> Json:
        template = fields.json_at(obj, slot.template)
        return with_containers(template, self.beside_the_head(obj)) if slot.name == HEAD else template

    def beside_the_head(self, obj: Json) -> list[Json]:
        """Return the containers that KubeRay adds to the pod of the head."""
        if not self.has_autoscaler(obj):
            return []
        own = fields.json_at(obj, (*self.cluster, "autoscalerOptions", "resources"))
        return [{**AUTOSCALER, "resources": own} if own else AUTOSCALER]

    def has_autoscaler(self, obj: Json) -> bool:
        return fields.value_at(obj, (*self.cluster, "enableInTreeAutoscaling")) is True

    def is_active(self, obj: Json) -> bool:
        return self.pods_ready(obj) or conditions.is_true(obj, SUSPENDING)

    def finished(self, obj: Json) -> Finished | None:
        return None

    def own_errors(self, obj: Json, old: Json | None) -> list[FieldError]:
        return list(self.cluster_errors(obj))

    def cluster_errors(self, obj: Json) -> Iterator[FieldError]:
        if self.has_autoscaler(obj) and not metadata.is_elastic(obj):
            field = fields.show((*self.cluster, "enableInTreeAutoscaling"))
            yield invalid(field, True, "a queued cluster may change its size only if elastic")
        groups = self.groups(obj)
        for group in groups:
            if not group.is_head and group.pod_set in self.reserved_names:
                field = fields.show((*group.path, "groupName"))
                yield forbidden(field, f"{group.name!r} is reserved for another pod set")
        count = len(groups) + len(self.reserved_names) - 1
        if count > MAX_POD_SETS:
            yield too_many(fields.show((*self.cluster, "workerGroupSpecs")), count, MAX_POD_SETS)

    # Embedded mode

    def pods_of(self, obj: Json, address: pods.Address = pods.dns_address) -> list[Blueprint]:
        name = metadata.name_of(obj)
        return list(cluster_pods(name, self.groups(obj), address(head_name(name), "")))

    def cluster_status(self, obj: Json, its_pods: Sequence[Json]) -> Json:
        """Return the state of the cluster without the submitter."""
        there = {metadata.name_of(pod) for pod in its_pods if pods.is_ready(pod)}
        ready_by_role: dict[str, list[bool]] = {HEAD: []}
        for plan in self.pods_of(obj):
            ready_by_role.setdefault(plan.role, []).append(plan.name in there)
        ready_by_role.pop(SUBMITTER, None)
        workers = [ready for role, listed in ready_by_role.items() if role != HEAD for ready in listed]
        complete = bool(ready_by_role[HEAD]) and all(ready_by_role[HEAD]) and all(workers)
        return {
            "state": "suspended" if self.is_suspended(obj) else "ready" if complete else "",
            "desiredWorkerReplicas": len(workers),
            "availableWorkerReplicas": sum(workers),
            "readyWorkerReplicas": sum(workers),
        }

    def suspending(self, obj: Json, its_pods: Sequence[Json], now: datetime) -> list[Json]:
        """Return its conditions, with the one of a suspended cluster whose pods are not gone yet."""
        present = fields.list_at(obj, ("status", "conditions"))
        holds = self.is_suspended(obj) and pods.any_left(its_pods)
        if not holds and not conditions.is_true(obj, SUSPENDING):
            return present
        word: conditions.Status = "True" if holds else "False"
        message = "Pods are being deleted" if holds else "No pods are left to delete"
        return conditions.with_condition(present, SUSPENDING, word, reason=SUSPENDING, message=message, now=now)


class RayCluster(RayKind):
    kinds = versions("RayCluster")
    framework = "ray.io/raycluster"
    cluster = ("spec",)
    operator_fields = (("spec", "enableInTreeAutoscaling"),)

    def pods_ready(self, obj: Json) -> bool:
        return fields.text_at(obj, ("status", "state")) == "ready"

    def status_of(self, obj: Json, parts: Sequence[Json], now: datetime) -> Json:
        return {**self.cluster_status(obj, parts), "conditions": self.suspending(obj, parts, now) or None}


class RayService(RayKind):
    kinds = versions("RayService")
    framework = "ray.io/rayservice"
    cluster = ("spec", "rayClusterConfig")
    suspend_path = ("spec", "rayClusterConfig", "suspend")
    operator_fields = (("spec", "rayClusterConfig", "enableInTreeAutoscaling"),)

    def pods_ready(self, obj: Json) -> bool:
        return conditions.is_true(obj, "Ready")

    def status_of(self, obj: Json, parts: Sequence[Json], now: datetime) -> Json:
        cluster = self.cluster_status(obj, parts)
        present = self.suspending(obj, parts, now)
        if cluster["state"] == "ready":
            serves, reason, message = True, "NonZeroServeEndpoints", "All pods are ready"
        else:
            serves, reason, message = False, "ZeroServeEndpoints", "The pods are not all ready"
        word: conditions.Status = "True" if serves else "False"
        return {
            "activeServiceStatus": {"rayClusterName": metadata.name_of(obj), "rayClusterStatus": cluster},
            "serviceStatus": "Running" if serves else "",
            "conditions": conditions.with_condition(present, "Ready", word, reason=reason, message=message, now=now),
        }


class RayJob(RayKind):
    kinds = versions("RayJob")
    framework = "ray.io/rayjob"
    cluster = ("spec", "rayClusterSpec")
    operator_fields = (("spec", "rayClusterSpec", "enableInTreeAutoscaling"),)
    completion = Completion("OneRoleDecides", (SUBMITTER,), others_may_fail=True)
    reserved_names = (HEAD, SUBMITTER)

    def slots(self, obj: Json) -> list[Slot]:
        slots = super().slots(obj)
        return [*slots, Slot(SUBMITTER, SUBMITTER_PATH, 1)] if submission_mode(obj) == "K8sJobMode" else slots

    def template(self, obj: Json, slot: Slot) -> Json:
        return submitter_template(obj) if slot.name == SUBMITTER else super().template(obj, slot)

    def beside_the_head(self, obj: Json) -> list[Json]:
        added = super().beside_the_head(obj)
        return [*added, SUBMITTING] if submission_mode(obj) == "SidecarMode" else added

    def with_info(self, obj: Json, slot: Slot, info: PodSetInfo) -> Json | TemplateConflict:
        if slot.name == SUBMITTER:
            obj = fields.with_value(obj, slot.template, submitter_template(obj))
        return super().with_info(obj, slot, info)

    def is_managed(self, obj: Json, context: Context) -> bool:
        # With a selector the job runs in a cluster that exists already, and asks for nothing of its own.
        return not fields.json_at(obj, ("spec", "clusterSelector")) and super().is_managed(obj, context)

    def is_active(self, obj: Json) -> bool:
        return deployment(obj) not in ("Suspended", "")

    def pods_ready(self, obj: Json) -> bool:
        return fields.text_at(obj, ("status", "rayClusterStatus", "state")) == "ready"

    def finished(self, obj: Json) -> Finished | None:
        if deployment(obj) not in ("Complete", "Failed"):
            return None
        success = fields.text_at(obj, ("status", "jobStatus")) == "SUCCEEDED"
        told = fields.text_at(obj, ("status", "message"))
        return Finished(success, told or ("Job finished successfully" if success else "Job failed"))

    def validate(self, obj: Json, old: Json | None, context: Context) -> list[FieldError]:
        selector = fields.json_at(obj, ("spec", "clusterSelector"))
        if selector and metadata.queue_name(obj) and fields.json_at(obj, self.cluster):
            return [invalid("spec.clusterSelector", selector, "may not stand beside rayClusterSpec")]
        return super().validate(obj, old, context)

    def own_errors(self, obj: Json, old: Json | None) -> list[FieldError]:
        errors = super().own_errors(obj, old)
        if fields.value_at(obj, ("spec", "shutdownAfterJobFinishes")) is not True:
            field = "spec.shutdownAfterJobFinishes"
            errors.append(invalid(field, False, "must be true: a queued job gives its cluster back when it ends"))
        return errors

    # Embedded mode

    def pods_of(self, obj: Json, address: pods.Address = pods.dns_address) -> list[Blueprint]:
        if deployment(obj) == RETRYING:
            return []
        plans = super().pods_of(obj, address)
        if submission_mode(obj) == "InteractiveMode":
            return plans
        return [*plans, submitter_pod(obj, address(head_name(metadata.name_of(obj)), ""))]

    def status_of(self, obj: Json, parts: Sequence[Json], now: datetime) -> Json:
        status: Json = {"rayClusterStatus": self.cluster_status(obj, parts)}
        if self.is_suspended(obj):
            word = "Suspending" if pods.any_left(parts) else "Suspended"
            return {**status, "jobDeploymentStatus": word, "jobStatus": "", "startTime": None, "failed": None}
        status["startTime"] = fields.text_at(obj, ("status", "startTime")) or conditions.timestamp(now)
        status["rayClusterName"] = metadata.name_of(obj)
        if self.finished(obj) is not None or (deployment(obj) == RETRYING and parts):
            return status
        verdict = pods.verdict(self.completion, self.pods_of(obj), parts)
        deadline = self.wakes_at(obj)
        if deadline is not None and now >= deadline:
            verdict = PodsVerdict("Failed", "It was active for too long (activeDeadlineSeconds)")
        elif verdict.state == "Failed" and failures(obj) < fields.int_at(obj, ("spec", "backoffLimit")):
            return {**status, "jobDeploymentStatus": RETRYING, "jobStatus": "PENDING", "failed": failures(obj) + 1}
        if verdict.state in ("Succeeded", "Failed"):
            status |= {"endTime": conditions.timestamp(now), "message": verdict.message}
        words = WORDS_OF_VERDICT[verdict.state]
        return {**status, "jobDeploymentStatus": words[0], "jobStatus": words[1]}

    def wakes_at(self, obj: Json) -> datetime | None:
        """Return the deadline."""
        seconds = fields.int_at(obj, ("spec", "activeDeadlineSeconds"))
        start = fields.text_at(obj, ("status", "startTime"))
        if not seconds or not start or self.is_suspended(obj) or self.finished(obj) is not None:
            return None
        return conditions.add_seconds(conditions.parse_timestamp(start), seconds)


def deployment(obj: Json) -> str:
    return fields.text_at(obj, ("status", "jobDeploymentStatus"))


def failures(obj: Json) -> int:
    return fields.int_at(obj, ("status", "failed"))


def submission_mode(obj: Json) -> str:
    return fields.text_at(obj, ("spec", "submissionMode")) or "K8sJobMode"
