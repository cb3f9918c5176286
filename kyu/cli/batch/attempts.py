"""
The attempts of a job: its pods, those that exist and those whose output the server keeps after their deletion.

A task of an array is tried again when its pod fails, and every pod when the job is preempted. The pods of one task are
numbered from 1. Pods without a task number belong to one attempt, until all of them have ended without success.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kyu.api.labels import COMPLETION_INDEX
from kyu.api.meta import Json, Key, key_of
from kyu.cli.batch import jobs_pods
from kyu.cli.connection import ServerConnection
from kyu.kinds import arrays, metadata, pods
from kyu.kube.errors import ApiError

# The node of a deleted pod. No node has such a name.
DELETED = "(deleted)"


@dataclass(frozen=True, slots=True)
class JobPod:
    """A pod of a job, with the key under which the server has its output."""

    name: str
    log: Key
    task: str
    created: str
    ended: str
    has_succeeded: bool
    workload: str = ""
    job: str = ""
    is_kept: bool = False
    uid: str = ""
    exit_code: int | None = None


def existing_pods(server: ServerConnection, workload: Json) -> list[JobPod]:
    """Return the pods of a Workload that were bound to a node, oldest first."""
    return [pod_of(pod) for pod in jobs_pods.pods_of(server, workload) if is_started(pod)]


def is_started(pod: Json) -> bool:
    return bool((pod.get("spec") or {}).get("nodeName"))


def pod_of(pod: Json) -> JobPod:
    status = pod.get("status") or {}
    states = [entry.get("state") or {} for entry in status.get("containerStatuses") or ()]
    ends = [str((state.get("terminated") or {}).get("finishedAt", "")) for state in states]
    return JobPod(
        metadata.name_of(pod),
        key_of(pod),
        arrays.task_of(pod),
        str(pod["metadata"].get("creationTimestamp")),
        max(ends, default="") if is_over(pod) else "",
        status.get("phase") == "Succeeded",
        uid=metadata.uid_of(pod),
        exit_code=pods.exit_code(pod),
    )


def kept_pods(server: ServerConnection, job: str) -> list[JobPod]:
    """Return the deleted pods of jobs of this name, oldest first. Servers other than Kyu's keep none."""
    try:
        lines = list(server.client.logs(Key(server.namespace, f"job:{job}"), {}))
    except ApiError as error:
        if error.code in (400, 403, 404):
            return []
        raise
    return [kept_pod(json.loads(line)) for line in lines]


def kept_pod(entry: Json) -> JobPod:
    return JobPod(
        entry["name"],
        Key(entry["namespace"], f"uid:{entry['uid']}"),
        entry.get("task", ""),
        entry["created"],
        entry.get("ended", ""),
        entry.get("phase") == "Succeeded",
        entry.get("workload", ""),
        entry.get("job", ""),
        is_kept=True,
        uid=entry["uid"],
        exit_code=entry.get("exit_code"),
    )


def as_pod(pod: JobPod) -> Json:
    """Return a deleted pod as an object with what is known of it."""
    meta = {"name": pod.name, "namespace": pod.log.namespace, "uid": pod.uid, "creationTimestamp": pod.created}
    annotations = {COMPLETION_INDEX: pod.task} if pod.task else {}
    phase = "Succeeded" if pod.has_succeeded else "Failed"
    return {
        "metadata": {**meta, "annotations": annotations},
        "spec": {"nodeName": DELETED},
        "status": {"phase": phase},
    }


def log_of(pod: Json) -> Key:
    """Return the key under which the server has the output of a pod. That of a deleted pod is kept by its uid."""
    key = key_of(pod)
    return Key(key.namespace, f"uid:{metadata.uid_of(pod)}") if pod["spec"].get("nodeName") == DELETED else key


def is_over(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def of_workload(pods: Iterable[JobPod], workload: Json) -> list[JobPod]:
    """Select the kept pods of a Workload: an earlier job may have had the same name."""
    name = metadata.annotations_of(workload).get(metadata.SLICE_NAME) or metadata.name_of(workload)
    return [pod for pod in pods if pod.workload == name]


def all_pods(kept: Iterable[JobPod], existing: list[JobPod], workload: Json) -> list[JobPod]:
    """Return all pods of a Workload. The output of a pod may be kept shortly before the pod is deleted."""
    uids = {pod.uid for pod in existing}
    return [*(pod for pod in of_workload(kept, workload) if pod.uid not in uids), *existing]


def of_last_job(pods: list[JobPod]) -> list[JobPod]:
    """Select the pods of the newest of several deleted jobs of one name."""
    return [pod for pod in pods if (pod.workload, pod.job) == (pods[-1].workload, pods[-1].job)]


def numbered(pods: Iterable[JobPod]) -> list[tuple[int, JobPod]]:
    """Return the pods with the number of their attempt, in the order of their creation."""
    ordered = sorted(pods, key=lambda pod: (pod.created, not pod.is_kept))
    tries: dict[str, int] = {}
    others: list[JobPod] = []
    found = []
    for pod in ordered:
        if pod.task:
            tries[pod.task] = tries.get(pod.task, 0) + 1
        else:
            if is_new_attempt(others, pod):
                others = []
                tries[""] += 1
            others.append(pod)
            tries.setdefault("", 1)
        found.append((tries[pod.task], pod))
    return found


def is_new_attempt(earlier: list[JobPod], pod: JobPod) -> bool:
    """Return whether all pods of the attempt before had ended, and not all with success."""
    have_ended = all(other.ended and other.ended <= pod.created for other in earlier)
    return bool(earlier) and have_ended and not all(other.has_succeeded for other in earlier)


def last_attempts(pods: Iterable[tuple[int, JobPod]]) -> list[JobPod]:
    """Return the pods of the last attempt of each task."""
    pods = list(pods)
    last: Mapping[str, int] = {pod.task: number for number, pod in pods}
    return [pod for number, pod in pods if number == last[pod.task]]
