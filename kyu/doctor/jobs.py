"""Checks of jobs and pods: queues that do not exist, labels in the wrong place, groups that never form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kyu.doctor.world import DoctorFinding, FoundObject, World, amount_of, items, quotas_of, section
from kyu.kinds import table
from kyu.kinds.metadata import POD_GROUP_NAME, POD_GROUP_TOTAL_COUNT, PRIORITY_CLASS, QUEUE_NAME

Findings = Iterator[DoctorFinding]
SKYPILOT_CLUSTER = "skypilot-cluster-name"
SKYPILOT_PRIORITY = "skypilot-priority-class"
# Misspelt fields of a MiniCluster, which its API prunes, and the fields that are meant.
MINICLUSTER_FIELDS = {"job_labels": "jobLabels", "working_dir": "workingDir", "deadline": "deadlineSeconds"}


def jobs_of(world: World) -> list[FoundObject]:
    """Return the objects that a queue could admit."""
    return [placed for placed in world.objects if table.find(placed.object) or is_minicluster(placed)]


def is_minicluster(placed: FoundObject) -> bool:
    """Return whether the object is a MiniCluster, of any version."""
    return placed.object.get("kind") == "MiniCluster"


def queue_of(placed: FoundObject) -> str:
    """Return the LocalQueue that a job names."""
    if is_minicluster(placed):
        return str(section(placed.spec, "jobLabels").get(QUEUE_NAME, ""))
    return str(placed.labels.get(QUEUE_NAME, ""))


def find_missing_local_queues(world: World) -> Findings:
    """Find jobs whose LocalQueue does not exist in their namespace."""
    if not world.knows("LocalQueue"):
        return
    known = {(door.namespace, door.name) for door in world.all("LocalQueue")}
    for placed in jobs_of(world):
        name = queue_of(placed)
        if not name or (placed.namespace, name) in known:
            continue
        elsewhere = sorted(namespace for namespace, other in known if other == name)
        here = sorted(other for namespace, other in known if namespace == placed.namespace)
        yield placed.error(
            "queue-missing",
            f"there is no LocalQueue {name!r} in namespace {placed.namespace}"
            + (f"; there is one in {', '.join(elsewhere)}" if elsewhere else ""),
            "the job stays suspended, and pods stay gated, for ever",
            f"name one of {', '.join(here)}" if here else f"create a LocalQueue in {placed.namespace}",
        )


def find_missing_priorities(world: World) -> Findings:
    """Find jobs whose WorkloadPriorityClass does not exist."""
    if not world.knows("WorkloadPriorityClass"):
        return
    for placed in jobs_of(world):
        name = placed.labels.get(PRIORITY_CLASS)
        if name and name not in world.names("WorkloadPriorityClass"):
            yield placed.error(
                "priority-class-missing", f"there is no WorkloadPriorityClass {name!r}",
                "the job gets no Workload, and never starts", "create the class, or correct the label",
            )  # fmt: skip


def template_of(placed: FoundObject) -> Mapping[str, Any]:
    """Return the pod template of a Job, or the pod itself."""
    return placed.object if placed.object.get("kind") == "Pod" else section(placed.spec, "template")


def find_misplaced_labels(world: World) -> Findings:
    """Find queue labels that the queue does not see."""
    for placed in jobs_of(world):
        inner = section(section(template_of(placed), "metadata"), "labels")
        if placed.object.get("kind") == "Job" and inner.get(QUEUE_NAME) and not queue_of(placed):
            yield placed.warning(
                "label-on-template", f"{QUEUE_NAME} is on the pod template, not on the Job",
                "the Job is not queued as a whole; each pod queues alone, or bypasses the queue",
                "put the label on the Job's own metadata",
            )  # fmt: skip
        if is_minicluster(placed):
            yield from _find_minicluster_faults(placed)


def _find_minicluster_faults(placed: FoundObject) -> Findings:
    for wrong, right in MINICLUSTER_FIELDS.items():
        if wrong in placed.spec:
            yield placed.error(
                "minicluster-field", f"spec.{wrong} is no field of a MiniCluster",
                "the API prunes it, so the job may bypass its queue", f"write spec.{right}",
            )  # fmt: skip
    if placed.labels.get(QUEUE_NAME) and not section(placed.spec, "jobLabels").get(QUEUE_NAME):
        yield placed.error(
            "minicluster-label", f"{QUEUE_NAME} is on the MiniCluster, not in spec.jobLabels",
            "the Job that the operator makes has no queue, and runs at once", "put the label in spec.jobLabels",
        )  # fmt: skip
    if placed.object.get("apiVersion") == "flux-framework.org/v1alpha1":
        yield placed.warning(
            "minicluster-old", "flux-framework.org/v1alpha1 is no longer served by the operator",
            "current releases of the Flux operator refuse the manifest", "use flux-framework.org/v1alpha2",
        )  # fmt: skip


def find_broken_groups(world: World) -> Findings:
    """Find pods whose group never forms, and pods of one cluster that are queued one by one."""
    by_cluster: dict[tuple[str, object], list[FoundObject]] = {}
    for placed in world.all("Pod"):
        group, count = placed.labels.get(POD_GROUP_NAME), placed.annotations.get(POD_GROUP_TOTAL_COUNT)
        if (group is None) != (count is None):
            missing = f"annotation {POD_GROUP_TOTAL_COUNT}" if count is None else f"label {POD_GROUP_NAME}"
            yield placed.error(
                "group-incomplete", f"the pod has no {missing}", "the pod is refused: both belong together",
                f"add the {missing}",
            )  # fmt: skip
        cluster = placed.labels.get(SKYPILOT_CLUSTER)
        if cluster and placed.labels.get(QUEUE_NAME) and group is None:
            by_cluster.setdefault((placed.namespace, cluster), []).append(placed)
        if placed.annotations.get(SKYPILOT_PRIORITY) and not placed.labels.get(PRIORITY_CLASS):
            yield placed.warning(
                "skypilot-priority", "the priority class of SkyPilot is only an annotation",
                "the queue does not see it: the pod has priority 0", f"add the label {PRIORITY_CLASS}",
            )  # fmt: skip
    for (_, cluster), pods in by_cluster.items():
        if len(pods) > 1:
            yield pods[0].warning(
                "skypilot-no-group", f"{len(pods)} pods of cluster {cluster} are queued one by one",
                "some may start and wait for the others for ever",
                "set kubernetes.kueue.local_queue_name in SkyPilot's configuration, instead of a label",
            )  # fmt: skip


def find_unfitting_requests(world: World) -> Findings:
    """Find jobs that request a resource which their queue does not cover, or more than it has."""
    for placed in jobs_of(world):
        queue = world.find_cluster_queue(placed.namespace, queue_of(placed))
        if queue is None or placed.object.get("kind") not in ("Job", "Pod"):
            continue
        is_fixed = alone(queue) and not world.follows_clusters(queue.name)
        most: dict[str, int] = {}
        for quota in quotas_of(queue):
            most[quota.resource] = max(most.get(quota.resource, 0), quota.nominal)
        parallel = placed.spec.get("parallelism", 1) if placed.object.get("kind") == "Job" else 1
        for resource, amount in requests_of(template_of(placed)).items():
            if resource not in most:
                yield placed.error(
                    "resource-uncovered", f"it requests {resource}, which ClusterQueue {queue.name} does not cover",
                    "it is never admitted", f"add {resource} to the resource group, or drop the request",
                )  # fmt: skip
            elif amount * (parallel if isinstance(parallel, int) else 1) > most[resource] and is_fixed:
                yield placed.error(
                    "request-too-large", f"it requests more {resource} than ClusterQueue {queue.name} has",
                    "it is never admitted", "request less, or raise the quota",
                )  # fmt: skip


def alone(queue: FoundObject) -> bool:
    """Return whether a ClusterQueue has only its own quota."""
    return not (queue.spec.get("cohortName") or queue.spec.get("cohort"))


def requests_of(template: Mapping[str, Any]) -> dict[str, int]:
    """Return what the containers of a pod request together."""
    total: dict[str, int] = {}
    for container in items(section(template, "spec"), "containers"):
        resources = section(container, "resources")
        for resource, value in {**section(resources, "limits"), **section(resources, "requests")}.items():
            total[resource] = total.get(resource, 0) + (amount_of(resource, value) or 0)
    return total


def find_yunikorn_faults(world: World) -> Findings:
    """Find annotations that YuniKorn refuses or reads in another way."""
    for placed in jobs_of(world):
        metadata = section(template_of(placed), "metadata")
        annotations = {**section(metadata, "annotations"), **placed.annotations}
        parameters = str(annotations.get("yunikorn.apache.org/schedulingPolicyParameters", ""))
        if "gangSchedulingStyle=hard" in parameters.split():
            yield placed.warning(
                "yunikorn-style", "gangSchedulingStyle=hard is in lower case", "YuniKorn reads it as Soft",
                "write gangSchedulingStyle=Hard",
            )  # fmt: skip
        info = annotations.get("yunikorn.apache.org/user.info")
        if info is not None and not is_json_object(str(info)):
            yield placed.error(
                "yunikorn-user", "user.info is not JSON", "YuniKorn refuses the pod",
                '''write {"user": "ann", "groups": ["lab"]}''',
            )  # fmt: skip
        queue = str({**section(metadata, "labels"), **placed.labels}.get("queue", ""))
        if "." in queue and not queue.startswith("root.") and parameters:
            yield placed.warning(
                "yunikorn-queue", f"queue {queue!r} does not begin with `root.`",
                "its dots are replaced, and it becomes one leaf below root", f"write root.{queue}",
            )  # fmt: skip


def is_json_object(text: str) -> bool:
    """Return whether the text is a JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


CHECKS = (
    find_missing_local_queues, find_missing_priorities, find_misplaced_labels, find_broken_groups,
    find_unfitting_requests, find_yunikorn_faults,
)  # fmt: skip
