"""
Ray: RayCluster, RayJob and RayService, which all have one head and some groups of workers.

A RayJob adds the pod that submits its entrypoint, and ends with it; the other two never end. Containers that KubeRay
adds to the head (autoscaler, submitter) are counted in the head's pod set. In embedded mode a container without a
command starts Ray as KubeRay would, and the entrypoint of a RayJob runs as the driver in the submitter pod.

Kueue: pkg/controller/jobs/{raycluster,rayjob,rayservice}. KubeRay: v1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from kyu.api.errors import FieldError, forbidden, invalid, too_many
from kyu.api.meta import Json, Kind
from kyu.kinds import conditions, fields, metadata, pods, templates
from kyu.kinds.kind import Context, Finished, JobKind, Slot
from kyu.kinds.pods import Blueprint, Completion
from kyu.kinds.templates import Conflict, PodSetInfo

MAX_POD_SETS = 18
HEAD, SUBMITTER = "head", "submitter"
GCS_PORT = 6379
SUSPENDING = "RayClusterSuspending"
AUTOSCALER_RESOURCES: Json = {
    "requests": {"cpu": "500m", "memory": "512Mi"},
    "limits": {"cpu": "500m", "memory": "512Mi"},
}
SUBMITTER_RESOURCES: Json = {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
SUBMITTER_CONTAINER = "ray-job-submitter"


class RayKind(JobKind):
    """What the three have in common: a cluster somewhere in the object."""

    cluster: fields.Path
    reserved_names: tuple[str, ...] = (HEAD,)
    completion = pods.NEVER_FINISHES
    own_manager = "ray.io/kuberay-operator"
    may_be_elastic = True

    def slots(self, obj: Json) -> list[Slot]:
        head = Slot(HEAD, (*self.cluster, "headGroupSpec", "template"), 1)
        return [head, *(self.worker_slot(g, i) for i, g in enumerate(self.worker_groups(obj)))]

    def worker_slot(self, group: Json, position: int) -> Slot:
        path = (*self.cluster, "workerGroupSpecs", position, "template")
        return Slot(str(group.get("groupName", "")).lower(), path, worker_count(group))

    def worker_groups(self, obj: Json) -> list[Json]:
        return fields.list_at(obj, (*self.cluster, "workerGroupSpecs"))

    def template(self, obj: Json, slot: Slot) -> Json:
        template = fields.json_at(obj, slot.template)
        if slot.name == HEAD and self.has_autoscaler(obj):
            own = fields.json_at(obj, (*self.cluster, "autoscalerOptions", "resources"))
            template = with_container(template, "autoscaler", own or AUTOSCALER_RESOURCES)
        return template

    def has_autoscaler(self, obj: Json) -> bool:
        return fields.value_at(obj, (*self.cluster, "enableInTreeAutoscaling")) is True

    def defaults(self, obj: Json, context: Context) -> Json:
        obj = super().defaults(obj, context)
        if metadata.is_elastic(obj) and self.is_managed(obj, context):
            for slot in self.slots(obj):
                gated = templates.with_gates(fields.json_at(obj, slot.template), metadata.ELASTIC_JOB_GATE)
                obj = fields.with_value(obj, slot.template, gated)
        return obj

    def is_active(self, obj: Json) -> bool:
        return self.pods_ready(obj) or conditions.is_true(obj, SUSPENDING)

    def suspending(self, obj: Json, its_pods: Sequence[Json], now: datetime) -> list[Json]:
        """Its conditions, with the one that says that it is suspended and its pods are not gone yet."""
        present = fields.list_at(obj, ("status", "conditions"))
        holds = self.is_suspended(obj) and pods.any_left(its_pods)
        if not holds and not conditions.is_true(obj, SUSPENDING):
            return present
        word: conditions.Status = "True" if holds else "False"
        message = "Pods are being deleted" if holds else "No pods are left to delete"
        return conditions.with_condition(present, SUSPENDING, word, reason=SUSPENDING, message=message, now=now)

    def finished(self, obj: Json) -> Finished | None:
        return None

    def own_errors(self, obj: Json, old: Json | None) -> list[FieldError]:
        return list(self.cluster_errors(obj))

    def cluster_errors(self, obj: Json) -> Iterator[FieldError]:
        at = fields.show(self.cluster)
        if self.has_autoscaler(obj) and not metadata.is_elastic(obj):
            yield invalid(
                f"{at}.enableInTreeAutoscaling", True, "a kueue managed job can use autoscaling only if elastic"
            )
        for position, group in enumerate(self.worker_groups(obj)):
            if group.get("groupName") in self.reserved_names:
                field = f"{at}.workerGroupSpecs[{position}].groupName"
                yield forbidden(field, f"{group['groupName']!r} is reserved for another pod set")
        count = len(self.slots(obj))
        if count > MAX_POD_SETS:
            yield too_many(f"{at}.workerGroupSpecs", count, MAX_POD_SETS)

    def pods_of(self, obj: Json, address: pods.Address = pods.dns_address) -> list[Blueprint]:
        name = metadata.name_of(obj)
        head_host = f"{name}-head"
        head_address = address(head_host, "")
        groups = fields.json_at(obj, (*self.cluster, "headGroupSpec"))
        start = f"ray start --head --port={GCS_PORT} --block{start_parameters(groups)}"
        plans = [member(name, HEAD, 0, groups, start, head_address)]
        for group in self.worker_groups(obj):
            role = str(group.get("groupName", "")).lower()
            join = f"ray start --address={head_address}:{GCS_PORT} --block{start_parameters(group)}"
            plans += [member(name, role, i, group, join, head_address) for i in range(worker_count(group))]
        return plans

    def cluster_status(self, obj: Json, its_pods: Sequence[Json]) -> Json:
        """The state of the cluster alone, without the submitter."""
        plans = [plan for plan in self.pods_of(obj) if plan.role != SUBMITTER]
        workers = [plan for plan in plans if plan.role != HEAD]
        ready = {metadata.name_of(pod) for pod in its_pods if pods.is_ready(pod)}
        state = "suspended" if self.is_suspended(obj) else ""
        if plans and not state and all(plan.name in ready for plan in plans):
            state = "ready"
        return {
            "state": state,
            "desiredWorkerReplicas": len(workers),
            "availableWorkerReplicas": sum(plan.name in ready for plan in workers),
            "readyWorkerReplicas": sum(plan.name in ready for plan in workers),
        }


class RayCluster(RayKind):
    kinds = (Kind("ray.io", "v1", "RayCluster", "rayclusters"), Kind("ray.io", "v1alpha1", "RayCluster", "rayclusters"))
    framework = "ray.io/raycluster"
    cluster = ("spec",)
    operator_fields = (("spec", "enableInTreeAutoscaling"),)

    def pods_ready(self, obj: Json) -> bool:
        return fields.text_at(obj, ("status", "state")) == "ready"

    def status_of(self, obj: Json, parts: Sequence[Json], now: datetime) -> Json:
        status = self.cluster_status(obj, parts)
        found = self.suspending(obj, parts, now)
        return {**status, "conditions": found} if found else status


class RayService(RayKind):
    kinds = (Kind("ray.io", "v1", "RayService", "rayservices"), Kind("ray.io", "v1alpha1", "RayService", "rayservices"))
    framework = "ray.io/rayservice"
    cluster = ("spec", "rayClusterConfig")
    operator_fields = (("spec", "rayClusterConfig", "enableInTreeAutoscaling"),)
    suspend_path = ("spec", "rayClusterConfig", "suspend")

    def pods_ready(self, obj: Json) -> bool:
        return conditions.is_true(obj, "Ready")

    def status_of(self, obj: Json, parts: Sequence[Json], now: datetime) -> Json:
        cluster = self.cluster_status(obj, parts)
        ready = cluster["state"] == "ready"
        message = "All pods are ready" if ready else "The pods are not all ready"
        reason = "NonZeroServeEndpoints" if ready else "ZeroServeEndpoints"
        present = self.suspending(obj, parts, now)
        word: conditions.Status = "True" if ready else "False"
        return {
            "activeServiceStatus": {"rayClusterName": metadata.name_of(obj), "rayClusterStatus": cluster},
            "serviceStatus": "Running" if ready else "",
            "conditions": conditions.with_condition(present, "Ready", word, reason=reason, message=message, now=now),
        }


class RayJob(RayKind):
    kinds = (Kind("ray.io", "v1", "RayJob", "rayjobs"), Kind("ray.io", "v1alpha1", "RayJob", "rayjobs"))
    framework = "ray.io/rayjob"
    cluster = ("spec", "rayClusterSpec")
    operator_fields = (("spec", "rayClusterSpec", "enableInTreeAutoscaling"),)
    completion = Completion("OneRoleDecides", (SUBMITTER,), others_may_fail=True)
    reserved_names = (HEAD, SUBMITTER)
    submitter_path: fields.Path = ("spec", "submitterPodTemplate")

    def slots(self, obj: Json) -> list[Slot]:
        slots = super().slots(obj)
        if submission_mode(obj) == "K8sJobMode":
            slots.append(Slot(SUBMITTER, self.submitter_path, 1))
        return slots

    def template(self, obj: Json, slot: Slot) -> Json:
        if slot.name == SUBMITTER:
            return submitter_template(obj)
        template = super().template(obj, slot)
        if slot.name == HEAD and submission_mode(obj) == "SidecarMode":
            template = with_container(template, SUBMITTER_CONTAINER, SUBMITTER_RESOURCES)
        return template

    def with_info(self, obj: Json, slot: Slot, info: PodSetInfo) -> Json | Conflict:
        if slot.name == SUBMITTER:
            obj = fields.with_value(obj, self.submitter_path, submitter_template(obj))
        return super().with_info(obj, slot, info)

    def is_managed(self, obj: Json, context: Context) -> bool:
        # With a selector the job runs in a cluster that exists already, and asks for nothing of its own.
        return not fields.json_at(obj, ("spec", "clusterSelector")) and super().is_managed(obj, context)

    def is_active(self, obj: Json) -> bool:
        return fields.text_at(obj, ("status", "jobDeploymentStatus")) not in ("Suspended", "")

    def pods_ready(self, obj: Json) -> bool:
        return fields.text_at(obj, ("status", "rayClusterStatus", "state")) == "ready"

    def finished(self, obj: Json) -> Finished | None:
        if fields.text_at(obj, ("status", "jobDeploymentStatus")) not in ("Complete", "Failed"):
            return None
        success = fields.text_at(obj, ("status", "jobStatus")) == "SUCCEEDED"
        message = fields.text_at(obj, ("status", "message"))
        return Finished(success, message or ("Job finished successfully" if success else "Job failed"))

    def own_errors(self, obj: Json, old: Json | None) -> list[FieldError]:
        errors = list(self.cluster_errors(obj))
        if fields.value_at(obj, ("spec", "shutdownAfterJobFinishes")) is not True:
            field = "spec.shutdownAfterJobFinishes"
            errors.append(invalid(field, False, "must be true: a queued job gives its cluster back when it ends"))
        return errors

    def validate(self, obj: Json, old: Json | None, context: Context) -> list[FieldError]:
        has_cluster = bool(fields.json_at(obj, self.cluster))
        if metadata.queue_name(obj) and has_cluster and fields.json_at(obj, ("spec", "clusterSelector")):
            return [
                invalid("spec.clusterSelector", obj["spec"]["clusterSelector"], "may not stand beside rayClusterSpec")
            ]
        return super().validate(obj, old, context)

    def pods_of(self, obj: Json, address: pods.Address = pods.dns_address) -> list[Blueprint]:
        plans = super().pods_of(obj, address)
        if submission_mode(obj) == "InteractiveMode":
            return plans
        name = metadata.name_of(obj)
        template = submitter_template(obj)
        if not fields.value_at(template, ("spec", "containers", 0, "command")):
            command = ["/bin/sh", "-c", fields.text_at(obj, ("spec", "entrypoint"))]
            template = fields.with_value(template, ("spec", "containers", 0, "command"), command)
        template = fields.with_value(template, ("spec", "restartPolicy"), "Never")
        env = {"RAY_ADDRESS": plans[0].env["RAY_ADDRESS"], "RAY_JOB_SUBMISSION_ID": f"{name}-submission"}
        return [*plans, Blueprint(f"{name}-{SUBMITTER}", SUBMITTER, 0, template, env=env)]

    def status_of(self, obj: Json, parts: Sequence[Json], now: datetime) -> Json:
        cluster = self.cluster_status(obj, parts)
        if self.is_suspended(obj):
            word = "Suspending" if pods.any_left(parts) else "Suspended"
            return {"jobDeploymentStatus": word, "rayClusterStatus": cluster, "jobStatus": "", "startTime": None}
        start = fields.text_at(obj, ("status", "startTime")) or conditions.timestamp(now)
        status: Json = {"rayClusterStatus": cluster, "startTime": start, "rayClusterName": metadata.name_of(obj)}
        verdict = pods.verdict(self.completion, self.pods_of(obj), parts)
        if verdict.state in ("Succeeded", "Failed"):
            end = fields.text_at(obj, ("status", "endTime")) or conditions.timestamp(now)
            deployment = "Complete" if verdict.state == "Succeeded" else "Failed"
            ended = {"jobStatus": verdict.state.upper(), "jobDeploymentStatus": deployment, "endTime": end}
            return {**status, **ended, "message": verdict.message}
        running = verdict.state == "Running"
        words = ("Running", "RUNNING") if running else ("Initializing", "PENDING")
        return {**status, "jobDeploymentStatus": words[0], "jobStatus": words[1]}


def worker_count(group: Json) -> int:
    return fields.int_at(group, ("replicas",), 1) * max(1, fields.int_at(group, ("numOfHosts",), 1))


def submission_mode(obj: Json) -> str:
    return fields.text_at(obj, ("spec", "submissionMode")) or "K8sJobMode"


def submitter_template(obj: Json) -> Json:
    """The user's template, or what KubeRay would make: the image of the head, and little else."""
    own = fields.json_at(obj, RayJob.submitter_path)
    if own:
        return own
    container: Json = {"name": SUBMITTER_CONTAINER, "resources": SUBMITTER_RESOURCES}
    head = (*RayJob.cluster, "headGroupSpec", "template", "spec", "containers", 0, "image")
    if image := fields.text_at(obj, head):
        container["image"] = image
    return {"spec": {"containers": [container], "restartPolicy": "Never"}}


def with_container(template: Json, name: str, resources: Json) -> Json:
    containers = fields.list_at(template, ("spec", "containers"))
    return fields.with_value(template, ("spec", "containers"), [*containers, {"name": name, "resources": resources}])


def start_parameters(group: Json) -> str:
    """rayStartParams become options of ``ray start``; those that Kyu sets itself are left out."""
    own = {"port", "address", "block", "head"}
    return "".join(f" --{k}={v}" for k, v in fields.json_at(group, ("rayStartParams",)).items() if k not in own)


def member(name: str, role: str, index: int, group: Json, command: str, head_address: str) -> Blueprint:
    template = fields.json_at(group, ("template",))
    containers = fields.list_at(template, ("spec", "containers"))
    if containers and not containers[0].get("command") and not containers[0].get("args"):
        path: fields.Path = ("spec", "containers", 0, "command")
        template = fields.with_value(template, path, ["/bin/sh", "-c", command])
    labels = {
        "ray.io/cluster": name,
        "ray.io/group": "headgroup" if role == HEAD else str(group.get("groupName", "")),
        "ray.io/node-type": "head" if role == HEAD else "worker",
        "ray.io/is-ray-node": "yes",
    }
    env = {"RAY_CLUSTER_NAME": name, "RAY_IP": head_address, "RAY_ADDRESS": f"{head_address}:{GCS_PORT}"}
    host = f"{name}-head" if role == HEAD else f"{name}-{role}-worker-{index}"
    return Blueprint(host, role, index, template, labels=labels, env=env, hostname=host)
